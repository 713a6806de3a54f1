"""Programs are loaded by the runtime of their target. weft's own runtimes are registered here."""

from __future__ import annotations

from ..base.target import Target
from .cpu.executor import RUNTIME as CPU
from .executor import Executor
from .program import Program
from .registry import register_runtime, runtime_of

register_runtime(CPU)


def load_executor(program: Program, threads: int | None = None) -> Executor:
    """A program that is ready to run here."""
    return runtime_of(Target.create(program.target).kind).load(program, threads)


def check_target(text: str, threads: int | None = None) -> None:
    """Raises if nothing here runs code for that target, given as text."""
    target = Target.create(text)
    runtime_of(target.kind).check(target, threads)

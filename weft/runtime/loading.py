"""Programs are loaded by the runtime of their target. weft's own runtimes are registered here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..base.errors import Unsupported
from ..base.target import Target
from .cpu.executor import RUNTIME as CPU
from .cpu.profile import profile as cpu_profile
from .cpu.stepping import run_spending as run_spending  # what computes constants, on the machine that compiles
from .executor import Executor
from .profile import Profile
from .program import Array, Program
from .registry import register_runtime, runtime_of

register_runtime(replace(CPU, profile=cpu_profile))


def load_executor(program: Program, threads: int | None = None, kin: Executor | None = None) -> Executor:
    """A program that is ready to run here; `kin` runs another of the same model."""
    made = None if kin is None else kin.of_same_model(program)
    return made or runtime_of(Target.create(program.target).kind).load(program, threads)


def profiled(
    executor: Executor, arrays: Mapping[str, Array], rounds: int, progress: Callable[[int, int], None] | None = None
) -> Profile:
    """How long each step of a program takes on these inputs, and the whole of it."""
    bound = executor.at_sizes_of(arrays)
    runtime = runtime_of(Target.create(bound.program.target).kind)
    if runtime.profile is None:
        raise Unsupported(f"programs for {bound.program.target} cannot be profiled")
    threads = getattr(executor, "threads", None)
    return runtime.profile(bound.program, arrays, rounds, threads, progress, lambda: bound.run_arrays(arrays))


def runs_here(program: Program) -> bool:
    """Whether the code of a program is for machines such as this one."""
    try:
        check_target(program.target)
    except Unsupported:
        return False
    return True


def load_or_keep(program: Program, threads: int | None = None, kin: Executor | None = None) -> Executor:
    """A program that is ready to run here; or, if it is for another machine, one that says so when it is run."""
    return load_executor(program, threads, kin) if runs_here(program) else ForeignExecutor(program)


class ForeignExecutor(Executor):
    """A program for another machine, which can be looked at and saved."""

    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """An error that says what machine the program is for."""
        check_target(self.program.target)

    def bound_call(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], object]:
        """The same error, before anything is bound."""
        check_target(self.program.target)
        return super().bound_call(inputs, outputs)


def check_target(text: str, threads: int | None = None) -> None:
    """Raises if nothing here runs code for that target, given as text."""
    target = Target.create(text)
    runtime_of(target.kind).check(target, threads)

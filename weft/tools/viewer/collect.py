"""A model is compiled while somebody watches: out come its programs, with every graph on the way and all code."""

from __future__ import annotations

import os
import re
import timeit
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base import config
from ...base.cpu_target import CpuTarget
from ...base.errors import Unsupported
from ...base.shape import Dim
from ...base.stages import Decision, Stage, watched
from ...base.target import Target
from ...compiler.assemble import Assembled
from ...compiler.backends import backend_of
from ...compiler.groups import forget_groups
from ...compiler.model import CompiledModel, InputSpec, compile
from ...compiler.open.cost import kernel_cycles, kernel_operations
from ...core.graph import Graph
from ...core.passes import PassRun
from ...frontend.files import is_program
from ...passes.pipeline import PIPELINE
from ...runtime.cpu.profile import profile, thread_pieces
from ...runtime.program import Array, Program
from ...te.loops import Kernel
from ...te.printer import show
from ..inputs import likely_shapes, random_array
from .loops import kernel_shape
from .records import KernelView, ProgramView
from .snapshots import Recorder
from .steps import add_steps

REASONS = {name: step.reason for step in PIPELINE for name in step.passes if step.name == name or len(step.passes) > 1}
ROUNDS = 5  # of a profile, of which the best counts


def collect(
    model: Any,
    title: str,
    *,
    shape: Mapping[str, Sequence[Dim]] | None = None,
    params: Mapping[str, Any] | None = None,
    target: str | Target = "cpu",
    threads: int | None = None,
    opt_level: int = 3,
    measure: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[ProgramView]:
    """The programs of a model; `measure` runs it on random inputs. Extents that are open are taken as likely ones."""
    if isinstance(model, (str, os.PathLike)) and is_program(Path(model)):
        raise Unsupported(
            f"{os.fspath(model)!r} is compiled already", why="its graphs are gone", hint="give the model file"
        )
    watch = _Watch(Target.create(target))
    options: dict[str, Any] = {"params": params, "target": watch.target, "threads": threads, "opt_level": opt_level}
    forget_groups()  # what was compiled before would not be lowered again
    with config.override(cache=False), watched(watch.look, details=True):
        compiled = compile(model, shape=shape, progress=progress, **options)
        likely = likely_shapes(compiled.inputs)
        if likely:
            compiled = compile(model, shape={**(shape or {}), **likely}, progress=progress, **options)
        assert isinstance(compiled, CompiledModel)
        if compiled.parts > 1 or not watch.programs:
            compiled.run(random_inputs(compiled))
    views = [watch.view(title, number) for number in range(len(watch.programs))]
    if measure:
        _measure(compiled, watch.programs, views)
    return views


def random_inputs(compiled: CompiledModel) -> dict[str, Array]:
    """An array for each input of a model whose shapes are known."""
    rng = np.random.default_rng(0)
    return {spec.name: random_array(rng, InputSpec(*spec)) for spec in compiled.inputs}


def _measure(compiled: CompiledModel, programs: Sequence[_Made], views: Sequence[ProgramView]) -> None:
    """Times of a whole run, and of the kernels where there is one program, whose inputs are the model's."""
    inputs = random_inputs(compiled)
    if len(programs) > 1 or programs[0].program.plan.is_open:
        compiled.run(inputs)  # which warms up
        views[0].run_seconds = min(timeit.repeat(lambda: compiled.run(inputs), number=1, repeat=ROUNDS))
        return
    found = profile(programs[0].program, inputs, ROUNDS, threads=1, call=lambda: compiled.run(inputs))
    views[0].run_seconds = found.total
    views[0].pieces = thread_pieces(programs[0].program, inputs, ROUNDS, views[0].threads or None)
    for number, (step, timed) in enumerate(zip(views[0].steps, found.steps)):
        views[0].steps[number] = step.measured(timed.seconds)


class _Made:
    """What was heard of one program."""

    def __init__(self, typed: Graph) -> None:
        self.typed = typed
        self.passes: list[PassRun] = []
        self.final: Graph = typed
        self.assembled: Assembled
        self.program: Program
        self.executor: Any = None


class _Watch:
    """Hears the stages of a compilation, in order."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.programs: list[_Made] = []
        self.forms: dict[str, list[Decision]] = {}  # by the name of a node that was asked for its layout
        self._now: _Made | None = None
        self._decisions: list[Decision] = []
        self._of_kernel: dict[int, tuple[Kernel, list[Decision]]] = {}  # by id; the kernel is kept, so that the id is
        self._loops: Kernel | None = None
        self._kernels: dict[str, tuple[Kernel, str]] = {}  # by symbol: loops and text
        self._hear: dict[str, Callable[[Any], None]] = {
            "types": self._types,
            "pass": self._pass,
            "altered": self._altered,
            "decision": self._decisions.append,
            "prepared": self._prepared,
            "lowered": self._lowered,
            "loops": self._heard_loops,
            "text": self._text,
            "assembled": self._assembled,
            "program": self._program,
            "executor": self._executor,
        }

    def look(self, stage: Stage) -> None:
        hear = self._hear.get(stage.title)
        if hear is not None:
            hear(stage.value)

    def _types(self, graph: Graph) -> None:
        self._now = _Made(graph)

    def _pass(self, run: PassRun) -> None:
        if self._now is not None:
            self._now.passes.append(run)

    def _altered(self, node: Any) -> None:
        self.forms.setdefault(node.name, []).extend(self._taken())

    def _prepared(self, prepared: Any) -> None:
        if self._now is not None:
            self._now.final = prepared.graph

    def _lowered(self, made: Any) -> None:
        decisions = self._taken()
        for lowered in made.kernels:
            self._of_kernel[id(lowered.kernel)] = (lowered.kernel, decisions)

    def _heard_loops(self, kernel: Kernel) -> None:
        self._loops = kernel

    def _text(self, text: str) -> None:
        found = re.search(r"@\"?(weft_[0-9a-f]+)", text)
        if found is not None and self._loops is not None:
            self._kernels.setdefault(found[1], (self._loops, text))

    def _assembled(self, assembled: Assembled) -> None:
        if self._now is not None:
            self._now.assembled = assembled  # the last; those before computed constants

    def _program(self, program: Program) -> None:
        if self._now is not None:
            self._now.program = program
            self.programs.append(self._now)

    def _executor(self, executor: Any) -> None:
        if self._now is not None:
            self._now.executor, self._now = executor, None

    def _taken(self) -> list[Decision]:
        taken = list(self._decisions)
        self._decisions.clear()
        return taken

    # What comes of it

    def view(self, title: str, number: int) -> ProgramView:
        """The program of a number as a page shows it."""
        made = self.programs[number]
        program = made.executor.latest if made.executor is not None else made.program
        name = title if len(self.programs) == 1 else f"{title}, part {number + 1}"
        view = ProgramView(name, title, program.target, self.target.isa, _rates(self.target))
        view.inputs, view.outputs = [*map(str, program.inputs)], [*map(str, program.outputs)]
        view.compile_seconds = float(program.facts.get("total_seconds", 0))
        view.constant_bytes = sum(array.nbytes for array in program.constants)
        view.code_bytes = sum(map(len, program.objects))
        view.threads = getattr(made.executor, "threads", 0)
        recorder = Recorder(made.typed)
        _take_graphs(recorder, made)
        numbers = self._add_kernels(view, made)
        add_steps(view, recorder, program, made.assembled.steps, numbers, made.final, self.forms)
        view.names, view.scopes = recorder.names.list, recorder.scopes.table
        view.records, view.snapshots = recorder.records, recorder.snapshots
        return view

    def _add_kernels(self, view: ProgramView, made: _Made) -> dict[str, int]:
        """The code of the steps, each piece once; the numbers of the pieces by symbol."""
        numbers: dict[str, int] = {}
        for step in made.assembled.steps:
            if step.code is not None and step.code.name in self._kernels and step.code.name not in numbers:
                numbers[step.code.name] = len(view.kernels)
                view.kernels.append(self._kernel(step.code.name))
        return numbers

    def _kernel(self, symbol: str) -> KernelView:
        kernel, text = self._kernels[symbol]
        _, decisions = self._of_kernel.get(id(kernel), (kernel, []))
        listing = backend_of(self.target).codegen.listings.get("asm")
        assembly = listing(text, self.target) if listing is not None else ""
        sizes = dict.fromkeys(kernel.scalars, 1)
        return KernelView(
            symbol,
            show(kernel),
            text,
            assembly,
            kernel_operations(kernel, sizes),
            kernel_cycles(kernel, sizes),
            kernel_shape(kernel),
            tuple(decisions),
        )


def _take_graphs(recorder: Recorder, made: _Made) -> None:
    """The model with its types, what each pass that changed something made of it, and what became kernels."""
    recorder.take("Model", "as it was read, with shapes and types", made.typed)
    last = made.typed
    for run in made.passes:
        if run.before is not last:
            recorder.take("Constants", "what follows from parameters alone is computed", run.before)
        recorder.take(run.name, REASONS.get(run.name, ""), run.after)
        last = run.after
    recorder.take("Constants", "what follows from parameters alone is computed, weights are packed", made.final)


def _rates(target: Target) -> dict[str, float]:
    """What one core does in a second, for the roofline."""
    if not isinstance(target, CpuTarget):
        return {}
    facts = target.facts
    return {"flops": facts.flops, "near": facts.near_rate, "last": facts.last_rate, "far": facts.far_rate}

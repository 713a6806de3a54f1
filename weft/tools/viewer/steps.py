"""The steps of a program and its memory, and the graph in which every step is a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...base.dtype import dtype_name
from ...base.plan import At, BufferSpec, HostStep, KernelStep, Number, OpenWork, Step
from ...base.stages import Decision
from ...compiler.assemble import StepMade
from ...core.graph import Graph
from ...runtime.program import Program
from ...te.loops import span
from .records import BufferView, NodeRecord, ProgramView, SlotView, Snapshot, StepView
from .snapshots import Recorder, distinct_names

Forms = Mapping[str, Sequence[Decision]]


def add_steps(
    view: ProgramView,
    recorder: Recorder,
    program: Program,
    made: Sequence[StepMade],
    kernels: Mapping[str, int],
    graph: Graph,
    forms: Forms,
) -> None:
    """Adds the steps, slots and the last graph to a view."""
    own = distinct_names(graph.indexed.nodes)
    number = recorder.names.number
    for step, told in zip(program.plan.steps, made, strict=True):
        nodes = [node for node in told.nodes if node in own]
        sources = list(dict.fromkeys(source.name for node in told.nodes for source in graph.sources.get(node, (node,))))
        view.steps.append(
            StepView(
                told.name,
                kernels.get(told.code.name, -1) if told.code is not None else -1,
                tuple(node.op_name for node in told.nodes),
                tuple(number(own[node]) for node in nodes),
                tuple(map(number, sources)),
                tuple(_buffers(step, told, program)),
                step.launch.turns if isinstance(step, KernelStep) and not program.plan.is_open else 0,
                _nanoseconds(step),
                tuple(decision for name in sources for decision in forms.get(name, ())),
            )
        )
    view.slots = _slots(program)
    view.arena_bytes = _known(program.plan.arena_bytes)
    _take_steps(view, recorder)


def _nanoseconds(step: Step) -> float:
    if isinstance(step, HostStep) or (isinstance(step.work, OpenWork) and isinstance(step.work.elements, At)):
        return 0.0
    return step.nanoseconds


def _known(number: Number) -> int:
    """A number of the plan; 0 where the sizes of a call decide it."""
    return 0 if isinstance(number, At) else number


def _buffers(step: Step, made: StepMade, program: Program) -> list[BufferView]:
    slots = program.plan.slots
    if made.code is None:
        inputs = len(step.attrs["inputs"]) if isinstance(step, HostStep) else 0
        found = []
        for place, ref in enumerate(step.buffers):
            size = _known(slots[ref.slot].size)
            found.append(BufferView(ref.slot, _known(ref.offset), size, "", place >= inputs))
        return found
    return [
        BufferView(
            ref.slot,
            _known(ref.offset),
            _span_bytes(spec, _known(slots[ref.slot].size)),
            f"{dtype_name(spec.dtype)}[{', '.join('?' if d is None else str(d) for d in spec.shape)}]",
            spec.written,
        )
        for ref, spec in zip(step.buffers, made.code.buffers)
    ]


def _span_bytes(spec: BufferSpec, otherwise: int) -> int:
    """The bytes from the first to the last element of a buffer."""
    shape = [dim for dim in spec.shape if dim is not None]
    strides = [step for step in spec.strides if step is not None]
    if len(shape) < len(spec.shape) or len(strides) < len(spec.strides):
        return otherwise
    return span(shape, strides) * spec.dtype.itemsize


def _slots(program: Program) -> list[SlotView]:
    used: dict[int, list[int]] = {}
    for place, step in enumerate(program.plan.steps):
        for ref in step.buffers:
            used.setdefault(ref.slot, []).append(place)
    return [
        SlotView(
            slot.role,
            slot.name,
            _known(slot.size),
            _known(slot.offset),
            min(used.get(place, [0])),
            max(used.get(place, [0])),
        )
        for place, slot in enumerate(program.plan.slots)
    ]


def _take_steps(view: ProgramView, recorder: Recorder) -> None:
    """The graph of steps: a step reads what others have written to the same bytes."""
    number = recorder.names.number
    writers: dict[int, list[tuple[int, int, int]]] = {}  # slot -> (step, first byte, behind the last)
    nodes: list[int] = []
    inputs = _given(view, recorder, nodes)
    last = len(view.steps) - 1
    names = [number(f"{place + 1}: {step.name}") for place, step in enumerate(view.steps)]
    for place, step in enumerate(view.steps):
        read: dict[int, None] = {}
        for buffer in step.buffers:
            if buffer.slot in inputs:
                read[inputs[buffer.slot]] = None
            elif not buffer.written:
                ends = buffer.offset, buffer.offset + buffer.bytes
                for writer, first, behind in writers.get(buffer.slot, ()):
                    if first < ends[1] and ends[0] < behind:
                        read[names[writer]] = None
        for buffer in step.buffers:
            if buffer.written:
                ends = buffer.offset, buffer.offset + buffer.bytes
                writers.setdefault(buffer.slot, []).append((place, *ends))
        outputs = tuple(buffer.text for buffer in step.buffers if buffer.written)
        scope = recorder.scopes.of(*_first_name(view, recorder, step))
        op = " + ".join(step.operators) or step.name
        record = NodeRecord(names[place], op, scope, tuple(read), outputs, (), step.sources, place)
        nodes.append(recorder.record(record))
    results = [names[place] for place, step in enumerate(view.steps) if _gives_result(view, step)]
    recorder.snapshots.append(
        Snapshot("Kernels", "the steps of the program, each one piece of code", nodes, results or names[last:])
    )


def _given(view: ProgramView, recorder: Recorder, nodes: list[int]) -> dict[int, int]:
    """The inputs of the program as nodes; their names by slot."""
    found = {}
    texts = iter(view.inputs)
    for place, slot in enumerate(view.slots):
        if slot.role == "input":
            name = recorder.names.number(slot.name)
            kind = next(texts).partition(": ")[2]
            nodes.append(recorder.record(NodeRecord(name, "variable", 0, (), (kind,), (), ())))
            found[place] = name
    return found


def _first_name(view: ProgramView, recorder: Recorder, step: StepView) -> tuple[str, list[str]]:
    sources = [recorder.names.list[number] for number in step.sources]
    return (sources[0] if sources else "", sources[1:])


def _gives_result(view: ProgramView, step: StepView) -> bool:
    return any(buffer.written and view.slots[buffer.slot].role == "output" for buffer in step.buffers)

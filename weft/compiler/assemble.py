"""A typed graph and its groups become a Program: kernels compiled, memory planned, steps made."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from .. import te
from ..base import config
from ..base.device import Device
from ..base.dtype import DTYPES, DType, dtype_name, has_native_code
from ..base.errors import GraphError, ShapeError, Unsupported
from ..base.memory import require
from ..base.plan import At, BufferRef, ExecPlan, HostStep, KernelCode, KernelStep, Launch, OpenWork, Step, TensorMap
from ..base.shape import is_static, numel, show
from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.graph import Graph
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import Op
from ..core.symbolic import names_in, symbolic_names
from ..lower.group import LoweredKernel, Temporary, kernel_name
from ..lower.rim import rim_kernel
from ..passes.fuse import fusible_groups, has_native_code_for
from ..runtime.program import Array, KernelInfo, Program, TensorSpec, listed
from ..te.extents import Extent, is_open, typical
from .ahead import lowered_ahead
from .backends import backend_of
from .disk_cache import CompiledKernel
from .groups import GroupCall, KernelMaker
from .host import CONTROL_OPS, HOST_CONTROL, HOST_REFERENCE
from .kernels import kernel_cache
from .locations import Key, Locations, as_number
from .mutation import writes, written_variables
from .open.binding import OpenSizes
from .open.maker import OpenKernelMaker
from .placing import Part, Placing, places_only
from .stages import reached

Progress = Callable[[int, int], None]


class GroupSteps(NamedTuple):
    """A group, and which steps of the plan compute it: none where it only renames memory."""

    group: FusedGroup
    steps: range


class StepMade(NamedTuple):
    """A step of a program: the nodes it computes, its code (none where it runs on the host), and its element
    operations."""

    name: str
    nodes: tuple[Node, ...]
    code: KernelCode | None
    work: int


class Assembled(NamedTuple):
    """A program with what it was made from, for those who look at it: its steps, where each entry is, and with which
    strides in elements if it is not dense."""

    program: Program
    graph: Graph
    constants: Mapping[str, Array]
    steps: tuple[StepMade, ...]
    groups: tuple[GroupSteps, ...]
    places: Mapping[Key, BufferRef]
    strides: Mapping[Key, tuple[int, ...]]

    def __repr__(self) -> str:
        return f"Assembled({self.program!r} of {len(self.groups)} groups)"


_places, _rims = Op.get_attr("FPlaces"), Op.get_attr("FRim")


def assemble(
    graph: Graph,
    groups: Sequence[FusedGroup],
    constants: Mapping[str, Array],
    target: Target,
    progress: Progress | None = None,
    inputs: Sequence[TensorSpec] = (),
    sizes: OpenSizes | None = None,
) -> Program:
    """The program of a graph whose facts are all known. `constants` are values of variables; the
    other variables are inputs, after those that are named: they may be unused by now. Facts may hold open `sizes`."""
    made = _Assembler(graph, constants, target, inputs, sizes).run(groups, progress)
    reached("assembled", assemble, made, detail=True)
    program = made.program
    if "summary" in config.get("debug"):
        _print_kernels(program.kernels)
    return program


def lowered(
    graph: Graph,
    groups: Sequence[FusedGroup],
    constants: Mapping[str, Array],
    target: Target,
    progress: Progress | None = None,
    inputs: Sequence[TensorSpec] = (),
    sizes: OpenSizes | None = None,
) -> list[te.Kernel]:
    """The kernels of the same program as loops, in order, equal groups as often as they are there; none is compiled."""
    return _Assembler(graph, constants, target, inputs, sizes).lowered(groups, progress)


def least_memory(graph: Graph, groups: Sequence[FusedGroup], constants: Mapping[str, Array], target: Target) -> int:
    """Bytes of the values between inputs and outputs in a run, as they are known before there are kernels."""
    return _Assembler(graph, constants, target, (), None).least_memory(groups)


def fused_groups(graph: Graph, target: Target, fuse: bool = True) -> list[FusedGroup]:
    """The groups of a graph that become kernels of a target."""
    return fusible_groups(graph, fuse=fuse, dense=backend_of(target).lowering.dense)


def _print_kernels(kernels: Iterable[KernelInfo]) -> None:
    for kernel in kernels:
        made = f"{listed(kernel.operators)} of {listed(kernel.sources)}"
        print(f"# kernel {kernel.name}: {made}", file=sys.stderr)


class _Assembler:
    def __init__(
        self,
        graph: Graph,
        constants: Mapping[str, Array],
        target: Target,
        inputs: Sequence[TensorSpec],
        sizes: OpenSizes | None,
    ) -> None:
        self.graph = graph
        self.sizes = sizes
        self.maker = KernelMaker(target) if sizes is None else OpenKernelMaker(target, sizes)
        self.target = target
        self.lowering = backend_of(target).lowering
        self.places = Locations()
        self.steps: list[Callable[[Mapping[Key, Any]], Step]] = []
        self.objects: dict[str, bytes] = {}
        self.kernels: list[KernelInfo] = []
        self.made: list[StepMade] = []
        self.outputs_in_place: set[NodeEntry] = set()
        self.marks: list[GroupSteps] = []
        nodes = graph.indexed.nodes
        variables = [nodes[number] for number in graph.indexed.variables]
        self.written = written_variables(graph)
        self.constants = [n for n in variables if n.name in constants and n not in self.written]
        fixed = set(self.constants)
        self.inputs: dict[str, list[Node]] = {spec.name: [] for spec in inputs}
        for node in variables:
            if node not in fixed:
                self.inputs.setdefault(node.name, []).append(node)
        self.specs = {spec.name: spec for spec in inputs}
        self.given = constants  # which may still be computed

    def run(self, groups: Sequence[FusedGroup], progress: Progress | None) -> Assembled:
        start, hits = time.perf_counter(), kernel_cache.hits
        outputs = self._place(groups)
        tell = progress or (lambda done, total: None)
        calls = {id(group): self._call(group) for group in groups if self._has_code(group)}
        ahead = lowered_ahead(list(calls.values()), self.graph.fact, self.maker, lambda n: tell(n, len(groups)))
        with ahead as lowered:
            for number, group in enumerate(groups):
                first = len(self.steps)
                self._group(group, calls.get(id(group)), lowered.get(id(group)))
                self.marks.append(GroupSteps(group, range(first, len(self.steps))))
                tell(max(number + 1, len(lowered)), len(groups))
        for key, entry in outputs:
            if self.places.root(entry) != key:
                self._copy(entry, self._fact(entry), key, (entry.node,))
        return self._finish(start, hits)

    def least_memory(self, groups: Sequence[FusedGroup]) -> int:
        """The bytes of the arena, as they are known before there are kernels."""
        self._place(groups)
        return self._least_arena(groups)

    def lowered(self, groups: Sequence[FusedGroup], progress: Progress | None) -> list[te.Kernel]:
        """The kernels of all groups as loops."""
        self._place(groups)
        known: dict[Hashable, list[te.Kernel]] = {}
        kernels: list[te.Kernel] = []
        calls = [self._call(group) for group in groups if self._has_code(group)]
        for number, call in enumerate(calls):
            if call.signature not in known:
                known[call.signature] = [made.kernel for made in self.maker.lowered(call, self.graph.fact)]
            kernels += known[call.signature]
            if progress is not None:
                progress(number + 1, len(calls))
        return kernels

    # Places

    def _place(self, groups: Sequence[FusedGroup]) -> list[tuple[Key, NodeEntry]]:
        """Gives inputs, constants and outputs their places, and what stands inside larger values; (key, entry) of each
        output."""
        for entry in dict.fromkeys(entry for group in groups for entry in group.outputs):
            self._check_size(entry)
        for name, nodes in self.inputs.items():
            self._place_input(name, nodes)
        for node in self.constants:
            self._add(NodeEntry(node), "constant", node.name)
        outputs = self._place_outputs(groups)
        self._place_parts(groups)
        self._check_memory(self._least_arena(groups))
        return outputs

    def _fact(self, entry: NodeEntry) -> tuple[tuple[int, ...], DType]:
        return self._static(self.graph.fact(entry), entry)

    def _static(self, fact: Fact, entry: NodeEntry) -> tuple[tuple[int, ...], DType]:
        if not is_static(fact.shape) or fact.dtype is None:
            raise ShapeError(
                f"{entry.node.output_name(entry.index)!r} has shape {show(fact.shape)} of {fact.dtype}",
                why="code is generated for shapes and dtypes that are all known",
                hint="give the shapes (and dtypes) of all inputs",
            )
        return fact.shape, fact.dtype

    def _check_size(self, entry: NodeEntry) -> None:
        """Refuses what this machine could not hold, before code is made for it."""
        shape, dtype = self._fact(entry)
        require(
            typical(prod(shape)) * dtype.itemsize,
            f"a value of shape {show(shape)} of {dtype}",
            f"output {entry.index} of operator {entry.node.op_name}, node {entry.node.name!r}",
        )

    def _check_memory(self, arena_bytes: int) -> None:
        """Refuses a program whose runs could not have their outputs and the values between."""
        made = [self._fact(entry) for entry in dict.fromkeys(self.graph.outputs)]
        size = arena_bytes + sum(typical(prod(shape)) * dtype.itemsize for shape, dtype in made)
        require(size, f"a run, {arena_bytes} bytes of it for values between inputs and outputs,")

    def _least_arena(self, groups: Sequence[FusedGroup]) -> int:
        """The bytes of the arena as they are known before there are kernels: without what kernels
        of one group pass to each other."""
        places = self.places.copy()
        for number, group in enumerate(groups):
            if self._is_view(group):
                places.add_view(NodeEntry(group.nodes[0]), _place_of(group.inputs[0]))
                continue
            in_variables = writes(group.nodes[0])
            for entry in group.outputs:
                shape, dtype = self._fact(entry)
                if entry not in places:
                    size = 0 if in_variables else prod(shape) * dtype.itemsize
                    places.add(entry, "arena", size)
            for entry in (*group.inputs, *group.outputs):
                places.use(_place_of(entry), number)
        return typical(places.plan()[2])

    def _add(self, entry: NodeEntry, role: str, name: str = "") -> None:
        shape, dtype = self._fact(entry)
        self.places.add(entry, role, prod(shape) * dtype.itemsize, name)

    def _place_input(self, name: str, nodes: Sequence[Node]) -> None:
        """Variables of one name are one input."""
        if len(nodes) > 1 and any(node in self.written for node in nodes):
            raise GraphError(
                f"{len(nodes)} variables are called {name!r}",
                why="one of them is written to, and which one is meant cannot be told",
            )
        for node in nodes:
            self.specs.setdefault(name, self._spec(NodeEntry(node), name))
        spec = self.specs[name]
        key: Key = NodeEntry(nodes[0]) if nodes else ("unused", name)
        self.places.add(key, "input", prod(spec.extents) * spec.dtype.itemsize, name)
        for node in nodes[1:]:
            self.places.add_view(NodeEntry(node), key)

    def _place_outputs(self, groups: Sequence[FusedGroup]) -> list[tuple[Key, NodeEntry]]:
        """(key, entry) of each output: what is computed here is written in place, others copied."""
        made: set[NodeEntry] = set()
        views: dict[NodeEntry, NodeEntry] = {}
        for group in groups:
            if self._is_view(group):
                source = group.inputs[0]
                views[NodeEntry(group.nodes[0])] = views.get(source, source)
            else:
                made.update(group.outputs)
        keys: list[tuple[Key, NodeEntry]] = []
        for position, (node, index, _) in enumerate(self.graph.outputs):
            entry = NodeEntry(node, index)
            source = views.get(entry, entry)
            fresh = source in made and source not in self.outputs_in_place
            key: Key = source if fresh else ("output", position)
            if fresh:
                self.outputs_in_place.add(source)
            shape, dtype = self._fact(entry)
            name = node.output_name(index)
            self.places.add(key, "output", prod(shape) * dtype.itemsize, name)
            keys.append((key, entry))
        return keys

    def _place_parts(self, groups: Sequence[FusedGroup]) -> None:
        """Values that are written straight into larger ones have their places there."""
        shape = lambda entry: self._fact(entry)[0]
        self.placing = Placing(
            groups, self._is_ordinary, self.outputs_in_place, shape, self.lowering.takes_strides, self._is_aligned
        )
        for entry, part in self.placing.parts.items():
            if part.root not in self.places:
                self._add(part.root, "arena")
            self._add_part(entry, part)

    def _is_aligned(self, entry: NodeEntry, offset: Any) -> bool:
        """Whether kernels take a value that begins so many elements inside another."""
        step = self.lowering.alignment
        return step == 1 or (not is_open(offset) and offset * self._fact(entry)[1].itemsize % step == 0)

    def _add_part(self, key: Key, part: Part) -> None:
        self.places.add_view(key, part.root, part.offset * self._fact(part.root)[1].itemsize)

    def _strides(self, entries: Iterable[NodeEntry]) -> dict[Key, tuple[int, ...]]:
        """The strides of those entries that are not dense."""
        known = {entry: self.placing.strides(entry) for entry in entries}
        return {entry: strides for entry, strides in known.items() if strides is not None}

    # Steps

    def _is_ordinary(self, group: FusedGroup) -> bool:
        return not self._is_view(group) and not writes(group.nodes[0])

    def _is_view(self, group: FusedGroup) -> bool:
        """Whether the group only renames memory: one node whose output is a view of its input."""
        node = group.nodes[0]
        assert node.op is not None
        if len(group.nodes) > 1 or node.op.alias_of(node.params).get(0) != 0:
            return False
        return group.inputs[0].node not in self.written  # those change while the view is in use

    def _has_code(self, group: FusedGroup) -> bool:
        """Whether the group becomes kernels of its own."""
        if not self._is_ordinary(group) or not all(self.lowering.has_body(node) for node in group.nodes):
            return False
        if not all(has_native_code_for(self.graph, node) for node in group.nodes):
            return False
        return not (places_only(group) and self._is_made_of_parts(group.nodes[0]))

    def _call(self, group: FusedGroup) -> GroupCall:
        return self.maker.call_of(group, self.graph.fact, self._strides([*group.inputs, *group.outputs]))

    def _group(self, group: FusedGroup, call: GroupCall | None, lowered: Sequence[LoweredKernel] | None) -> None:
        if self._is_view(group):
            self.places.add_view(NodeEntry(group.nodes[0]), _place_of(group.inputs[0]))
            return
        if writes(group.nodes[0]):
            self._mutation(group)
            return
        for entry in group.outputs:
            if entry not in self.places:
                self._add(entry, "arena")
        if places_only(group) and self._is_made_of_parts(group.nodes[0]):
            self._complete(group)
        elif call is not None:
            self._compiled(self.maker.compiled_group(call, self.graph.fact, lowered), group.nodes)
        else:
            self._host(group, [*group.inputs, *group.outputs])

    def _is_made_of_parts(self, node: Node) -> bool:
        """Whether something is in its place in the node's result already."""
        placed = zip(node.inputs, self.placing.in_whole(node))
        return any(self.placing.parts.get(entry) == part for entry, part in placed)

    def _complete(self, group: FusedGroup) -> None:
        """Adds to a whole the parts that are not in it yet, and what stands around them."""
        (node,) = group.nodes
        parts = self.placing.in_whole(node)
        for position, (entry, part) in enumerate(zip(node.inputs, parts)):
            if self.placing.parts.get(entry) != part and numel(self._fact(entry)[0]):
                key = ("part", node, position)
                self._add_part(key, part)
                self._copy(entry, self._fact(entry), key, group.nodes, part.strides)
        if node.op in _rims:
            self._rim(group)

    def _rim(self, group: FusedGroup) -> None:
        """What stands around the only part of a whole."""
        (node,), (result,) = group.nodes, group.outputs
        (shape, dtype), (inner, _) = self._fact(result), self._fact(node.inputs[0])
        (start,) = _places[node.op](node.params, [inner])
        fill, strides = _rims[node.op](node.params), self.placing.strides(result)
        name = f"{kernel_name(group)}_rim"
        work = prod(shape) - prod(inner)

        def make() -> list[LoweredKernel]:
            kernel = self.lowering.bind(rim_kernel(name, shape, dtype, start, inner, fill, strides), self.target)
            return [LoweredKernel(kernel, (result,), work)]

        sizes = [None if known is None else _numbers(known) for known in (shape, start, inner, strides)]
        key = (name, str(self.target), dtype, fill, *sizes)
        self._compiled(self.maker.compiled_once(key, [result], make), group.nodes)

    def _mutation(self, group: FusedGroup) -> None:
        """A node that writes to variables. What its kernels still read is written last, by a copy;
        as is a new value that is also an output, which must not change with the variable."""
        (node,) = group.nodes
        used = self._used_outputs(group)
        news = new_values(node, self.graph.fact)
        facts = {new: self.graph.fact(variable) for variable, new in news}

        def fact(entry: NodeEntry) -> Fact:
            return facts.get(entry) or self.graph.fact(entry)

        extended = group._replace(outputs=tuple(dict.fromkeys([*used, *facts])))
        kernels = None
        read: set[Any] = set()
        if self.lowering.has_body(node):
            kernels = self.lowering.lower(extended, fact, self.target)
            read = {_place_of(argument) for kernel in kernels for argument in kernel.arguments}
        later = []
        for variable, new in news:
            place = _place_of(variable)
            if new in used or place in read:
                later.append((new, place))
            else:
                self.places.add_view(new, place)
        for entry in extended.outputs:
            if self.places.root(entry) == entry and entry not in self.outputs_in_place:
                shape, dtype = self._static(fact(entry), entry)
                self.places.add(entry, "arena", prod(shape) * dtype.itemsize)
        if kernels is None:
            self._host(extended, [*group.inputs, *extended.outputs], fact)
        else:
            self._compiled(self.maker.compiled_kernels(kernels), group.nodes)
        for new, place in later:
            self._copy(new, self._static(fact(new), new), place, (node,))

    def _used_outputs(self, group: FusedGroup) -> list[NodeEntry]:
        """The outputs of a group that someone reads."""
        indexed = self.graph.indexed
        results = {NodeEntry(node, index) for node, index, _ in self.graph.outputs}
        return [e for e in group.outputs if indexed.consumers[indexed.entry_id(e)] or e in results]

    def _copy(
        self, source: NodeEntry, fact: Any, result: Key, nodes: Sequence[Node], strides: tuple[int, ...] | None = None
    ) -> None:
        """A value written once more, with `strides` where that is inside a larger one."""
        shape, dtype = fact
        if not has_native_code(dtype):
            fact = ((prod(shape) * dtype.itemsize,), DTYPES["uint8"])
        steps = self._strides([source])
        if strides is not None:
            steps[result] = strides
        places = [source, result]
        known = [None if place not in steps else _numbers(steps[place]) for place in places]
        key = ("copy", str(self.target), _numbers(fact[0]), fact[1], *known)
        make = lambda: self.lowering.copy(source, fact, result, self.target, steps)
        self._compiled(self.maker.compiled_once(key, places, make), nodes)

    def _compiled(self, kernels: Sequence[CompiledKernel], nodes: Sequence[Node]) -> None:
        number = len(self.steps)  # tells temporaries of different groups apart
        for name, code, arguments, work in kernels:
            self._check_work(name, typical(work), nodes)
            self.objects[code.name] = code.code
            keys = [(number, a) if isinstance(a, Temporary) else _place_of(a) for a in arguments]
            for key, argument in zip(keys, arguments):
                if isinstance(argument, Temporary) and key not in self.places:
                    size = prod(argument.shape) * argument.dtype.itemsize
                    self.places.add(key, "arena", size)
            assert code.launch is not None
            self._step(code, keys, code.launch, work)
            self.kernels.append(self._info(name, code.name, nodes))
            self.made.append(StepMade(name, tuple(nodes), code, typical(work)))

    def _nanoseconds(self, work: int) -> float:
        """How long one core takes for so many element operations, at its best."""
        return work * self.target.nanoseconds_per_operation

    def _check_work(self, name: str, work: int, nodes: Sequence[Node]) -> None:
        """Refuses a kernel that could not be waited for: small tensors can ask for that much."""
        seconds, limit = self._nanoseconds(work) / 1e9, config.get("kernel_seconds")
        if seconds > limit:
            raise Unsupported(
                f"kernel {name} would run for {seconds:.2g} seconds or longer",
                where=f"node {nodes[-1].name!r}, operator {nodes[-1].op_name}",
                why=f"it has {work} element operations, and more than {limit} seconds are taken "
                "for a mistake in the shapes",
                hint="take smaller extents, or raise WEFT_KERNEL_SECONDS",
            )

    def _step(self, code: KernelCode, keys: Sequence[Key], launch: Launch, work: int) -> None:
        for key in keys:
            self.places.use(key, len(self.steps))
        each = self._nanoseconds(1)
        cost = OpenWork(each, At(work.row)) if isinstance(work, Extent) else work * each
        scalars = self.sizes.arguments if self.sizes is not None and code.scalars else ()
        maps = tuple(map(_planned_map, code.maps))
        self.steps.append(lambda refs: KernelStep(code.name, tuple(refs[k] for k in keys), scalars, launch, cost, maps))

    def _host(
        self, group: FusedGroup, entries: Sequence[NodeEntry], fact: Callable[[NodeEntry], Fact] | None = None
    ) -> None:
        """A node without a body runs its reference, or its subgraphs, between runs of kernels."""
        (node,) = group.nodes
        assert node.op is not None
        keys = [_place_of(entry) for entry in entries]
        for key in keys:
            self.places.use(key, len(self.steps))
        known = {entry: self._static((fact or self.graph.fact)(entry), entry) for entry in entries}
        dims = {entry: self._dims(shape) for entry, (shape, _) in known.items()}
        if names_in([node]) - _names_inside(node, dims):
            known = {entry: (tuple(map(int, shape)), dtype) for entry, (shape, dtype) in known.items()}
        facts = [known[entry] for entry in entries]
        attrs = {
            "op": node.op.name,
            "node": node.name,
            "attrs": dict(node.attrs),
            "inputs": [group.inputs.index(entry) for entry in node.inputs],
            "outputs": [entry.index for entry in group.outputs],
            "tensors": [(list(_numbers(shape)), dtype_name(dtype)) for shape, dtype in facts],
        }
        if node.subgraphs:
            attrs["subgraphs"] = [Graph(symbol.outputs).json() for symbol in node.subgraphs]
            attrs["target"] = str(self.target)
            attrs["dims"] = [dims[entry] for entry in node.inputs]
        function = HOST_CONTROL if node.op.name in CONTROL_OPS else HOST_REFERENCE
        self.steps.append(lambda refs: HostStep(function, tuple(refs[key] for key in keys), attrs))
        self.made.append(StepMade(node.op.name, (node,), None, 0))

    def _dims(self, shape: Sequence[Any]) -> list[int | str]:
        return [*map(int, shape)] if self.sizes is None else [*map(self.sizes.dim_of, shape)]

    def _info(self, name: str, symbol: str, nodes: Sequence[Node]) -> KernelInfo:
        sources = dict.fromkeys(source.name for node in nodes for source in self.graph.sources.get(node, (node,)))
        operators = tuple(node.op_name for node in nodes)
        unit = self.lowering.unit(nodes, self.graph.fact, self.target)
        return KernelInfo(name, symbol, operators, tuple(sources), unit)

    def _finish(self, start: float, hits: int) -> Assembled:
        values = [self.given[node.name] for node in self.constants]
        slots, refs, arena_bytes = self.places.plan(Device(self.target.kind))
        self._check_memory(typical(arena_bytes))
        steps = tuple(make(refs) for make in self.steps)
        strides = self._strides(self.placing.parts)
        table = None if self.sizes is None else self.sizes.trace.table()
        plan = ExecPlan(steps, slots, as_number(arena_bytes), table)
        program = Program(
            plan,
            tuple(self.objects.values()),
            tuple(self._planned(self.specs[name]) for name in self.inputs),
            tuple(self._planned(self._spec(NodeEntry(n, i), n.output_name(i))) for n, i, _ in self.graph.outputs),
            tuple(values),
            str(self.target),
            tuple(self.kernels),
            {
                "compile_seconds": time.perf_counter() - start,
                "cache_hits": kernel_cache.hits - hits,
                "distinct_kernels": len(self.objects),
            },
            tuple(node.name for node in self.written),
            () if self.sizes is None else self.sizes.places(self.specs[name] for name in self.inputs),
        )
        constants = {node.name: value for node, value in zip(self.constants, values)}
        return Assembled(program, self.graph, constants, tuple(self.made), tuple(self.marks), refs, strides)

    def _planned(self, spec: TensorSpec) -> TensorSpec:
        """An input or output as programs hold it: open sizes by their rows, and by name where they have one."""
        names = {} if self.sizes is None else {at.row: at for at in self.sizes.arguments}
        shape = (names.get(at.row, at) if isinstance(at, At) else at for at in _numbers(spec.shape))
        return spec._replace(shape=tuple(shape))

    def _spec(self, entry: NodeEntry, name: str) -> TensorSpec:
        return TensorSpec(name, *self._fact(entry))


def _names_inside(node: Node, dims: Mapping[NodeEntry, Sequence[int | str]]) -> set[int | str]:
    """The names that a host step is told when it runs: in subgraphs, those of dimensions of their inputs."""
    if symbolic_names(node.params):
        return set()
    items = node.params.num_data if node.op_name == "scan" else 0
    return {dim for number, entry in enumerate(node.inputs) for dim in dims[entry][number < items :]}


def _numbers(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Sizes as plans hold them."""
    return tuple(map(as_number, sizes))


def _planned_map(found: TensorMap) -> TensorMap:
    return found._replace(dims=_numbers(found.dims), strides=_numbers(found.strides), offset=as_number(found.offset))


def _place_of(key: Any) -> Any:
    """All versions of a variable are in one place."""
    return key._replace(version=0) if isinstance(key, NodeEntry) else key


def new_values(node: Node, fact: Callable[[NodeEntry], Fact]) -> list[tuple[NodeEntry, NodeEntry]]:
    """(variable, entry with its new value) for all variables that a node writes.

    Bodies and references give new values after the outputs; where they give none, the outputs
    themselves are the new values.
    """
    op = node.op
    assert op is not None
    mutated = op.mutates_of(node.params)
    rule = Op.compute.get(op)
    count = node.num_outputs
    if rule is not None:
        facts = [fact(entry) for entry in node.inputs]
        args = [te.placeholder(f.shape, f.dtype) for f in facts]  # type: ignore[arg-type]
        made = op.call_with(rule, node.params, *args)
        extra = (len(made) if isinstance(made, (tuple, list)) else 1) > count
    else:
        extra = True
    start = count if extra else 0
    return [(node.inputs[index], NodeEntry(node, start + i)) for i, index in enumerate(mutated)]

"""From recordings of one function at several sizes to one graph whose sizes have names: what is equal in all of them
stays, sizes of inputs that differ get names, extents in attributes become expressions over these, and constants that
differ become inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from ...base.dtype import DType
from ...base.errors import Error
from ...base.extents import Extent, Untold, evaluate
from ...base.shape import Dim, StaticShape, is_known, mul_dims
from ...compiler.prepare import typed_graph
from ...core.graph import Graph
from ...core.infer import infer_node
from ...core.ir import Fact, Node, NodeEntry, topo_order
from ...core.schema import Params, fields_of

Array = np.ndarray[Any, Any]
Metas = Mapping[str, tuple[StaticShape, DType]]
Numbers = tuple[int, ...]  # what something is in each of the recordings
Forms = Callable[[Extent, Numbers, Numbers], Iterable[Extent]]  # what may have the wanted numbers, of an extent's
MOST_CANDIDATES = 32  # extents that a number in an attribute is compared with
DIVISORS = (2, 3, 4, 8)


class Unnamed(Exception):
    """Why recordings are not one graph with names."""


class Recorded:
    """A graph as it was recorded at certain sizes. Inputs are arguments, or `fixed`: the same memory in every call, or
    `computed` from the others, before."""

    def __init__(
        self,
        outputs: Sequence[NodeEntry],
        inputs: Metas,
        constants: Mapping[str, Array],
        fixed: Collection[str] = (),
        computed: Collection[str] = (),
    ) -> None:
        self.outputs, self.inputs = list(outputs), dict(inputs)
        self.fixed, self.computed = frozenset(fixed), frozenset(computed)
        self.nodes = topo_order(outputs)
        self.place = {node: number for number, node in enumerate(self.nodes)}
        read = {node.name for node in self.nodes if node.op is None}
        self.constants = {name: values for name, values in constants.items() if name in read}
        self._form: tuple[Any, ...] | None = None
        self._facts: list[tuple[Fact, ...]] | None = None

    @property
    def form(self) -> tuple[Any, ...]:
        """All but sizes, extents in attributes, and values of constants: what recordings of one graph have alike."""
        if self._form is None:
            rows = tuple([self._row(node) for node in self.nodes])
            self._form = rows, tuple([(self.place[entry.node], entry.index) for entry in self.outputs])
        return self._form

    def _row(self, node: Node) -> tuple[Any, ...]:
        if node.op is None:
            known = self.constants.get(node.name)
            if known is not None:
                return "constant", known.dtype, known.ndim
            shape, dtype = self.inputs[node.name]
            return "input", dtype, len(shape)
        sources = tuple([(self.place[entry.node], entry.index) for entry in node.inputs])
        return node.op.name, sources, _plain(node)

    @property
    def is_closed(self) -> bool:
        """Whether all that it does is in its own nodes."""
        return not any(node.subgraphs or node.control_deps for node in self.nodes)

    @property
    def facts(self) -> list[tuple[Fact, ...]]:
        """What is known of each node."""
        if self._facts is not None:
            return self._facts
        shapes = {name: shape for name, (shape, _) in self.inputs.items()}
        dtypes = {name: dtype for name, (_, dtype) in self.inputs.items()}
        graph = typed_graph(Graph(self.outputs), self.constants, shapes, dtypes)
        self._facts = [graph.node_facts(node) for node in self.nodes]
        return self._facts

    def shape_of(self, node: Node) -> StaticShape:
        """That of a variable."""
        known = self.constants.get(node.name)
        return self.inputs[node.name][0] if known is None else known.shape

    def has_sizes_of(self, other: Recorded) -> bool:
        """Whether the inputs of another recording have the same shapes."""
        return [shape for shape, _ in self.inputs.values()] == [shape for shape, _ in other.inputs.values()]

    def is_same(self, other: Recorded) -> bool:
        """Whether a recording of the same form is at the same sizes, and has the same constants."""
        for one, two in zip(self.nodes, other.nodes):
            if one.op is not None:
                is_same = one.params == two.params
            elif one.name in self.constants:
                is_same = _is_equal(self.constants[one.name], other.constants[two.name])
            else:
                is_same = self.shape_of(one) == other.shape_of(two)
            if not is_same:
                return False
        return True


def _plain(node: Node) -> tuple[Any, ...]:
    """Attributes that hold no extents."""
    params = node.params
    if not hasattr(params, "__weft_fields__"):
        return tuple(sorted(node.attrs.items()))
    return tuple([getattr(params, field.name) for field in fields_of(type(params)) if not field.kind.symbolic])


def _is_equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def difference(one: Recorded, other: Recorded) -> str | None:
    """Why recordings that do the same operators are not of one form."""
    if [node.op_name for node in one.nodes] != [node.op_name for node in other.nodes]:
        return None
    for mine, theirs in zip(one.nodes, other.nodes):
        if mine.op is None or _plain(mine) == _plain(theirs):
            continue
        for key, text in mine.attrs.items():
            if theirs.attrs.get(key) != text:
                return f"operator {mine.op.name} has {key} {text} and {theirs.attrs.get(key)}"
    return None


class NamedGraph:
    """A graph in names, and what stands for them in recordings. Places are those of nodes in recordings."""

    def __init__(
        self,
        outputs: Sequence[NodeEntry],
        inputs: Mapping[int, str],
        facts: Mapping[str, Fact],
        constants: Mapping[int, tuple[str, Array]],
        params: Mapping[int, Params],
    ) -> None:
        self.outputs, self.inputs = outputs, inputs
        self.shapes: dict[str, tuple[Dim, ...]] = {name: fact.shape or () for name, fact in facts.items()}
        self.dtypes: dict[str, Any] = {name: fact.dtype for name, fact in facts.items()}
        self._constants, self._params = constants, params  # attributes with names in them
        self._axes: dict[str, tuple[int, int]] = {}  # where the number of each name is
        for place, name in inputs.items():
            for axis, dim in enumerate(self.shapes[name]):
                if isinstance(dim, str) and dim[1:].isdigit():
                    self._axes.setdefault(dim, (place, axis))

    @property
    def names(self) -> list[str]:
        return sorted(self._axes, key=lambda name: int(name[1:]))

    @property
    def constants(self) -> dict[str, Array]:
        return dict(self._constants.values())

    def at(self, recorded: Recorded) -> dict[str, StaticShape] | None:
        """The shapes of its inputs in a recording of the same form; None where that is not this graph, or empty."""
        nodes = recorded.nodes
        values = {name: recorded.shape_of(nodes[place])[axis] for name, (place, axis) in self._axes.items()}
        shapes = {name: recorded.shape_of(nodes[place]) for place, name in self.inputs.items()}
        if 0 in values.values():
            return None
        for name, shape in shapes.items():
            if _numbers(self.shapes[name], values) != shape:
                return None
        for place, node in enumerate(nodes):
            if node.op is not None:
                if not _holds(self._params[place], node.params, values):
                    return None
            elif place in self._constants and not _is_equal(self._constants[place][1], recorded.constants[node.name]):
                return None
        return shapes


def _number(dim: Any, values: Mapping[str, int]) -> Any:
    if not isinstance(dim, str):
        return dim
    return values[dim] if dim in values else evaluate(dim, values)


def _holds(named: Params, params: Params, values: Mapping[str, int]) -> bool:
    """Whether attributes of the same kind are what they are in names."""
    if not hasattr(named, "__weft_fields__"):
        return True
    for field in fields_of(type(named)):
        if field.kind.symbolic and _numbers(getattr(named, field.name), values) != getattr(params, field.name):
            return False
    return True


def _numbers(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple([_numbers(item, values) for item in value])
    return _number(value, values)


class Naming:
    """Finds the graph that recordings of one form are at their sizes. Of a single one, `opened` are the extents that
    get names."""

    def __init__(self, samples: Sequence[Recorded], opened: Collection[int] = ()) -> None:
        self.samples, self.first, self.opened = samples, samples[0], opened
        self.names: dict[str, Numbers] = {}
        self.dims: dict[Numbers, str] = {}  # extents that are known so far, by their numbers
        self._numbers: dict[str, Numbers] = {}
        self._made: list[Node] = []  # and what follows from names about each
        self._known: list[tuple[Fact, ...]] = []

    def graph(self) -> NamedGraph:
        """The graph in names; raises Unnamed."""
        first = self.first
        places = {node.name: place for place, node in enumerate(first.nodes) if node.op is None}
        shapes: dict[str, tuple[Dim, ...]] = {}
        for name in sorted(first.inputs, key=first.computed.__contains__):
            shapes[name] = tuple([self._size(numbers, name) for numbers in self._dims_at(places[name])])
        inputs = {places[name]: name for name in first.inputs}
        constants: dict[int, tuple[str, Array]] = {}
        params: dict[int, Params] = {}
        for place, node in enumerate(first.nodes):
            if node.op is not None:
                params[place] = self._add(place, node)
                continue
            known = first.constants.get(node.name)
            shape: tuple[Dim, ...] = shapes.get(node.name, ()) if known is None else known.shape
            if known is not None and self._is_one_constant(place):
                constants[place] = node.name, known
            elif known is not None:
                shape = tuple([self._constant_size(numbers) for numbers in self._dims_at(place)])
                inputs[place] = node.name
            self._made.append(Node(None, node.name))
            self._known.append((Fact(shape, first.facts[place][0].dtype),))
        facts = {name: self._known[place][0] for place, name in inputs.items()}
        return NamedGraph([self._moved(entry) for entry in first.outputs], inputs, facts, constants, params)

    def _add(self, place: int, node: Node) -> Params:
        """Makes a node in names; gives its attributes."""
        assert node.op is not None
        inputs = [self._moved(entry) for entry in node.inputs]
        ins = [self._known[self.first.place[entry.node]][entry.index] for entry in node.inputs]
        params = self._params(place, node, ins)
        self._made.append(Node(node.op, node.name, node.op.attributes(params), inputs, params=params))
        self._known.append(self._facts(place, self._made[-1], ins))
        return params

    def _moved(self, entry: NodeEntry) -> NodeEntry:
        return entry._replace(node=self._made[self.first.place[entry.node]])

    def _dims_at(self, place: int) -> list[Numbers]:
        """Each dimension of a variable in all recordings."""
        return list(zip(*[sample.shape_of(sample.nodes[place]) for sample in self.samples]))

    def _is_one_constant(self, place: int) -> bool:
        """Whether a constant is the same in all recordings."""
        each = [sample.constants[sample.nodes[place].name] for sample in self.samples]
        return all(_is_equal(each[0], other) for other in each[1:])

    # Names.

    def _size(self, numbers: Numbers, of: str) -> Dim:
        """A dimension of an input: those with the same numbers have one name. Of what is computed, it is a name and a
        number more, if it can be."""
        if len(self.samples) == 1:
            return self._named(numbers) if numbers[0] in self.opened and of not in self.first.fixed else numbers[0]
        if len(set(numbers)) == 1:
            return numbers[0]
        if numbers not in self.dims and of in self.first.computed:
            found = self._first_of(_sums, list(self.names), numbers)
            return self._named(numbers) if found is None else found
        return self._named(numbers)

    def _constant_size(self, numbers: Numbers) -> Dim:
        """A dimension of a constant that becomes an input: what is known, something near that, or a name of its own."""
        if len(set(numbers)) == 1:
            return numbers[0]
        if numbers in self.dims:
            return self.dims[numbers]
        each = (self._first_of(forms, list(self.names), numbers) for forms in (_multiples, _sums))
        return next((dim for dim in each if dim is not None), None) or self._named(numbers)

    def _named(self, numbers: Numbers) -> str:
        known = self.dims.get(numbers)
        if known is None:
            known = f"n{len(self.names)}"
            self.names[known] = self._numbers[known] = numbers
            self.dims[numbers] = known
        return known

    def _of(self, dim: Dim) -> Numbers:
        """What a dimension is in all recordings."""
        if not isinstance(dim, str):
            assert dim is not None
            return (dim,) * len(self.samples)
        if dim not in self._numbers:
            each = [{n: numbers[k] for n, numbers in self.names.items()} for k in range(len(self.samples))]
            self._numbers[dim] = tuple([evaluate(dim, values) for values in each])
        return self._numbers[dim]

    # Nodes.

    def _params(self, place: int, node: Node, ins: Sequence[Fact]) -> Params:
        """The attributes of a node, with names in extents."""
        if not hasattr(node.params, "__weft_fields__"):
            return node.params
        near = [dim for fact in ins for dim in fact.shape or ()]
        changes: dict[str, Any] = {}
        symbolic = [field.name for field in fields_of(type(node.params)) if field.kind.symbolic]
        for key in symbolic:
            values = [getattr(sample.nodes[place].params, key) for sample in self.samples]
            try:
                changes[key] = self._value(values, near)
            except Unnamed as why:
                raise Unnamed(f"{key} of operator {node.op_name}: {why}") from None
        return replace(node.params, **changes) if changes else node.params

    def _value(self, values: Sequence[Any], near: Sequence[Dim]) -> Any:
        first = values[0]
        if all(isinstance(value, tuple) and len(value) == len(first) for value in values):
            return tuple([self._value(items, near) for items in zip(*values)])
        if all(type(value) is int for value in values):
            return self._extent(tuple(values), near)
        if any(value != first for value in values):
            raise Unnamed(f"{', '.join(map(str, values))} are not extents alike")
        return first

    def _facts(self, place: int, node: Node, ins: Sequence[Fact]) -> tuple[Fact, ...]:
        """What follows from names, which must be what was recorded."""
        assert node.op is not None
        try:
            facts = infer_node(node.op, node.params, ins, node.name)
        except Error as error:
            raise Unnamed(f"operator {node.op_name}: {error.what}") from None
        for index, fact in enumerate(facts):
            if fact.shape is None or not is_known(fact.shape):
                raise Unnamed(f"the shape of operator {node.op_name} does not follow from names")
            try:
                numbers = [self._of(dim) for dim in fact.shape]
            except (Error, Untold):
                raise Unnamed(f"the shape of operator {node.op_name} has no number") from None
            for k, sample in enumerate(self.samples):
                if sample.facts[place][index].shape != tuple([each[k] for each in numbers]):
                    raise Unnamed(f"operator {node.op_name} gives another shape than names say")
            for dim, each in zip(fact.shape, numbers):
                if isinstance(dim, str):
                    self.dims.setdefault(each, dim)
        return facts

    # Extents in attributes.

    def _extent(self, numbers: Numbers, near: Sequence[Dim]) -> Dim:
        """An expression over names that has these numbers; those beside it are tried first."""
        for dim in near:
            if isinstance(dim, str) and self._of(dim) == numbers:
                return dim
        if len(self.samples) == 1:
            return self._product(numbers, near) or numbers[0]
        if len(set(numbers)) == 1:
            return numbers[0]
        known = self.dims.get(numbers) or self._product(numbers, near) or self._followed(numbers, near)
        if known is None:
            raise Unnamed(f"{' and '.join(map(str, numbers))} follow from no size")
        return known

    def _product(self, numbers: Numbers, near: Sequence[Dim]) -> Dim:
        """The product of neighbouring dimensions, some of which are open."""
        for start in range(len(near)):
            for stop in range(start + 2, min(start + 6, len(near)) + 1):
                dim = mul_dims(*near[start:stop])
                if isinstance(dim, str) and self._of(dim) == numbers:
                    return dim
        return None

    def _followed(self, numbers: Numbers, near: Sequence[Dim]) -> Dim:
        """What follows from one extent: a multiple, a sum, a quotient."""
        found = list(dict.fromkeys([dim for dim in near if isinstance(dim, str)] + list(self.names)))
        pairs = combinations_with_replacement(list(self.names), 2)
        found = (found + [str(mul_dims(*pair)) for pair in pairs])[:MOST_CANDIDATES]
        each = (self._first_of(forms, found, numbers) for forms in (_multiples, _sums, _quotients, _lines))
        return next((dim for dim in each if dim is not None), None)

    def _first_of(self, forms: Forms, dims: Iterable[str], numbers: Numbers) -> Dim:
        """The first extent of some forms that has the numbers."""
        for dim in dims:
            for extent in forms(Extent.of(dim), self._of(dim), numbers):
                if self._of(extent.dim) == numbers:
                    return extent.dim
        return None


def _multiples(dim: Extent, have: Numbers, want: Numbers) -> Iterable[Extent]:
    return [dim * (want[0] // have[0])] if have[0] and want[0] % have[0] == 0 else []


def _sums(dim: Extent, have: Numbers, want: Numbers) -> Iterable[Extent]:
    return [dim + (want[0] - have[0]), want[0] + have[0] - dim]


def _quotients(dim: Extent, have: Numbers, want: Numbers) -> Iterable[Extent]:
    return [(dim + more) // by for by in DIVISORS for more in range(by)]


def _lines(dim: Extent, have: Numbers, want: Numbers) -> Iterable[Extent]:
    run, rise = have[-1] - have[0], want[-1] - want[0]
    return [dim * (rise // run) + (want[0] - have[0] * (rise // run))] if run and rise % run == 0 else []

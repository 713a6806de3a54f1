"""Shapes of values, as they are for some inputs. Nodes are run on tensors of zeros with the shapes of their inputs, and
what comes out tells the types; what depends on the elements is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...base.errors import RunError
from ...eager.tensor.tensor import Tensor, wrap
from ..constants import type_of
from ..graph import Graph
from ..nodes import Node, Value
from ..types import ListType, TensorType, TupleType, Type, dtype_of
from .effects import has_side_effects, is_pure
from .evaluation import evaluated
from .order import ends, in_order
from .types_of_values import plain

MOST_ROUNDS = 8  # in which the types of what loops carry settle
# Numbers that the type of a tensor tells. Other numbers from tensors depend on elements.
_OF_TYPES = frozenset(
    "aten::size aten::dim aten::len aten::numel aten::stride prim::dtype prim::device prim::layout "
    "aten::is_floating_point aten::is_complex prim::is_cuda aten::__is__ aten::__isnot__ aten::ndimension "
    "prim::requires_grad".split()
)
_BY_ELEMENTS = frozenset(  # the shapes of what they give
    "aten::nonzero aten::masked_select aten::unique aten::unique_consecutive aten::_unique2 aten::_unique "
    "aten::bincount aten::repeat_interleave aten::index aten::one_hot aten::unique_dim aten::tensor_split".split()
)
_UNKNOWN = object()


def complete_shape_analysis(graph: Graph, inputs: Sequence[Any], with_grad: bool) -> None:
    """Has values the types that they have if the graph is given some inputs. Inputs tell whether a gradient is needed
    if that is asked for.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %y : Tensor = aten::t(%x)
    ...   return (%y)''')
    >>> complete_shape_analysis(graph, (wrap(np.zeros((2, 3), np.float32)),), False)
    >>> next(graph.outputs()).type().str()
    'Float(3, 2, strides=[1, 3], device=cpu)'
    """
    values = list(graph.inputs())
    if len(values) != len(inputs):
        raise RunError(f"the graph takes {len(values)} inputs, not {len(inputs)}")
    for value, given in zip(values, inputs):
        kind = type_of(given)
        if isinstance(kind, TensorType):
            kind = replace(kind, needs_grad=kind.needs_grad if with_grad else False)
        value.setType(kind)
    propagate_shapes(graph, {value: given for value, given in zip(values, inputs) if not _has_tensors(given)})


def propagate_shapes(graph: Graph, known: dict[Value, Any] | None = None) -> None:
    """Has values the types that follow from those of the inputs."""
    carried: dict[Node, list[Type]] = {}
    for _ in range(MOST_ROUNDS):
        if _Round(graph, known or {}, carried).run():
            return
    for loop in carried:
        carried[loop] = [plain(value.type()) for value in loop._outputs]
    _Round(graph, known or {}, carried).run()


def _has_tensors(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensors, value))
    return isinstance(value, Tensor)


class _Round:
    """One walk over a graph, with types that loops are taken to carry."""

    def __init__(self, graph: Graph, known: dict[Value, Any], carried: dict[Node, list[Type]]) -> None:
        self.graph, self.carried = graph, carried
        self.known = dict(known)  # values that are no tensors, and lists and tuples with tensors of zeros in them
        self.settled = True

    def run(self) -> bool:
        """Whether loops carry what was taken for it."""
        for step in in_order(self.graph.block()):
            if isinstance(step, Node):
                self._look_at(step)
            elif ends(step):
                self._leave(step.owningNode())  # type: ignore[arg-type]
        return self.settled

    def _look_at(self, node: Node) -> None:
        if node.kind() == "prim::Loop":
            self.carried.setdefault(node, [_less(value.type()) for value in node._inputs[2:]])
            for value, kind in zip(node._blocks[0]._param._outputs[1:], self.carried[node]):
                value.setType(kind)
        elif not node._blocks:
            results = self._results(node)
            for value, result in zip(node._outputs, results or [_UNKNOWN] * len(node._outputs)):
                self._tell(value, result)

    def _results(self, node: Node) -> list[Any] | None:
        if not (is_pure(node) or node.kind() == "prim::Constant" or node.isNondeterministic() or _writes_only(node)):
            return None
        inputs = [self._sample(value) for value in node._inputs]
        if node.kind() in _BY_ELEMENTS or any(value is _UNKNOWN for value in inputs):
            return None
        results = evaluated(node, inputs)
        if results is None or node.kind() in _OF_TYPES or node.kind().startswith("prim::"):
            return results
        from_tensors = any(_has_tensors(value) for value in inputs)
        return [result if _has_tensors(result) or not from_tensors else _UNKNOWN for result in results]

    def _sample(self, value: Value) -> Any:
        """A value like those that are there when the graph runs."""
        if value in self.known:
            return self.known[value]
        kind = value.type()
        if not isinstance(kind, TensorType) or kind.scalar is None or kind.sizes() is None:
            return _UNKNOWN
        return _zeros(kind)

    def _tell(self, value: Value, result: Any) -> None:
        kind = value.type()
        if isinstance(result, Tensor):
            value.setType(_less(TensorType.of(result)))
        elif result is _UNKNOWN:
            value.setType(plain(kind))
        else:
            self.known[value] = result
            if isinstance(kind, (ListType, TupleType)):
                value.setType(plain(kind))

    def _leave(self, node: Node) -> None:
        if node.kind() == "prim::If":
            for place, value in enumerate(node._outputs):
                one, two = (block._return._inputs[place].type() for block in node._blocks)
                value.setType(_common(one, two, value.type()))
        elif node.kind() == "prim::Loop":
            before = self.carried[node]
            after = [
                _common(kind, value.type(), kind) for kind, value in zip(before, node._blocks[0]._return._inputs[1:])
            ]
            self.settled &= after == before
            self.carried[node] = after
            for value, kind in zip(node._outputs, after):
                value.setType(kind)


def _writes_only(node: Node) -> bool:
    """Whether all that a node does, besides giving values, is to write to its inputs."""
    return not node._blocks and not has_side_effects(node)


def _zeros(kind: TensorType) -> Tensor:
    """A tensor of a type, with its strides where they are those of a permutation."""
    sizes, numpy = kind.sizes() or [], dtype_of(kind.scalar or "Float").numpy
    steps = kind.strides()
    if not steps or 0 in sizes:
        return wrap(np.zeros(sizes, numpy))
    order = sorted(range(len(sizes)), key=lambda axis: (-steps[axis], -sizes[axis]))
    back = sorted(range(len(order)), key=order.__getitem__)
    made: Tensor = wrap(np.zeros([sizes[axis] for axis in order], numpy)).permute(*back)
    return made


def _less(kind: Type) -> Type:
    """A type that does not tell whether a gradient is needed: that is for the inputs alone to say."""
    return replace(kind, needs_grad=None) if isinstance(kind, TensorType) and kind.needs_grad is not None else kind


def _common(one: Type, two: Type, otherwise: Type) -> Type:
    """What is true of values of both types."""
    if not (isinstance(one, TensorType) and isinstance(two, TensorType)):
        return one if one == two else plain(otherwise)
    ranks = one.extents is not None and two.extents is not None and len(one.extents) == len(two.extents)
    extents = tuple([a if a == b else None for a, b in zip(one.extents, two.extents)]) if ranks else None  # type: ignore[arg-type]
    facts = {name: _same(getattr(one, name), getattr(two, name)) for name in ("scalar", "steps", "place")}
    if extents is None and not any(facts.values()):
        return TensorType.get()  # type: ignore[no-any-return]
    return TensorType(extents=extents, **(facts if extents is not None else facts | {"steps": None}))


def _same(one: Any, two: Any) -> Any:
    return one if one == two else None

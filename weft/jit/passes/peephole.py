"""Small rewrites: each looks at a node and what its inputs are made of, and tells what stands in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..calls.numbered import in_programs
from ..graph import Graph
from ..nodes import Block, Node, Value
from ..types import SCALARS, BoolType, NoneType, OptionalType, TensorType, UnionType
from .aliases import Aliases
from .constants import constant_like
from .dead_code import eliminate_dead_code
from .order import ends, in_order

FLOATING = frozenset(("Float", "Double", "Half", "BFloat16", "ComplexFloat", "ComplexDouble"))
COMPLEX = frozenset(("ComplexFloat", "ComplexDouble"))


class Constant:
    """A constant that stands in the place of what a node gives."""

    def __init__(self, value: Any) -> None:
        self.value = value


Rule = Callable[[Node, Aliases], "Value | Constant | None"]
_RULES: dict[str, list[Rule]] = {}


def _rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Has a rule asked of nodes of some kinds, which give one value."""

    def register(rule: Rule) -> Rule:
        for kind in kinds:
            _RULES.setdefault(kind, []).append(rule)
        return rule

    return register


def peephole(graph: Graph, disable_shape_peepholes: bool = False) -> bool:
    """Rewrites what is known from nearby: `x.t().t()` is `x`. Whether something was found. What follows from shapes
    is left alone where they may change later.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %a : Tensor = aten::t(%x)
    ...   %b : Tensor = aten::t(%a)
    ...   return (%b)''')
    >>> peephole(graph)
    True
    >>> [value.debugName() for value in graph.outputs()]
    ['x']
    """
    aliases, changed = Aliases(graph), False
    for step in in_order(graph.block()):
        if isinstance(step, Block):
            changed |= ends(step) and _branch_of_bools(step.owningNode())  # type: ignore[arg-type]
        elif step.kind() in ("prim::ListUnpack", "prim::TupleUnpack"):
            changed |= _unpack(step, aliases)
        elif len(step._outputs) == 1 and not (disable_shape_peepholes and step.kind() in _OF_SHAPES):
            changed |= _rewrite(step, aliases)
    if changed:
        eliminate_dead_code(graph)
    return changed


def _rewrite(node: Node, aliases: Aliases) -> bool:
    for rule in _RULES.get(node.kind(), ()):
        found = rule(node, aliases)
        if found is None:
            continue
        if isinstance(found, Constant):
            made = constant_like(node._graph, found.value, node.output().type())
            if made is None:
                continue
            found = made.insertBefore(node).output()
        elif not (_is_view_of(node.output(), found, aliases) or aliases.may_stand_for(node.output(), found)):
            continue
        node.output().replaceAllUsesWith(found)
        return True
    return False


def _is_view_of(value: Value, other: Value, aliases: Aliases) -> bool:
    """Whether two values are at one place anyway."""
    places = aliases.places_of(value)
    return bool(places) and places == aliases.places_of(other)


def _constant(value: Value) -> Any:
    return value.toIValue()


def _is_number(value: Value, number: int) -> bool:
    found = _constant(value)
    return isinstance(found, (int, float)) and not isinstance(found, bool) and found == number


def _keeps_elements(node: Node, scalar: Value) -> bool:
    """Whether arithmetic with a number leaves the dtype as it is: with an int, of all but bools; with a float, of
    numbers with a point."""
    kind = node._inputs[0].type()
    if not isinstance(kind, TensorType):
        return kind == node.output().type()
    if isinstance(_constant(scalar), int) and node.kind() != "aten::div":
        return kind.scalar != "Bool"
    return kind.scalar in FLOATING


@_rule("aten::mul", "aten::div")
def _times_one(node: Node, aliases: Aliases) -> Value | Constant | None:
    """x * 1 -> x, x / 1 -> x"""
    if node.inputsSize() == 2 and _is_number(node._inputs[1], 1) and _keeps_elements(node, node._inputs[1]):
        return node._inputs[0]
    return None


@_rule("aten::add", "aten::sub")
def _plus_zero(node: Node, aliases: Aliases) -> Value | Constant | None:
    """x + 0 -> x, x - 0 -> x"""
    if (
        node.inputsSize() not in (2, 3)
        or not _is_number(node._inputs[1], 0)
        or not _keeps_elements(node, node._inputs[1])
    ):
        return None
    if node.inputsSize() == 3 and not isinstance(_constant(node._inputs[2]), int):
        return None
    return node._inputs[0]


@_rule("aten::t")
def _turned_twice(node: Node, aliases: Aliases) -> Value | Constant | None:
    """x.t().t() -> x"""
    inner = node.input().node()
    return inner.input() if inner.kind() == "aten::t" else None


@_rule("aten::__not__", "aten::neg", "aten::bitwise_not")
def _undone(node: Node, aliases: Aliases) -> Value | Constant | None:
    """not not x -> x, - -x -> x"""
    inner = node.input().node()
    same = inner.kind() == node.kind() and not isinstance(node.input().type(), TensorType)
    return inner.input() if same and inner.input().type() == node.output().type() else None


@_rule("aten::type_as")
def _of_the_same_type(node: Node, aliases: Aliases) -> Value | Constant | None:
    """x.type_as(y) -> x, where both have one dtype and are in one place"""
    ours, theirs = (value.type() for value in node._inputs)
    if not (isinstance(ours, TensorType) and isinstance(theirs, TensorType)):
        return None
    known = None not in (ours.scalar, ours.place)
    return node._inputs[0] if known and (ours.scalar, ours.place) == (theirs.scalar, theirs.place) else None


@_rule("aten::expand")
def _expanded(node: Node, aliases: Aliases) -> Value | Constant | None:
    """x.expand(its own sizes) -> x; x.expand(a).expand(b) -> x.expand(b)"""
    value, sizes = node._inputs[0], _constant(node._inputs[1])
    if isinstance(value.type(), TensorType) and sizes is not None and value.type().sizes() == list(sizes):
        return value
    inner = value.node()
    if inner.kind() != "aten::expand" or sizes is None or -1 in sizes:
        return None
    with node._graph.insert_point_guard(node):
        made = node._graph.create("aten::expand", [inner._inputs[0], *node._inputs[1:]])
        return node._graph.insertNode(made).output().setType(node.output().type())


@_rule("aten::_unwrap_optional", "prim::unchecked_unwrap_optional", "prim::unchecked_cast", "aten::Int", "aten::Float")
def _cast_to_its_type(node: Node, aliases: Aliases) -> Value | Constant | None:
    """What is no optional is unwrapped already; a cast to the type that a value has, or to less, gives the value."""
    value = node._inputs[0]
    if node.inputsSize() != 1 or isinstance(value.type(), (OptionalType, NoneType, UnionType)):
        return None
    return value if value.type().isSubtypeOf(node.output().type()) else None


@_rule("aten::Int", "aten::Float", "aten::ScalarImplicit", "aten::IntImplicit", "aten::FloatImplicit", "prim::Int")
def _number_of_its_tensor(node: Node, aliases: Aliases) -> Value | Constant | None:
    """int(tensor(x)) -> x"""
    inner = node._inputs[0].node()
    if inner.kind() != "prim::NumToTensor" or inner.input().type() != node.output().type():
        return None
    return None if aliases.is_written(inner.output()) else inner.input()


@_rule("aten::__is__", "aten::__isnot__")
def _is_none(node: Node, aliases: Aliases) -> Value | Constant | None:
    """x is None, where the type of x tells"""
    kinds = [value.type() for value in node._inputs]
    nones = sum(isinstance(kind, NoneType) for kind in kinds)
    optional = any(isinstance(kind, OptionalType) or kind.str() == "Any" for kind in kinds)
    if not nones or (nones == 1 and (optional or any(isinstance(kind, UnionType) for kind in kinds))):
        return None
    return Constant((nones == 2) == (node.kind() == "aten::__is__"))


# What the type of a tensor tells: the node, its type, the constant.


def _size(node: Node, kind: TensorType) -> Any:
    if node.inputsSize() == 1:
        return kind.sizes()
    place, extents = _constant(node._inputs[1]), kind.extents
    if extents is None or not isinstance(place, int) or not -len(extents) <= place < len(extents):
        return None
    return extents[place]


def _numel(node: Node, kind: TensorType) -> Any:
    sizes, count = kind.sizes(), 1
    for size in sizes or ():
        count *= size
    return None if sizes is None else count


_OF_TENSORS: dict[str, Callable[[Node, TensorType], Any]] = {
    "aten::size": _size,
    "aten::numel": _numel,
    "aten::dim": lambda node, kind: kind.dim(),
    "prim::dtype": lambda node, kind: None if kind.scalar is None else in_programs(kind.dtype()),
    "prim::device": lambda node, kind: kind.place,
    "prim::is_cuda": lambda node, kind: None if kind.place is None else kind.place.type == "cuda",
    "prim::is_cpu": lambda node, kind: None if kind.place is None else kind.place.type == "cpu",
    "aten::is_floating_point": lambda node, kind: _among(kind, FLOATING - COMPLEX),
    "aten::is_complex": lambda node, kind: _among(kind, COMPLEX),
}
_OF_SHAPES = frozenset((*_OF_TENSORS, "aten::expand", "aten::type_as"))


def _among(kind: TensorType, scalars: frozenset[str]) -> bool | None:
    return None if kind.scalar not in SCALARS else kind.scalar in scalars


@_rule(*_OF_TENSORS)
def _told_by_its_type(node: Node, aliases: Aliases) -> Value | Constant | None:
    kind = node._inputs[0].type() if node._inputs else None
    if not isinstance(kind, TensorType) or aliases.is_written(node._inputs[0]):
        return None
    found = _OF_TENSORS[node.kind()](node, kind)
    return None if found is None else Constant(found)


@_rule("aten::len")
def _length(node: Node, aliases: Aliases) -> Value | Constant | None:
    """len([a, b]) -> 2; len(x.size()) -> x.dim()"""
    made = node.input().node()
    if _written_itself(node.input(), aliases):
        return None
    if made.kind() in ("prim::ListConstruct", "prim::TupleConstruct"):
        return Constant(made.inputsSize())
    kind = made._inputs[0].type() if made.kind() == "aten::size" and made.inputsSize() == 1 else None
    return Constant(kind.dim()) if isinstance(kind, TensorType) and kind.dim() is not None else None


@_rule("aten::__getitem__", "prim::TupleIndex")
def _item(node: Node, aliases: Aliases) -> Value | Constant | None:
    """[a, b][0] -> a; (a, b)[0] -> a; x.size()[0], where that is known"""
    made, place = node._inputs[0].node(), _constant(node._inputs[1])
    if not isinstance(place, int) or _written_itself(node._inputs[0], aliases):
        return None
    if made.kind() in ("prim::ListConstruct", "prim::TupleConstruct"):
        inside = -made.inputsSize() <= place < made.inputsSize()
        return made._inputs[place] if inside else None
    kind = made._inputs[0].type() if made.kind() == "aten::size" and made.inputsSize() == 1 else None
    extents = kind.extents if isinstance(kind, TensorType) else None
    if extents is None or not -len(extents) <= place < len(extents) or extents[place] is None:
        return None
    return Constant(extents[place])


def _unpack(node: Node, aliases: Aliases) -> bool:
    """a, b = [a, b]"""
    made = node.input().node()
    wanted = "prim::ListConstruct" if node.kind() == "prim::ListUnpack" else "prim::TupleConstruct"
    if made.kind() != wanted or made.inputsSize() != node.outputsSize():
        return False
    if _written_itself(node.input(), aliases):
        return False
    for value, part in zip(list(node._outputs), list(made._inputs)):
        value.replaceAllUsesWith(part)
    return True


def _written_itself(value: Value, aliases: Aliases) -> bool:
    """Whether somebody writes to a container, and not only to what it holds."""
    return not aliases.written.isdisjoint(aliases.places_of(value))


def _branch_of_bools(node: Node) -> bool:
    """`True if x else False` -> x"""
    if node.kind() != "prim::If":
        return False
    changed = False
    for place, value in enumerate(node._outputs):
        chosen = [_constant(block._return._inputs[place]) for block in node._blocks]
        if isinstance(value.type(), BoolType) and chosen == [True, False] and value._uses:
            value.replaceAllUsesWith(node.input())
            changed = True
    return changed

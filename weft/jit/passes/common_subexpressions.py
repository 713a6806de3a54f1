"""One node for several that compute the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ...eager.tensor.tensor import Tensor
from ..graph import Graph
from ..nodes import Block, Node
from .aliases import Aliases
from .effects import is_pure
from .order import in_order


def eliminate_common_subexpressions(graph: Graph) -> bool:
    """Has one node serve where several of one kind read the same and have the same attributes; what an outer block
    has serves inner ones. Whether something was found.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor, %n : int):
    ...   %a : Tensor = aten::relu(%x)
    ...   %b : Tensor = aten::relu(%x)
    ...   %c : Tensor = aten::add(%a, %b, %n)
    ...   return (%c)''')
    >>> eliminate_common_subexpressions(graph)
    True
    >>> [node.kind() for node in graph.nodes()]
    ['aten::relu', 'aten::add']
    """
    aliases = Aliases(graph)
    known: dict[Hashable, Node] = {}
    scopes: dict[Block, list[Hashable]] = {}  # what was found first in each block that is not closed yet
    leaving: set[Node] = set()  # which give, by now, what another one gave to the caller
    changed = False
    for step in in_order(graph.block()):
        if isinstance(step, Block):
            for key in scopes.pop(step, ()):
                del known[key]
            continue
        if not is_pure(step) or aliases.touches_written(step):
            continue
        key = key_of(step)
        same = known.get(key)
        if same is None:
            known[key] = step
            scopes.setdefault(step._owner, []).append(key)  # type: ignore[arg-type]
            continue
        leaves = any(map(aliases.leaves, step._outputs))
        if leaves and same in leaving:
            continue
        if all(aliases.may_stand_for(ours, theirs) for ours, theirs in zip(step._outputs, same._outputs)):
            if leaves:
                leaving.add(same)
            step.replaceAllUsesWith(same)
            step.destroy()
            changed = True
    return changed


def key_of(node: Node) -> Hashable:
    """Equal for nodes that compute the same."""
    return (node.kind(), tuple(node._inputs), tuple([value.type() for value in node._outputs]), attributes_of(node))


def attributes_of(node: Node) -> Hashable:
    """Equal for nodes with the same attributes."""
    return frozenset([(name, kind, _hashed(value)) for name, (kind, value) in node._attributes.items()])


def _hashed(value: Any) -> Hashable:
    """Equal for equal values of attributes: numbers of other types, or of other signs, are others."""
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_hashed, value))
    if isinstance(value, dict):
        return (dict, *[(_hashed(key), _hashed(item)) for key, item in value.items()])
    if isinstance(value, Tensor):
        array = value.detach().numpy()
        facts = (str(value.dtype), tuple(value.shape), tuple(value.stride()), bool(value.requires_grad))
        return (*facts, array.tobytes())
    if isinstance(value, (float, complex)):
        return (type(value), repr(value))
    return (type(value), value) if isinstance(value, Hashable) else (type(value), id(value))

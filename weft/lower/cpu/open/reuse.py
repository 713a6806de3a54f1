"""A function that a reduction computes for every element, and the elements need again, is computed
once: the reduction leaves it where the element will be (the exponentials of softmax)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ....te.expr import Binary, Call, Expr, Load, Var
from ....te.loops import For, Store
from ....te.schedule import bind_shared
from ....te.simplify_loops import statements
from ....te.visit import postorder, rewrite, same, substitute
from ...axes import Nest


def with_reuse(nests: list[Nest], rows: int) -> list[Nest]:
    """Nests that run one after the other for each row, the last of which stores elements."""
    *before, last = nests
    if not isinstance(last.body, Store):
        return nests
    for number, nest in reversed(list(enumerate(before))):
        summed = _summed(nest)
        if summed is None or len(nest.axes) < rows:
            continue
        loops, store, value = summed
        if len(loops) != len(last.axes) - rows or value.dtype != last.body.buffer.dtype:
            continue
        own: list[Var] = [*(axis.var for axis in nest.axes[:rows]), *(loop.var for loop in loops)]
        wanted = substitute(value, dict(zip(own, (axis.var for axis in last.axes))))
        if any(same(node, wanted) for node in postorder((last.body.value,)) if _is_call(node)):
            saved = _saving(nest, store, Store(last.body.buffer, tuple(own), value))
            return [*before[:number], saved, *before[number + 1 :], _reading(last, wanted)]
    return nests


def _summed(nest: Nest) -> tuple[list[For], Store, Expr] | None:
    """The loops of a nest's only reduction, what they store, and what is combined there."""
    loops = [s for s in statements(nest.body) if isinstance(s, For)]
    if not loops or any(a.body is not b for a, b in pairwise(loops)):
        return None
    store = loops[-1].body
    if not isinstance(store, Store) or not isinstance(store.value, Binary):
        return None
    value = store.value.b
    return (loops, store, value) if _is_call(value) else None


def _is_call(node: Any) -> bool:
    return isinstance(node, Call)


def _saving(nest: Nest, store: Store, kept: Store) -> Nest:
    """The nest that also stores what it combines."""
    both = bind_shared([store, kept])

    def rule(node: Any) -> Any:
        if isinstance(node, For) and isinstance(node.body, Store) and node.body.buffer is store.buffer:
            return For(node.var, node.extent, both, node.kind)
        return node

    return Nest(nest.axes, rewrite(nest.body, rule))


def _reading(last: Nest, wanted: Expr) -> Nest:
    """The nest that reads what was stored."""
    store = last.body
    assert isinstance(store, Store)
    found = Load(store.buffer, store.indices)
    value = rewrite(store.value, lambda node: found if _is_call(node) and same(node, wanted) else node)
    return Nest(last.axes, Store(store.buffer, store.indices, value))

"""Unroll and jam: a loop whose turns are independent moves inwards, past reductions and their
accumulators, so that the turns share what they load."""

from __future__ import annotations

from typing import Any

from ..base.errors import InvalidValue
from .expr import Load, Var, as_expr
from .loops import Alloc, Barrier, Buffer, Exchange, For, Let, Seq, Stmt, Store, buffer
from .simplify_loops import sequence
from .visit import free_of, rewrite


def jam(loop: For) -> Stmt:
    """The loop moved as far in as it goes; what it ends up around runs turn by turn.

    Every buffer allocated inside gets one more dimension, the turns.

    >>> from .build import KernelBuilder
    >>> from .printer import show
    >>> b = KernelBuilder("sums")
    >>> x, y = b.arg("x", "float32", (4, 8)), b.arg("y", "float32", (4,))
    >>> with b.loop("i", 4) as i:
    ...     acc = b.alloc("acc", "float32", (), scope="register")
    ...     b.store(acc, (), 0.0)
    ...     with b.loop("k", 8) as k:
    ...         b.store(acc, (), acc[()] + x[i, k])
    ...     b.store(y, i, acc[()])
    >>> print(show(jam(b.finish().body)))
    alloc acc: float32[4] register
    for i in 0..4:
      acc[i] = 0.0
    for k in 0..8:
      for i in 0..4:
        acc[i] = acc[i] + x[i, k]
    for i in 0..4:
      y[i] = acc[i]
    """
    body = loop.body
    if isinstance(body, Seq):
        return sequence([jam(_around(loop, part)) for part in body.body])
    if isinstance(body, For):
        if not free_of(body.extent, [loop.var]):
            raise InvalidValue(f"loop {loop.var.name} decides how long {body.var.name} is")
        return For(body.var, body.extent, jam(_around(loop, body.body)), body.kind)
    if isinstance(body, Alloc):
        wide = _with_turns(body.buffer, loop)
        inner = rewrite(body.body, lambda node: _redirect(node, body.buffer, wide, loop.var))
        return Alloc(wide, jam(_around(loop, inner)))
    if isinstance(body, Let) and isinstance(body.body, (For, Alloc, Seq)):
        if not free_of(body.value, [loop.var]):
            return loop
        return Let(body.var, body.value, jam(_around(loop, body.body)))
    if isinstance(body, (Barrier, Exchange)):  # turns that run side by side wait once for all of them
        return body
    return loop


def _around(loop: For, body: Stmt) -> For:
    return For(loop.var, loop.extent, body, loop.kind)


def _with_turns(old: Buffer, loop: For) -> Buffer:
    shape = (loop.extent, *old.shape)
    return buffer(old.name, old.dtype, shape, scope=old.scope, lanes=old.lanes)


def _redirect(node: Any, old: Buffer, new: Buffer, turn: Var) -> Any:
    if isinstance(node, Load) and node.source is old:
        return Load(new, (as_expr(turn), *node.indices), node.mask)
    if isinstance(node, Store) and node.buffer is old:
        return Store(new, (as_expr(turn), *node.indices), node.value, node.mask)
    return node

"""Rows of attention as open kernels: the softmax of masked scores, and its gradient, both in place.

Scores are matrices one after the other, of `queries` rows and `keys` columns.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import te
from ...base.dtype import BOOL, INT64, DType
from ...base.target import Target
from ...te.build import KernelBuilder
from ...te.expr import Expr, Var, as_expr, minimum
from ...te.loops import Kernel, Store
from ...te.reducers import combine, identity
from ...te.transform import lower_vectors
from .nest import vector_loop

At = Callable[[Expr], Expr]


def probabilities_kernel(mask: str, causal: bool, dtype: DType, target: Target) -> Kernel:
    """softmax(factor scores + mask), with zeros in rows that see nothing.

    Scalars: rows in all, queries, keys, the query of the first row, elements between rows of the
    mask. `starts` says where the mask of each matrix begins. A causal row sees keys up to its own.
    """
    b, lanes = KernelBuilder("probabilities"), target.lanes(dtype)
    names = ("rows", "queries", "keys", "first", "mask_step")
    rows, queries, keys, first, step = (b.scalar(name) for name in names)
    scores, factors = b.arg("scores", dtype, (rows * keys,)), b.arg("factor", dtype, (1,))
    starts = b.arg("starts", INT64, (rows,))
    masks = b.arg("mask", BOOL if mask == "boolean" else dtype, (rows * keys,))
    lowest = te.const(float("-inf"), dtype)
    with b.parallel("row", rows) as row:
        start = b.let("start", row * keys)
        query = b.let("query", row % queries)
        factor = b.let("factor", factors[0])
        seen = b.let("seen", minimum(keys, first + query + 1)) if causal else keys
        own = b.let("own", starts[row // queries] + query * step if mask != "none" else as_expr(0))

        def score(j: Expr) -> Expr:
            value = scores[start + j] * factor
            if mask == "boolean":
                return te.select(masks[own + j], value, lowest)
            return value + masks[own + j] if mask == "additive" else value

        top = _over_row(b, "max", dtype, seen, lanes, score)
        top = b.let("shift", te.select(top.equal(lowest), te.const(0, dtype), top))

        def power(j: Expr) -> Expr:
            made = b.let("power", te.exp(score(j) - top))
            b.store(scores, start + j, made)
            return made

        total = _over_row(b, "sum", dtype, seen, lanes, power)
        inverse = b.let("inverse", 1 / te.select(total.equal(0), te.const(1, dtype), total))
        j = Var("j")
        b.emit(
            _each(
                j, as_expr(0), seen, lanes, Store(scores, (start + j,), scores[start + j] * inverse)
            )
        )
        if causal:
            b.emit(_each(j, seen, keys, lanes, Store(scores, (start + j,), te.const(0, dtype))))
    return lower_vectors(b.finish())


def probabilities_grad_kernel(dtype: DType, target: Target) -> Kernel:
    """ds = p (dp - sum of p dp), which takes the place of dp. Scalars: rows, keys."""
    b, lanes = KernelBuilder("probabilities_grad"), target.lanes(dtype)
    rows, keys = b.scalar("rows"), b.scalar("keys")
    p, dp = (b.arg(name, dtype, (rows * keys,)) for name in ("p", "dp"))
    with b.parallel("row", rows) as row:
        start = b.let("start", row * keys)
        shared = _over_row(b, "sum", dtype, keys, lanes, lambda j: p[start + j] * dp[start + j])
        j = Var("j")
        value = p[start + j] * (dp[start + j] - shared)
        b.emit(_each(j, as_expr(0), keys, lanes, Store(dp, (start + j,), value)))
    return lower_vectors(b.finish())


def _each(j: Var, start: Expr, end: Expr, lanes: int, store: Store) -> object:
    return vector_loop(j, start, end, lanes, store)


def _over_row(
    b: KernelBuilder, combiner: str, dtype: DType, count: Expr, lanes: int, value: At
) -> Expr:
    """A reduction over the first `count` elements of a row: in the lanes, then over them."""
    full = b.let("full", count // lanes)
    shares = b.alloc("shares", dtype, (lanes,))
    with b.vector("lane", lanes) as lane:
        own = b.alloc("own", dtype, (), scope="register")
        b.store(own, (), identity(combiner, dtype))
        with b.loop("turn", full) as turn:
            b.store(own, (), combine(combiner, own[()], value(turn * lanes + lane)))
        with b.when(full * lanes + lane < count):
            b.store(own, (), combine(combiner, own[()], value(full * lanes + lane)))
        b.store(shares, lane, own[()])
    items: list[Expr] = [b.let("share", shares[lane]) for lane in range(lanes)]
    while len(items) > 1:
        items = [combine(combiner, *pair) for pair in zip(items[::2], items[1::2])]
    return b.let("whole", items[0])

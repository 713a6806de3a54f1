"""Connectionist temporal classification: how unlikely sequences of labels are, over all ways to
stretch them to the steps of data and to put blanks between them.

A sequence of k labels has 2 k + 1 states: blank, label, blank, ... A way goes from one of the first
two states to one of the last two; each step it stays, goes on, or leaves out a blank between two
labels that differ.

    alpha[t, s] = log of the sum over ways to state s at step t
                = logsumexp(alpha[t-1, s], alpha[t-1, s-1], alpha[t-1, s-2] if allowed) + data[t, s]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import INT64, dtype_name, is_float, is_integer
from ...base.errors import DTypeError, ShapeError
from ...base.shape import add_dims, mul_dims, unify_dim
from ...core.infer import unify_dtype
from ...core.schema import BOOL, INT, attr, schema
from .._families import F, Inferred, Shapes, attributes, define, ranked
from .._kernels import Body, wide_dtype

LANES = 16  # states that are taken at once, and so many are kept free before and after them
INF = float("inf")


@schema
class CtcAttrs:
    blank: int = attr(INT, "the class that stands for no label", default=0, low=0)
    zero_infinity: bool = attr(
        BOOL, "whether sequences that no way leads through have loss and gradient 0", default=False
    )
    normalized: bool = attr(
        BOOL,
        "whether the gradient counts on classes whose probabilities add up to 1, so that it "
        "is exp(data) - p; else it is -p",
        default=False,
    )
    kept: bool = attr(BOOL, "whether alpha, which the gradient reads, is given, too; it has none itself", default=False)


_INPUTS = {
    "data": "(steps, batch, classes): logarithms of probabilities",
    "labels": "(batch, most), integers: classes; one that is none has probability 0",
    "data_length": "(batch,), integers: steps of each sequence",
    "label_length": "(batch,), integers: labels of each sequence",
}
_GRAD_INPUTS = {"loss_grad": "the gradient of the losses", **_INPUTS, "alpha": "what was kept"}


def _states(most: Any) -> Any:
    return add_dims(mul_dims(most, 2), 1)


def _dims(params: CtcAttrs, ins: Shapes) -> tuple[list[Any], Any]:
    steps, batch, classes = ranked(ins[0], 3, "data")
    batch_too, most = ranked(ins[1], 2, "labels")
    batch = unify_dim(batch, batch_too)
    for shape in ins[2:4]:
        batch = unify_dim(batch, *ranked(shape, 1, "lengths"))
    if isinstance(classes, int) and params.blank >= classes:
        raise ShapeError(f"blank {params.blank}", why=f"there are {classes} classes")
    shapes = [(steps, batch, classes), (batch, most), (batch,), (batch,)]
    return shapes, (batch, steps, _states(most))


def _shape(params: CtcAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shapes, alpha = _dims(params, ins)
    return shapes, [(alpha[0],), *([alpha] if params.kept else [])]


def _grad_shape(params: CtcAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shapes, alpha = _dims(params, ins[1:])
    return [(alpha[0],), *shapes, alpha], [shapes[0]]


def _dtype(floats: Sequence[int]) -> Any:
    """One floating dtype for these inputs and all outputs; the others are integers."""

    def rule(params: CtcAttrs, ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        dtype = None
        for known in (*(ins[i] for i in floats), *outs):
            dtype = unify_dtype(dtype, known)
        if dtype is not None and not is_float(dtype):
            raise DTypeError(f"ctc_loss of {dtype_name(dtype)}", hint="cast data to a float")
        for i, known in enumerate(ins):
            if i not in floats and known is not None and not is_integer(known):
                raise DTypeError(f"labels or lengths are {dtype_name(known)}", hint="cast them")
        return [dtype if i in floats else k for i, k in enumerate(ins)], [dtype] * len(outs)

    return rule


# numpy


class _States:
    """The states of all sequences: their classes, -1 where there is none, and where a way may leave
    out the state before."""

    def __init__(self, params: CtcAttrs, x: Any, labels: Any, steps: Any, count: Any) -> None:
        batch, most = labels.shape
        self.steps = np.clip(steps.astype(np.int64), 0, len(x))
        self.count = np.clip(count.astype(np.int64), 0, most)
        number = np.arange(2 * most + 1)
        classes = np.full((batch, 2 * most + 1), params.blank, np.int64)
        classes[:, 1::2] = labels
        there = (number <= 2 * self.count[:, None]) & (classes >= 0) & (classes < x.shape[2])
        self.classes = np.where(there, classes, -1)
        self.skips = np.zeros_like(there)
        self.skips[:, 3::2] = labels[:, 1:] != labels[:, :-1]
        self.x, self.rows = x, np.arange(batch)[:, None]

    def emission(self, step: int) -> Any:
        scores = self.x[step][self.rows, np.maximum(self.classes, 0)]
        return np.where(self.classes < 0, -INF, scores)

    def skipped(self) -> Any:
        """Where a way may leave out the state after."""
        moved = np.concatenate([self.skips[:, 2:], np.zeros_like(self.skips[:, :2])], 1)
        return moved[:, : self.skips.shape[1]]

    def last(self) -> Any:
        """The states that a way may end at."""
        number, end = np.arange(self.classes.shape[1]), 2 * self.count[:, None]
        return (number <= end) & (number >= end - 1)

    def ends(self, alpha: Any) -> Any:
        """The logarithm of a sequence's probability."""
        rows, last = self.rows[:, 0], np.maximum(self.steps - 1, 0)
        end = alpha[rows, last, 2 * self.count]
        before = alpha[rows, last, np.maximum(2 * self.count - 1, 0)]
        both = np.logaddexp(end, np.where(self.count > 0, before, -INF))
        return np.where(self.steps > 0, both, np.where(self.count > 0, -INF, 0))


def _moved(row: Any, by: int, none: float = -INF) -> Any:
    """What is so many states before (or after) each."""
    moved = np.full_like(row, none)
    count = row.shape[1]
    if abs(by) < count:
        moved[:, max(by, 0) : count + min(by, 0)] = row[:, max(-by, 0) : count - max(by, 0)]
    return moved


def _alpha(states: _States, steps: int) -> Any:
    alpha = np.full((len(states.classes), steps, states.classes.shape[1]), -INF, states.x.dtype)
    row = np.full_like(states.classes, 0, states.x.dtype)
    row[:, 2:] = -INF
    for step in range(steps):
        if step:
            over = np.where(states.skips, _moved(row, 2), -INF)
            row = np.logaddexp(np.logaddexp(row, _moved(row, 1)), over)
        row = np.where((step < states.steps)[:, None], row + states.emission(step), -INF)
        alpha[:, step] = row
    return alpha


def _reference(params: CtcAttrs, x: Any, labels: Any, steps: Any, count: Any) -> Any:
    states = _States(params, x.astype(wide_dtype(x.dtype)), labels, steps, count)
    with np.errstate(all="ignore"):
        alpha = _alpha(states, len(x))
        loss = -states.ends(alpha) if len(x) else np.where(states.count > 0, INF, 0.0)
    if params.zero_infinity:
        loss = np.where(loss == INF, 0, loss)
    return tuple(a.astype(x.dtype) for a in (loss, alpha)[: 1 + params.kept])


def _grad_reference(params: CtcAttrs, g: Any, x: Any, labels: Any, steps: Any, count: Any, alpha: Any) -> Any:
    wide = wide_dtype(x.dtype)
    states = _States(params, x.astype(wide), labels, steps, count)
    grad = np.zeros(x.shape, wide)
    if not len(x):
        return grad.astype(x.dtype)
    with np.errstate(all="ignore"):
        total = states.ends(alpha.astype(wide))
        row = np.full_like(alpha[:, 0], -INF, wide)
        last = states.last()
        for step in reversed(range(len(x))):
            over = np.where(states.skipped(), _moved(row, -2), -INF)
            row = np.logaddexp(np.logaddexp(row, _moved(row, -1)), over)
            row = np.where((states.steps - 1 == step)[:, None], np.where(last, 0, -INF), row)
            emission = states.emission(step)
            row = row + emission
            share = np.exp(alpha[:, step] + row - emission - total[:, None])
            share = np.where(states.classes < 0, 0, share)
            np.add.at(grad[step], (states.rows, np.maximum(states.classes, 0)), -share)
            grad[step] += np.exp(x[step]) if params.normalized else 0
            grad[step] = np.where((total == -INF)[:, None], np.nan, grad[step])
            grad[step] = np.where((step < states.steps)[:, None], grad[step], 0)
        grad = g[:, None] * grad
        if params.zero_infinity:
            grad = np.where((total == -INF)[:, None], 0, grad)
    return grad.astype(x.dtype)


def _led(row: Any, slope: Any, skips: Any, way: int) -> tuple[Any, Any]:
    """logsumexp over the states that lead to each by a step, and its derivative where that of the row is `slope`."""
    parts = np.stack([row, _moved(row, way), np.where(skips, _moved(row, 2 * way), -INF)])
    slopes = np.stack([slope, _moved(slope, way, 0), _moved(slope, 2 * way, 0)])
    total = np.logaddexp.reduce(parts)
    shares = np.where(total == -INF, 0, np.exp(parts - total))
    return total, (shares * slopes).sum(0)


def _second_reference(params: CtcAttrs, v: Any, g: Any, x: Any, labels: Any, steps: Any, count: Any, alpha: Any) -> Any:
    """With p = exp(alpha + beta - total): dp = p (dalpha + dbeta - dtotal), along v."""
    wide = wide_dtype(x.dtype)
    alpha, v = alpha.astype(wide), v.astype(wide)
    states = _States(params, x.astype(wide), labels, steps, count)
    result = np.zeros(x.shape, wide)
    if not len(x):
        return result.astype(x.dtype)
    kinds = np.maximum(states.classes, 0)
    with np.errstate(all="ignore"):
        total, last = states.ends(alpha), states.last()
        slope, slopes, slope_of_total = np.zeros_like(alpha[:, 0]), [], np.zeros(alpha.shape[:1], wide)
        for step in range(len(x)):
            if step:
                slope = _led(alpha[:, step - 1], slope, states.skips, 1)[1]
            slope = slope + v[step][states.rows, kinds]
            slopes.append(slope)
            ending = np.where(last & (states.steps - 1 == step)[:, None], np.exp(alpha[:, step] - total[:, None]), 0)
            slope_of_total += (ending * slope).sum(1)
        row, slope = np.full_like(slope, -INF), np.zeros_like(slope)
        for step in reversed(range(len(x))):
            row, slope = _led(row, slope, states.skipped(), -1)
            ends = (states.steps - 1 == step)[:, None]
            row, slope = np.where(ends, np.where(last, 0, -INF), row), np.where(ends, 0, slope)
            share = np.where(states.classes < 0, 0, np.exp(alpha[:, step] + row - total[:, None]))
            change = share * (slopes[step] + slope - slope_of_total[:, None])
            np.add.at(result[step], (states.rows, kinds), -change)
            result[step] += v[step] * np.exp(x[step]) if params.normalized else 0
            result[step] = np.where((step < states.steps)[:, None], result[step], 0)
            row, slope = row + states.emission(step), slope + v[step][states.rows, kinds]
        lost = 0 if params.zero_infinity else np.nan
        result = np.where((total == -INF)[:, None], lost, g[:, None] * result)
    return result.astype(x.dtype)


# Loops: a sequence a thread. Rows of states have LANES places before the first and after the last.


class _Ways:
    """A kernel while it is written: one sequence, its states and rows of their values."""

    def __init__(self, params: CtcAttrs, body: Body, inputs: Sequence[Any]) -> None:
        ((self.steps, self.batch, self.kinds), self.dtype), ((_, self.most), _) = inputs[:2]
        self.params, self.type = params, wide_dtype(self.dtype)
        self.count = 2 * self.most + 1
        self.blocks = (self.count + (LANES - 1)) // LANES
        self.width = (self.blocks + 2) * LANES
        whole = (self.batch, self.width)
        kinds = {"classes": INT64}
        names = ("classes", "skips", "emission", "row", "share")
        self.rows = {name: body.temporary(whole, kinds.get(name, self.type)) for name in names}

    def views(self) -> dict[int, Any]:
        return dict.fromkeys(self.rows.values(), (self.batch, self.width))

    def begin(self, b: Any, n: Any, buffers: Sequence[Any], temporary: Sequence[Any]) -> None:
        self.b, self.n = b, n
        self.x, self.labels, self.lengths, self.counts = buffers
        self.at = dict(zip(self.rows, temporary))
        limited = lambda buffer, most: b.let("length", te.min(te.max(te.cast(buffer[n], "int64"), 0), most))
        self.end, self.own = limited(self.lengths, self.steps), limited(self.counts, self.most)
        with b.loop("place", self.width) as place:
            self._state(place, b.let("state", place - LANES))

    def _state(self, place: te.Expr, state: te.Expr) -> None:
        b, n = self.b, self.n
        odd = b.let("odd", (state % 2).equal(1) & (state >= 0))

        def label(at: te.Expr) -> te.Expr:
            if type(self.most) is int and not self.most:
                return te.const(-1, "int64")
            return te.cast(self.labels[n, te.min(te.max(at, 0), self.most - 1)], "int64")

        mine, blank = b.let("mine", label(state // 2)), te.const(self.params.blank, "int64")
        kind = b.let("kind", te.select(odd, mine, blank))
        there = (state >= 0) & (state <= 2 * self.own) & (kind >= 0) & (kind < self.kinds)
        b.store(self.at["classes"], (n, place), te.select(there, kind, te.const(-1, "int64")))
        last = state.equal(2 * self.own + 1)
        other = mine.not_equal(label(state // 2 - 1)) & (state <= 2 * self.own)
        skips = odd & (state.equal(1) | last | other)
        low = te.const(-INF, self.type)
        b.store(self.at["skips"], (n, place), te.select(skips, te.const(0, self.type), low))

    def clear(self, first: te.Expr) -> None:
        """A row from which all ways begin at a state."""
        with self.b.loop("place", self.width) as place:
            value = te.select(place.equal(first + LANES), te.const(0, self.type), -INF)
            self.b.store(self.at["row"], (self.n, place), value)

    def emit(self, step: te.Expr) -> None:
        with self.b.loop("place", self.width) as place:
            kind = self.b.let("kind", self.at["classes"][self.n, place])
            value = te.cast(self.x[step, self.n, te.max(kind, 0)], self.type)
            low = te.const(-INF, self.type)
            self.b.store(self.at["emission"], (self.n, place), te.select(kind < 0, low, value))

    def step(self, forward: bool, first: te.Expr, visit: Callable[..., None]) -> None:
        """One step for all states, from the far end on, so that a row serves as old and new one;
        visit(place, state, value, emission) sees them."""
        b, n, way = self.b, self.n, -1 if forward else 1
        row, skips = self.at["row"], self.at["skips"]
        with b.loop("block", self.blocks) as block:
            turn = self.blocks - 1 - block if forward else block
            with b.vector("lane", LANES) as lane:
                place = (turn + 1) * LANES + lane
                over = skips[n, place if forward else place + 2].equal(0)
                far = te.select(over, row[n, place + 2 * way], -INF)
                parts = [row[n, place], row[n, place + way], far]
                total = logsumexp(b, [b.let("part", part) for part in parts])
                emission = b.let("emission", self.at["emission"][n, place])
                value = b.let("value", total + emission)
                b.store(row, (n, place), value)
                visit(place, place - LANES, value, emission)
        b.store(row, (n, first + LANES), te.const(-INF, self.type))

    def whole(self, end: te.Expr, before: te.Expr) -> te.Expr:
        """The logarithm of the probability, from alpha of the last states."""
        low, nothing = te.const(-INF, self.type), te.const(0, self.type)
        both = logsumexp(self.b, [self.b.let("end", end), self.b.let("before", before)])
        none = te.select(self.own > 0, low, nothing)
        return self.b.let("whole", te.select(self.end > 0, both, none))


def logsumexp(b: Any, parts: Sequence[te.Expr]) -> te.Expr:
    top = parts[0]
    for part in parts[1:]:
        top = te.max(top, part)
    top = b.let("top", top)
    shift = b.let("shift", te.select(te.abs(top).equal(INF), te.const(0, top.dtype), top))
    total = te.exp(parts[0] - shift)
    for part in parts[1:]:
        total = total + te.exp(part - shift)
    return b.let("sum", te.log(total) + shift)


def _kernels(params: CtcAttrs, inputs: Any, outputs: Any) -> Any:
    body = Body("ctc_loss", inputs, outputs)
    ways = _Ways(params, body, inputs)
    steps, batch, count = ways.steps, ways.batch, ways.count
    views = {i: shape for i, (shape, _) in enumerate([*inputs, *outputs])}
    kernel = body.kernel({**views, **ways.views()}, 16 * steps * batch * count)
    with kernel as (b, *buffers), b.parallel("n", batch) as n:
        loss, *kept = buffers[4 : 4 + len(outputs)]
        ways.begin(b, n, buffers[:4], buffers[4 + len(outputs) :])
        ways.clear(te.as_expr(-1))
        with b.loop("step", ways.end) as step:
            ways.emit(step)

            def keep(place: te.Expr, state: te.Expr, value: te.Expr, emission: te.Expr) -> None:
                if kept:
                    with b.when(state < count):
                        b.store(kept[0], (n, step, state), te.cast(value, ways.dtype))

            ways.step(True, te.as_expr(-1), keep)
        if kept:
            with b.loop("rest", steps - ways.end) as rest, b.loop("state", count) as state:
                b.store(kept[0], (n, ways.end + rest, state), te.const(-INF, ways.dtype))
        row, last = ways.at["row"], b.let("last", 2 * ways.own + LANES)
        value = -ways.whole(row[n, last], row[n, last - 1])
        if params.zero_infinity:
            value = te.select(value.equal(INF), te.const(0, ways.type), value)
        b.store(loss, n, te.cast(value, ways.dtype))
    return body.kernels


def _grad_kernels(params: CtcAttrs, inputs: Any, outputs: Any) -> Any:
    body = Body("ctc_loss_grad", inputs, outputs)
    ((steps, batch, kinds), dtype) = inputs[1]
    sums = body.temporary((batch, kinds), wide_dtype(dtype))
    ways = _Ways(params, body, inputs[1:])
    views = {i: shape for i, (shape, _) in enumerate([*inputs, *outputs])}
    work = steps * batch * (16 * ways.count + 4 * kinds)
    kernel = body.kernel({**views, sums: (batch, kinds), **ways.views()}, work)
    with kernel as (b, g, *rest), b.parallel("n", batch) as n:
        alpha, out, total = rest[4:7]
        ways.begin(b, n, rest[:4], rest[7:])
        first = b.let("first", 2 * ways.own + 1)
        ways.clear(first)
        old = lambda step, state: te.cast(alpha[n, step, state], ways.type)
        last = b.let("last", te.max(ways.end - 1, 0))
        ends = old(last, 2 * ways.own), old(last, te.max(2 * ways.own - 1, 0))
        low = te.const(-INF, ways.type)
        whole = ways.whole(ends[0], te.select(ways.own > 0, ends[1], low))
        with b.loop("back", ways.end) as back:
            step = b.let("step", ways.end - 1 - back)
            ways.emit(step)

            def share(place: te.Expr, state: te.Expr, value: te.Expr, emission: te.Expr) -> None:
                there = te.min(state, ways.count - 1)
                part = te.exp(old(step, there) + value - emission - whole)
                b.store(ways.at["share"], (n, place), part)

            ways.step(False, first, share)
            _shares(ways, step, total)
            _give(ways, step, g, total, out, whole)
        with b.loop("after", steps - ways.end) as after, b.loop("kind", kinds) as kind:
            b.store(out, (ways.end + after, n, kind), te.const(0, ways.dtype))
    return body.kernels


def _shares(ways: _Ways, step: te.Expr, total: Any) -> None:
    """Sums over the states of each class."""
    b, n = ways.b, ways.n
    with b.loop("kind", ways.kinds) as kind:
        b.store(total, (n, kind), te.const(0, ways.type))
    with b.loop("state", 2 * ways.own + 1) as state:
        kind = b.let("kind", ways.at["classes"][n, state + LANES])
        with b.when(kind >= 0):
            b.store(total, (n, kind), total[n, kind] + ways.at["share"][n, state + LANES])


def _give(ways: _Ways, step: te.Expr, g: Any, total: Any, out: Any, whole: te.Expr) -> None:
    b, n, params = ways.b, ways.n, ways.params
    ograd = b.let("given", te.cast(g[n], ways.type))
    with b.loop("kind", ways.kinds) as kind:
        value = -total[n, kind]
        if params.normalized:
            value = te.exp(te.cast(ways.x[step, n, kind], ways.type)) + value
        lost = te.const(0 if params.zero_infinity else float("nan"), ways.type)
        share = te.select(whole.equal(-INF), lost, ograd * value)
        b.store(out, (step, n, kind), te.cast(share, ways.dtype))


def _second_shape(params: CtcAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shapes, alpha = _dims(params, ins[2:])
    return [shapes[0], (alpha[0],), *shapes, alpha], [shapes[0]]


def _gradient(ctx: Any, g: Any, *rest: Any) -> list[Any]:
    attrs = {**attributes(ctx.params), "kept": True}
    kept = ctx.outputs if ctx.params.kept else F.ctc_loss(*ctx.inputs, **attrs)
    return [F._ctc_loss_grad(g, *ctx.inputs, kept[1], **attrs), None, None, None]


ctc_loss = define(
    "ctc_loss",
    "-log of the sum of the probabilities of all ways through the data that give the "
    "labels; infinite where there is none.",
    level=4,
    inputs=_INPUTS,
    attrs=CtcAttrs,
    shape=_shape,
    dtype=_dtype([0]),
    reference=_reference,
    kernels=_kernels,
    native_from=1,
    open_body=True,
    gradient=_gradient,
)
ctc_loss.output_names = lambda params: ["loss", *(["alpha"] if params.kept else [])]
ctc_loss.set_num_outputs(lambda params: 1 + params.kept)

ctc_loss_grad = define(
    "_ctc_loss_grad",
    "The gradient of ctc_loss: of each step and class, minus the probability p "
    "that a way which gives the labels is at that class then.",
    inputs=_GRAD_INPUTS,
    attrs=CtcAttrs,
    shape=_grad_shape,
    dtype=_dtype([0, 1, 5]),
    reference=_grad_reference,
    kernels=_grad_kernels,
    native_from=1,
    open_body=True,
)


def _gradient_again(ctx: Any, v: Any) -> list[Any]:
    """Of g, what the gradient is for a g of 1; of data, the second derivative. Alpha is a function of data."""
    g, *given = ctx.inputs
    attrs = attributes(ctx.params)
    once = F._ctc_loss_grad(F.ones_like(g), *given, **attrs)
    on_g = F.sum(F.elemwise_mul(v, once), axis=(0, 2))
    return [on_g, F._ctc_loss_second(v, g, *given, **attrs), None, None, None, None]


ctc_loss_grad.gradient = _gradient_again

ctc_loss_second = define(
    "_ctc_loss_second",
    "The second derivative of ctc_loss along a direction: how its gradient changes where data does.",
    inputs={"direction": "how data changes", **_GRAD_INPUTS},
    attrs=CtcAttrs,
    shape=_second_shape,
    dtype=_dtype([0, 1, 2, 6]),
    reference=_second_reference,
)

"""Batching rules of operators that look at elements one by one, move them, or work along axes: the batch is one more
axis before the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ....core.op import Op, list_ops
from ....core.pattern import OpPattern
from ....ops._families import same_shape
from ....ops.reduce.reductions import reduced_axes
from ...dispatch import apply
from ...functions.shape.shape import reshape
from ...tensor.tensor import Tensor
from ...tensor.viewing import permuted, stretched
from ..batched import with_rank
from ..level import Call

Rule = Callable[[Call], Sequence[Tensor]]


def register(names: str, rule: Rule) -> None:
    """Gives operators a rule."""
    for name in names.split():
        Op.get(name).batching = rule


def changed(params: Any, **values: Any) -> Any:
    """Attributes with other values."""
    return dataclasses.replace(params, **values)


def logical(call: Call) -> list[tuple[int, ...]]:
    """The shapes of the inputs without the batch."""
    return [tensor._shape[held:] for tensor, held in zip(call.inputs, call.batched)]


def output_shape(call: Call) -> tuple[int, ...]:
    """The shape of the first output without the batch, by the operator's own rule."""
    shape: tuple[int, ...] = Op.shape[call.op](call.params, logical(call), [None])[1][0]
    return shape


# Element by element.


def alone(call: Call) -> Sequence[Tensor]:
    """Of one input, whose shape does not matter, or whose last axes alone do."""
    return apply(call.op, call.params, call.inputs)


def of_equal_shapes(call: Call) -> Sequence[Tensor]:
    return apply(call.op, call.params, call.wholes())


def broadcasting(call: Call) -> Sequence[Tensor]:
    """Of inputs that meet at their last axes: batches get axes of size 1 after the first, up to the largest rank."""
    rank = max(call.ranks())
    met = [with_rank(tensor, rank) if held else tensor for tensor, held in zip(call.inputs, call.batched)]
    return apply(call.op, call.params, met)


for _op in list_ops():
    _pattern = Op.pattern.get(_op)
    if _pattern == OpPattern.ELEM_WISE and not Op.mutates.contains(_op):
        _op.batching = alone if _op.num_inputs == 1 else of_equal_shapes
    elif _pattern == OpPattern.BROADCAST and _op.parser is None and _op.name != "broadcast_like":
        _op.batching = of_equal_shapes if Op.shape.get(_op) is same_shape else broadcasting
register("conj real imag view_as_real view_as_complex angle sgn bitcast _no_derivative fft rfft irfft", alone)
register("triangle inverse _cofactors det slogdet cholesky eigh qr svd svdvals pinv", alone)
register("lu_factor geqrf eig eigvals matrix_exp ldl_factor", alone)
register("gcd complex zeta igamma igammac orthogonal_polynomial where", broadcasting)
register("ldl_solve row_swaps lstsq distances", of_equal_shapes)


def _solve(call: Call) -> Sequence[Tensor]:
    """Matrices meet; their batches are as many axes."""
    rank = max(call.ranks())
    return apply(call.op, call.params, [with_rank(whole, rank) for whole in call.wholes()])


register("solve", _solve)


# Along axes.


def reduction(call: Call) -> Sequence[Tensor]:
    """A reduction, whose axes are one further."""
    (value,), params, rank = call.inputs, call.params, call.ranks()[0]
    if not rank:
        made = apply(call.op, changed(params, axis=(1,), exclude=False, keepdims=False), [reshape(value, (-1, 1))])
        return [reshape(out, (call.size, *output_shape(call))) for out in made]
    axes = reduced_axes(params, rank)
    if not axes:
        made = apply(call.op, changed(params, axis=tuple(range(rank + 1)), exclude=True), [value])
    else:
        made = apply(call.op, changed(params, axis=tuple([axis + 1 for axis in axes]), exclude=False), [value])
    if params.scalar or params.keepdims or len(axes) < rank:
        return made
    return [reshape(out, (call.size, 1)) for out in made]


register("sum prod mean max min argmax argmin _variance _norm logsumexp", reduction)


def _kept(call: Call, rank: int) -> Any:
    """Attributes that name, of a batch, the axes that are not reduced."""
    reduced = reduced_axes(call.params, rank)
    kept = [axis + 1 for axis in range(rank) if axis not in reduced]
    return changed(call.params, axis=(0, *kept), exclude=True)


def _mask(call: Call) -> Sequence[Tensor]:
    """Of all elements along some axes, for each of them."""
    return apply(call.op, _kept(call, call.ranks()[0]), call.inputs)


register("_max_mask _min_mask _prod_others", _mask)


def _like_reduced(call: Call) -> Sequence[Tensor]:
    """Of what a reduction left, and a tensor that has the axes."""
    shape = logical(call)[1]
    params = _kept(call, len(shape))
    reduced = reduced_axes(call.params, len(shape))
    left, like = call.wholes()
    if call.op is _EXPAND and left.ndim != like.ndim:
        kept = [extent for axis, extent in enumerate(shape) if axis not in reduced]
        left = reshape(left, (call.size, *kept))
    return apply(call.op, params, [left, like])


_EXPAND = Op.get("expand_like")
register("expand_like _divide_by_count", _like_reduced)


def _expand_grad(call: Call) -> Sequence[Tensor]:
    gradient, left = call.wholes()
    params = _kept(call, call.ranks()[0])
    made = apply(call.op, params, [gradient, left])
    return [reshape(out, (call.size, *output_shape(call))) for out in made]


register("_expand_like_grad", _expand_grad)


def along_axis(call: Call) -> Sequence[Tensor]:
    """An axis that is one further; a single number has one of size 1 meanwhile."""
    ranks = call.ranks()
    rank = max(ranks)
    if not rank:
        made = apply(call.op, changed(call.params, axis=1), [reshape(whole, (-1, 1)) for whole in call.wholes()])
        return [reshape(out, (call.size,)) for out in made]
    return apply(call.op, changed(call.params, axis=call.params.axis % rank + 1), call.wholes())


register("softmax log_softmax cumsum cumprod logcumsumexp cummax_index cummin_index _shift _recurrence", along_axis)
register("sort argsort topk flip l2_normalize concatenate _concatenate_grad split gather_elements", along_axis)
register("_gather_elements_grad _window_sum lrn", along_axis)


def _stack(call: Call) -> Sequence[Tensor]:
    axis = call.params.axis % (call.ranks()[0] + 1) + 1
    return apply(call.op, changed(call.params, axis=axis), call.wholes())


register("stack", _stack)


def _repeat(call: Call) -> Sequence[Tensor]:
    values, axis = call.wholes(), call.params.axis
    if axis is None:
        values[-1] = reshape(values[-1], (call.size, -1))
        made = apply(call.op, changed(call.params, axis=1), values)
        return [reshape(out, (call.size, *output_shape(call))) for out in made]
    return apply(call.op, changed(call.params, axis=axis % call.ranks()[-1] + 1), values)


register("repeat _repeat_grad", _repeat)


def _one_hot(call: Call) -> Sequence[Tensor]:
    rank = call.ranks()[0] + 1
    return apply(call.op, changed(call.params, axis=call.params.axis % rank + 1), call.inputs)


register("one_hot", _one_hot)


# The same elements in other places.


def reshaping(call: Call) -> Sequence[Tensor]:
    """The elements in the shape that the operator gives one element of the batch."""
    return [reshape(call.whole(0), (call.size, *output_shape(call)))]


register("reshape flatten squeeze expand_dims _as_rows reshape_like", reshaping)


def _transpose(call: Call) -> Sequence[Tensor]:
    rank = call.ranks()[0]
    axes = call.params.axes or tuple(range(rank))[::-1]
    return [permuted(call.inputs[0], (0, *[axis % rank + 1 for axis in axes]))]


def _broadcast(call: Call) -> Sequence[Tensor]:
    shape = output_shape(call)
    value = with_rank(call.whole(0), len(shape))
    return [stretched(value, (call.size, *shape))]


register("transpose", _transpose)
register("broadcast_to broadcast_like", _broadcast)


def _collapse(call: Call) -> Sequence[Tensor]:
    """A sum to the shape of another tensor, which gets axes of size 1 that it lacks."""
    value, like = call.wholes()
    made = apply(call.op, call.params, [value, with_rank(like, value.ndim - 1)])
    return [reshape(out, (call.size, *like._shape[1:])) for out in made]


register("collapse_sum", _collapse)


def _part(call: Call) -> Sequence[Tensor]:
    p, size = call.params, call.size
    params = changed(p, start=(0, *p.start), length=(size, *p.length), step=(1, *p.step), shape=(size, *p.shape))
    return apply(call.op, params, call.wholes())


register("part _part_grad", _part)


def _pad(call: Call) -> Sequence[Tensor]:
    return apply(call.op, changed(call.params, pad_width=((0, 0), *call.params.pad_width)), call.inputs)


register("pad _pad_grad", _pad)


def _tile(call: Call) -> Sequence[Tensor]:
    reps, values = call.params.reps, call.wholes()
    rank = max(len(reps), call.ranks()[-1])
    whole = (1, *(1,) * (rank - len(reps)), *reps)
    shape = values[-1]._shape
    values[-1] = with_rank(values[-1], rank)
    made = apply(call.op, changed(call.params, reps=whole), values)
    return made if len(values) == 1 else [reshape(out, shape) for out in made]


register("tile _tile_grad", _tile)

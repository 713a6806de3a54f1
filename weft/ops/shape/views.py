"""Operators that see the same elements, in the same order, in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...base.errors import InvalidValue, OutOfRange, ShapeError
from ...base.extents import Extent, Untold
from ...base.shape import Dim, Shape, all_numbers, floor_div_dims, mul_dims, normalize_axis, show, unify
from ...core.schema import EXTENTS, INT, INTS, Params, attr, schema
from .._families import BROADCAST, INJECTIVE, F, Inferred, Shapes, define, first_dtype, holomorphic


def reindexed(x: te.Tensor, shape: Sequence[int]) -> te.Tensor:
    """A tensor with the same elements in row-major order, in another shape."""
    if 0 in shape or (x.rank == len(shape) and all(map(te.is_same, x.shape, shape))):
        return te.compute(shape, lambda *i: x[i] if len(i) == x.rank else te.const(0, x.dtype))
    groups = _regroup(x.shape, shape)

    def value(*i: te.Expr) -> te.Expr:
        index: list[Any] = [0] * x.rank
        for ours, theirs in groups:
            flat = _ravel([i[axis] for axis in theirs], [shape[axis] for axis in theirs])
            for axis, at in zip(ours, _unravel(flat, [x.shape[axis] for axis in ours])):
                index[axis] = at
        return x[tuple(index)]

    return te.compute(shape, value)


def _regroup(a: Sequence[int], b: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Shortest runs of axes of both shapes, without those of size 1, that hold as much."""
    left = [axis for axis, dim in enumerate(a) if te.is_open(dim) or dim != 1]
    right = [axis for axis, dim in enumerate(b) if te.is_open(dim) or dim != 1]
    if any(map(te.is_open, (*a, *b))):
        return _regroup_from_the_end(a, b, left, right)
    groups = []
    while left:
        ours, theirs = [left.pop(0)], [right.pop(0)]
        p, q = a[ours[0]], b[theirs[0]]
        while p != q:
            if p < q:
                ours.append(left.pop(0))
                p *= a[ours[-1]]
            else:
                theirs.append(right.pop(0))
                q *= b[theirs[-1]]
        groups.append((ours, theirs))
    return groups


def _regroup_from_the_end(
    a: Sequence[Any], b: Sequence[Any], left: list[int], right: list[int]
) -> list[tuple[list[int], list[int]]]:
    """The same where sizes are arguments; what holds as much cannot always be told, and is one run then."""
    groups = []
    while left and right:
        run = _last_run(a, b, left, right)
        if run is None:
            break
        groups.append(run)
        left, right = left[: -len(run[0])], right[: -len(run[1])]
    for dim in (*[a[axis] for axis in left if not right], *[b[axis] for axis in right if not left]):
        assert int(dim) == 1  # which holds for this number only
    return [*groups, (left, right)] if left and right else groups


def _last_run(
    a: Sequence[Any], b: Sequence[Any], left: list[int], right: list[int]
) -> tuple[list[int], list[int]] | None:
    """The shortest runs at both ends that are known to hold as much."""
    i = j = 1
    p, q = a[left[-1]], b[right[-1]]
    while not te.is_same(p, q):
        if te.is_open(p) or te.is_open(q):
            return None
        if p < q:
            i += 1
            p = p * a[left[-i]] if i <= len(left) else p * 0
        else:
            j += 1
            q = q * b[right[-j]] if j <= len(right) else q * 0
        if not te.is_open(p) and not te.is_open(q) and not p * q:
            return None
    return left[-i:], right[-j:]


def _ravel(index: Sequence[Any], shape: Sequence[int]) -> Any:
    flat = index[0]
    for at, dim in zip(index[1:], shape[1:]):
        flat = flat * dim + at
    return flat


def _unravel(flat: Any, shape: Sequence[int]) -> list[Any]:
    index = []
    for dim in shape[:0:-1]:
        index.append(flat % dim)
        flat = flat // dim
    return [flat, *index[::-1]]


def _view(name: str, doc: str, **columns: Any) -> Any:
    """An operator whose output is its first input's memory, seen in another shape."""
    columns = {"pattern": INJECTIVE, **columns}
    op = define(name, doc, alias={0: 0}, inplace=[(0, 0)], inplace_identity=[True], **columns)
    op.complex_gradient = holomorphic
    op.gradient = lambda ctx, g: [F.reshape_like(g, ctx.inputs[0]), *[None] * (len(ctx.inputs) - 1)]
    return op


def _by_shape(op: Any, shape_of: Any) -> None:
    """Reference and compute of a view from the rule for its shape."""
    op.reference = lambda *args: args[-1].reshape(shape_of(*args[:-1], args[-1].shape)).copy()
    op.compute = lambda *args: reindexed(args[-1], shape_of(*args[:-1], args[-1].shape))


def _flattened(shape: Shape) -> Shape:
    if shape is None:
        return (None, None)
    if not shape:
        raise ShapeError("a single number cannot be flattened", hint="reshape it to (1, 1)")
    return (shape[0], mul_dims(*shape[1:]))


def _flatten_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    flat = _flattened(ins[0])
    if ins[0] is not None and outs[0] is not None and len(outs[0]) == 2:
        return [(outs[0][0], *[None] * (len(ins[0]) - 1))], [flat]
    return [None], [flat]


flatten = _view("flatten", "(d0, d1, d2...) becomes (d0, d1 d2 ...).", level=1)
flatten.shape = _flatten_shape
_by_shape(flatten, _flattened)


@schema
class ReshapeAttrs:
    shape: tuple[int, ...] = attr(
        EXTENTS,
        "the shape; 0 copies the dimension, -1 is inferred, -2 copies all that are left, "
        "-3 merges two, -4 splits one into the two numbers that follow",
        low=-4,
    )


Codes = Sequence[int | str]  # an expression is an extent


def resolve_reshape(codes: Codes, source: Shape) -> Shape:
    """The shape that reshape's codes make of a shape, as far as it is known.

    >>> resolve_reshape((0, -1), (2, 3, 4)), resolve_reshape((-4, 2, -1, -3), (6, 3, 4))
    ((2, 12), (2, 3, 12))
    >>> resolve_reshape((0, -1, "h"), ("n", "h*4")), resolve_reshape((-1, 8), ("n", "s", 64))
    (('n', 4, 'h'), ('8*n*s', 8))
    """
    if source is None:
        return _reshape_of_unknown(codes)
    dims = _Reshape(codes, source).run()
    return _fill_inferred(dims, codes, source)


def _reshape_of_unknown(codes: Codes) -> Shape:
    if -2 in codes:
        return None
    dims: list[Dim] = []
    codes = list(codes)
    while codes:
        code = codes.pop(0)
        if code == -4:
            dims += map(_extent_of_code, codes[:2])
            del codes[:2]
        else:
            dims.append(_extent_of_code(code))
    return tuple(dims)


def _extent_of_code(code: int | str) -> Dim:
    return code if isinstance(code, str) or code > 0 else None


_INFERRED = -1  # no dimension is


class _Reshape:
    """Reads the codes from left to right, and the dimensions of the source along with them."""

    def __init__(self, codes: Codes, source: tuple[Dim, ...]) -> None:
        self.codes, self.source = list(codes), source
        self.at = 0
        self.made: list[Any] = []

    def run(self) -> list[Any]:
        at = 0
        while at < len(self.codes):
            code = self.codes[at]
            if code == -2:
                self.made += self.source[self.at :]
                self.at = len(self.source)
            elif code == -3:
                self.made.append(mul_dims(self._take(), self._take()))
            elif code == -4:
                self._split(self.codes[at + 1 : at + 3])
                at += 2
            else:
                self._single(code)
            at += 1
        return self.made

    def _take(self) -> Dim:
        if self.at >= len(self.source):
            raise ShapeError(f"reshape {tuple(self.codes)} asks for more dimensions than {show(self.source)} has")
        self.at += 1
        return self.source[self.at - 1]

    def _single(self, code: int | str) -> None:
        if code == 0:
            self.made.append(self._take())
        else:
            self.made.append(_INFERRED if code == -1 else code)
            self.at += 1

    def _split(self, parts: Codes) -> None:
        dim, numbers = self._take(), [part for part in parts if isinstance(part, int)]
        if len(parts) < 2 or min(numbers, default=1) < -1 or parts == [-1, -1] or 0 in parts:
            raise InvalidValue(
                f"reshape {tuple(self.codes)} has no two sizes after -4",
                why="one of the two may be -1, the other is positive",
            )
        one = mul_dims(*(part for part in parts if part != -1))
        if isinstance(dim, int) and isinstance(one, int) and (dim % one or (-1 not in parts and dim != one)):
            raise ShapeError(f"dimension {dim} cannot be split into {parts[0]} and {parts[1]}")
        self.made += [floor_div_dims(dim, one) if part == -1 else part for part in parts]


def _fill_inferred(dims: list[Any], codes: Codes, source: tuple[Dim, ...]) -> Shape:
    open_dims = dims.count(_INFERRED)
    if open_dims > 1:
        raise InvalidValue(f"reshape to {tuple(codes)}", why="one and only one dim can be inferred")
    fixed = [dim for dim in dims if dim != _INFERRED]
    total, part = mul_dims(*source), mul_dims(*fixed)
    if not (isinstance(total, int) and isinstance(part, int)):
        rest = floor_div_dims(total, part) if part != 0 else None
        return tuple(rest if dim == _INFERRED else dim for dim in dims)
    if open_dims and part == 0:
        raise ShapeError(f"reshape of {show(source)} to {tuple(codes)} leaves -1 undetermined")
    if total % part if open_dims else total != part:
        raise ShapeError(
            f"shape {show(source)} cannot become {tuple(codes)}",
            why=f"target shape size is different to source: {part} is not {total}",
        )
    return tuple(total // part if dim == _INFERRED else dim for dim in dims)


reshape = _view("reshape", "The same elements in another shape.", level=3, attrs=ReshapeAttrs)
reshape.shape = lambda params, ins, outs: ([None], [resolve_reshape(params.shape, ins[0])])
_by_shape(reshape, lambda params, shape: resolve_reshape(params.shape, shape))


def _reshape_like_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[1], outs[0])
    if ins[0] is not None and shape is not None:
        have, want = mul_dims(*ins[0]), mul_dims(*shape)
        if all_numbers([have, want]) and have != want:
            raise ShapeError(f"shape {show(ins[0])} cannot become {show(shape)}", why=f"{have} elements are not {want}")
    return [None, shape], [shape]


reshape_like = _view(
    "reshape_like",
    "The elements of data in the shape of another tensor.",
    level=4,
    inputs={"data": "the elements", "shape_like": "has the wanted shape"},
    named=False,
    shape=_reshape_like_shape,
    dtype=first_dtype,
    ignored_inputs=[1],
)
reshape_like.reference = lambda x, like: x.reshape(like.shape).copy()
reshape_like.same_if_alike = True
reshape_like.compute = lambda x, like: reindexed(x, like.shape)
reshape_like.open_body = True


@schema
class SqueezeAttrs:
    axis: tuple[int, ...] = attr(INTS, "axes of size 1 to drop; () for all there are", default=())


def _is_one(dim: Dim) -> bool | None:
    """Whether an extent is 1, if that can be told."""
    try:
        return Extent.of(dim).equals(1) if isinstance(dim, (int, str)) else None
    except Untold:
        return None


def _squeezed(params: SqueezeAttrs, shape: tuple[Dim, ...]) -> Shape:
    axes = {normalize_axis(axis, len(shape)) for axis in params.axis}
    for axis in axes:
        if isinstance(shape[axis], int) and shape[axis] != 1:
            raise ShapeError(f"axis {axis} of shape {show(shape)} is not 1, so it stays")
    if not params.axis:
        if not all(_is_one(dim) is not None for dim in shape):
            return None
        axes = {axis for axis, dim in enumerate(shape) if dim == 1}
    kept = tuple(dim for axis, dim in enumerate(shape) if axis not in axes)
    return kept if kept or not shape else (1,)


def _squeeze_shape(params: SqueezeAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shape = ins[0]
    if shape is None:
        return [None], [None]
    out = _squeezed(params, shape)
    axes = {normalize_axis(axis, len(shape)) for axis in params.axis}
    return [tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))], [out]


squeeze = _view(
    "squeeze", "Drops axes of size 1; if none is left, one stays.", level=1, attrs=SqueezeAttrs, shape=_squeeze_shape
)
_by_shape(squeeze, _squeezed)


@schema
class ExpandDimsAttrs:
    axis: int = attr(INT, "where the new axes go; negative ones count from behind the last")
    num_newaxis: int = attr(INT, "how many", default=1, low=1, high=32)


def _expanded_at(params: ExpandDimsAttrs, rank: int) -> int:
    if not -rank - 1 <= params.axis <= rank:
        raise OutOfRange(f"axis {params.axis} of expand_dims on {rank} dimensions", hint=f"use {-rank - 1} to {rank}")
    return params.axis if params.axis >= 0 else params.axis + rank + 1


def _expanded(params: ExpandDimsAttrs, shape: tuple[Dim, ...]) -> Shape:
    axis = _expanded_at(params, len(shape))
    return shape[:axis] + (1,) * params.num_newaxis + shape[axis:]


def _expand_dims_shape(params: ExpandDimsAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is not None:
        return [None], [_expanded(params, ins[0])]
    if outs[0] is None or len(outs[0]) < params.num_newaxis:
        return [None], [None]
    axis = _expanded_at(params, len(outs[0]) - params.num_newaxis)
    return [outs[0][:axis] + outs[0][axis + params.num_newaxis :]], [None]


expand_dims = _view(
    "expand_dims", "New axes of size 1.", level=1, attrs=ExpandDimsAttrs, pattern=BROADCAST, shape=_expand_dims_shape
)
_by_shape(expand_dims, _expanded)

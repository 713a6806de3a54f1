"""Tensors as the bodies of operators see them: placeholders, and computes given by an expression of
their index variables. `Tensor[i, j]` is a Load; nothing is evaluated here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..base.dtype import BOOL, FLOAT32, DType, as_dtype
from ..base.errors import InvalidValue, OutOfRange, ShapeError
from .expr import Const, Expr, ExprLike, Load, Reduce, ReduceAxis, Source, Symbolic, Var, as_expr, cast, select
from .visit import masked_load, parts, postorder


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor:
    """An array of a known shape; a computed one has a body over its axes, a placeholder none."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    axes: tuple[Var, ...] = ()
    body: Expr | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def lanes(self) -> int:
        return 1

    @property
    def is_reduction(self) -> bool:
        return isinstance(self.body, Reduce)

    def __repr__(self) -> str:
        return f"<Tensor {self.name}: {self.dtype}{list(self.shape)}>"

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Expr:
        given = indices if isinstance(indices, tuple) else (indices,)
        exprs = tuple(as_expr(index) for index in given)
        load = Load(self, exprs)
        for axis, index in enumerate(exprs):
            if isinstance(index, Const) and not 0 <= index.value < self.shape[axis]:
                raise OutOfRange(
                    f"index {index.value} of {self.name} is outside axis {axis}",
                    why=f"the shape is {self.shape}",
                    hint="te.read_or reads outside a tensor under a condition",
                )
        return load

    def inputs(self) -> list[Tensor]:
        """The tensors that the body reads, each once, in order of appearance."""
        if self.body is None:
            return []
        read = [node.source for node in postorder((self.body,)) if isinstance(node, Load)]
        return [source for source in dict.fromkeys(read) if isinstance(source, Tensor)]


def placeholder(shape: Sequence[int], dtype: DType | str = FLOAT32, name: str = "placeholder") -> Tensor:
    """A tensor that is given.

    >>> x = placeholder((2, 3), "float32", "x")
    >>> x.shape, x.rank
    ((2, 3), 2)
    """
    return Tensor(name, _static(shape), as_dtype(dtype))


def compute(
    shape: Sequence[int], fn: Callable[..., ExprLike], name: str | None = None, *, dtype: DType | str | None = None
) -> Tensor:
    """A tensor whose element (i, j, ...) is `fn(i, j, ...)`; with a dtype, cast to it.

    >>> x = placeholder((4, 3), name="x")
    >>> compute((3, 4), lambda i, j: x[j, i] * 2, name="twice").dtype
    dtype('float32')
    """
    extents = _static(shape)
    axes = tuple(Var(label) for label in _axis_names(fn, len(extents)))
    body = as_expr(fn(*axes), as_dtype(dtype) if dtype is not None else None)
    if dtype is not None:
        body = _cast_body(body, as_dtype(dtype))
    if body.lanes != 1:
        raise InvalidValue("the body of a compute is a scalar expression", where=name)
    _check_reductions(body, name)
    return Tensor(name or "compute", extents, body.dtype, axes, body)


def _cast_body(body: Expr, dtype: DType) -> Expr:
    if isinstance(body, Reduce):
        return Reduce(body.combiner, cast(body.body, dtype), body.axes)
    return cast(body, dtype)


def _static(shape: Sequence[int]) -> tuple[int, ...]:
    extents = tuple(n if isinstance(n, Symbolic) else int(n) for n in shape)
    if any(extent < 0 for extent in extents):
        raise ShapeError(f"{extents} is no shape", why="an extent is negative")
    return extents


def _axis_names(fn: Callable[..., ExprLike], rank: int) -> list[str]:
    """The names of the function's parameters where it names one per axis, else i0, i1, ..."""
    given = inspect.signature(fn).parameters.values()
    named = [p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return named[:rank] if len(named) >= rank else [f"i{axis}" for axis in range(rank)]


def _check_reductions(body: Expr, name: str | None) -> None:
    below = [part for node in postorder((body,)) for part in parts(node)]
    if any(isinstance(part, Reduce) for part in below):
        raise InvalidValue(
            "a reduction stands inside an expression",
            where=name,
            why="a Reduce is the root of a compute",
            hint="compute the reduction as its own tensor and read that",
        )


def reduce_axis(extent: int, name: str = "k") -> ReduceAxis:
    """An axis to reduce over; its index variable is `axis.var`.

    >>> reduce_axis(8).extent
    8
    """
    return ReduceAxis(Var(name), _static((extent,))[0])


def read_or(source: Source, indices: Sequence[ExprLike], condition: Expr | None, fill: ExprLike) -> Expr:
    """`source[indices]` where the condition holds, else the fill; no memory is touched there. None holds everywhere.

    >>> x = placeholder((4,), name="x")
    >>> padded = compute((6,), lambda i: read_or(x, (i - 1,), (i >= 1) & (i < 5), 0))
    """
    exprs = [as_expr(index) for index in indices]
    if condition is None:
        return masked_load(source, exprs, None)
    if condition.dtype != BOOL:
        raise InvalidValue(f"the condition of a read of {source.name} is no bool")
    return select(condition, masked_load(source, exprs, condition), as_expr(fill, source.dtype))

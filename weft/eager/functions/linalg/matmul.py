"""Rows: products of vectors and matrices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....base.dtype import BOOL, FLOAT32, is_float, is_integer
from ....base.errors import RunError
from ....core.op import Op
from ....ops.linalg.matmul import BatchMatmulAttrs, MatmulAttrs
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, axis_of, bind, wrap
from ..create.memory import sum_to_size
from ..math.arithmetic import add, mul, sub
from ..math.complex import conj
from ..operands import promoted
from ..reduce.reduce import sum as total
from ..shape.join import taken
from ..shape.shape import broadcast_tensors, expand, movedim, permute, reshape, transpose, unsqueeze
from ..table import row
from .matrices import LINALG

_MATMUL, _BATCHED = Op.get("matmul"), Op.get("batch_matmul")
_PLAIN, _PLAIN_BATCHED = MatmulAttrs(), BatchMatmulAttrs()


def product(a: Tensor, b: Tensor) -> Tensor:
    """Sums of products over the last axis of a and the first of b."""
    return apply(_MATMUL, _PLAIN, [a, b])[0]


def batched(a: Tensor, b: Tensor) -> Tensor:
    """Products of matrices; the axes before them broadcast."""
    return apply(_BATCHED, _PLAIN_BATCHED, [a, b])[0]


def _must_match(name: str, *tensors: Tensor) -> None:
    kinds = {tensor._dtype for tensor in tensors}
    if len(kinds) > 1:
        shown = " != ".join(tensor.dtype.title for tensor in tensors)
        raise RunError(f"{name}: expected m1 and m2 to have the same dtype, but got: {shown}")


def _must_have(name: str, tensor: Tensor, rank: int, what: str) -> None:
    if tensor.ndim != rank:
        raise RunError(f"{name}: Expected {rank}-D argument {what}, but got {tensor.ndim}-D")


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _cannot_multiply(a: Sequence[int], b: Sequence[int]) -> RunError:
    return RunError(f"mat1 and mat2 shapes cannot be multiplied ({_by(a)} and {_by(b)})")


@row(out=True)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Products of the matrices in the last two axes; a vector is a row or a column

    >>> import weft
    >>> matrix = weft.tensor([[1, 2], [3, 4]])
    >>> weft.matmul(matrix, weft.tensor([1, 1]))
    tensor([3, 7])
    >>> weft.matmul(weft.ones(5, 2, 3), weft.ones(3, 4)).shape
    weft.Size([5, 2, 4])
    """
    a, b = input._shape, other._shape
    if not a or not b:
        raise RunError(f"both arguments to matmul need to be at least 1D, but they are {len(a)}D and {len(b)}D")
    _must_match("matmul", input, other)
    if a[-1] != b[0 if len(b) == 1 else -2]:
        rows = (math.prod(a[:-1]), a[-1])
        raise _cannot_multiply(rows, b[-2:] if len(b) > 1 else (*b, 1))
    if len(b) <= 2:
        return product(input, other)
    if len(a) == 1:
        made = batched(unsqueeze(input, 0), other)
        return reshape(made, (*made._shape[:-2], made._shape[-1]))
    try:
        np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise RunError(f"The size of the batch dimensions of {list(a)} and {list(b)} must match") from None
    return batched(input, other)


@row(out=True)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices

    >>> import weft
    >>> weft.mm(weft.tensor([[1, 2], [3, 4]]), weft.tensor([[1, 0], [1, 1]]))
    tensor([[3, 2],
            [7, 4]])
    """
    if input.ndim != 2:
        raise RunError("self must be a matrix")
    if mat2.ndim != 2:
        raise RunError("mat2 must be a matrix")
    return matmul(input, mat2)


@row(out=True)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices

    >>> import weft
    >>> weft.bmm(weft.ones(8, 2, 3), weft.ones(8, 3, 4)).shape
    weft.Size([8, 2, 4])
    """
    _must_have("bmm", input, 3, "batch1")
    _must_have("bmm", mat2, 3, "batch2")
    _must_match("bmm", input, mat2)
    want = [input._shape[0], input._shape[2]]
    if list(mat2._shape[:2]) != want:
        raise RunError(
            f"Expected size for first two dimensions of batch2 tensor to be: {want} but got: {list(mat2.shape[:2])}."
        )
    return batched(input, mat2)


@row(out=True)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector"""
    if input.ndim != 2 or vec.ndim != 1:
        raise RunError(f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
    if input._shape[1] != vec._shape[0]:
        rows = input._shape[0]
        raise RunError(f"size mismatch, got input ({rows}), mat ({_by(input._shape)}), vec ({vec.numel()})")
    _must_match("mv", input, vec)
    return product(input, vec)


@row(out=True)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements, those of the first conjugated"""
    return dot(conj(input), other)


@row(out=True)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements

    >>> import weft
    >>> weft.dot(weft.tensor([1, 2, 3]), weft.tensor([4, 5, 6]))
    tensor(32)
    """
    if input.ndim != 1 or tensor.ndim != 1:
        raise RunError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input._dtype != tensor._dtype:
        raise RunError(
            f"dot : expected both vectors to have same dtype, but found {input.dtype.title} and {tensor.dtype.title}"
        )
    if input._shape != tensor._shape:
        raise RunError(
            f"inconsistent tensor size, expected tensor [{input.numel()}] and src [{tensor.numel()}] to have the "
            f"same number of elements, but got {input.numel()} and {tensor.numel()} elements respectively"
        )
    return product(input, tensor)


@row(out=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last axis of both"""
    if not input.ndim or not other.ndim:
        return mul(input, other)
    _must_match("inner", input, other)
    if input._shape[-1] != other._shape[-1]:
        raise RunError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input._shape)} and {list(other._shape)}"
        )
    return product(input, movedim(other, -1, 0))


@row(out=True, aliases=["ger"])
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The products of all pairs of two vectors' elements

    >>> import weft
    >>> weft.outer(weft.tensor([1, 2]), weft.tensor([1, 10, 100]))
    tensor([[  1,  10, 100],
            [  2,  20, 200]])
    """
    for tensor, what in ((input, "self"), (vec2, "vec2")):
        if tensor.ndim != 1:
            raise RunError(f"outer: Expected 1-D argument {what}, but got {tensor.ndim}-D")
    return mul(unsqueeze(input, 1), vec2)


# Added to something.


def _whole_factors(tensor: Tensor, *factors: Any) -> None:
    if is_integer(tensor._dtype) and any(isinstance(f, float) for f in factors):
        raise RunError("For integral input tensors, argument alpha must not be a floating point number.")


def _added(input: Tensor, made: Tensor, beta: Any, alpha: Any, name: str) -> Tensor:
    """beta * input + alpha * made; with beta 0 the input does not count, not even its NaN."""
    _must_match(name, input, made)
    if is_integer(made._dtype):
        beta, alpha = int(beta), int(alpha)
    shape = made._shape
    scaled = made if alpha == 1 else mul(made, alpha)
    start = expand(input, shape)
    if beta == 0:
        return scaled if not input._requires_grad else add(scaled, _nothing_of(start))
    return add(start if beta == 1 else mul(start, beta), scaled)


def _nothing_of(tensor: Tensor) -> Tensor:
    """Zeros that depend on a tensor, for its gradient to be zero."""
    made: Tensor = Op.get("zeros_like")(tensor)
    return made


def _rounded_once(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A sum with a product, which of numbers of 16 bits is one of float32 that is rounded at the end."""

    def wide(value: Any) -> Any:
        return value._cast(FLOAT32) if isinstance(value, Tensor) else value

    @functools.wraps(function)
    def summed(*args: Any, **options: Any) -> Tensor:
        kinds = [value._dtype for value in (*args, *options.values()) if isinstance(value, Tensor)]
        if not kinds or kinds[0].itemsize != 2 or not is_float(kinds[0]) or len({*kinds}) > 1:
            return function(*args, **options)
        made = function(*map(wide, args), **{name: wide(value) for name, value in options.items()})
        return made._cast(kinds[0])

    return summed


@row(inplace=True, out=True)
@_rounded_once
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2

    >>> import weft
    >>> weft.addmm(weft.tensor([10, 20]), weft.eye(2, dtype=weft.int64), weft.tensor([[1, 2], [3, 4]]))
    tensor([[11, 22],
            [13, 24]])
    """
    if mat1.ndim != 2:
        raise RunError("mat1 must be a matrix, got " + f"{mat1.ndim}-D tensor")
    if mat2.ndim != 2:
        raise RunError("mat2 must be a matrix, got " + f"{mat2.ndim}-D tensor")
    return _added(input, matmul(mat1, mat2), beta, alpha, "addmm")


@row(inplace=True, out=True)
@_rounded_once
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat @ vec"""
    return _added(input, mv(mat, vec), beta, alpha, "addmv")


@row(inplace=True, out=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * the outer product of two vectors"""
    made = outer(vec1, vec2)
    if made._dtype == BOOL:
        start = np.broadcast_to(array_of(input), made._shape)
        return wrap((start & bool(beta)) | (array_of(made) & bool(alpha)))
    left, right = promoted(input, made)
    _whole_factors(right, beta, alpha)
    return _added(left, right, beta, alpha, "addr")


@row(inplace=True, out=True)
@_rounded_once
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * batch1 @ batch2"""
    return _added(input, bmm(batch1, batch2), beta, alpha, "baddbmm")


@row(inplace=True, out=True)
@_rounded_once
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * the sum of batch1 @ batch2 over the batch"""
    a, b = batch1._shape, batch2._shape
    _must_have("addbmm", batch1, 3, "batch1")
    _must_have("addbmm", batch2, 3, "batch2")
    if a[0] != b[0]:
        raise RunError(f"batch1 and batch2 must have same number of batches, got {a[0]} and {b[0]}")
    if a[2] != b[1]:
        raise RunError(f"Incompatible matrix sizes for bmm ({_by(a[1:])} and {_by(b[1:])})")
    left = reshape(transpose(batch1, 0, 1), (a[1], a[0] * a[2]))
    return _added(input, matmul(left, reshape(batch2, (b[0] * b[1], b[2]))), beta, alpha, "addbmm")


# Of any number of axes.


@row(method=False, out=True)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sums of products over several axes of each

    >>> import weft
    >>> weft.tensordot(weft.ones(2, 3, 4), weft.ones(3, 4, 5), dims=2).shape
    weft.Size([2, 5])
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RunError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RunError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        dims = (range(-dims, 0), range(dims))
    left, right = ([*d] if not isinstance(d, int) else [d] for d in dims)
    if len(left) != len(right):
        raise RunError("both dimension lists should have same length")
    left = [axis_of(dim, a.ndim) for dim in left]
    right = [axis_of(dim, b.ndim) for dim in right]
    for one, two in zip(left, right):
        m, n = a._shape[one], b._shape[two]
        if m == 1 and n != 1:
            b = _summed(b, two)
        elif n == 1 and m != 1:
            a = _summed(a, one)
        elif m != n:
            raise RunError(
                f"contracted dimensions need to match, but first has size {m} in dim {one} and "
                f"second has size {n} in dim {two}"
            )
    _must_match("tensordot", a, b)
    return _contracted(a, b, left, right)


def _summed(tensor: Tensor, axis: int) -> Tensor:
    return sum_to_size(tensor, [1 if at == axis else n for at, n in enumerate(tensor.shape)])


def _contracted(a: Tensor, b: Tensor, left: Sequence[int], right: Sequence[int]) -> Tensor:
    kept_a = [axis for axis in range(a.ndim) if axis not in left]
    kept_b = [axis for axis in range(b.ndim) if axis not in right]
    sizes_a = [a._shape[axis] for axis in kept_a]
    sizes_b = [b._shape[axis] for axis in kept_b]
    summed = math.prod(a._shape[axis] for axis in left)
    rows = reshape(permute(a, [*kept_a, *left]), (math.prod(sizes_a), summed))
    columns = reshape(permute(b, [*right, *kept_b]), (summed, math.prod(sizes_b)))
    return reshape(product(rows, columns), (*sizes_a, *sizes_b))


@row(out=True)
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Copies of one tensor scaled by the elements of another

    >>> import weft
    >>> weft.kron(weft.tensor([1, 10]), weft.tensor([1, 2]))
    tensor([ 1,  2, 10, 20])
    """
    a, b = input._shape, other._shape
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    wide = reshape(input, [n for dim in a for n in (dim, 1)])
    made = mul(wide, reshape(other, [n for dim in b for n in (1, dim)]))
    return reshape(made, [m * n for m, n in zip(a, b)])


@row(method=False, space="weft.linalg", out=True)
def multi_dot(tensors: Any) -> Tensor:
    """The product of several matrices, in the order that takes the fewest multiplications"""
    given = list(tensors)
    if len(given) < 2:
        raise RunError(f"multi_dot(): expected at least 2 tensors but got {len(given)}")
    first, last = given[0].ndim, given[-1].ndim
    for number, tensor in enumerate(given):
        ends = number in (0, len(given) - 1)
        if tensor.ndim != 2 and not (ends and tensor.ndim == 1):
            raise RunError(f"multi_dot(): tensor {number} must be 2D but got {tensor.ndim}D")
    if first == 1:
        given[0] = unsqueeze(given[0], 0)
    if last == 1:
        given[-1] = unsqueeze(given[-1], 1)
    _must_match("multi_dot", *given)
    for one, two in itertools.pairwise(given):
        if one._shape[1] != two._shape[0]:
            raise _cannot_multiply(one._shape, two._shape)
    made = _in_best_order(given)
    shape = made._shape
    return reshape(made, shape[first == 1 : 2 - (last == 1)])


@row(method=False)
def chain_matmul(*matrices: Any, out: Tensor | None = None) -> Tensor:
    """`linalg.multi_dot`"""
    product: Tensor = matrices[0] if len(matrices) == 1 else multi_dot(matrices)
    return product


def _in_best_order(matrices: Sequence[Tensor]) -> Tensor:
    sizes = [matrices[0]._shape[0], *(m._shape[1] for m in matrices)]
    count = len(matrices)
    costs = np.zeros((count, count))
    split = np.zeros((count, count), int)
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            tries = [costs[i, k] + costs[k + 1, j] + float(sizes[i] * sizes[k + 1] * sizes[j + 1]) for k in range(i, j)]
            best = int(np.argmin(tries))
            costs[i, j], split[i, j] = tries[best], i + best
    return _multiplied(matrices, split)


def _multiplied(matrices: Sequence[Tensor], split: Any) -> Tensor:
    """The product by a table of where each run of matrices is split; innermost runs first."""
    made: dict[tuple[int, int], Tensor] = {(i, i): m for i, m in enumerate(matrices)}
    stack = [(0, len(matrices) - 1)]
    while (0, len(matrices) - 1) not in made:
        i, j = stack[-1]
        parts = (i, int(split[i, j])), (int(split[i, j]) + 1, j)
        waiting = [part for part in parts if part not in made]
        if waiting:
            stack += waiting
            continue
        made[i, j] = product(made[parts[0]], made[parts[1]])
        stack.pop()
    return made[0, len(matrices) - 1]


@row(space=LINALG, method=False, out=True)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sums of products along an axis; complex numbers of x are conjugated"""
    return total(mul(conj(x), y), dim)


row(matmul, space=LINALG, method=False, out=True)


@row(space=LINALG, method=False, out=True)
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors along an axis of 3"""
    if input.ndim != other.ndim:
        raise RunError("linalg.cross: inputs must have the same number of dimensions.")
    axis = axis_of(dim, input.ndim)
    left, right = promoted(*broadcast_tensors(input, other))
    if input._shape[axis] != 3 or other._shape[axis] != 3:
        raise RunError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[axis]} and {other.shape[axis]}"
        )
    next_left, next_right = (taken(x, axis, np.array([1, 2, 0])) for x in (left, right))
    last_left, last_right = (taken(x, axis, np.array([2, 0, 1])) for x in (left, right))
    return sub(mul(next_left, last_right), mul(last_left, next_right))


@row(name="cross", out=True)
def _cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product of vectors along an axis of 3, by default the first one there is"""
    if input.ndim != other.ndim:
        raise RunError("inconsistent tensors dimensions")
    if dim is None:
        dim = next((i for i, n in enumerate(input._shape) if n == 3), None)
        if dim is None:
            raise RunError("no dimension of size 3 in input")
    return cross(input, other, dim=dim)


def _operator(self: Tensor, other: Any) -> Any:
    return self.matmul(other) if isinstance(other, Tensor) else NotImplemented


def _swapped(self: Tensor, other: Any) -> Any:
    return other.matmul(self) if isinstance(other, Tensor) else NotImplemented


bind(__matmul__=_operator, __rmatmul__=_swapped)

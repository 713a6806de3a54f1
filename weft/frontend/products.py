"""Products of tensors that both importers know: numpy's product of matrices, and sums over named axes."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.errors import FormatError, Unsupported
from ..base.shape import Dim, mul_dims
from .building import Building
from .emitter import Value


def matrix_product(call: Building, a: Value, b: Value) -> Value:
    """Over the last two axes, the others being broadcast; a vector is a row on the left, a column on the right, and its
    axis is gone afterwards."""
    row, column = call.rank(a) == 1, call.rank(b) == 1
    if not row and call.rank(b) == 2:
        return call.op("matmul", a, b)
    a = call.op("expand_dims", a, axis=0) if row else a
    b = call.op("expand_dims", b, axis=1) if column else b
    product = call.op("batch_matmul", a, b)
    if not row and not column:
        return product
    *batch, rows, columns = call.dims(product)
    return call.reshape(product, [*batch, *([] if row else [rows]), *([] if column else [columns])])


def contracted(call: Building, values: Sequence[Value], terms: Sequence[str], result: str) -> Value:
    """Products of elements, summed over the axes that the result does not name; axes are letters. Each pair of operands
    becomes one product of matrices."""
    value, term = values[0], terms[0]
    for number, (other, letters) in enumerate(zip(values[1:], terms[1:]), 2):
        kept = set(result).union(*terms[number:])
        value, term = _product(call, value, term, other, letters, kept)
    value, term = _summed(call, value, term, set(result))
    if sorted(term) != sorted(result):
        raise FormatError(f"the result {result!r} has axes that no operand has")
    return _ordered(call, value, term, result)


def _product(call: Building, a: Value, s: str, b: Value, t: str, kept: set[str]) -> tuple[Value, str]:
    """Two operands as one: shared axes that are kept are batches, other shared ones are summed."""
    a, s = _summed(call, a, s, kept | set(t))
    b, t = _summed(call, b, t, kept | set(s))
    batch = [letter for letter in s if letter in t and letter in kept]
    inner = [letter for letter in s if letter in t and letter not in kept]
    rows = [letter for letter in s if letter not in t]
    columns = [letter for letter in t if letter not in s]
    sizes = _sizes(call, a, s, b, t)
    a = _ordered(call, a, s, "".join(batch + rows + inner))
    b = _ordered(call, b, t, "".join(batch + inner + columns))
    first = [sizes[letter] for letter in batch]
    left = call.reshape(a, [*first, _size(sizes, rows), _size(sizes, inner)])
    right = call.reshape(b, [*first, _size(sizes, inner), _size(sizes, columns)])
    term = batch + rows + columns
    product = call.op("batch_matmul" if batch else "matmul", left, right)
    return call.reshape(product, [sizes[letter] for letter in term]), "".join(term)


def _size(sizes: dict[str, Dim], letters: list[str]) -> Dim:
    return mul_dims(*(sizes[letter] for letter in letters))


def _sizes(call: Building, a: Value, s: str, b: Value, t: str) -> dict[str, Dim]:
    sizes: dict[str, Dim] = dict(zip(s, call.told(call.dims(a))))
    for letter, size in zip(t, call.told(call.dims(b))):
        known = sizes.setdefault(letter, size)
        if known != size:
            if isinstance(known, str) or isinstance(size, str):
                call.shape(a), call.shape(b)
            raise Unsupported(f"{call.op_type} of axes of {sizes[letter]} and {size} elements is not supported")
    return sizes


def _summed(call: Building, value: Value, term: str, kept: set[str]) -> tuple[Value, str]:
    """Without the axes that nothing later has."""
    gone = [axis for axis, letter in enumerate(term) if letter not in kept]
    return call.reduced("sum", value, gone, False), "".join(letter for letter in term if letter in kept)


def _ordered(call: Building, value: Value, term: str, wanted: str) -> Value:
    return call.transposed(value, [term.index(letter) for letter in wanted])

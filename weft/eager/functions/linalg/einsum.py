"""einsum: sums of products written as an equation, done as products of matrices, from left to
right."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ....base.errors import RunError
from ....core.op import Op
from ...dispatch import apply
from ...tensor.tensor import Tensor
from ..create.memory import sum_to_size
from ..shape.parts import diagonal
from ..shape.shape import expand, permute, reshape
from ..table import row
from .matmul import batched

_MUL = Op.get("broadcast_mul")
Labels = list[int]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
DOTS = len(LETTERS)  # labels from here on are the axes of an ellipsis, from the last one on


@row(method=False)
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products, by an equation such as "ij,jk->ik\"

    >>> import weft
    >>> x = weft.tensor([[1, 2], [3, 4]])
    >>> weft.einsum("ij,j->i", x, weft.tensor([1, 10]))
    tensor([21, 43])
    >>> weft.einsum("ii", x)
    tensor(5)
    """
    if isinstance(equation, str):
        given = operands[0] if len(operands) == 1 and not isinstance(operands[0], Tensor) else operands
        tensors = list(given)
        if not tensors:
            raise RunError("einsum(): must provide at least one operand")
        inputs, output = _parsed(equation, tuple([tensor.ndim for tensor in tensors]))
    else:
        tensors, inputs, output = _sublists(equation, operands)
    terms = [_single(tensor, labels) for tensor, labels in zip(tensors, inputs)]
    sizes = _sizes(terms)
    counts = Counter(label for _, labels in terms for label in labels)
    counts.update(output)
    made, have = terms[0]
    for label in have:
        counts[label] -= 1
    made, have = _without(made, have, counts)
    for tensor, labels in terms[1:]:
        for label in labels:
            counts[label] -= 1
        tensor, labels = _without(tensor, labels, counts, have)
        made, have = _pair(made, have, tensor, labels, counts, sizes)
    return _arranged(made, have, output, sizes)


@lru_cache(maxsize=1024)
def _parsed(equation: str, ranks: tuple[int, ...]) -> tuple[list[Labels], Labels]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise RunError(
            f"einsum(): {'more' if len(ranks) > len(parts) else 'fewer'} operands were provided "
            "than specified in the equation"
        )
    inputs = [_labels(part, rank) for part, rank in zip(parts, ranks)]
    if arrow:
        dots = max((label for labels in inputs for label in labels), default=0)
        output = _labels(right, None, max(dots - DOTS + 1, 0))
        if len(set(output)) != len(output):
            raise RunError("einsum(): output subscript appears more than once in the output")
        known = {label for labels in inputs for label in labels}
        if not known >= set(output):
            raise RunError("einsum(): output subscript does not appear in the equation for any input operand")
        return inputs, output
    return inputs, _implied(inputs)


def _implied(inputs: Sequence[Labels]) -> Labels:
    counts = Counter(label for labels in inputs for label in labels)
    dots = sorted((label for label in counts if label >= DOTS), reverse=True)
    return dots + sorted(label for label, n in counts.items() if n == 1 and label < DOTS)


def _labels(part: str, rank: int | None, dots: int = 0) -> Labels:
    before, ellipsis, after = part.partition("...")
    for letter in before + after:
        if letter not in LETTERS:
            raise RunError(
                f"einsum(): invalid subscript given at index, subscripts must be in [a-zA-Z], got {letter!r}"
            )
    named = len(before) + len(after)
    if rank is not None:
        dots = rank - named
        if dots < 0 or (dots and not ellipsis):
            raise RunError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the "
                f"number of dimensions ({rank}) for an operand"
            )
    middle = [DOTS + n for n in range(dots - 1, -1, -1)] if ellipsis else []
    return [*map(LETTERS.index, before), *middle, *map(LETTERS.index, after)]


def _sublists(first: Any, rest: Sequence[Any]) -> tuple[list[Tensor], list[Labels], Labels]:
    """einsum(a, [0, 1], b, [1, 2], [0, 2])"""
    items = [first, *rest]
    last = items.pop() if len(items) % 2 else None
    tensors = items[::2]
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise RunError("einsum(): operands come before their subscripts")
    texts = ["".join(_letter(n) for n in labels) for labels in items[1::2]]
    equation = ",".join(texts)
    if last is not None:
        equation += "->" + "".join(_letter(n) for n in last)
    inputs, output = _parsed(equation, tuple([tensor.ndim for tensor in tensors]))
    return tensors, inputs, output


def _letter(number: Any) -> str:
    if number is Ellipsis:
        return "..."
    if not 0 <= number < len(LETTERS):
        raise RunError("einsum(): expected subscript to be in [0, 52)")
    return LETTERS[number]


def _single(tensor: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """A term in which each label is there once: of repeated ones the diagonal."""
    for label in list(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            shape = tensor._shape
            if shape[first] != shape[second]:
                raise RunError(
                    f"einsum(): subscript {_name(label)} is repeated for an operand but the sizes "
                    f"don't match, {shape[second]} != {shape[first]}"
                )
            tensor = diagonal(tensor, 0, first, second)
            labels = [at for n, at in enumerate(labels) if n not in (first, second)] + [label]
    return tensor, labels


def _name(label: int) -> str:
    return LETTERS[label] if label < DOTS else "..."


def _sizes(terms: Sequence[tuple[Tensor, Labels]]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for tensor, labels in terms:
        for label, size in zip(labels, tensor._shape):
            have = sizes.setdefault(label, size)
            if have == 1:
                sizes[label] = size
            elif size not in (1, have):
                raise RunError(
                    f"einsum(): subscript {_name(label)} has size {size} for an operand which does "
                    f"not broadcast with previously seen size {have}"
                )
    return sizes


def _without(tensor: Tensor, labels: Labels, counts: Counter[int], others: Sequence[int] = ()) -> tuple[Tensor, Labels]:
    """A term summed over the labels that are needed nowhere else."""
    kept = [label for label in labels if counts[label] > 0 or label in others]
    if len(kept) == len(labels):
        return tensor, labels
    shape = [n if at in kept else 1 for at, n in zip(labels, tensor._shape)]
    summed = sum_to_size(tensor, shape)
    return reshape(summed, [n for at, n in zip(labels, shape) if at in kept]), kept


def _pair(
    a: Tensor, left: Labels, b: Tensor, right: Labels, counts: Counter[int], sizes: dict[int, int]
) -> tuple[Tensor, Labels]:
    """The product of two terms, summed over the shared labels that nothing else needs."""
    shared = [label for label in left if label in right]
    a, b = _stretched(a, left, shared, sizes), _stretched(b, right, shared, sizes)
    batch = [label for label in shared if counts[label] > 0]
    summed = [label for label in shared if counts[label] == 0]
    rows = [label for label in left if label not in right]
    columns = [label for label in right if label not in left]
    outer, inner, m = ([a._shape[left.index(label)] for label in labels] for labels in (batch, summed, rows))
    n = [b._shape[right.index(label)] for label in columns]
    if not summed and a._dtype == b._dtype:
        x = _seen(_moved(a, left, batch + rows), (*outer, *m, *[1] * len(n)))
        y = _seen(_moved(b, right, batch + columns), (*outer, *[1] * len(m), *n))
        return apply(_MUL, None, [x, y])[0], batch + rows + columns
    x = _seen(_moved(a, left, batch + rows + summed), (*outer, math.prod(m), math.prod(inner)))
    y = _seen(_moved(b, right, batch + summed + columns), (*outer, math.prod(inner), math.prod(n)))
    return _seen(batched(x, y), (*outer, *m, *n)), batch + rows + columns


def _moved(tensor: Tensor, labels: Labels, order: Labels) -> Tensor:
    """A term with its axes in another order."""
    return tensor if labels == order else permute(tensor, [labels.index(k) for k in order])


def _seen(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return tensor if tensor._shape == shape else reshape(tensor, shape)


def _stretched(tensor: Tensor, labels: Labels, shared: Sequence[int], sizes: dict[int, int]) -> Tensor:
    shape = tensor._shape
    wide = [sizes[k] if k in shared else n for k, n in zip(labels, shape)]
    return tensor if tuple(wide) == shape else expand(tensor, wide)


def _arranged(made: Tensor, have: Labels, output: Labels, sizes: dict[int, int]) -> Tensor:
    made = _moved(made, have, output)
    wide = tuple([sizes[label] for label in output])
    return made if made._shape == wide else expand(made, wide)

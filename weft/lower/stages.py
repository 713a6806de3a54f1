"""Which tensors of a group live in memory: each of those is a stage, and becomes a kernel.

Element-wise tensors are computed where they are read. A reduction is computed inside its reader
when that is one stage that reads it element by element (a bias or an activation after conv2d).
Padding is stored when a reduction reads it, which would otherwise test every element many times.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..te.expr import Load
from ..te.tensor import Tensor
from ..te.visit import loads


def stages(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """The tensors to compute into memory, each after those it reads."""
    order = topological(outputs, set(inputs))
    stored = set(outputs) | {tensor for tensor in order if _is_padding(tensor, order)}
    for tensor in reversed(order):
        if tensor.is_reduction and tensor not in stored and not _fits_inside(tensor, order, stored):
            stored.add(tensor)
    return [tensor for tensor in order if tensor in stored]


def topological(outputs: Sequence[Tensor], given: set[Tensor]) -> list[Tensor]:
    """What the outputs are computed through, each after what it reads; not what is given."""
    order: list[Tensor] = []
    seen: set[Tensor] = set(given)
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(outputs)]
    while stack:
        tensor, ready = stack.pop()
        if ready:
            order.append(tensor)
        elif tensor not in seen:
            seen.add(tensor)
            stack.append((tensor, True))
            stack.extend((t, False) for t in reversed(tensor.inputs()))
    return order


def _is_padding(tensor: Tensor, order: Sequence[Tensor]) -> bool:
    """Whether a reduction reads it again and again, each time asking whether it is inside."""
    assert tensor.body is not None
    if tensor.is_reduction or not any(load.mask is not None for load in loads(tensor.body)):
        return False
    return any(tensor in other.inputs() and other.is_reduction for other in order)


def _fits_inside(tensor: Tensor, order: Sequence[Tensor], stored: set[Tensor]) -> bool:
    """Whether one stored tensor is all that comes of it, through element-wise tensors of its shape
    that read it and each other in place (x * sigmoid(x) does so by two ways)."""
    found, ends = [tensor], set()
    for current in found:
        for reader in (other for other in order if current in other.inputs()):
            if reader.is_reduction or reader.shape != tensor.shape:
                return False
            if not all(_in_place(load, reader) for load in _reads(reader, current)):
                return False
            if reader in stored:
                ends.add(reader)
            elif reader not in found:
                found.append(reader)
    return len(ends) == 1


def _reads(reader: Tensor, source: Tensor) -> list[Load]:
    assert reader.body is not None
    return [load for load in loads(reader.body) if load.source is source]


def _in_place(load: Load, reader: Tensor) -> bool:
    """Whether each index is the reader's own, or the only one there is."""
    return load.mask is None and all(
        index is axis or extent == 1 for index, axis, extent in zip(load.indices, reader.axes, reader.shape)
    )

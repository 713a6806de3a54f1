"""Sequences of several lengths in one tensor: padded to the longest, or packed step after step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import numpy as np

from ...base.dtype import INT64
from ...base.errors import InvalidType, InvalidValue, RunError
from ...eager.functions.nn.attention import Unfit
from ...eager.functions.nn.padding import constant_pad
from ...eager.functions.shape.join import stack, taken
from ...eager.tensor.memory import Array, array_of
from ...eager.tensor.tensor import DimensionError, Tensor, wrap

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpad_sequence",
    "pack_sequence",
    "unpack_sequence",
]


class PackedSequence_(NamedTuple):
    """The fields of a `PackedSequence`."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


def _cast(name: str) -> Callable[[PackedSequence], PackedSequence]:
    def cast(self: PackedSequence) -> PackedSequence:
        return self._with(getattr(self.data, name)())

    cast.__name__, cast.__doc__ = name, f"The same sequences, their data cast by `Tensor.{name}`."
    return cast


class PackedSequence(PackedSequence_):
    """Sequences of several lengths without padding: `data` has all first steps, then all second steps and so on,
    longer sequences first, and `batch_sizes` tells how many sequences have each step. Sequence k of the data is
    number `sorted_indices[k]` of those that were packed.

    >>> import weft
    >>> packed = pack_sequence([weft.tensor([1, 2, 3]), weft.tensor([4])])
    >>> packed.data, packed.batch_sizes
    (tensor([1, 4, 2, 3]), tensor([2, 1, 1]))
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> Self:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not isinstance(data, (tuple, list)) or len(data) != 2:
                raise Unfit("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        for name, value in {"data": data, "batch_sizes": batch_sizes}.items():
            if not isinstance(value, Tensor):
                raise InvalidType(f"{name} of a PackedSequence must be a Tensor, not a {type(value).__name__}")
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor) -> Self:
        return self if data is self.data else type(self)(data, *self[1:])

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The same sequences, their data as `Tensor.to` gives them; itself where nothing changes."""
        return self._with(self.data.to(*args, **kwargs))

    def cuda(self, *args: Any, **kwargs: Any) -> Self:
        """The same sequences in a GPU's memory."""
        return self._with(self.data.cuda(*args, **kwargs))

    def cpu(self, *args: Any, **kwargs: Any) -> Self:
        """The same sequences in the CPU's memory."""
        return self.to(*args, device="cpu", **kwargs)

    def pin_memory(self) -> Self:
        """The same sequences in memory that a GPU may read."""
        return self._with(self.data.pin_memory())

    double, half, long, short, char, byte = map(_cast, ("double", "half", "long", "short", "char", "byte"))
    float, int = map(_cast, ("float", "int"))

    @property
    def is_cuda(self) -> bool:
        """Whether the data are in a GPU's memory."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether the data are in memory that a GPU may read."""
        return bool(self.data.is_pinned())


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another: `inverse[permutation[k]] == k`.

    >>> import weft
    >>> invert_permutation(weft.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    order = array_of(permutation)
    return wrap(np.argsort(order, kind="stable").astype(order.dtype))


def _time_first(input: Tensor, batch_first: bool) -> Tensor:
    if input.ndim < 2:
        raise DimensionError(
            f"Dimension out of range (a batch of sequences has two dimensions at least, not {input.ndim})"
        )
    return input.transpose(0, 1) if batch_first else input


def _checked_lengths(lengths: Any, batch: int, steps: int) -> Array:
    found = array_of(lengths) if isinstance(lengths, Tensor) else np.asarray(lengths)
    found = found.astype(INT64)
    if found.ndim != 1:
        raise RunError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {found.ndim}D tensor")
    if len(found) != batch:
        raise RunError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(found)} (batch_size={batch})")
    if found.min() < 1:
        raise RunError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if found.max() > steps:
        raise RunError(f"the longest of 'lengths' is {found.max()}, but the input has {steps} steps")
    return found


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | list[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs a batch of padded sequences, (steps, batch, ...) or with the batch first, of the lengths told. With
    `enforce_sorted` they must come longest first; else they are sorted, and unpacking brings their order back.

    >>> import weft
    >>> padded = weft.tensor([[1, 2, 0], [3, 0, 0], [4, 5, 6]])
    >>> pack_padded_sequence(padded, [2, 1, 3], batch_first=True, enforce_sorted=False).data
    tensor([4, 1, 3, 5, 2, 6])
    """
    if not isinstance(input, Tensor):
        raise InvalidType(f"pack_padded_sequence(): argument 'input' must be Tensor, not {type(input).__name__}")
    x = _time_first(input, batch_first)
    if not x.numel():
        raise RunError("Cannot pack empty tensors.")
    found = _checked_lengths(lengths, x.shape[1], len(x))
    order = None
    if not enforce_sorted:
        order = np.argsort(-found, kind="stable")
        x, found = taken(x, 1, order), found[order]
    elif (np.diff(found) > 0).any():
        raise RunError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True.",
            hint="enforce_sorted=False",
        )
    live = np.arange(found[0])[:, None] < found
    data = taken(x.reshape(-1, *x.shape[2:]), 0, np.flatnonzero(live))
    return PackedSequence(data, wrap(live.sum(1)), None if order is None else wrap(order))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The sequences of a pack in the order they were packed in, padded to the longest or to `total_length`, and
    their lengths.

    >>> import weft
    >>> packed = pack_sequence([weft.tensor([1, 2, 3]), weft.tensor([4])])
    >>> pad_packed_sequence(packed, batch_first=True, padding_value=-1)
    (tensor([[ 1,  2,  3],
            [ 4, -1, -1]]), tensor([3, 1]))
    """
    data, sizes = sequence.data, array_of(sequence.batch_sizes)
    steps, batch = len(sizes), int(sizes[0])
    if total_length is not None and total_length < steps:
        raise InvalidValue(
            "Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {steps}"
        )
    live = np.zeros((steps if total_length is None else total_length, batch), bool)
    live[:steps] = np.arange(batch) < sizes[:, None]
    rows = np.zeros(live.shape, INT64)
    rows[live] = np.arange(sizes.sum())
    lengths = live.sum(0)
    if sequence.unsorted_indices is not None:
        order = array_of(sequence.unsorted_indices)
        live, rows, lengths = live[:, order], rows[:, order], lengths[order]
    if batch_first:
        live, rows = live.T, rows.T
    padded = taken(data, 0, rows.ravel()).reshape(*rows.shape, *data.shape[1:])
    outside = wrap(~live.reshape(*live.shape, *[1] * (data.ndim - 1)))
    return padded.masked_fill(outside, data.new_full((), padding_value)), wrap(lengths)


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences in one tensor of (steps, batch, ...), or with the batch first, the shorter ones padded after their
    end or (`padding_side="left"`) before their begin.

    >>> import weft
    >>> pad_sequence([weft.tensor([1, 2, 3]), weft.tensor([4])], batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    if not isinstance(sequences, Iterable):
        raise RunError(f"pad_sequence: Expected iterable for input sequences, but got {type(sequences)}")
    if padding_side not in ("left", "right"):
        raise RunError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    items = list(sequences)
    if not items:
        raise RunError("received an empty list of sequences")
    if any(not item.ndim for item in items):
        raise RunError("a sequence needs a dimension of steps, but a tensor without dimensions was given")
    _, *rest = items[0].shape
    longest = max(map(len, items))
    padded = []
    for item in items:
        missing = longest - len(item)
        ends = (missing, 0) if padding_side == "left" else (0, missing)
        whole = item.to(items[0].dtype).expand(len(item), *rest)
        padded.append(constant_pad(whole, [ends, *[(0, 0)] * len(rest)], padding_value))
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch, each as long as told.

    >>> import weft
    >>> unpad_sequence(weft.tensor([[1, 2, 3], [4, 0, 0]]), weft.tensor([3, 1]), batch_first=True)
    [tensor([1, 2, 3]), tensor([4])]
    """
    items = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [item[: int(length)].clone() for item, length in zip(items, lengths)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences of several lengths, each (steps, ...). With `enforce_sorted` they must come longest first.

    >>> import weft
    >>> pack_sequence([weft.tensor([4]), weft.tensor([1, 2, 3])], enforce_sorted=False).sorted_indices
    tensor([1, 0])
    """
    lengths = [len(sequence) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed.

    >>> import weft
    >>> unpack_sequence(pack_sequence([weft.tensor([1, 2, 3]), weft.tensor([4])]))
    [tensor([1, 2, 3]), tensor([4])]
    """
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)

"""Lists of tensors as one flat tensor and back, and in groups of one type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from ...base.errors import InvalidType, InvalidValue, RunError, Unsupported
from ..functions.all import FUNCTIONS
from ..tensor.tensor import Tensor
from ..tensor.typed_tensor import typename

_cat = FUNCTIONS["weft"]["cat"]


def flatten_dense(tensors: Iterable[Tensor]) -> Tensor:
    """The elements of all tensors, one after the other.

    >>> import weft
    >>> flatten_dense([weft.ones(2, 1), weft.zeros(1)])
    tensor([1., 1., 0.])
    """
    flat = [tensor.reshape(-1) for tensor in _tensors(tensors)]
    if not flat:
        raise InvalidValue("_flatten_dense_tensors(): expected a non-empty list of Tensors")
    made: Tensor = _cat(flat)
    return made


def unflatten_dense(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Views of a flat tensor with the sizes of `tensors`, one after the other."""
    (flat,) = _tensors([flat])
    if flat.dim() != 1:
        raise RunError(f"the flat tensor has {flat.dim()} dimensions instead of one")
    made: list[Tensor] = []
    start = 0
    for like in _tensors(tensors):
        size = like.numel()
        if start + size > flat.numel():
            raise RunError(f"start ({start}) + length ({size}) exceeds dimension size ({flat.numel()}).")
        made.append(flat[start : start + size].view(like.shape))
        start += size
    return tuple(made)


def flatten_sparse(tensors: Iterable[Tensor]) -> NoReturn:
    raise Unsupported("weft has no sparse tensors", hint="_flatten_dense_tensors takes dense ones")


def unflatten_sparse(flat: Tensor, tensors: Iterable[Tensor]) -> NoReturn:
    raise Unsupported("weft has no sparse tensors", hint="_unflatten_dense_tensors takes dense ones")


def take(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Tensors of one type in groups of at most so many bytes, or of one tensor that has more."""
    if isinstance(size_limit, bool) or not isinstance(size_limit, (int, float)):
        raise InvalidType(f"size_limit is a number of bytes, not {size_limit!r:.40}")
    return _groups(_tensors(tensors), size_limit)


def _groups(tensors: list[Tensor], size_limit: float) -> Iterator[list[Tensor]]:
    groups: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        group = groups.setdefault(typename(tensor), [])
        if group and sum(map(_bytes, group)) + _bytes(tensor) > size_limit:
            yield group
            group = groups[typename(tensor)] = []
        group.append(tensor)
    yield from groups.values()


def _bytes(tensor: Tensor) -> int:
    return tensor.nbytes


def reorder_as(tensors: Iterable[Tensor], ordered_tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Tensors that are in order within their types, in the order that `ordered_tensors` have."""
    by_type: dict[str, list[Tensor]] = defaultdict(list)
    for tensor in _tensors(tensors):
        by_type[typename(tensor)].append(tensor)
    left = {kind: iter(group) for kind, group in by_type.items()}
    made = []
    for like in _tensors(ordered_tensors):
        found = next(left.get(typename(like), iter(())), None)
        if found is None:
            raise InvalidValue(f"there are fewer tensors of {typename(like)} than the order has")
        made.append(found)
    return tuple(made)


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor) or not isinstance(values, Iterable):
        raise InvalidType(f"expected a list of tensors, not {type(values).__name__}")
    listed = list(values)
    for position, value in enumerate(listed):
        if not isinstance(value, Tensor):
            raise InvalidType(f"expected Tensor as element {position}, but got {type(value).__name__}")
    return listed

"""What branches give and turns carry, taken apart: containers, and in them tensors, numbers and what stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.errors import Unsupported
from ...core.ir import NodeEntry
from ...eager.functions.all import FUNCTIONS
from ...eager.recording import Recording, StandIn
from ...eager.tensor.memory import start_of
from ...eager.tensor.tensor import Tensor, wrap
from ..compile.structure import DEEPEST, Nest, Place, built
from .numbers import OpenNumber, array_of_number, is_number, kind_of


class Unset:
    """The value of a variable that has none yet, and is not read until it has one."""

    def __repr__(self) -> str:
        return "nothing yet"


UNSET = Unset()


def spread(value: Any, leaves: list[Any], depth: int = 0) -> Any:
    """The structure of a value; what is in it is added to a list."""
    if depth > DEEPEST:
        raise Unsupported(f"containers are nested more than {DEEPEST} deep")
    kind = type(value)
    if kind is dict:
        return Nest(kind, tuple(value), tuple([spread(item, leaves, depth + 1) for item in value.values()]))
    if isinstance(value, (tuple, list)):
        return Nest(kind, None, tuple([spread(item, leaves, depth + 1) for item in value]))
    leaves.append(value)
    return Place(len(leaves) - 1)


def together(structures: Sequence[tuple[Any, int]], leaves: Sequence[Any]) -> list[Any]:
    """Values of their structures, each with how many of the leaves are its."""
    made, first = [], 0
    for structure, count in structures:
        made.append(built(structure, leaves[first : first + count]))
        first += count
    return made


def paired(one: Any, other: Any) -> tuple[Any, list[Any], list[Any]]:
    """Two values of one structure, and the leaves of both."""
    ours, theirs = list[Any](), list[Any]()
    structure, second = spread(one, ours), spread(other, theirs)
    if one is UNSET:
        return second, [UNSET] * len(theirs), theirs
    if other is UNSET:
        return structure, ours, [UNSET] * len(ours)
    if structure != second:
        raise Unsupported(f"{shown(one)} on one way, {shown(other)} on the other", why="containers keep their sizes")
    return structure, ours, theirs


def shown(value: Any) -> str:
    """What a value is, in words."""
    if isinstance(value, Tensor):
        return f"a tensor {value._dtype.name}{list(value.shape)}"
    if isinstance(value, (list, dict, tuple)):
        return f"a {type(value).__name__} of {len(value)} elements"
    if isinstance(value, OpenNumber):
        return f"a number ({value.kind.__name__})"
    return repr(value)


def is_state(value: Any) -> bool:
    """Whether a leaf can be an output of a subgraph."""
    return isinstance(value, Tensor) or is_number(value)


def misfit(one: Any, other: Any) -> str | None:
    """Why two leaves that are states cannot be one output; None if they can."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape:
            return "their shapes differ"
        return None if one._dtype == other._dtype else "their dtypes differ"
    if is_number(one) and is_number(other):
        return None if kind_of(one) is kind_of(other) else "their types differ"
    return "a graph has tensors and numbers, and each of its outputs one type"


def is_same(one: Any, other: Any) -> bool:
    """Whether two leaves are one and the same: objects, equal values, tensors that are the same part of memory."""
    if one is other:
        return True
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return is_same_memory(one._array, other._array)
    if isinstance(one, (Tensor, OpenNumber)) or isinstance(other, (Tensor, OpenNumber)):
        return False
    plain = (int, float, bool, str, complex)
    return type(one) is type(other) and isinstance(one, plain) and repr(one) == repr(other)


def is_same_memory(one: Any, other: Any) -> bool:
    """Whether two stand-ins are the same part of memory."""
    if not isinstance(one, StandIn) or not isinstance(other, StandIn) or one.storage is not other.storage:
        return one is other
    a, b = one.layout, other.layout
    return a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype and start_of(a) == start_of(b)


# Leaves that are tensors and numbers, as entries of the graph.


def entry_of(recording: Recording, leaf: Any) -> NodeEntry:
    """The entry of a tensor or a number."""
    if is_number(leaf) and not isinstance(leaf, OpenNumber):
        return recording.constant(array_of_number(leaf))
    return recording.entry_of(leaf.tensor if isinstance(leaf, OpenNumber) else leaf)


def leaf_for(recording: Recording, like: Any, entry: NodeEntry) -> Any:
    """A tensor or number of the same kind for an entry."""
    if isinstance(like, Tensor):
        return wrap(recording.value(like.shape, like._dtype, entry))
    dtype = like.tensor._dtype if isinstance(like, OpenNumber) else array_of_number(like).dtype
    return OpenNumber(wrap(recording.value((), dtype, entry)), kind_of(like))


def zeros(like: Any) -> Any:
    """A tensor or number of the same kind, for one that nobody reads."""
    if isinstance(like, Tensor):
        return FUNCTIONS["weft"]["zeros"](like.shape, dtype=like.dtype)
    return kind_of(like)(0)

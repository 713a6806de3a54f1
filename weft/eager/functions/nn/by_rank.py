"""Rows of nn.functional for one, two and three dimensions each: a family, and the numbers its members take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....base.errors import RunError
from ...tensor.tensor import Tensor
from ..table import NN, Function, named, row, summary, with_example

_PLACES = {1: "along one dimension", 2: "of images", 3: "of volumes"}


def by_rank(
    make: Callable[[int], Function],
    name: str,
    doc: str,
    ranks: Sequence[int] = (1, 2, 3),
    core: bool = False,
    examples: Mapping[int, Sequence[str]] | None = None,
) -> list[Function]:
    """Rows that are made for each number of dimensions, which goes into the name as its place goes into the docstring,
    with an example of those that have one; `core`: weft has them, too."""
    docs = {rank: doc.format(_PLACES[rank]) for rank in ranks}
    docs |= {rank: with_example(docs[rank], *lines) for rank, lines in (examples or {}).items()}
    members = [named(make(rank), name.format(rank), docs[rank]) for rank in ranks]
    for member in members:
        row(member, space=NN, method=False)
        if core:
            row(member, method=False)
    return members


def several(value: Any, count: int, name: str) -> tuple[int, ...]:
    """A number for each dimension; one stands for all."""
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(numbers) == 1:
        numbers *= count
    if len(numbers) != count:
        raise RunError(f"expected {name} to be a single integer value or a list of {count} values")
    return tuple(int(number) for number in numbers)


def with_indices(pool: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Makes a row of the form of a pool that gives indices whatever `return_indices` says."""
    signature = inspect.signature(pool)
    position = list(signature.parameters).index("return_indices")

    @functools.wraps(pool)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            return pool(*args[:position], True, *args[position + 1 :], **kwargs)
        return pool(*args, **{**kwargs, "return_indices": True})

    always_two = signature.replace(return_annotation="tuple[Tensor, Tensor]")
    named(call, f"{pool.__name__}_with_indices", f"{summary(pool)}, and where it is", always_two)
    return row(call, space=NN, method=False)

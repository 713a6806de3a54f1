"""vmap: a function of tensors as one of batches of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...base.errors import InvalidValue, RunError
from ..functions.around import around_calls
from ..functions.shape.join import cat
from ..functions.shape.parts import narrow
from ..functions.shape.shape import movedim
from ..tensor.tensor import Tensor, wrap
from .batched import Batched, ElementsAsked
from .batching import all as _rules  # noqa: F401  operators have their rules
from .level import Level, RandomAsked, over_batch
from .trees import Tree, flattened, spread

__all__ = ["vmap"]


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The function, mapped over an axis of its arguments: it sees tensors without that axis, and runs once for all.

    `in_dims` says which axis of each argument is mapped, None for those that all share; `out_dims` where the axis is in
    the results. `randomness` is "error", "same" or "different": what random functions do. A `chunk_size` bounds how
    much of the axis is computed at once.

    >>> import weft
    >>> weft.vmap(weft.dot)(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([[1.0, 1.0], [2.0, 2.0]]))
    tensor([ 3., 14.])
    """
    if randomness not in ("error", "different", "same"):
        raise RunError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise InvalidValue(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        name = named(func)
        axes, leaves, tree = _inputs(name, in_dims, args)
        size = _size(leaves, axes)

        def run(values: list[Any], count: int) -> Any:
            with Level(count, randomness) as level, around_calls(over_batch):
                entered = [value if axis is None else _entered(level, value, axis) for value, axis in zip(values, axes)]
                try:
                    made = func(*tree.built(entered), **kwargs)
                except (ElementsAsked, RandomAsked) as error:
                    raise RunError(str(error)) from error
                return _outputs(name, level, out_dims, made)

        if chunk_size is None or chunk_size >= size:
            return run(leaves, size)[0]
        return _chunked(run, leaves, axes, size, chunk_size)

    return mapped


def named(func: Any) -> str:
    return str(getattr(func, "__name__", repr(func)))


def _inputs(name: str, in_dims: Any, args: Sequence[Any]) -> tuple[list[Any], list[Any], Tree]:
    """The mapped axis of each leaf of the arguments, counted from the front; the leaves, and their structure."""
    shown = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise InvalidValue(
            f"{shown}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(in_dims)}."
        )
    if not args:
        raise InvalidValue(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
            "function with no inputs. The latter is unsupported."
        )
    leaves, tree = flattened(tuple(args))
    axes = spread(in_dims, tree)
    if axes is None:
        raise InvalidValue(
            f"{shown}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{flattened(in_dims)[1]} but inputs has structure {tree}."
        )
    return [_in_axis(shown, axis, leaf) for axis, leaf in zip(axes, leaves)], leaves, tree


def _in_axis(shown: str, axis: Any, leaf: Any) -> int | None:
    if axis is None:
        return None
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise InvalidValue(
            f"{shown}: Got in_dim={axis} for an input but in_dim must be either an integer dimension or None."
        )
    if not isinstance(leaf, Tensor):
        raise InvalidValue(
            f"{shown}: Got in_dim={axis} for an input but the input is of type {type(leaf)}. We cannot vmap over "
            "non-Tensor arguments, please use None as the respective in_dim"
        )
    rank = leaf.ndim
    if not -rank <= axis < rank:
        raise InvalidValue(
            f"{shown}: Got in_dim={axis} for some input, but that input is a Tensor of dimensionality {rank} so "
            f"expected in_dim to satisfy -{rank} <= in_dim < {rank}."
        )
    return axis % rank


def _size(leaves: Sequence[Any], axes: Sequence[Any]) -> int:
    sizes = [leaf._shape[axis] for leaf, axis in zip(leaves, axes) if axis is not None]
    if not sizes:
        raise InvalidValue("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise InvalidValue(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


def _entered(level: Level, tensor: Tensor, axis: int) -> Tensor:
    with level.outside():
        return wrap(Batched(movedim(tensor, axis, 0) if axis else tensor, level))


def _outputs(name: str, level: Level, out_dims: Any, made: Any) -> tuple[Any, list[Any], list[Any], Tree]:
    """The results outside of the level: as they are, and flat with their axes."""
    leaves, tree = flattened(made)
    axes = spread(out_dims, tree)
    if axes is None:
        raise InvalidValue(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            f"`outputs`. out_dims has structure {flattened(out_dims)[1]} but outputs has structure {tree}."
        )
    with level.outside():
        left = [_left(name, level, leaf, axis) for leaf, axis in zip(leaves, axes)]
    return tree.built(left), left, axes, tree


def _left(name: str, level: Level, leaf: Any, axis: Any) -> Any:
    if axis is None:
        if level.holds(leaf):
            raise InvalidValue(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return leaf
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise InvalidValue(
            f"vmap({name}, ..., out_dims={axis}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )
    if not isinstance(leaf, Tensor):
        raise InvalidValue(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. Did you mean to set "
            "out_dims= to None for output?"
        )
    value = level.whole(leaf)
    return movedim(value, 0, axis) if axis else value


def _chunked(
    run: Callable[[list[Any], int], Any], leaves: Sequence[Any], axes: Sequence[Any], size: int, chunk: int
) -> Any:
    """The results of parts of the batch, one after the other, put together."""
    parts = []
    for start in range(0, size, chunk):
        count = min(chunk, size - start)
        values = [leaf if axis is None else narrow(leaf, axis, start, count) for leaf, axis in zip(leaves, axes)]
        parts.append(run(values, count))
    _, first, out_axes, tree = parts[0]
    together = []
    for place, axis in enumerate(out_axes):
        together.append(first[place] if axis is None else cat([part[1][place] for part in parts], axis))
    return tree.built(together)

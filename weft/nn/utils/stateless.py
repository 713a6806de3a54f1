"""Calls of modules with parameters and buffers that are given for the call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...base.errors import InvalidType, InvalidValue, RunError
from ...eager.tensor.tensor import Tensor
from ..modules.module import Module

__all__ = ["functional_call"]

_ABSENT = object()


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a module with other tensors in the places of its parameters and buffers, by path. Those that are tied to a
    given one get it as well; with `strict` the paths are all that the module has.

    >>> import weft
    >>> from weft import nn
    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = nn.Parameter(weft.ones(2))
    ...
    ...     def forward(self, x):
    ...         return x * self.weight
    >>> scale = Scale()
    >>> functional_call(scale, {"weight": weft.tensor([2.0, 3.0])}, weft.ones(2)), scale.weight.tolist()
    (tensor([2., 3.]), [1.0, 1.0])
    """
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, parameters_and_buffers, tie_weights, strict):
        return module(*arguments, **(kwargs or {}))


@contextmanager
def _replaced(module: Module, given: dict[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    """Has the given tensors in a module inside the block. What the block puts in their places goes to `given`."""
    tensors = _with_tied(module, given) if tie_weights else dict(given)
    if strict:
        _check_keys(module, tensors)
    places = {path: (module.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in tensors}
    for path, tensor in tensors.items():
        if tensor is not None and not isinstance(tensor, Tensor):
            raise InvalidType(f"{tensor} is not an instance of weft.Tensor", where=path)
    before = {path: _swap(*places[path], tensor) for path, tensor in tensors.items()}
    try:
        yield
    finally:
        for path, old in reversed(before.items()):
            new = _swap(*places[path], old)
            if path in given:
                given[path] = new


def _swap(owner: Module, name: str, value: Any) -> Any:
    """Puts a value in the place of a name, where parameters need not be Parameters; what was there."""
    for table in (owner._parameters, owner._buffers):
        if name in table:
            old, table[name] = table[name], value
            return old
    before: Any = getattr(owner, name, _ABSENT)
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
    return before


def _all_tensors(module: Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _with_tied(module: Module, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is given, for all paths of the same parameter or buffer."""
    groups: dict[int, list[str]] = {}
    for path, tensor in _all_tensors(module):
        groups.setdefault(id(tensor), []).append(path)
    made = dict(given)
    for paths in groups.values():
        values = {path: given[path] for path in paths if path in given}
        if len({id(value) for value in values.values()}) > 1:
            raise InvalidValue(
                f"functional_call got multiple values for keys {sorted(values)}, which are tied.",
                hint="use tie_weights=False",
            )
        made |= {path: value for path in paths for value in values.values()}
    return made


def _check_keys(module: Module, given: Mapping[str, Tensor]) -> None:
    paths = {path for path, _ in _all_tensors(module)}
    unexpected, missing = sorted(given.keys() - paths), sorted(paths - given.keys())
    lines = [f"Error(s) in reparametrizing for {type(module).__name__}:"]
    lines += [f"Unexpected key(s): {', '.join(map(repr, unexpected))}."] if unexpected else []
    lines += [f"Missing key(s): {', '.join(map(repr, missing))}."] if missing else []
    if len(lines) > 1:
        raise RunError("\n\t".join(lines))

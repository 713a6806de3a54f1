"""The table of PyTorch's functions: a row is a Python function that composes operators of the
registry. From rows come functions, methods, in-place and `out=` forms, docs and type stubs.

    @row(inplace=True)
    def sigmoid(input: Tensor) -> Tensor:
        "1 / (1 + exp(-x))"
        return F.sigmoid(floating(input))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import RunError
from ..autograd.modes import modes
from ..autograd.node import keep_old_values, next_sequence
from ..autograd.node_names import entitle, title_of
from ..native.inplace import write_native
from ..native.thresholds import FROM
from ..tensor.inplace import check_writable, may_write_out, write, write_out
from ..tensor.tensor import Tensor
from .fusion import Fused
from .misuse import RAW, raise_explained


class Row(NamedTuple):
    """One function. `space` is the module it is in; rows of Tensor only have none."""

    name: str
    function: Callable[..., Any]
    space: str | None
    method: bool
    inplace: bool
    out: bool | str
    aliases: tuple[str, ...]
    fused: Fused | None  # what is written in one pass
    writes: Callable[..., bool] | None


TABLE: dict[str, Row] = {}  # by name; those of another space by space.name
FUNCTIONS: dict[str, dict[str, Callable[..., Any]]] = {"weft": {}}


def row(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    space: str | None = "weft",
    method: bool = True,
    inplace: bool = False,
    out: bool | str = False,
    aliases: Sequence[str] = (),
    elementwise: bool = False,
    writes: Callable[..., bool] | None = None,
) -> Any:
    """Adds a function to the table.

    `method`: Tensor has it, with its first parameter as self. `inplace`: Tensor (and the space)
    also have `name_`, which writes the result into its first argument. `out`: the function takes
    `out=`, a tensor (or a tuple of them) that is resized and written; "apart" refuses memory of an
    argument there, "strict" another dtype, too. `elementwise`: the function is one that `Fused`
    takes, so that in-place and `out=` forms write where the result belongs. `writes` does
    in-place calls that no graph has to know of, without a result beside the tensor; it says whether
    it did. Rows that begin with an underscore are reached by methods only.
    """
    if function is None:
        return functools.partial(
            row,
            name=name,
            space=space,
            method=method,
            inplace=inplace,
            out=out,
            aliases=aliases,
            elementwise=elementwise,
            writes=writes,
        )
    made = Row(
        name or function.__name__,
        function,
        space,
        method,
        inplace,
        out,
        tuple(aliases),
        Fused(function) if elementwise else None,
        writes,
    )
    TABLE[made.name if space in ("weft", None) else f"{space}.{made.name}"] = made
    _install(made)
    return function


def _install(made: Row) -> None:
    call = _checked(made)
    for name in (made.name, *made.aliases):
        if made.space is not None:
            FUNCTIONS.setdefault(made.space, {})[name] = call
        if made.method:
            setattr(Tensor, name, call)
        if made.inplace:
            writing = _writing(made, f"{name}_")
            setattr(Tensor, f"{name}_", writing)
            if made.space is not None:
                FUNCTIONS[made.space][f"{name}_"] = writing


def _checked(made: Row) -> Callable[..., Any]:
    """The function with `out=`, and with a message that names the argument of a wrong type."""
    function, title, own = made.function, title_of(made.name), made.fused

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if made.out and kwargs.get("out") is not None:
                target = kwargs.pop("out")
                given = (*args, *kwargs.values())
                if own and may_write_out(target, given) and write_native(own, target, args, kwargs):
                    return target
                result = function(*args, **kwargs)
                if made.out is not True:
                    _check_out(made, target, result, args)
                return write_out(target, result)
            if made.out:
                kwargs.pop("out", None)
            result = function(*args, **kwargs)
        except RAW as error:
            raise_explained(made.name, function, error, args, kwargs)
        entitle(result, title, args[0] if args else None)
        return result

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except RAW as error:
            raise_explained(made.name, function, error, args, kwargs)
        entitle(result, title, args[0] if args else None)
        return result

    return call if made.out else plain


def _check_out(made: Row, target: Any, result: Any, args: Sequence[Any]) -> None:
    if isinstance(result, tuple):
        for one, value in zip(target, result):
            _check_out(made, one, value, args)
        return
    if made.out == "strict" and target._array.dtype != result._array.dtype:
        raise RunError(
            f"{made.name}(): Expected out tensor to have dtype {result.dtype}, but got {target.dtype} instead"
        )
    inputs = [tensor for arg in args for tensor in (arg if isinstance(arg, (tuple, list)) else [arg])]
    resized = target._array.shape != result._array.shape
    for tensor in inputs:
        if isinstance(tensor, Tensor) and (
            np.shares_memory(tensor._array, target._array)
            or (resized and tensor._root is not None and tensor._root is target._root)
        ):
            raise RunError(
                "unsupported operation: some elements of the input tensor and the written-to "
                "tensor refer to a single memory location.",
                hint="clone() the tensor before performing the operation",
            )


def in_place(
    function: Callable[..., Any],
    own: Fused | None,
    title: str,
    self: Tensor,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    writes: Callable[..., bool] | None = None,
) -> Tensor:
    """Writes what a function gives into its first argument, natively if it can be."""
    check_writable(self)
    node = self._grad_fn
    large = own is not None and self._array.size >= FROM.written
    if large and write_native(own, self, (self, *args), kwargs):  # type: ignore[arg-type]
        if self._grad_fn is not node:
            entitle(self, title)
        return self
    unknown = writes is not None and not _is_recorded(self, *args, *kwargs.values())
    if unknown and writes(self, *args, **kwargs):  # type: ignore[misc]
        self._counter[0] += 1
        return self
    since = next_sequence()
    result = function(self, *args, **kwargs)
    entitle(result, title, self)
    if result._grad_fn is not None:
        keep_old_values(result._grad_fn, since, self._array)
    return write(self, result)


def _writing(made: Row, name: str) -> Callable[..., Any]:
    """The in-place form."""
    function, title, own = made.function, title_of(made.name), made.fused

    @functools.wraps(function)
    def call(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        try:
            return in_place(function, own, title, self, args, kwargs, made.writes)
        except RAW as error:
            raise_explained(name, function, error, (self, *args), kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"In-place `{made.name}`."
    return call


def _is_recorded(*args: Any) -> bool:
    return modes.grad and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args)

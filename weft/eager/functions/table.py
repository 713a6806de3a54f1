"""The table of PyTorch's functions: a row is a Python function that composes operators of the
registry. From rows come functions, methods, in-place and `out=` forms, docs and type stubs.

    @row(inplace=True)
    def sigmoid(input: Tensor) -> Tensor:
        "1 / (1 + exp(-x))"
        return F.sigmoid(floating(input))
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack, overload

from ...base.errors import RunError
from .. import native
from ..autograd.modes import modes
from ..autograd.node import keep_old_values, next_sequence
from ..autograd.node_names import entitle, title_of
from ..native.thresholds import FROM
from ..tensor.inplace import check_writable, may_write_out, write, write_out
from ..tensor.memory import memory_of, shares
from ..tensor.tensor import Tensor
from .around import LAYERS, through
from .fusion import Fused
from .misuse import RAW, raise_explained


class Options(TypedDict, total=False):
    """What a row says of its function; defaults and meaning are in `Row`."""

    name: str
    space: str | None
    method: bool
    inplace: bool
    out: bool | str
    aliases: Sequence[str]
    elementwise: bool
    writes: Callable[..., bool] | None


class Row(NamedTuple):
    """One function, and what is made from it. A row that begins with an underscore is reached by methods only."""

    function: Callable[..., Any]
    name: str
    space: str | None = "weft"  # the module it is in; rows of Tensor only have none
    method: bool = True  # Tensor has it, with its first parameter as self
    inplace: bool = False  # Tensor and the space have `name_`, too, which writes the result into its first argument
    # It takes `out=`, a tensor (or a tuple of them) that is resized and written; "apart" refuses memory of an
    # argument there, "strict" another dtype, too.
    out: bool | str = False
    aliases: Sequence[str] = ()
    elementwise: bool = False  # `Fused` takes it: in-place and `out=` forms write where the result belongs
    # Does an in-place call that no graph has to know of, without a result beside the tensor; says whether it did.
    writes: Callable[..., bool] | None = None

    @property
    def key(self) -> str:
        """Its name in the table."""
        return self.name if self.space in ("weft", None) else f"{self.space}.{self.name}"


NN = "weft.nn.functional"  # the space of most rows in the folder nn
TABLE: dict[str, Row] = {}  # by name; those of another space by space.name
FUNCTIONS: dict[str, dict[str, Callable[..., Any]]] = {"weft": {}}
Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def row(function: Function, **options: Unpack[Options]) -> Function: ...
@overload
def row(**options: Unpack[Options]) -> Callable[[Function], Function]: ...
def row(function: Callable[..., Any] | None = None, **options: Unpack[Options]) -> Callable[..., Any]:
    """Adds a function to the table, and gives it back as it is."""
    if function is None:
        return functools.partial(row, **options)
    options.setdefault("name", function.__name__)
    entry = Row(function, **options)
    TABLE[entry.key] = entry
    _install(entry)
    return function


def named(function: Function, name: str, doc: str | None, signature: inspect.Signature | None = None) -> Function:
    """A function that was made for a member of a family, under the member's name."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    if signature is not None:
        vars(function)["__signature__"] = signature
    return function


def with_example(doc: str, *lines: str) -> str:
    """A docstring with the lines of a session after it, for a member of a family."""
    return "\n".join([doc, "", ">>> import weft", *lines, ""])


def summary(function: Callable[..., Any]) -> str:
    """What the docstring of a function says before its example."""
    return inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]


def _install(entry: Row) -> None:
    fused = Fused(entry.function) if entry.elementwise else None
    call = _checked(entry, fused)
    if entry.space is not None:  # where users and pickles find it
        call.__module__, call.__name__, call.__qualname__ = entry.space, entry.name, entry.name
    for name in (entry.name, *entry.aliases):
        if entry.space is not None:
            FUNCTIONS.setdefault(entry.space, {})[name] = call
        if entry.method:
            setattr(Tensor, name, call)
        if entry.inplace:
            writing = _writing(entry, fused, f"{name}_")
            writing.__module__ = call.__module__
            setattr(Tensor, f"{name}_", writing)
            if entry.space is not None:
                FUNCTIONS[entry.space][f"{name}_"] = writing


def _checked(entry: Row, fused: Fused | None) -> Callable[..., Any]:
    """The function with `out=`, and with a message that names the argument of a wrong type."""
    function, title, takes_out = entry.function, title_of(entry.name), bool(entry.out)

    def with_out(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            if takes_out and (target := kwargs.pop("out", None)) is not None:
                return _write_out(entry, fused, target, args, kwargs)
            result = function(*args, **kwargs)
        except RAW as error:
            raise_explained(entry.name, function, error, args, kwargs)
        entitle(result, title, args[0] if args else None)
        return result

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if LAYERS:
            return through(entry.key, with_out, args, kwargs)
        if kwargs and takes_out and "out" in kwargs:
            return with_out(args, kwargs)
        try:
            result = function(*args, **kwargs)
        except RAW as error:
            raise_explained(entry.name, function, error, args, kwargs)
        entitle(result, title, args[0] if args else None)
        return result

    return call


def _write_out(entry: Row, fused: Fused | None, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if fused and may_write_out(target, (*args, *kwargs.values())) and native.write_native(fused, target, args, kwargs):
        return target
    result = entry.function(*args, **kwargs)
    if entry.out is not True:
        _check_out(entry, target, result, args)
    return write_out(target, result)


def _check_out(entry: Row, target: Any, result: Any, args: Sequence[Any]) -> None:
    if isinstance(result, tuple):
        for one, value in zip(target, result):
            _check_out(entry, one, value, args)
        return
    if entry.out == "strict" and target._dtype != result._dtype:
        raise RunError(
            f"{entry.name}(): Expected out tensor to have dtype {result.dtype}, but got {target.dtype} instead"
        )
    inputs = [tensor for arg in args for tensor in (arg if isinstance(arg, (tuple, list)) else [arg])]
    resized = target._shape != result._shape
    for tensor in inputs:
        if isinstance(tensor, Tensor) and (
            shares(memory_of(tensor), memory_of(target))
            or (resized and tensor._root is not None and tensor._root is target._root)
        ):
            raise RunError(
                "unsupported operation: some elements of the input tensor and the written-to "
                "tensor refer to a single memory location.",
                hint="clone() the tensor before performing the operation",
            )


def in_place(
    function: Callable[..., Any],
    fused: Fused | None,
    title: str,
    self: Tensor,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    writes: Callable[..., bool] | None = None,
) -> Tensor:
    """Writes what a function gives into its first argument, natively if it can be."""
    check_writable(self)
    node = self._grad_fn
    traced = modes.trace is not None
    large = fused is not None and not traced and self.numel() >= FROM.written
    if large and native.write_native(fused, self, (self, *args), kwargs):  # type: ignore[arg-type]
        if self._grad_fn is not node:
            entitle(self, title)
        return self
    unknown = writes is not None and not traced and not _is_recorded(self, *args, *kwargs.values())
    if unknown and writes(self, *args, **kwargs):  # type: ignore[misc]
        self._counter[0] += 1
        return self
    since = next_sequence()
    result = function(self, *args, **kwargs)
    entitle(result, title, self)
    if result._grad_fn is not None:
        keep_old_values(result._grad_fn, since, memory_of(self))
    return write(self, result)


def _writing(entry: Row, fused: Fused | None, name: str) -> Callable[..., Any]:
    """The in-place form."""
    function, title, key = entry.function, title_of(entry.name), f"{entry.key}_"

    def write_into(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return in_place(function, fused, title, args[0], args[1:], kwargs, entry.writes)

    @functools.wraps(function)
    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        try:
            if LAYERS:
                return through(key, write_into, (self, *args), kwargs)
            return in_place(function, fused, title, self, args, kwargs, entry.writes)
        except RAW as error:
            raise_explained(name, function, error, (self, *args), kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"In-place `{entry.name}`."
    return call


def _is_recorded(*args: Any) -> bool:
    return modes.grad and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args)

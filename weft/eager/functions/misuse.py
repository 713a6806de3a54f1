"""What a call with wrong arguments raises. A call that went well is never looked at: when one fails
with an error of Python or numpy, its arguments are examined, and the error says which is wrong."""

from __future__ import annotations

import functools
import inspect
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from ...base.errors import Error, InvalidType, InvalidValue, NotFound, OutOfMemory, OutOfRange, RunError
from ..tensor.tensor import Tensor, too_many_axes

F = TypeVar("F", bound=Callable[..., Any])

# What arguments of a wrong type or value make Python and numpy raise, and weft's error for it.
_OURS: dict[type[Exception], type[Error]] = {
    AttributeError: InvalidType,
    TypeError: InvalidType,
    KeyError: NotFound,
    IndexError: OutOfRange,
    ValueError: InvalidValue,
    OverflowError: InvalidValue,
    ZeroDivisionError: RunError,
    AssertionError: RunError,
    MemoryError: OutOfMemory,
}
RAW = tuple(_OURS)
_KINDS = {"int": numbers.Integral, "float": numbers.Real, "bool": bool, "str": str}
_TOO_LARGE = ("array is too big", "Maximum allowed dimension exceeded", "Maximum allowed size")
_TOO_MANY_AXES = "maximum supported dimension"
_OWN = {(__package__ or "").partition(".")[0], "numpy", "ml_dtypes"}


def raise_explained(
    name: str, function: Callable[..., Any], error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> NoReturn:
    """Raises what `explained` says, in place of the error that is being handled."""
    explanation = explained(name, function, error, args, kwargs)
    if explanation is error:
        raise error
    raise explanation from error


def explained(
    name: str, function: Callable[..., Any], error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Exception:
    """The error to raise for one that a call ended with. Errors of weft stay as they are unless an
    argument is no tensor, and so do errors of functions that the user passed in."""
    if not isinstance(error, Error) and _is_from_outside(error.__traceback__):
        return error
    explanation: Error | None = _beyond_limits(name, error)
    if explanation is None and type(error) is TypeError:
        explanation = _unbound(name, function, args, kwargs)
    explanation = explanation or _wrong_argument(name, function, error, args, kwargs)
    if explanation is not None or isinstance(error, Error):
        return explanation or error
    kind = next(ours for raw, ours in _OURS.items() if isinstance(error, raw))
    kinds = [type(value).__name__ for value in args]
    kinds += [f"{key}={type(value).__name__}" for key, value in kwargs.items()]
    return kind(f"{name}(): {error}", why=f"it was called with ({', '.join(kinds)})")


def _is_from_outside(traceback: TracebackType | None) -> bool:
    """Whether an error went through code that is neither weft's nor of what weft stands on."""
    while traceback is not None:
        root = traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if root not in _OWN and (root == "__main__" or root not in sys.stdlib_module_names):
            return True
        traceback = traceback.tb_next
    return False


def _beyond_limits(name: str, error: Exception) -> Error | None:
    """For more memory than there is, and more axes than numpy has."""
    why = str(error)
    if isinstance(error, Error):
        return None
    if isinstance(error, MemoryError) or why.startswith(_TOO_LARGE):
        return OutOfMemory(f"not enough memory: {name}() cannot allocate its result", why=why)
    return too_many_axes(f"{name}()", why) if why.startswith(_TOO_MANY_AXES) else None


def _unbound(
    name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> InvalidType | None:
    """For too many, too few or unknown arguments."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        return InvalidType(f"{name}() {error}", hint=f"it takes {_shown(function)}")
    return None


def _shown(function: Callable[..., Any]) -> str:
    parameters = inspect.signature(function).parameters.values()
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return str(inspect.Signature(bare))


def _wrong_argument(
    name: str, function: Callable[..., Any], error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> InvalidType | None:
    """For the first argument that is not of the type its parameter says; after an error of weft
    only tensors are asked for, since it said something about the others itself."""
    if not isinstance(error, (AttributeError, TypeError, ValueError)):
        return None
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        positional = position < len(args)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return None
        if not positional and parameter.name not in kwargs:
            continue
        value = args[position] if positional else kwargs[parameter.name]
        wanted = parameter.annotation
        kind = Tensor if wanted == "Tensor" else _KINDS.get(str(wanted))
        if isinstance(error, Error) and (kind is not Tensor or not isinstance(error, TypeError)):
            continue
        if value is None and parameter.default is None:
            continue
        if kind is None and isinstance(value, (str, bytes)) and "str" not in str(wanted):
            return InvalidType(
                f"{name}(): argument {parameter.name!r} (position {position + 1}) cannot be {value!r:.40}"
            )
        if kind is not None and not isinstance(value, (kind, Tensor)):
            return InvalidType(
                f"{name}(): argument {parameter.name!r} (position {position + 1}) must be "
                f"{wanted}, not {type(value).__name__}"
            )
    return None


def typed_errors(function: F) -> F:
    """The function, with errors that say which argument is wrong."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RAW as error:
            raise_explained(function.__name__, function, error, args, kwargs)

    return call  # type: ignore[return-value]

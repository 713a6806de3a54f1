"""Thread-local switches of autograd: whether operators record, and inference mode."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Generator
from typing import Any

from ...base.errors import InvalidType


class _Modes(threading.local):
    grad = True
    inference = False
    saving: Any = None  # functions that pack and unpack what is saved for a backward pass
    trace: Any = None  # what takes operators down instead of running them
    drawing: Any = None  # what is called before random numbers are drawn


modes = _Modes()


def is_grad_enabled() -> bool:
    """Whether operators record what a backward pass needs."""
    return modes.grad


def is_inference_mode_enabled() -> bool:
    return modes.inference


class _Mode:
    """A context manager that is a decorator, too."""

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    def _again(self) -> _Mode:
        """One like it, for another call."""
        return type(self)()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function):
            return _around_generator(self, function)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return inside


def _around_generator(mode: _Mode, function: Callable[..., Any]) -> Callable[..., Any]:
    """The mode holds while the generator runs, not while its caller does."""

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        step, value = generator.send, None
        while True:
            try:
                with mode._again():
                    item = step(value)
            except StopIteration as stop:
                return stop.value
            try:
                step, value = generator.send, (yield item)
            except GeneratorExit:
                with mode._again():
                    generator.close()
                raise
            except BaseException as error:
                step, value = generator.throw, error

    return inside


class _GradMode(_Mode):
    mode: bool

    def __enter__(self) -> None:
        self._before = modes.grad
        modes.grad = self.mode

    def __exit__(self, *exc: object) -> None:
        modes.grad = self._before


class no_grad(_GradMode):
    """Operators inside do not record.

    >>> import weft
    >>> x = weft.tensor([1.0], requires_grad=True)
    >>> with weft.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    mode = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        mode = super().__new__(cls)
        return mode if function is None else mode(function)


class enable_grad(no_grad):
    """Operators inside record, even inside `no_grad`.

    >>> import weft
    >>> with weft.no_grad(), weft.enable_grad():
    ...     weft.is_grad_enabled()
    True
    """

    mode = True


class set_grad_enabled(_GradMode):
    """Sets the mode at once; as a context manager it is set back at the end.

    >>> import weft
    >>> training = False
    >>> with weft.set_grad_enabled(training):
    ...     weft.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise InvalidType(f"set_grad_enabled takes a bool, not {type(mode).__name__}")
        self.mode = mode
        self._before = modes.grad
        modes.grad = mode

    def __enter__(self) -> None:
        modes.grad = self.mode

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        modes.grad = self._before  # it decorates: only the calls are meant
        return super().__call__(function)

    def _again(self) -> _Mode:
        return type(self)(self.mode)


class inference_mode(_Mode):
    """Operators inside neither record nor count versions; what they make may not be saved for a
    backward pass later."""

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        self = super().__new__(cls)
        if callable(mode):
            self.mode = True
            return self(mode)
        self.mode = mode
        return self

    def __init__(self, mode: bool | Callable[..., Any] = True) -> None:
        self.mode = mode if isinstance(mode, bool) else True

    def __enter__(self) -> None:
        self._before = modes.grad, modes.inference
        modes.inference = self.mode
        modes.grad = not self.mode

    def __exit__(self, *exc: object) -> None:
        modes.grad, modes.inference = self._before

    def _again(self) -> _Mode:
        return type(self)(self.mode)

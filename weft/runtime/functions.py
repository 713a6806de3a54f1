"""Global functions: Python callables by name, for host steps of compiled graphs and for plugins."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from ..base.errors import InvalidType, NotFound, RegistryError
from ..base.forks import held_lock

Function = Callable[..., Any]

_providers: dict[str, Callable[[], object]] = {}  # functions that are registered when their name is first asked for
_functions: dict[str, Function] = {}
_lock = held_lock("table")


def register_func(name: str | Function, f: Function | None = None, override: bool = False) -> Any:
    """Registers a function under a name; also a decorator, and without a name under its own.

    >>> @register_func("doctest.twice", override=True)
    ... def twice(x):
    ...     return 2 * x
    >>> get_global_func("doctest.twice")(21)
    42
    """
    if callable(name):
        return register_func(name.__name__, name, override)
    if not isinstance(name, str):
        raise InvalidType(f"a function's name must be a str, not {name!r}")

    def register(function: Function) -> Function:
        if not callable(function):
            raise InvalidType(f"global function {name!r} is not callable: {function!r}")
        _provide(name)  # so that what is provided does not replace this one later
        with _lock:
            if name in _functions and not override:
                raise RegistryError(
                    f"global function {name!r} is already registered", hint="pass override=True to replace it"
                )
            _functions[name] = function
        return function

    return register if f is None else register(f)


def provide_func(name: str, register: Callable[[], object]) -> None:
    """Says how a function comes to be registered: by a call of `register`, when its name is first asked for."""
    _providers[name] = register


def _provide(name: str) -> None:
    register = _providers.pop(name, None)
    if register is not None:
        register()


def get_global_func(name: str, allow_missing: bool = False) -> Function | None:
    """The function of that name; with `allow_missing`, None where there is none."""
    if not isinstance(name, str):
        raise InvalidType(f"a function's name must be a str, not {name!r}")
    _provide(name)
    function = _functions.get(name)
    if function is None and not allow_missing:
        close = difflib.get_close_matches(name, list_global_func_names(), n=1)
        raise NotFound(
            f"no global function is called {name!r}",
            hint=f"did you mean {close[0]!r}?" if close else "register_func registers one",
        )
    return function


def list_global_func_names() -> list[str]:
    """Names of all global functions, sorted."""
    return sorted({*_functions.copy(), *_providers.copy()})

"""How much a build optimises: `with build_config(opt_level=3): ...`."""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar, Token
from typing import Any

from ..base.errors import InvalidValue, NotFound
from ..passes.pipeline import OPT_PASS_LEVEL

_stack: ContextVar[BuildConfig | None] = ContextVar("weft_build_config", default=None)
_DEFAULTS: dict[str, Any] = {"opt_level": 2, "add_pass": None}


class BuildConfig:
    """Settings of a build; also a context manager, inside which they apply.

    >>> with build_config(opt_level=1):
    ...     BuildConfig.current().pass_enabled("PrecomputePrune")
    False
    """

    def __init__(self, **settings: Any) -> None:
        for key in settings:
            if key not in _DEFAULTS:
                raise InvalidValue(f"invalid argument {key}", why="candidates are " + ", ".join(_DEFAULTS))
        if settings.get("opt_level", 2) not in (0, 1, 2, 3):
            raise InvalidValue(f"opt_level {settings['opt_level']!r}", why="it is 0, 1, 2 or 3")
        for name in settings.get("add_pass") or ():
            if name not in OPT_PASS_LEVEL:
                raise NotFound(f"no pass {name!r}", why="there are " + ", ".join(OPT_PASS_LEVEL))
        self._settings = settings
        self._tokens: list[Token[BuildConfig | None]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in _DEFAULTS:
            raise AttributeError(name)
        return self._settings.get(name, _DEFAULTS[name])

    @staticmethod
    def current() -> BuildConfig:
        return _stack.get() or BuildConfig()

    @property
    def added(self) -> Collection[str]:
        return frozenset(self.add_pass or ())

    def pass_enabled(self, name: str) -> bool:
        """Whether a pass runs at this level, or was asked for."""
        if name not in OPT_PASS_LEVEL:
            raise NotFound(f"no pass {name!r}", why="there are " + ", ".join(OPT_PASS_LEVEL))
        return name in self.added or self.opt_level >= OPT_PASS_LEVEL[name]

    def __enter__(self) -> BuildConfig:
        outer = _stack.get()
        self._settings = {**(outer._settings if outer else {}), **self._settings}
        self._tokens.append(_stack.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _stack.reset(self._tokens.pop())


def build_config(**settings: Any) -> BuildConfig:
    """`opt_level` from 0 to 3, and `add_pass`: names of passes to run whatever the level."""
    return BuildConfig(**settings)

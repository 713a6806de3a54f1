"""Target: what code is made for. It has a kind, whose backend says what it is, and facts about one machine of it."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from .errors import InvalidType, InvalidValue

Parse = Callable[..., "Target"]  # (words of the text after the kind, **options) -> target

_kinds: dict[str, Parse] = {}
# weft's own, and the modules that register them when one is first asked for.
_OWN_KINDS = {"cpu": "cpu_target", "llvm": "cpu_target", "cuda": "cuda_target"}


class Target(ABC):
    """The facts that stages common to all kinds ask for; a kind has more of its own."""

    kind: ClassVar[str]  # which backend makes and runs its code

    @property
    @abstractmethod
    def isa(self) -> str:
        """The set of instructions that its code is made of, in a word."""

    @property
    @abstractmethod
    def nanoseconds_per_operation(self) -> float:
        """How long one of its cores takes for an operation on an element, in kernels at their best."""

    @abstractmethod
    def __str__(self) -> str:
        """A text that `Target.create` reads."""

    @staticmethod
    def create(target: str | Target = "cpu", **options: Any) -> Target:
        """A target from text such as "cpu" or "llvm -mcpu=x86-64-v3 -num-cores=2": first the kind, then what the kind
        understands. Keywords win over the text."""
        if isinstance(target, Target):
            return target.changed(**options)
        if not isinstance(target, str):
            raise InvalidType(f"a target is text or a Target, not {target!r}")
        kind, *words = target.split() or [""]
        if kind not in _kinds and kind in _OWN_KINDS:
            importlib.import_module(f".{_OWN_KINDS[kind]}", __package__)
        if kind not in _kinds:
            known = sorted(_kinds.keys() | _OWN_KINDS.keys())
            name, _, number = kind.partition(":")
            is_device = name in known and number.isdecimal()
            hint = f'target="{name}", inside of `with weft.{name}.device({number}):`' if is_device else None
            raise InvalidValue(f"unknown target {target!r}", why="targets: " + ", ".join(known), hint=hint)
        return _kinds[kind](words, **options)

    @abstractmethod
    def changed(self, **options: Any) -> Target:
        """The same with some options changed."""


def register_target(kind: str, parse: Parse) -> None:
    """Makes a kind known to `Target.create`: `parse(words, **options)` reads what follows its name."""
    _kinds[kind] = parse

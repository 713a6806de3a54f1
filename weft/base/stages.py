"""The stages of a compilation as they are reached, for those who want to look:

with watched(print): weft.compile("model.onnx")

Every room may say that it has reached one; `weft view` and `examples/walk_the_stages.py` look.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


class Stage(NamedTuple):
    """What was reached, the file whose code made it, and the thing itself."""

    title: str
    file: str
    value: Any


class Decision(NamedTuple):
    """One way of several, and the cost of each as the compiler estimated it; the least was taken, or nearly."""

    what: str
    chosen: str
    costs: dict[str, float]


Look = Callable[[Stage], None]
_look: ContextVar[tuple[Look, bool] | None] = ContextVar("weft_stages", default=None)


_recording: ContextVar[bool] = ContextVar("weft_recording", default=False)


@contextmanager
def recording() -> Iterator[None]:
    """Inside, Python code runs to be recorded, on tensors without values."""
    token = _recording.set(True)
    try:
        yield
    finally:
        _recording.reset(token)


def is_recording() -> bool:
    return _recording.get()


@contextmanager
def watched(look: Look, details: bool = False) -> Iterator[None]:
    """Has `look` called with each stage of what is compiled inside a `with` block; with `details`, also with what there
    is between two stages: passes, decisions, steps, and constants that are computed on the way."""
    token = _look.set((look, details))
    try:
        yield
    finally:
        _look.reset(token)


def is_watched() -> bool:
    return _look.get() is not None


def reached(title: str, maker: Callable[..., Any], value: Any, detail: bool = False) -> None:
    """Says that a stage is done: what a function made, and where that function is written."""
    look, details = _look.get() or (None, False)
    if look is not None and (details or not detail):
        look(Stage(title, _file_of(maker), value))


def decided(what: str, maker: Callable[..., Any], chosen: object, costs: Callable[[], Mapping[str, float]]) -> None:
    """Says that one of several ways was chosen by what a model of costs said of each; the costs are asked for only if
    somebody looks."""
    _, details = _look.get() or (None, False)
    if details:
        reached("decision", maker, Decision(what, str(chosen), dict(costs())), detail=True)


def _file_of(maker: Callable[..., Any]) -> str:
    """The file of a function: from the package on, or its name alone where it is the user's own."""
    while isinstance(maker, partial):
        maker = maker.func
    code = getattr(inspect.unwrap(maker), "__code__", None)
    file = code.co_filename if code is not None else ""
    return file.removeprefix(_PACKAGE).replace(os.sep, "/") if file.startswith(_PACKAGE) else os.path.basename(file)


# Who registers rules: weft's own modules as they load, or somebody else. What is kept of whole models serves only while
# nobody else has.

_OWN = __name__.split(".")[0]
_foreign = False


def running_module() -> str:
    """The module whose own code, on top of all functions that it called, runs now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals["__name__"])


def note_registration() -> None:
    """Says that a rule was registered that may change what becomes of a model."""
    global _foreign
    _foreign = _foreign or running_module().split(".")[0] != _OWN


def has_foreign_rules() -> bool:
    """Whether anything was registered but by weft's modules as they loaded."""
    return _foreign

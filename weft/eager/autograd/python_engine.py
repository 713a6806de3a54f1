"""The engine that Python programs start backward passes with, and which engine is the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base.errors import InvalidType, RunError
from ..tensor.tensor import Tensor
from .engine import Engine
from .gradient_graph import GradientEdge

Stub = Callable[[], Any]


class PythonEngine(Engine):
    """An engine that looks at what it is given before it runs a graph."""

    def run_backward(
        self,
        tensors: tuple[Any, ...],
        grad_tensors: tuple[Any, ...],
        keep_graph: bool,
        create_graph: bool,
        inputs: tuple[Any, ...] = (),
        allow_unreachable: bool = False,
        accumulate_grad: bool = False,
    ) -> tuple[Any, ...]:
        for name, value in (("tensors", tensors), ("grad_tensors", grad_tensors)):
            if not isinstance(value, tuple):
                raise RunError(f"{name} argument is expected to be a tuple, but got {type(value).__name__}")
        if len(tensors) != len(grad_tensors):
            raise RunError(f"got {len(tensors)} tensors and {len(grad_tensors)} gradients")
        for number, (tensor, grad) in enumerate(zip(tensors, grad_tensors)):
            _check_root(number, tensor, grad)
        if not isinstance(inputs, tuple):
            raise RunError("inputs to run_backward must be a tuple")
        for one in inputs:
            if not isinstance(one, (Tensor, GradientEdge)):
                raise RunError(f"all inputs have to be Tensors or GradientEdges, but got {type(one).__name__}")
        return super().run_backward(
            tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad
        )


PythonEngine.__name__ = PythonEngine.__qualname__ = "_EngineBase"  # as PyTorch calls its own
PythonEngine.__module__ = "weft._C"


def _check_root(number: int, tensor: Any, grad: Any) -> None:
    if not isinstance(tensor, (Tensor, GradientEdge)):
        raise RunError(
            f"element {number} of tensors tuple is neither a Tensor nor a GradientEdge", why=f"it is {tensor!r:.60}"
        )
    if grad is None and (isinstance(tensor, GradientEdge) or tensor.requires_grad):
        raise RunError(f"element {number} of gradients tuple is None, but the corresponding Tensor requires grad")
    if grad is not None and not isinstance(grad, Tensor):
        raise RunError(f"element {number} of gradients tuple is not a Tensor or None", why=f"it is {grad!r:.60}")


_base_engine, _python_engine = Engine(), PythonEngine()


def get_base_engine() -> Engine:
    """The engine that runs a graph as it is given, without a look at it."""
    return _base_engine


def get_python_engine() -> Engine:
    """The engine that Python programs use unless they set another."""
    return _python_engine


_stub: Stub = get_python_engine


def set_default_engine_stub(stub: Stub) -> Stub:
    """Has a function of no arguments say, at every backward pass, which engine runs it. Gives the
    function that was asked before.

    >>> before = set_default_engine_stub(get_base_engine)
    >>> get_default_engine() is get_base_engine()
    True
    >>> set_default_engine_stub(before) is get_base_engine
    True
    """
    global _stub
    if not callable(stub):
        raise InvalidType(
            f"an engine stub is a function that gives an engine, not {stub!r:.60}",
            hint="weft.autograd.engine.get_python_engine is one",
        )
    before, _stub = _stub, stub
    return before


def get_default_engine() -> Any:
    """The engine that runs backward passes."""
    engine = _stub()
    return engine if isinstance(engine, Engine) else _checked(engine)


def set_default_engine(engine: Any) -> None:
    """Has one engine run all backward passes."""
    _checked(engine)
    set_default_engine_stub(lambda: engine)


def _checked(engine: Any) -> Any:
    if isinstance(engine, type):
        raise InvalidType(f"{engine.__name__} is a class, not an engine", hint=f"make one: {engine.__name__}()")
    if not callable(getattr(engine, "run_backward", None)):
        raise InvalidType(f"{type(engine).__name__} is no engine", why="an engine has run_backward(...)")
    return engine

"""The graph of a backward pass as users work on it: edges, hooks of several tensors, and functions
that keep what is saved."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ...base.errors import InvalidValue, RunError
from ...base.forks import held_lock
from ..functions.misuse import typed_errors
from ..tensor.memory import array_of
from ..tensor.tensor import Tensor
from .engine import current_run
from .modes import _Mode, modes
from .node import AccumulateGrad, Meta, Node

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "is_multithreading_enabled",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_multithreading_enabled",
]


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor arrives: a node, and as which of its inputs. `grad` and
    `backward` take one in place of the tensor."""

    node: Node
    output_nr: int
    ownership_token: Node | None = None

    def _edge(self) -> tuple[Node, int]:
        return self.node, self.output_nr

    @property
    def meta(self) -> Meta:
        """The shape and dtype of the gradient."""
        return self.node.outputs[self.output_nr]

    @property
    def leaf(self) -> Tensor | None:
        """The tensor that the gradient is added to, if it is one of a leaf."""
        return self.node.variable if isinstance(self.node, AccumulateGrad) else None


@typed_errors
def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge that a tensor's gradient arrives at."""
    node, index = tensor._edge()
    if node is None:
        raise RunError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(node, index)


@typed_errors
def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Tells that tensors were written to by something that does not say so itself."""
    for one in (tensor,) if isinstance(tensor, Tensor) else tuple(tensor):
        one._counter[0] += 1


# What is saved.


class _Refused(threading.local):
    message: str | None = None


_refused = _Refused()


class saved_tensors_hooks:
    """Inside, `pack_hook(tensor)` gives what is kept of each tensor that is saved for a backward
    pass, and `unpack_hook` makes the tensor of it again."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._before: list[Any] = []

    def __enter__(self) -> None:
        if _refused.message is not None:
            raise RunError(_refused.message)
        self._before.append(modes.saving)
        modes.saving = (self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: object) -> None:
        modes.saving = self._before.pop()


def _unpacked(tensor: Tensor) -> Tensor:
    return tensor


def _copied(tensor: Tensor) -> Tensor:
    return tensor._like(array_of(tensor).copy())


class save_on_cpu(saved_tensors_hooks):
    """Keeps what is saved in the memory of the processor, where it is."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(_copied if pin_memory else Tensor.detach, _unpacked)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, `saved_tensors_hooks` raises an error with a message."""
    before = _refused.message
    _refused.message = error_message
    try:
        yield
    finally:
        _refused.message = before


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Inside, what is saved is a copy: tensors may be written to afterwards."""
    with saved_tensors_hooks(_copied, _unpacked):
        yield


# Hooks of several tensors.


class _Handles:
    """Hooks that are taken away together."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


@typed_errors
def register_multi_grad_hook(
    tensors: Sequence[Tensor | GradientEdge], fn: Callable[[Any], None], *, mode: str = "all"
) -> _Handles:
    """Calls `fn` once in a backward pass: with the gradients of all tensors that it computes, None
    for the others; or, in mode "any", with the first of them."""
    if mode not in ("all", "any"):
        raise InvalidValue(f"Expects mode to be one of ('all', 'any') but got {mode}")
    edges = [_edge_of(tensor) for tensor in tensors]
    seen = _Gathering(edges, fn, mode == "any")
    hooks = [node.hooks_of(index).add(seen.hook(n)) for n, (node, index) in enumerate(edges)]
    return _Handles(hooks)


def _edge_of(tensor: Tensor | GradientEdge) -> tuple[Node, int]:
    return get_gradient_edge(tensor)._edge() if isinstance(tensor, Tensor) else tensor._edge()


_gathering = held_lock("table")


class _Gathering:
    """The gradients that have arrived in each of the passes that are running."""

    def __init__(self, edges: Sequence[tuple[Node, int]], function: Callable[[Any], None], first: bool) -> None:
        self.edges, self.function, self.first = edges, function, first
        self.arrived: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
        self.left: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def hook(self, number: int) -> Callable[[Tensor], None]:
        def take(grad: Tensor) -> None:
            run = current_run()
            with _gathering:
                if run not in self.left:
                    self.arrived[run] = [None] * len(self.edges)
                    self.left[run] = 1 if self.first else self._expected(run)
                self.arrived[run][number] = grad
                self.left[run] -= 1
                last = self.left[run] == 0
            if last:
                self.function(grad if self.first else tuple(self.arrived.pop(run)))

        return take

    def _expected(self, run: Any) -> int:
        return sum(run.reaches(node) for node, _ in self.edges)


# Threads.


class _Threads(threading.local):
    enabled = True


_threads = _Threads()


def is_multithreading_enabled() -> bool:
    """Whether backward passes may use several threads."""
    return _threads.enabled


class set_multithreading_enabled(_Mode):
    """Says so at once; as a context manager it is set back at the end. A pass runs its nodes one by
    one in any case: it is kernels that use threads."""

    def __init__(self, mode: bool) -> None:
        self.mode, self._before = mode, _threads.enabled
        _threads.enabled = mode

    def __enter__(self) -> None:
        _threads.enabled = self.mode

    def __exit__(self, *exc: object) -> None:
        _threads.enabled = self._before

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        _threads.enabled = self._before  # it decorates: only the calls are meant
        return super().__call__(function)

    def _again(self) -> _Mode:
        return type(self)(self.mode)

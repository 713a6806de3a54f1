"""Nodes of the autograd graph: what a backward pass calls. A node has an edge for each input of the
forward call: the node that takes its gradient, and as which of its inputs."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

from ...base.dtype import DType
from ...base.errors import InvalidType, RunError
from ...core.op import Op
from ..tensor.memory import may_share
from .hooks import Hooks
from .modes import modes

Grad = Any  # a Tensor, or None for zero
NO_EDGE: tuple[None, int] = (None, 0)
LAST = 2**63 - 1  # the sequence number of what runs as soon as it can

sequence = itertools.count()
_new = object.__new__

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed)"
)


Meta = tuple[tuple[int, ...], DType]  # what a gradient of an output must look like


class Node:
    """The base of all nodes. What most nodes never have is a default of the class."""

    title: str | None = None  # after the function that made it; else after its class
    _hooks: dict[int, Hooks] | None = None  # of tensors, by output number
    _pre_hooks: Hooks | None = None
    _post_hooks: Hooks | None = None
    _metadata: dict[str, Any] | None = None
    _retained: dict[int, Any] | None = None  # tensors that keep their gradient, weakly

    def __init__(self, next_functions: tuple[tuple[Node | None, int], ...], outputs: tuple[Meta, ...]) -> None:
        self.next_functions = next_functions
        self.outputs = outputs
        self.sequence_nr = next(sequence)

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        """The gradients of the inputs of the forward call, given those of its outputs."""
        raise NotImplementedError

    def release(self) -> None:
        """Forgets what was saved."""

    def before_overwriting(self) -> None:
        """Called when the memory of its outputs is about to be written to."""

    def name(self) -> str:
        return self.title or type(self).__name__

    def _sequence_nr(self) -> int:
        return self.sequence_nr

    @property
    def metadata(self) -> dict[str, Any]:
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(grad_inputs, grad_outputs)` runs after the node, and may replace what it gave."""
        self._post_hooks = self._post_hooks or Hooks()
        return self._post_hooks.add(hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        """`hook(grad_outputs)` runs before the node, and may replace what it gets."""
        self._pre_hooks = self._pre_hooks or Hooks()
        return self._pre_hooks.add(hook)

    def hooks_of(self, index: int) -> Hooks:
        """The hooks of the tensor that is an output of the forward call."""
        self._hooks = {} if self._hooks is None else self._hooks
        return self._hooks.setdefault(index, Hooks())

    def tensor_hooks(self) -> dict[int, Hooks]:
        """Hooks of tensors, by output number."""
        return self._hooks or {}

    def is_hooked(self) -> bool:
        """Whether an output of the forward call has hooks, or keeps its gradient."""
        return self._hooks is not None or self._retained is not None

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class NotDifferentiable(Node):
    """Stands behind the result of an operator that has no gradient: nothing is taken for zero."""

    def __init__(self, op: Op, edges: tuple[tuple[Node | None, int], ...], outputs: Any) -> None:
        super().__init__(edges, tuple([(out._array.shape, out._array.dtype) for out in outputs]))
        self.op = op

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        raise RunError(
            f"derivative for {self.op.name} is not implemented",
            hint="detach() what goes into it, or leave create_graph out",
        )


class AccumulateGrad(Node):
    """The end of the graph: adds what arrives to a leaf's `grad`."""

    next_functions = ()
    sequence_nr = LAST

    variable: Any

    def hooks_of(self, index: int) -> Hooks:
        """A leaf keeps its hooks itself: it outlives the graph."""
        if self.variable._leaf_hooks is None:
            self.variable._leaf_hooks = Hooks()
        hooks: Hooks = self.variable._leaf_hooks
        return hooks

    def tensor_hooks(self) -> dict[int, Hooks]:
        hooks = self.variable._leaf_hooks
        return {0: hooks} if hooks else {}

    def is_hooked(self) -> bool:
        return bool(self.variable._leaf_hooks) or self._retained is not None

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        (grad,) = grads
        if grad is not None:
            alone = getrefcount(grad) == ALONE and getrefcount(grad._array) == ALONE_IN_TENSOR
            self.variable._accumulate(grad, alone and grad._array.base is None)
            for hook in self.variable._after_hooks or ():
                hook(self.variable)
        return ()


def _references(items: list[Any]) -> int:
    (item,) = items
    return getrefcount(item)


class _Holder:
    def __init__(self) -> None:
        self._array = object()

    def references(self) -> int:
        return getrefcount(self._array)


# References to a gradient that only the engine holds, and to its array, where they are counted.
ALONE, ALONE_IN_TENSOR = _references([object()]), _Holder().references()


class Saved:
    """A tensor kept for a backward pass: its memory and version, and its place in the graph.

    Kept apart from the Tensor object, which may get another history by an in-place operator.
    """

    __slots__ = ("array", "counter", "edge", "is_output", "leaf", "name", "version")

    def __init__(self, tensor: Any, is_output: bool) -> None:
        if tensor._inference:
            raise RunError(
                "Inference tensors cannot be saved for backward.",
                hint="make a normal tensor of it outside inference_mode with clone()",
            )
        self.array = tensor._array
        self.counter = tensor._counter
        self.version = tensor._counter[0]
        self.is_output = is_output
        self.leaf = None
        self.edge: tuple[Node | None, int] = (None, tensor._output_nr)
        if not is_output:
            self.edge = (tensor.grad_fn, tensor._output_nr)
            if self.edge[0] is None and tensor._requires_grad:
                self.leaf = tensor

    def unpack(self, owner: Node, tensor_of: Callable[..., Any]) -> Any:
        """The tensor as it was; an error if an in-place operator has changed it since."""
        if self.counter[0] != self.version:
            raise self._modified(owner)
        if self.leaf is not None:
            return self.leaf
        fn, index = self.edge
        return tensor_of(self.array, self.counter, owner if self.is_output else fn, index)

    def keep_apart(self, array: Any) -> None:
        """Has a copy of its own of memory that is about to be overwritten."""
        same = self.array is array or may_share(self.array, array)
        if same and not self.is_output:
            self.array, self.counter, self.version = self.array.copy(), [0], 0
            self.leaf = None

    def keep_output(self) -> None:
        """Has a copy of its own of an output that is about to be overwritten for the first time."""
        if self.is_output and self.counter[0] == self.version:
            self.array, self.counter, self.version = self.array.copy(), [0], 0

    def _modified(self, owner: Node) -> RunError:
        maker = owner if self.is_output else self.edge[0]
        of = f", which is output {self.edge[1]} of {maker.name()}" if maker is not None else ""
        shape = list(self.array.shape)
        return RunError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: [{self.array.dtype} {shape}]{of}, is at version {self.counter[0]}; "
            f"expected version {self.version} instead",
            hint="enable anomaly detection to find the operation: set_detect_anomaly(True)",
        )


class Packed(Saved):
    """A tensor that functions of a user keep: one packs it now, the other unpacks it then. What
    they do with its memory is up to them."""

    __slots__ = ("packed", "unpack_hook")

    def __init__(self, tensor: Any, is_output: bool) -> None:
        super().__init__(tensor, is_output)
        pack, self.unpack_hook = modes.saving
        if self.leaf is not None:
            self.edge, self.leaf = (accumulator_of(self.leaf), 0), None
        self.packed = _unrecorded(pack, tensor.detach() if is_output else tensor)
        if self.counter[0] != self.version:
            raise RunError(
                "A saved tensor pack hook is modifying its input in place.", hint="make changes on a clone()"
            )
        self.array = None

    def unpack(self, owner: Node, tensor_of: Callable[..., Any]) -> Any:
        unpacked = _unrecorded(self.unpack_hook, self.packed)
        if not hasattr(unpacked, "_array"):
            raise InvalidType(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(unpacked).__name__}"
            )
        fn, index = self.edge
        return tensor_of(unpacked._array, unpacked._counter, owner if self.is_output else fn, index)

    def keep_apart(self, array: Any) -> None:
        kept = getattr(self.packed, "_array", None)
        if kept is not None and may_share(kept, array) and not self.is_output:
            self.packed = self.packed._like(kept.copy())

    def keep_output(self) -> None:
        kept = getattr(self.packed, "_array", None)
        if kept is not None and self.is_output and self.counter[0] == self.version:
            self.packed = self.packed._like(kept.copy())


def _unrecorded(function: Callable[[Any], Any], value: Any) -> Any:
    before, modes.grad = modes.grad, False
    try:
        return function(value)
    finally:
        modes.grad = before


def saved_class() -> type[Saved]:
    """How tensors are kept now."""
    return Saved if modes.saving is None else Packed


def keep_old_values(last: Node | None, since: int, array: Any) -> None:
    """Has the nodes made from a sequence number on, back from the last, keep their own copy of
    memory that is about to be overwritten."""
    stack = [last]
    while stack:
        node = stack.pop()
        if node is None or not since <= node.sequence_nr < LAST:
            continue
        for saved in getattr(node, "saved", None) or ():
            saved.keep_apart(array)
        stack += [target for target, _ in node.next_functions]


def next_sequence() -> int:
    """The sequence number after which nodes made from now on come."""
    return next(sequence)


def accumulator_of(leaf: Any) -> AccumulateGrad:
    """The node that adds to a leaf's gradient. The leaf knows it weakly: the graph keeps it."""
    reference = leaf._accumulator
    known: AccumulateGrad | None = None if reference is None else reference()
    if known is None:
        known = _new(AccumulateGrad)  # in line, as every first use of a leaf pays for it
        array = leaf._array
        known.outputs = ((array.shape, array.dtype),)
        known.variable = leaf
        leaf._accumulator = weakref.ref(known)
    return known

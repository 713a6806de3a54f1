"""The engine: runs the nodes of an autograd graph from outputs to leaves, each when all of its
gradients have arrived, the youngest first."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ...base.errors import InvalidType, RunError
from .. import devices, native
from ..functions.around import LAYERS, through
from .anomaly import anomaly, check_nan, tell_forward
from .modes import modes
from .node import Meta, Node, accumulator_of

Grad = Any
_ties = itertools.count()


class _Current(threading.local):
    run: Run | None = None
    depth = 0


_current = _Current()
MAX_DEPTH = 20  # of backward passes inside backward passes on one stack


class GraphRoot(Node):
    """Where a backward pass from several tensors starts."""

    def __init__(self, edges: tuple[tuple[Node | None, int], ...], grads: Sequence[Grad]) -> None:
        super().__init__(edges, ())
        self.grads = list(grads)

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        return self.grads


class _Pending:
    """A node that a pass will reach: how many gradients are still to come, and their sums."""

    __slots__ = ("coming", "grads", "owned")

    def __init__(self) -> None:
        self.coming = 1
        self.grads: list[Grad] | None = None
        self.owned: set[int] | None = None  # sums made here, which may be added to

    def add(self, node: Node, index: int, grad: Grad) -> None:
        """Adds a gradient to what has arrived. A sum made here may be written to; a gradient that
        others may hold may not."""
        grads = self.grads
        if grads is None:
            grads = self.grads = [None] * len(node.outputs)
        have = grads[index]
        if have is None:
            grads[index] = grad
        elif self.owned is not None and index in self.owned and _may_add(have):
            native.add_into(have._array, grad._array)
        else:
            grads[index] = have + grad
            self.owned = (self.owned or set()) | {index}

    def taken(self) -> list[Grad] | None:
        """The sums, which are whoever's who takes them."""
        grads, self.grads = self.grads, None
        return grads


def _may_add(have: Grad) -> bool:
    """Whether a sum may be added to in place: nobody follows it, and it is the processor's."""
    return not modes.grad and modes.trace is None and isinstance(have._array, np.ndarray)


class Run:
    """One backward pass."""

    def __init__(self, root: Node, keep_graph: bool, captures: dict[tuple[Node, int], int]) -> None:
        self.root = root
        self.keep_graph = keep_graph
        self.captures = captures
        self.captured: dict[int, Grad] = {}
        self.callbacks: list[Callable[[], Any]] = []
        self.pending: dict[Node, _Pending] = {root: _Pending()}
        order = self._count()
        self.watched = _by_node(captures)
        self.needed = _needed(order, self.watched.keys()) if captures else None

    def _count(self) -> list[Node]:
        """Counts the edges into each node; gives the nodes in the order they were found."""
        stack, order, pending = [self.root], [], self.pending
        while stack:
            node = stack.pop()
            order.append(node)
            for target, _ in node.next_functions:
                if target is None:
                    continue
                known = pending.get(target)
                if known is None:
                    pending[target] = _Pending()
                    stack.append(target)
                else:
                    known.coming += 1
        return order

    def run(self) -> None:
        ready: list[tuple[int, int, Node]] = []
        node: Node | None = self.root
        while node is not None:
            grads = self.pending[node].taken() or [None] * len(node.outputs)
            made_ready = self._visit(node, grads)
            del grads
            if len(made_ready) == 1 and not ready:
                node = made_ready[0]
                continue
            for target in made_ready:
                heapq.heappush(ready, (-target.sequence_nr, next(_ties), target))
            node = heapq.heappop(ready)[2] if ready else None
        position = 0
        while position < len(self.callbacks):  # a callback may add others
            self.callbacks[position]()
            position += 1

    def reaches(self, node: Node) -> bool:
        """Whether a gradient arrives at a node in this pass."""
        if node not in self.pending:
            return False
        return self.needed is None or node in self.needed or node in self.watched

    def _visit(self, node: Node, grads: list[Grad]) -> Sequence[Node]:
        """Runs a node whose gradients are all there; gives the nodes that became ready."""
        if node.is_hooked():
            apply_tensor_hooks(node, grads)
        if self.needed is not None:
            for index, position in self.watched.get(node, ()):
                self.captured[position] = grads[index]
            if node not in self.needed:
                return ()
        results = self._apply(node, grads)
        ready = []
        for (target, index), grad in zip(node.next_functions, results):
            if target is None or (self.needed is not None and not self.reaches(target)):
                continue
            pending = self.pending[target]
            if grad is not None:
                pending.add(target, index, grad)
            pending.coming -= 1
            if pending.coming == 0:
                ready.append(target)
        return ready

    def _apply(self, node: Node, grads: list[Grad]) -> Sequence[Grad]:
        for hook in node._pre_hooks or ():
            replaced = hook(tuple(grads))
            if replaced is not None:
                grads = list(replaced) if isinstance(replaced, tuple) else [replaced]
        if node is not self.root and not any([grad is not None for grad in grads]):
            results: Sequence[Grad] = [None] * len(node.next_functions)
        else:
            try:
                results = validated(node, node.apply(grads) if not LAYERS else _watched(node, grads))
            except Exception as error:
                if anomaly.enabled:
                    tell_forward(node)
                raise error
        if anomaly.enabled and anomaly.check_nan:
            check_nan(node, results)
        for hook in node._post_hooks or ():
            replaced = hook(tuple(results), tuple(grads))
            if replaced is not None:
                results = list(replaced) if isinstance(replaced, tuple) else [replaced]
        if not self.keep_graph:
            node.release()
        return results


def _watched(node: Node, grads: list[Grad]) -> Sequence[Grad]:
    """A node's call through what goes on around calls, such as a profiler."""
    found: Sequence[Grad] = through(node.name(), lambda args, kwargs: node.apply(list(args)), tuple(grads), {})
    return found


def _by_node(captures: dict[tuple[Node, int], int]) -> dict[Node, list[tuple[int, int]]]:
    """What is captured from each node: the number of its output, and a place in the results."""
    by_node: dict[Node, list[tuple[int, int]]] = {}
    for (node, index), position in captures.items():
        by_node.setdefault(node, []).append((index, position))
    return by_node


def _needed(order: Sequence[Node], wanted: Collection[Node]) -> set[Node]:
    """The nodes on a way to what is captured. A node that is only captured from does not run."""
    needed: set[Node] = set()
    for node in _after_their_targets(order):
        if any(t is not None and (t in needed or t in wanted) for t, _ in node.next_functions):
            needed.add(node)
    return needed


def _after_their_targets(order: Sequence[Node]) -> list[Node]:
    """Nodes in an order where each comes after those its edges lead to."""
    counts: dict[Node, int] = {}
    readers: dict[Node, list[Node]] = {}
    for node in order:
        targets = {target for target, _ in node.next_functions if target is not None}
        counts[node] = len(targets)
        for target in targets:
            readers.setdefault(target, []).append(node)
    ready = [node for node in order if counts[node] == 0]
    for node in ready:  # which grows
        for reader in readers.get(node, ()):
            counts[reader] -= 1
            if counts[reader] == 0:
                ready.append(reader)
    return ready


def apply_tensor_hooks(node: Node, grads: list[Grad]) -> None:
    """Runs the hooks of the tensors that are the node's outputs; they may replace gradients."""
    for index, hooks in node.tensor_hooks().items():
        for hook in hooks:
            if grads[index] is None:
                break
            replaced = hook(grads[index])
            if replaced is None:
                continue
            shown = getattr(hook, "__name__", type(hook).__name__)
            if not hasattr(replaced, "_array"):
                raise InvalidType(f"expected Variable, but hook returned {type(replaced).__name__!r}")
            if replaced._array.shape != grads[index]._array.shape:
                raise RunError(f"hook {shown!r} has changed the size of value")
            grads[index] = replaced
    for index, reference in (node._retained or {}).items():
        tensor = reference()
        if tensor is not None and grads[index] is not None:
            tensor._accumulate(grads[index])


def validated(node: Node, results: Sequence[Grad]) -> Sequence[Grad]:
    """What a node gave, each of the shape and dtype that its edge asks for."""
    edges = node.next_functions
    if len(results) != len(edges):
        raise RunError(
            f"Function {node.name()} returned an invalid number of gradients - "
            f"expected {len(edges)}, but got {len(results)}"
        )
    changed: list[Grad] | None = None
    for position, ((target, index), grad) in enumerate(zip(edges, results)):
        if target is not None and grad is not None:
            meta, array = target.outputs[index], grad._array
            if array.shape != meta[0] or array.dtype != meta[1]:
                changed = changed or list(results)
                changed[position] = fitted(grad, meta, f"Function {node.name()}", position)
    return results if changed is None else changed


def fitted(grad: Grad, meta: Meta, owner: str, position: int) -> Grad:
    """A gradient summed to a shape it was broadcast from, and cast."""
    shape, dtype = meta
    if grad._array.shape != shape:
        if not _expands(shape, grad._array.shape):
            raise RunError(
                f"{owner} returned an invalid gradient at index {position} - got "
                f"{list(grad._array.shape)} but expected shape compatible with {list(shape)}"
            )
        grad = grad.sum_to_size(shape)
    return grad if grad._array.dtype == dtype else grad._cast(dtype)


def _beside(grad: Grad, tensor: Any) -> Grad:
    """A gradient on the device of the tensor that it is of."""
    where = getattr(tensor, "device", grad.device)
    return grad if where == grad.device else devices.moved(grad, where)


def _expands(small: Sequence[int], large: Sequence[int]) -> bool:
    if len(small) > len(large):
        return False
    return all(a in (1, b) for a, b in zip(reversed(small), reversed(large)))


def _execute(run: Run, grad_mode: bool) -> None:
    """Runs a pass in this thread, which records only if asked to."""
    before = _current.run, modes.grad
    _current.run, modes.grad = run, grad_mode
    _current.depth += 1
    try:
        run.run()
    finally:
        _current.run, modes.grad = before
        _current.depth -= 1


def _execute_elsewhere(run: Run, grad_mode: bool) -> None:
    """Runs a pass on a fresh stack: passes that start passes are not limited by Python's."""
    failed: list[BaseException] = []
    trace, drawing = modes.trace, modes.drawing

    def work() -> None:
        modes.trace, modes.drawing = trace, drawing
        try:
            _execute(run, grad_mode)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


class Engine:
    """Runs graphs backwards: the one way a backward pass starts."""

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
        """Runs the graph. With `inputs`, gives their gradients, or adds to their `grad` only if
        `accumulate_grad`; without, adds to every leaf."""
        roots = [_root_edge(tensor, number) for number, tensor in enumerate(tensors)]
        grads = [
            _beside(fitted(g, edge[0].outputs[edge[1]], "the gradient given for an output", n), tensor)
            for n, (g, edge, tensor) in enumerate(zip(grad_tensors, roots, tensors))
        ]
        captures = {} if not inputs else _captures(inputs)
        run = Run(GraphRoot(tuple(roots), grads), keep_graph, captures)
        if _current.depth < MAX_DEPTH:
            _execute(run, create_graph)
        else:
            _execute_elsewhere(run, create_graph)
        return _results(run, inputs, allow_unreachable, accumulate_grad)

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        """Has a function called at the end of the backward pass that is running."""
        if _current.run is None:
            raise RunError("Final callbacks can only be installed during backward pass.")
        _current.run.callbacks.append(callback)

    def is_checkpoint_valid(self) -> bool:
        """Whether the pass that is running accumulates into leaves, as checkpointing needs."""
        return _current.run is None or not _current.run.captures


def current_run() -> Run | None:
    """The backward pass that this thread is in."""
    return _current.run


def _root_edge(tensor: Any, number: int) -> tuple[Node, int]:
    edge = tensor._edge()
    if edge[0] is None:
        raise RunError(f"element {number} of tensors does not require grad and does not have a grad_fn")
    valid: tuple[Node, int] = edge
    return valid


def _captures(inputs: Sequence[Any]) -> dict[tuple[Node, int], int]:
    positions: dict[tuple[Node, int], int] = {}
    for position, tensor in enumerate(inputs):
        edge = tensor._edge()
        if edge[0] is None:
            raise RunError("One of the differentiated Tensors does not require grad")
        positions.setdefault(edge, position)
    return positions


def _results(run: Run, inputs: Sequence[Any], allow_unused: bool, accumulate: bool) -> tuple[Any, ...]:
    results = []
    for tensor in inputs:
        grad = run.captured.get(run.captures[tensor._edge()])
        if accumulate:
            leaf = getattr(tensor, "leaf", tensor)
            if grad is not None and leaf is not None:
                accumulator_of(leaf).apply([grad])
        elif grad is None and not allow_unused:
            raise RunError(
                "One of the differentiated Tensors appears to not have been used in the graph",
                hint="set allow_unused=True if this is the desired behavior",
            )
        results.append(grad)
    return tuple(results)

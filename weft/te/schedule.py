"""From computes to loops: bodies are substituted into their readers, and what is left becomes the
plain serial loop nest over buffers that the transforms start from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..base.dtype import BOOL, DType, is_integer
from ..base.errors import InvalidValue
from .expr import Binary, Const, Expr, Load, Reduce, Var, as_expr, binary, cast, select
from .loops import Alloc, Buffer, For, Kernel, Let, Stmt, Store, buffer
from .reducers import accumulator_dtype, combine, identity
from .simplify_loops import sequence
from .tensor import Tensor
from .visit import Interner, masked_load, parts, postorder, rewrite, substitute, with_parts


def inline(tensor: Tensor, producers: Iterable[Tensor]) -> Tensor:
    """The tensor with the bodies of element-wise producers in place of the reads of them.

    Reads of one producer at the same indices share one node, so the result grows with the number
    of distinct reads, however often each is used.

    >>> from .printer import show
    >>> from .tensor import compute, placeholder
    >>> x = placeholder((4,), "float32", "x")
    >>> double = compute((4,), lambda i: x[i] * 2)
    >>> show(inline(compute((4,), lambda i: double[3 - i] + 1, "y"), [double]))
    'y[i]: float32[4] = x[3 - i] * 2.0 + 1.0'
    """
    if tensor.body is None:
        return tensor
    body = _Inliner(frozenset(producers)).run(tensor.body)
    return Tensor(tensor.name, tensor.shape, tensor.dtype, tensor.axes, body)


class _Inliner:
    def __init__(self, producers: Collection[Tensor]) -> None:
        for producer in producers:
            if producer.body is None or producer.is_reduction:
                raise InvalidValue(f"tensor {producer.name} cannot be inlined", why="it is not element-wise")
        self.producers = producers
        self.intern = Interner()
        self.opened: dict[tuple[int, ...], Expr] = {}  # a read -> the body that stands for it
        self.done: dict[int, Expr] = {}
        self.kept: list[Expr] = []

    def run(self, root: Expr) -> Expr:
        stack = [root]
        while stack:
            node = stack[-1]
            waiting = [p for p in parts(node) if isinstance(p, Expr) and id(p) not in self.done]
            if id(node) in self.done:
                stack.pop()
            elif waiting:
                stack.extend(reversed(waiting))
            else:
                opened = self._open(node)
                if opened is not None and id(opened) not in self.done:
                    stack.append(opened)
                    continue
                self.kept.append(node)
                self.done[id(node)] = self._close(node, opened)
        return self.done[id(root)]

    def _ready(self, node: Expr) -> list[Expr]:
        return [self.done[id(part)] for part in parts(node)]

    def _open(self, node: Expr) -> Expr | None:
        """The producer's body at the indices of a read; its own reads are not yet opened."""
        if not (isinstance(node, Load) and node.source in self.producers):
            return None
        tensor = node.source
        assert isinstance(tensor, Tensor)
        assert tensor.body is not None
        ready = [self.intern(part) for part in self._ready(node)]
        key = (id(tensor), node.mask is None, *(id(part) for part in ready))
        if key not in self.opened:
            body = substitute(tensor.body, dict(zip(tensor.axes, ready)))
            self.opened[key] = body if node.mask is None else under_mask(body, ready[-1])
        return self.opened[key]

    def _close(self, node: Expr, opened: Expr | None) -> Expr:
        return with_parts(node, self._ready(node)) if opened is None else self.done[id(opened)]


def under_mask(body: Expr, mask: Expr) -> Expr:
    """The value where the mask holds, else 0; memory is touched only where it holds."""

    def guarded(node: Any) -> Any:
        if not isinstance(node, Load):
            return node
        inner = mask if node.mask is None else node.mask & mask
        return masked_load(node.source, node.indices, inner)

    return select(mask, rewrite(body, guarded), _nothing(body))


def _nothing(value: Expr) -> Expr:
    return as_expr(0, value.dtype)


def loop_nest(outputs: Sequence[Tensor], buffers: Mapping[Tensor, Buffer]) -> Stmt:
    """The loops that compute the outputs, in order, into their buffers.

    Every tensor in `buffers` is read from and written to memory. Others are computed where they are
    read: element-wise ones inlined, reductions into an accumulator, anew for every read of
    different indices. The loop variables are the axes of the outputs and of the reductions; outputs
    of one shape that do not read each other share the loops of the first.
    """
    groups: list[list[Tensor]] = []
    for output in outputs:
        if output not in buffers:
            raise InvalidValue(f"output {output.name} has no buffer")
        if not (groups and _joins(output, groups[-1], buffers)):
            groups.append([])
        groups[-1].append(output)
    return sequence([_nest(group, buffers) for group in groups])


def loop_kernel(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Kernel:
    """A kernel over dense buffers for the inputs, then the outputs.

    >>> from .printer import show
    >>> from .reducers import sum
    >>> from .tensor import compute, placeholder, reduce_axis
    >>> x, k = placeholder((4, 8), "float32", "x"), reduce_axis(8)
    >>> total = compute((4,), lambda i: sum(x[i, k.var], k), "total")
    >>> print(show(loop_kernel("row_sums", [x], [total])))
    kernel row_sums(x: float32[4, 8], total: float32[4]):
      for i in 0..4:
        alloc total_sum: float32[] register
        total_sum[] = 0.0
        for k in 0..8:
          total_sum[] = total_sum[] + x[i, k]
        total[i] = total_sum[]
    """
    buffers = {t: buffer(t.name, t.dtype, t.shape) for t in (*inputs, *outputs)}
    return Kernel(name, tuple(buffers.values()), loop_nest(outputs, buffers))


def _joins(output: Tensor, group: list[Tensor], buffers: Mapping[Tensor, Buffer]) -> bool:
    if output.shape != group[0].shape or output.is_reduction or group[0].is_reduction:
        return False
    return not any(tensor in group for tensor in _reached(output, buffers))


def _reached(output: Tensor, buffers: Mapping[Tensor, Buffer]) -> list[Tensor]:
    """What an output reads, directly or through tensors that have no buffer."""
    reached: dict[Tensor, None] = {}
    todo = output.inputs()
    while todo:
        tensor = todo.pop()
        if tensor not in reached:
            reached[tensor] = None
            todo.extend([] if tensor in buffers else tensor.inputs())
    return list(reached)


class _Accumulator(NamedTuple):
    buffer: Buffer
    steps: tuple[Stmt, ...]


def _nest(group: list[Tensor], buffers: Mapping[Tensor, Buffer]) -> Stmt:
    axes = group[0].axes
    accumulators: dict[tuple[int, ...], _Accumulator] = {}
    stores: list[Stmt] = []
    intern = Interner()
    for output in group:
        if output.body is None:
            raise InvalidValue(f"output {output.name} is a placeholder: it has no body")
        body = substitute(_whole_body(output, buffers), dict(zip(output.axes, axes)))
        value = _without_reductions(intern(body), output.name, buffers, accumulators)
        stores.append(Store(buffers[output], axes, value))
    before = [step for accumulator in accumulators.values() for step in accumulator.steps]
    inner = sequence([*before, bind_shared(stores)])
    for accumulator in accumulators.values():
        inner = Alloc(accumulator.buffer, inner)
    for axis, extent in zip(reversed(axes), reversed(group[0].shape)):
        inner = For(axis, as_expr(extent), inner)
    return inner


def _whole_body(tensor: Tensor, buffers: Mapping[Tensor, Buffer]) -> Expr:
    """The body over buffers' tensors and reductions only."""
    reached = _reached(tensor, buffers)
    missing = [t.name for t in reached if t.body is None and t not in buffers]
    if missing:
        raise InvalidValue(f"inputs {', '.join(missing)} of {tensor.name} have no buffer")
    element_wise = [t for t in reached if t not in buffers and not t.is_reduction]
    body = inline(tensor, element_wise).body
    assert body is not None
    return body


def _without_reductions(
    body: Expr, name: str, buffers: Mapping[Tensor, Buffer], accumulators: dict[tuple[int, ...], _Accumulator]
) -> Expr:
    """The body reading buffers, with an accumulator for each distinct reduction in it."""

    def place(node: Any) -> Any:
        if isinstance(node, Reduce):
            return _accumulated((id(node),), node, name)
        if not (isinstance(node, Load) and isinstance(node.source, Tensor)):
            return node
        if node.source in buffers:
            return masked_load(buffers[node.source], node.indices, node.mask)
        value = _accumulated(_read_key(node), _reduction_at(node, buffers), node.source.name)
        return value if node.mask is None else select(node.mask, value, _nothing(value))

    def _accumulated(key: tuple[int, ...], node: Reduce, label: str) -> Expr:
        if key not in accumulators:
            accumulators[key] = _accumulate(_on_buffers(node, label, buffers), label)
        return cast(accumulators[key].buffer[()], node.dtype)

    if isinstance(body, Reduce):
        return place(body)  # type: ignore[no-any-return]
    return rewrite(body, place)


def _read_key(node: Load) -> tuple[int, ...]:
    return (id(node.source), *(id(part) for part in parts(node)))


def _reduction_at(node: Load, buffers: Mapping[Tensor, Buffer]) -> Reduce:
    tensor = node.source
    assert isinstance(tensor, Tensor)
    body = substitute(_whole_body(tensor, buffers), dict(zip(tensor.axes, node.indices)))
    assert isinstance(body, Reduce)
    if node.mask is None:
        return body
    return Reduce(body.combiner, under_mask(body.body, node.mask), body.axes)


def _on_buffers(node: Reduce, name: str, buffers: Mapping[Tensor, Buffer]) -> Reduce:
    def place(part: Any) -> Any:
        if not (isinstance(part, Load) and isinstance(part.source, Tensor)):
            return part
        if part.source not in buffers:
            raise InvalidValue(
                f"reduction {name} reads reduction {part.source.name}, which has no buffer",
                why="it would be computed anew for every element",
                hint="give it a buffer",
            )
        return masked_load(buffers[part.source], part.indices, part.mask)

    return Reduce(node.combiner, rewrite(node.body, place), node.axes)


def _accumulate(node: Reduce, name: str) -> _Accumulator:
    """acc = identity; for each point of the axes: acc = combine(acc, body)."""
    dtype = accumulator_dtype(node.combiner, node.dtype)
    acc = buffer(f"{name}_{node.combiner}", dtype, (), scope="register")
    step = combine(node.combiner, acc[()], _widened(node.body, dtype))
    inner = bind_shared([Store(acc, (), step)])
    for axis in reversed(node.axes):
        inner = For(axis.var, as_expr(axis.extent) if axis.turns is None else axis.turns, inner)
    return _Accumulator(acc, (Store(acc, (), identity(node.combiner, dtype)), inner))


def _widened(body: Expr, dtype: DType) -> Expr:
    """The body in the dtype of its sum, sums and products in it as well: those of 16-bit floats
    would be rounded, or overflow, before they are added."""
    if body.dtype != dtype and isinstance(body, Binary) and body.op in ("add", "sub", "mul"):
        return binary(body.op, _widened(body.a, dtype), _widened(body.b, dtype))
    return cast(body, dtype)


def bind_shared(stores: Sequence[Stmt]) -> Stmt:
    """The stores, with every value that is used more than once bound by a Let before them.

    Index arithmetic is left in place: there the simplifier and the vectoriser must see it.
    """
    intern = Interner()
    stores = [intern(store) for store in stores]
    nodes = [node for node in postorder(stores) if isinstance(node, Expr)]
    uses = Counter(id(part) for node in postorder(stores) for part in parts(node))
    index_only: dict[int, bool] = {}
    done: dict[int, Expr] = {}
    bound: list[tuple[Var, Expr]] = []
    for node in nodes:
        index_only[id(node)] = _is_index(node, index_only)
        value = with_parts(node, [done[id(part)] for part in parts(node)])
        if uses[id(node)] > 1 and not index_only[id(node)] and not isinstance(node, (Const, Var)):
            bound.append((Var(f"t{len(bound)}", value.dtype, value.lanes), value))
            value = bound[-1][0]
        done[id(node)] = value
    body = sequence([with_parts(s, [done[id(part)] for part in parts(s)]) for s in stores])
    for var, value in reversed(bound):
        body = Let(var, value, body)
    return body


def _is_index(node: Expr, known: Mapping[int, bool]) -> bool:
    if isinstance(node, Load) or not (is_integer(node.dtype) or node.dtype == BOOL):
        return False
    return all(known[id(part)] for part in parts(node))

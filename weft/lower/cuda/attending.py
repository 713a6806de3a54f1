"""Operators of attention: by tensor cores for 16-bit floats that tensor maps can see, where many queries share keys;
else by the template that splits keys into chunks; what neither takes stage by stage. Of those, tensor cores take open
sizes: whatever is not open of heads is a number."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import inf, prod
from typing import Any, NamedTuple

from ... import te
from ...base.cuda_target import CudaTarget
from ...base.dtype import FLOAT32, DType
from ...base.shape import is_static
from ...core.fused import FusedGroup
from ...core.ir import Fact, Node, NodeEntry
from ...ops.nn.strided_attention import View, mask_shape, views
from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr, cast, const, select
from ...te.extents import is_open, is_same
from ...te.loops import Buffer, Kernel
from ...te.tensor import Tensor
from ..group import LoweredKernel, Strides, Temporary, kernel_name, lower_stages, need_numbers
from ..stages import stages
from .attention import AttentionRequest, Strided, can_attend, write_attention
from .masters import WGMMA
from .split_attention import can_split, has_few_queries, write_split_attention
from .stage import stage_kernel
from .warp_attention import can_attend_by_warps, write_warp_attention

Facts = Callable[[NodeEntry], Fact]
Score = Callable[[Expr, Sequence[Expr], Expr, Expr], Expr]


class Mask(NamedTuple):
    """What is added to scores, or says which of them count, with its shape."""

    buffer: Buffer
    shape: Sequence[Any]


def attention_kernels(
    group: FusedGroup, fact: Facts, target: CudaTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels of a group that is an attention over whole tensors."""
    node = group.nodes[0]
    made = None
    if not strides and len(group.nodes) == 1:
        made = _attended(group, node, fact, target, _whole_views(node, fact))
    if made is None:
        need_numbers(group, fact)
    return lower_stages(group, fact, target, stage_kernel, strides) if made is None else made


def strided_attention_kernels(group: FusedGroup, fact: Facts, target: CudaTarget) -> list[LoweredKernel]:
    """The kernels of a group that is an attention over views."""
    (node,) = group.nodes
    made = _attended(group, node, fact, target, views(node.params))
    return _by_stages(group, node, fact, target) if made is None else made


def _whole_views(node: Node, fact: Facts) -> tuple[View, ...]:
    found = []
    for entry in node.inputs[:3]:
        shape = fact(entry).shape
        assert is_static(shape)
        steps = [1]
        for extent in reversed(shape[1:]):
            steps.append(steps[-1] * extent)
        found.append(View(shape, 0, tuple(steps[::-1])))
    return tuple(found)


def _attended(
    group: FusedGroup, node: Node, fact: Facts, target: CudaTarget, seen: Sequence[View]
) -> list[LoweredKernel] | None:
    facts = [fact(entry) for entry in node.inputs]
    if not all(is_static(f.shape) for f in facts):
        return None
    out, dtype = fact(group.outputs[0])[:2]
    assert is_static(out)
    assert dtype is not None
    batch, (queries, width) = seen[0].shape[:-2], seen[0].shape[-2:]
    (keys, values), params = seen[2].shape[-2:], node.params
    width, values = int(width), int(values)
    b = KernelBuilder(kernel_name(group))
    buffers: list[Buffer] = []
    for number, (f, view) in enumerate(zip(facts, seen)):
        assert f.shape is not None
        same = [n for n in range(number) if node.inputs[n] == node.inputs[number]]
        known = buffers[same[0]] if same else b.arg(f"in{number}", f.dtype or dtype, (prod(f.shape),))  # type: ignore[arg-type]
        buffers.append(known)
        assert len(view.steps) == len(batch) + 2
    mask = Mask(b.arg("mask", facts[3].dtype or dtype, facts[3].shape), facts[3].shape) if len(facts) > 3 else None  # type: ignore[arg-type]
    result = b.arg("out", dtype, (prod(out),))
    scale = _scale(params, width)
    score = _score(params, mask, scale, dtype)
    query, key, value = (Strided(buffer, view.start, view.steps) for buffer, view in zip(buffers, seen))
    request = AttentionRequest(
        query, key, value,
        Strided(result, 0, _out_steps(params, (*batch, queries, values))),
        batch, queries, keys, width, values, 1.0 if score else scale,
        params.is_causal, getattr(params, "unseen", "zero"), score,
    )  # fmt: skip
    places = list(dict.fromkeys(node.inputs[:3]))
    arguments = (*places, *node.inputs[3:], group.outputs[0])
    work = prod(batch) * queries * keys * (width + values)
    write = _writer(request, target)
    if write is None:
        need_numbers(group, fact)
    few = not any(map(is_open, (*batch, queries, keys))) and has_few_queries(request, target)
    if can_split(request) and (write is None or few):
        named: dict[str, Hashable] = {buffer.name: place for buffer, place in zip(b.buffers, arguments)}
        kernels = write_split_attention(b.name, b.buffers, request, target)
        return [LoweredKernel(kernel, arguments_of(kernel, named), work) for kernel in kernels]
    return None if write is None else [LoweredKernel(write(b, request, target), arguments, work)]


def arguments_of(kernel: Kernel, named: dict[str, Hashable]) -> tuple[Hashable, ...]:
    """What the buffers of a kernel are, by their names: those that have none yet are values between kernels."""
    for buffer in kernel.buffers:
        if buffer.name not in named:
            extents = tuple(int(extent.value) for extent in buffer.shape)  # type: ignore[attr-defined]
            named[buffer.name] = Temporary(len(named), extents, buffer.dtype)
    return tuple(named[buffer.name] for buffer in kernel.buffers)


def _writer(request: AttentionRequest, target: CudaTarget) -> Callable[..., Kernel] | None:
    """The template that takes an attention: by warpgroups where they multiply its dtype."""
    if target.sm == WGMMA and target.has_own_code and can_attend(request):
        return write_attention
    return write_warp_attention if can_attend_by_warps(request) else None


def _scale(params: Any, width: int) -> float:
    given: float | None = params.scale
    return given if given is not None else max(width, 1) ** -0.5


def _out_steps(params: Any, whole: tuple[int, ...]) -> tuple[int, ...]:
    """Steps in the result, whose axes may have another order."""
    order = getattr(params, "out_axes", tuple(range(len(whole))))
    steps, step = [0] * len(whole), 1
    for axis in reversed(order):
        steps[axis], step = step, step * whole[axis]
    return tuple(steps)


def _score(params: Any, mask: Mask | None, scale: float, dtype: DType) -> Score | None:
    """What masks make of scores; None where there is nothing but a positive factor."""
    if mask is None and scale > 0:
        return None
    rows_are_keys = hasattr(params, "masked")

    def score(total: Expr, batch: Sequence[Expr], query: Expr, key: Expr) -> Expr:
        scaled = total * const(scale, total.dtype)
        if mask is None:
            return scaled
        at = [*batch, key, query] if rows_are_keys else [*batch, query, key]
        last = at[len(at) - len(mask.shape) :]
        read = mask.buffer[tuple([as_expr(0) if is_same(n, 1) else i for n, i in zip(mask.shape, last)])]
        if getattr(params, "mask", "") == "boolean":
            return select(read, scaled, const(-inf, total.dtype))
        read = cast(read, total.dtype)
        if getattr(params, "replaces", False):
            return select(read.equal(0.0), scaled, read)
        return scaled + read

    return score


# What templates do not take, float64 and long rows: the same as tensors, one after the other


def _by_stages(group: FusedGroup, node: Node, fact: Facts, target: CudaTarget) -> list[LoweredKernel]:
    specs = [fact(entry) for entry in node.inputs]
    inputs = [te.placeholder(f.shape, f.dtype, f"in{number}") for number, f in enumerate(specs)]  # type: ignore[arg-type]
    made = _tensors(node.params, inputs)
    places: dict[Tensor, Hashable] = dict(zip((*inputs, made), (*node.inputs, group.outputs[0])))
    kernels = []
    name = kernel_name(group)
    for tensor in stages(inputs, [made]):
        if tensor not in places:
            places[tensor] = Temporary(len(places), tensor.shape, tensor.dtype)
        kernels.append(stage_kernel(name if tensor is made else f"{name}_{tensor.name}", tensor, places, target))
    return kernels


def _tensors(params: Any, inputs: Sequence[Tensor]) -> Tensor:
    """softmax(scale Q K' + mask) V in float32, or what is wider."""
    q, k, v = (_viewed(x, view) for x, view in zip(inputs, views(params)))
    wide = FLOAT32 if inputs[0].dtype.itemsize < 4 else inputs[0].dtype
    batch = tuple(params.batch)
    rows = (*batch, params.queries)
    depth, over, summed, mixed = (te.reduce_axis(n) for n in (params.width, params.keys, params.keys, params.keys))

    def last(i: Sequence[Expr], n: Expr) -> tuple[Expr, ...]:
        return (*i[:-1], n)

    dots = te.compute(
        (*rows, params.keys),
        lambda *i: te.sum(
            te.cast(q((*i[:-1], depth.var)), wide) * te.cast(k((*i[:-2], i[-1], depth.var)), wide), depth
        ),
        name="dots",
    )
    scores = te.compute(dots.shape, lambda *i: _masked(params, dots[i], i, inputs[3:], wide), name="scores")
    top = te.compute((*rows, 1), lambda *i: te.max_of(scores[last(i, over.var)], over), name="top")

    def low(i: tuple[Expr, ...]) -> Expr:
        return select(top[i].equal(-inf), const(0.0, wide), top[i]) if params.unseen == "zero" else top[i]

    weights = te.compute(dots.shape, lambda *i: te.exp(scores[i] - low(last(i, as_expr(0)))), name="weights")
    total = te.compute((*rows, 1), lambda *i: te.sum(weights[last(i, summed.var)], summed), name="total")
    mix = te.compute(
        (*rows, params.values),
        lambda *i: te.sum(
            _probability(params, weights, total, (*i[:-1], mixed.var)) * te.cast(v((*i[:-2], mixed.var, i[-1])), wide),
            mixed,
        ),
        name="mix",
    )
    order = params.out_axes
    shape = tuple(mix.shape[axis] for axis in order)
    back = [order.index(axis) for axis in range(len(order))]
    made: Tensor = te.compute(
        shape, lambda *i: te.cast(mix[tuple(i[n] for n in back)], inputs[0].dtype), name="attention"
    )
    return made


def _viewed(x: Tensor, view: View) -> Callable[[Sequence[Expr]], Expr]:
    """An element of a view, by its index."""

    def read(index: Sequence[Expr]) -> Expr:
        place = as_expr(view.start)
        for at, step in zip(index, view.steps):
            place = place + at * step
        found, left = [], prod(x.shape)
        for extent in x.shape:
            left //= max(extent, 1)
            found.append(place // left % extent)
        return x[tuple(found)]

    return read


def _masked(params: Any, dot: Expr, i: Sequence[Expr], mask: Sequence[Tensor], wide: DType) -> Expr:
    score: Expr = dot * const(params.scale, wide)
    if mask:
        at = [*i[:-2], i[-1], i[-2]]
        shape = mask[0].shape
        index = [as_expr(0) if n == 1 else j for n, j in zip(shape, at[len(at) - len(shape) :])]
        read = te.cast(mask[0][tuple(index)], wide)
        assert len(mask_shape(params)) >= len(shape)
        score = select(read.equal(0.0), score, read) if params.replaces else score + read
    return select(i[-1] <= i[-2], score, const(-inf, wide)) if params.is_causal else score


def _probability(params: Any, weights: Tensor, total: Tensor, at: Sequence[Expr]) -> Expr:
    whole = total[(*at[:-1], as_expr(0))]
    if params.unseen == "zero":
        whole = select(whole.equal(0.0), const(1.0, whole.dtype), whole)
    p = weights[tuple(at)] / whole
    return select(te.isnan(p), const(0.0, p.dtype), p) if params.unseen == "clean" else p

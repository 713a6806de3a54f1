"""The template of _strided_attention, in models and for any numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....core.fused import FusedGroup
from ....core.ir import Fact, NodeEntry
from ....ops.nn.strided_attention import StridedAttentionAttrs
from ...group import Facts, LoweredKernel, Written, kernel_name
from ...long_sums import finished
from .blocks import BlockedAttention


def attention_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of a group that is a _strided_attention."""
    (node,) = group.nodes
    facts = [fact(entry) for entry in node.inputs]
    return [attention_kernel(kernel_name(group), node.params, facts, (*node.inputs, NodeEntry(node)), target)]


def attention_kernel(
    name: str, params: Any, facts: Sequence[Fact], arguments: tuple[Any, ...], target: CpuTarget
) -> LoweredKernel:
    """The kernel of an attention, whose arguments stand for its inputs and its result. Extents and steps are numbers or
    arguments."""
    made = BlockedAttention(name, params, facts, target)
    heads = prod(params.batch) * params.queries * params.keys
    work = heads * (params.width + params.values + target.facts.function_operations)
    return LoweredKernel(finished(made.kernel()), arguments, work)


class AttentionForm(NamedTuple):
    """All that a program knows of an attention as numbers: columns of query and key, columns of value, the factor of
    the scores, leading axes, whether query i sees keys 0 to i only, and along which of its axes a mask has elements."""

    width: int
    values: int
    scale: float
    rank: int
    is_causal: bool
    replaces: bool
    mask: tuple[bool, ...] | None


def write_attention(form: AttentionForm, dtype: DType, target: CpuTarget, numbers: list[Any]) -> Written:
    """Query, key, value and maybe a mask go in. The numbers are leading extents, queries, keys, and of each of the
    first three the steps along all axes but the last."""
    batch, (queries, keys), steps = numbers[: form.rank], numbers[form.rank : form.rank + 2], numbers[form.rank + 2 :]
    at = [(0, *steps[n * (form.rank + 1) :][: form.rank + 1], 1) for n in range(3)]
    whole = (*batch, keys, queries)
    masks = [] if form.mask is None else [_kept(whole[len(whole) - len(form.mask) :], form.mask)]
    params = StridedAttentionAttrs(
        batch=tuple(batch),
        queries=queries,
        keys=keys,
        width=form.width,
        values=form.values,
        query=at[0],
        key=at[1],
        value=at[2],
        out_axes=tuple(range(form.rank + 2)),
        scale=form.scale,
        masked=bool(masks),
        replaces=form.replaces,
        is_causal=form.is_causal,
        unseen="zero",
    )
    ends = [(queries, form.width), (keys, form.width), (keys, form.values)]
    shapes = [*[(*batch, *end) for end in ends], *masks]
    facts = [Fact(shape, dtype) for shape in shapes]
    kernel = attention_kernel("attention", params, facts, tuple(range(len(shapes) + 1)), target)
    return Written.by_one(kernel, dtype, *shapes, (*batch, queries, form.values))


def _kept(shape: Sequence[Any], has: Sequence[bool]) -> tuple[Any, ...]:
    return tuple([extent if kept else 1 for extent, kept in zip(shape, has)])

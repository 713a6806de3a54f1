"""What operators prefer on a target: the rules that AlterOpLayout asks.

conv2d works on blocks of channels, as many as a vector has lanes, so that every vector is full.
Products with a matrix of weights take it in packed panels. With constant weights both are done
once, when constants are folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..base.dtype import FLOAT32
from ..base.shape import is_static
from ..base.target import Target, host
from ..core.ir import Fact
from ..core.op import Op
from ..core.schema import canonical
from ..core.symbol import Symbol
from ..ops import conv, matmul, nn, packed  # noqa: F401  the operators used here

_target: ContextVar[Target | None] = ContextVar("weft_layout_target", default=None)


@contextmanager
def layouts_for(target: Target) -> Iterator[None]:
    """The target that layouts are chosen for, inside a `with` block."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


def channel_block(channels: int, target: Target) -> int | None:
    """The largest block of channels that fills a vector, or at least a half or a quarter of one."""
    lanes = target.lanes(FLOAT32)
    fitting = [block for block in (lanes, lanes // 2, lanes // 4) if block > 1]
    return next((block for block in fitting if channels % block == 0), None)


def blocked_conv2d(params: Any, inputs: Symbol, facts: Sequence[Fact]) -> Symbol | None:
    """conv2d with its channels in blocks; None where they do not divide into any."""
    shape = facts[0].shape
    plain = params.layout == "NCHW" and params.kernel_layout == "OIHW"
    if not plain or shape is None or not isinstance(shape[1], int) or facts[0].dtype != FLOAT32:
        return None
    layouts = _conv2d_layouts(shape[1], params.channels, params.groups, _target.get() or host())
    if layouts is None:
        return None
    attrs = {**canonical(params), **layouts}
    return Op.get("conv2d")(*inputs, **attrs)


def _conv2d_layouts(
    inputs: int, outputs: int, groups: int, target: Target
) -> dict[str, str] | None:
    out = channel_block(outputs // groups if groups != outputs else outputs, target)
    if out is None:
        return None
    if groups == inputs == outputs:  # one filter for each channel
        return _named(f"NCHW{out}c", f"OIHW{out}o", f"NCHW{out}c")
    data = channel_block(inputs // groups, target)
    if data is None:
        return _named("NCHW", f"OIHW{out}o", f"NCHW{out}c") if groups == 1 else None
    if groups > 1:
        data = out = min(data, out)
    return _named(f"NCHW{data}c", f"OIHW{data}i{out}o", f"NCHW{out}c")


def _named(data: str, kernel: str, out: str) -> dict[str, str]:
    return {"layout": data, "kernel_layout": kernel, "out_layout": out}


def packed_dense(params: Any, inputs: Symbol, facts: Sequence[Fact]) -> Symbol | None:
    """dense as a product with packed weights, then the bias."""
    data, weight, *bias = inputs
    product = _packed(data, weight, facts, transposed=True)
    if product is None or not bias:
        return product
    return Op.get("broadcast_add")(product, bias[0])


def packed_matmul(params: Any, inputs: Symbol, facts: Sequence[Fact]) -> Symbol | None:
    """A product with a matrix on the right as one with packed weights."""
    if params.transpose_a:
        return None
    data, weight = inputs
    return _packed(data, weight, facts, transposed=params.transpose_b)


def _packed(data: Symbol, weight: Symbol, facts: Sequence[Fact], transposed: bool) -> Symbol | None:
    shape = facts[1].shape
    if facts[0].shape is None or not facts[0].shape or not is_static(shape) or len(shape) != 2:
        return None
    if any(fact.dtype != FLOAT32 for fact in facts[:2]) or weight.outputs[0].node.op is not None:
        return None  # what is computed anew in every run is not worth packing
    lanes = (_target.get() or host()).lanes(FLOAT32)
    panels = Op.get("_pack_panels")(weight, lanes=lanes, transposed=transposed)
    units = shape[0] if transposed else shape[1]
    return Op.get("_packed_matmul")(data, panels, units=units)


Op.get("conv2d").alter_layout = blocked_conv2d
Op.get("dense").alter_layout = packed_dense
Op.get("matmul").alter_layout = packed_matmul

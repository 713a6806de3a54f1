"""How a CPU likes products with weights of 16 bits: where it multiplies pairs of bfloat16 faster than floats, rows are
rounded too and weights are packed in pairs; elsewhere weights become float32 as they are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import BFLOAT16, FLOAT32
from ....base.shape import is_static
from ....core.ir import Fact
from ....core.op import Op
from ....core.symbol import Symbol
from ....ops.nn.narrow_products import PAIR, NarrowAttrs
from ..layouts import as_written


def _apply(name: str, *inputs: Symbol, **attrs: Any) -> Symbol:
    made: Symbol = Op.get(name)(*inputs, **attrs)
    return made


def pairs_pay(target: CpuTarget) -> bool:
    """Whether dot products of bfloat16 are faster than products of floats."""
    return target.facts.pair_flops > target.facts.flops


def narrow_dense(params: NarrowAttrs, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """A product with packed weights."""
    data, weight = inputs
    shape, lanes = facts[1].shape, target.lanes(FLOAT32)
    if facts[0].shape is None or not is_static(shape):
        return None
    rows = as_written(data, facts[0])
    if facts[1].dtype != BFLOAT16 or not pairs_pay(target):
        panels = _apply("_pack_panels", weight, lanes=lanes, transposed=True)
        return _apply("_packed_matmul", rows, panels, units=params.units)
    units, depth = shape
    rows = _apply("cast", rows, dtype=BFLOAT16)
    if depth % PAIR:
        rows = _apply("pad", rows, pad_width=[(0, 0)] * (len(facts[0].shape) - 1) + [(0, 1)])
    filters = _apply("reshape", weight, shape=(units, depth, 1, 1))
    panels = _apply("_word_panels", filters, lanes=lanes, together=PAIR)
    return _apply("_pair_matmul", rows, panels, units=units)


PAIR_RULES = {"_narrow_dense": narrow_dense}

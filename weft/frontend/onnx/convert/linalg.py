"""Converters of determinants and of running products."""

from __future__ import annotations

from ...building import in_float32
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter


@converter("Det", since=11)
@in_float32
def determinant(call: OnnxCall) -> Value:
    return call.op("det", call[0])


@converter("CumProd", since=26, decides=(1,))
@in_float32
def cumulative_product(call: OnnxCall) -> Value:
    """From the end, where asked for: of the data turned round, and turned back."""
    data, axis = call[0], call.axis(int(call.number(1, "the axis")), call[0])
    exclusive = bool(call.attr("exclusive"))
    if not call.attr("reverse"):
        return call.op("cumprod", data, axis=axis, exclusive=exclusive)
    turned = call.op("cumprod", call.op("flip", data, axis=axis), axis=axis, exclusive=exclusive)
    return call.op("flip", turned, axis=axis)

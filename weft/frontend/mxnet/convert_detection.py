"""Converters of boxes: anchors, decoding, overlaps."""

from __future__ import annotations

from ..emitter import Value
from .call import Call
from .registry import converter


def _coordinates(call: Call, value: Value) -> list[Value]:
    """The four numbers of boxes, each with a last axis of 1."""
    return call.op("split", value, indices_or_sections=4, axis=call.rank(value) - 1)


def _half(call: Call, value: Value) -> Value:
    return call.op("__mul_scalar__", value, scalar=0.5)


def _centres(call: Call, boxes: list[Value]) -> list[Value]:
    """(left, top, right, bottom) as (x, y, width, height)."""
    left, top, right, bottom = boxes
    width, height = call.op("elemwise_sub", right, left), call.op("elemwise_sub", bottom, top)
    x = call.op("elemwise_add", left, _half(call, width))
    y = call.op("elemwise_add", top, _half(call, height))
    return [x, y, width, height]


@converter("_contrib_box_decode")
def box_decode(call: Call) -> Value:
    """Offsets from anchors as corners: x = dx std aw + ax, width = exp(dw std) aw."""
    clip, corners = call.attr("clip"), call.attr("format") == "corner"
    anchors = _coordinates(call, call[1])
    ax, ay, aw, ah = _centres(call, anchors) if corners else anchors
    offsets = _coordinates(call, call[0])
    dx, dy, dw, dh = (
        call.op("__mul_scalar__", part, scalar=call.attr(f"std{i}"))
        for i, part in enumerate(offsets)
    )
    x = call.op("broadcast_add", call.op("broadcast_mul", dx, aw), ax)
    y = call.op("broadcast_add", call.op("broadcast_mul", dy, ah), ay)
    halves = []
    for change, size in ((dw, aw), (dh, ah)):
        if clip > 0:
            change = call.op("broadcast_min", change, call.make([clip], call.dtype(change)))
        halves.append(_half(call, call.op("broadcast_mul", call.op("exp", change), size)))
    low = [call.op("elemwise_sub", at, half) for at, half in zip((x, y), halves)]
    high = [call.op("elemwise_add", at, half) for at, half in zip((x, y), halves)]
    return call.op("concatenate", *low, *high, axis=call.rank(x) - 1)

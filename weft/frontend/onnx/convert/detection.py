"""Converters of what detection networks end in: the best of many, and parts of images."""

from __future__ import annotations

from ....base.dtype import INT64
from ....base.errors import FormatError
from ....base.extents import Extent
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter


@converter("TopK", since=10, decides=(1,))
def top_k(call: OnnxCall) -> list[Value]:
    """Sorted whether that is asked for or not."""
    call.ignore("sorted")
    (count,) = call.extents(1, "how many there are")
    return _best(call, count)


@converter("TopK")
def top_k_by_attribute(call: OnnxCall) -> list[Value]:
    return _best(call, call.attr("k"))


def _best(call: OnnxCall, count: int | Extent) -> list[Value]:
    largest = bool(call.attr("largest", 1))
    return call.ops("topk", call[0], k=count, axis=call.attr("axis"), dtype=INT64, largest=largest)


@converter("RoiAlign", since=10)
def roi_align(call: OnnxCall) -> Value:
    """The number of the image stands before each box here."""
    aligned = call.attr("coordinate_transformation_mode", "output_half_pixel") == "half_pixel"
    boxes, ratio, mode = call[1], max(call.attr("sampling_ratio"), 0), call.attr("mode")
    if mode not in ("avg", "max"):
        raise FormatError(f"RoiAlign with mode {mode!r}")
    images = call.reshape(call[2], (call.extent(call[2], 0), 1))
    rows = call.op("concatenate", call.cast(images, call.dtype(boxes)), boxes, axis=1)
    attrs = {**call.attrs("spatial_scale"), "sample_ratio": ratio, "aligned": aligned}
    attrs["pooled_size"] = (call.attr("output_height"), call.attr("output_width"))
    means = "roi_align" if ratio else "adaptive_roi_align"
    return call.op("roi_align_max" if mode == "max" else means, call[0], rows, **attrs)

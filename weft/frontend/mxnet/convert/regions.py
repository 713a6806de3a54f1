"""Converters of regions: boxes that a network proposes, and the parts of images inside boxes."""

from __future__ import annotations

from typing import Any

from ....base.errors import FormatError
from ...emitter import Value
from ..call import Call
from ..registry import converter


def _two(call: Call) -> tuple[int, int]:
    size = call.attr("pooled_size")
    return size[0], size[-1]


@converter("_contrib_ROIAlign")
def roi_align(call: Call) -> Value:
    """A number of points below 1 stands for as many as a box is large."""
    ratio, by_channel = call.attr("sample_ratio"), call.attr("position_sensitive")
    attrs: dict[str, Any] = {
        "pooled_size": _two(call),
        "spatial_scale": call.attr("spatial_scale"),
        "sample_ratio": max(ratio, 0),
        "aligned": call.attr("aligned"),
    }
    if ratio > 0 and not by_channel:
        return call.op("roi_align", call[0], call[1], **attrs)
    return call.op("adaptive_roi_align", call[0], call[1], **attrs, position_sensitive=by_channel)


@converter("ROIPooling")
def roi_pooling(call: Call) -> Value:
    scale = call.attr("spatial_scale")
    return call.op("roi_pool", call[0], call[1], pooled_size=_two(call), spatial_scale=scale)


@converter("_contrib_DeformablePSROIPooling")
def deformable_psroi_pooling(call: Call) -> Value:
    call.only_first_output()
    names = ("output_dim pooled_size group_size spatial_scale part_size sample_per_part trans_std no_trans").split()
    attrs = {name: call.attr(name) for name in names}
    moves = [] if attrs["no_trans"] else [call[2]]
    call.ignore(2)
    return call.op("deformable_psroi_pool", call[0], call[1], *moves, **attrs)


@converter("_contrib_Proposal", "_contrib_MultiProposal")
def proposal(call: Call) -> list[Value]:
    """The boxes, and their scores, which are an output only if asked for."""
    if call.op_type == "_contrib_Proposal" and call.shape(call[0])[0] != 1:
        raise FormatError("Proposal takes one image", hint="MultiProposal takes several")
    names = (
        "rpn_pre_nms_top_n rpn_post_nms_top_n threshold rpn_min_size scales ratios feature_stride iou_loss"
    ).split()
    call.ignore("output_score")
    attrs = {name: call.attr(name) for name in names}
    return call.ops("proposal", call[0], call[1], call[2], **attrs)

"""Writes mxnet_witness.npz: inputs of detection operators, and what the real MXNet 1.9.1 makes of
them. Run it with a Python that has mxnet==1.9.1 and numpy==1.23.5:

    python tests/ops/make_mxnet_witness.py

Case NUMBER of operator OP has OP/NUMBER/attrs (JSON, as weft's operator takes them), inputs
OP/NUMBER/in/0, 1... and outputs OP/NUMBER/out/0, 1... What one operator of MXNet does in one go,
weft does in two: decoding is MultiBoxDetection with a threshold that suppresses nothing, and
suppression is box_nms, or MultiBoxDetection on boxes that were decoded so, where it leaves gaps.
"""

import json
from pathlib import Path

import mxnet as mx
import numpy as np

RNG = np.random.RandomState(23)
ROWS = {}


def case(op, attrs, inputs, outputs):
    number = sum(key.startswith(f"{op}/") and key.endswith("/attrs") for key in ROWS)
    ROWS[f"{op}/{number}/attrs"] = np.array(json.dumps(attrs))
    for side, arrays in (("in", inputs), ("out", outputs)):
        for i, array in enumerate(arrays):
            ROWS[f"{op}/{number}/{side}/{i}"] = array


def floats(*shape, low=0.0, high=1.0):
    return RNG.uniform(low, high, shape).astype("float32")


def priors():
    for shape, attrs in [
        ((1, 3, 4, 4), {"sizes": [0.5, 0.25], "ratios": [1.0, 2.0]}),
        ((2, 1, 3, 5), {"sizes": [0.3], "ratios": [1.0, 2.0, 0.5], "clip": True}),
        ((1, 2, 2, 3), {"steps": [0.4, 0.3], "offsets": [0.1, 0.7]}),
        ((1, 1, 1, 1), {}),
        ((1, 1, 7, 2), {"sizes": [0.9, 0.1, 1.5], "ratios": [1.0, 3.0, 1 / 3], "clip": True}),
        ((1, 1, 2, 9), {"sizes": [0.2], "steps": [0.5, 0.1], "offsets": [0.0, 1.0]}),
    ]:
        x = floats(*shape)
        made = mx.nd.contrib.MultiBoxPrior(mx.nd.array(x), **{k: _given(v) for k, v in attrs.items()})
        case("multibox_prior", attrs, [x], [made.asnumpy()])


def _given(value):
    return tuple(value) if isinstance(value, list) else value


def anchors(count):
    corner = RNG.uniform(0, 0.6, (count, 2))
    return np.concatenate([corner, corner + RNG.uniform(0.1, 0.4, (count, 2))], 1)[None].astype("f")


def detection(probs, loc, anchor, nms_threshold=2.0, **attrs):
    """Above 1 the threshold suppresses nothing, and rows stay in the order of anchors."""
    arrays = [mx.nd.array(x) for x in (probs, loc, anchor)]
    made = mx.nd.contrib.MultiBoxDetection(*arrays, nms_threshold=nms_threshold, **attrs)
    return made.asnumpy()


def without_suppressed(rows):
    """A row whose class is -1 is no row: weft writes -1 everywhere in it."""
    return np.where(rows[..., :1] < 0, np.float32(-1), rows)


def predictions(batch, classes, count):
    probs = floats(batch, classes, count)
    probs /= probs.sum(1, keepdims=True)
    return probs, floats(batch, 4 * count, low=-1, high=1), anchors(count)


def decoding():
    for batch, classes, count, attrs in [
        (1, 3, 4, {}),
        (2, 4, 9, {"threshold": 0.45}),
        (1, 2, 5, {"clip": False, "variances": [1.0, 0.5, 0.3, 0.7]}),
        (2, 3, 6, {"threshold": 0.0}),
        (1, 5, 7, {"threshold": 1.5}),
        (1, 21, 12, {"threshold": 0.05, "clip": True}),
    ]:
        inputs = predictions(batch, classes, count)
        given = {k: _given(v) for k, v in attrs.items()}
        boxes = without_suppressed(detection(*inputs, **given))
        counts = (boxes[..., 0] >= 0).sum(1).astype("int32")
        case("multibox_transform_loc", attrs, inputs, [boxes, counts])


def indices_of(rows, data):
    """The numbers of rows of the data that these are; all rows of the data differ."""
    made = np.full(rows.shape[:2], -1, "int32")
    for n, i in np.ndindex(*made.shape):
        if rows[n, i, 0] >= 0:
            (made[n, i],) = np.flatnonzero((data[n] == rows[n, i]).all(1))
    return made


def suppression_with_gaps():
    """Rows in the order of scores, those that are suppressed being -1 where they stand."""
    for count, nms, attrs in [
        (12, {"nms_threshold": 0.5}, {"iou_threshold": 0.5}),
        (20, {"nms_threshold": 0.2, "force_suppress": True}, {"iou_threshold": 0.2, "force_suppress": True}),
        (25, {"nms_threshold": 0.3, "nms_topk": 9}, {"iou_threshold": 0.3, "top_k": 9}),
        (1, {"nms_threshold": 0.5}, {"iou_threshold": 0.5}),
        (
            30,
            {"nms_threshold": 0.05, "force_suppress": True, "nms_topk": 30},
            {"iou_threshold": 0.05, "force_suppress": True, "top_k": 30},
        ),
    ]:
        inputs = predictions(2, 4, count)
        data = without_suppressed(detection(*inputs, threshold=0.3))
        valid = (data[..., 0] >= 0).sum(1).astype("int32")
        rows = without_suppressed(detection(*inputs, threshold=0.3, **nms))
        keep = nms.get("nms_topk", count)
        rows[:, keep:] = -1  # MXNet keeps what it has not looked at, weft does not
        case("non_max_suppression", {**attrs, "return_indices": False}, [data, valid], [rows])
        case("non_max_suppression", attrs, [data, valid], [indices_of(rows, data)])


def boxes(batch, count, classes=3):
    kinds = RNG.randint(0, classes, (batch, count, 1))
    scores = RNG.permutation(batch * count).reshape(batch, count, 1) / (batch * count) + 0.01
    low = RNG.randint(0, 20, (batch, count, 2))
    return np.concatenate([kinds, scores, low, low + RNG.randint(2, 15, (batch, count, 2))], -1)


def suppression():
    """What is left goes to the top."""
    for batch, count, attrs in [
        (2, 15, {"iou_threshold": 0.2}),
        (1, 20, {"iou_threshold": 0.1, "force_suppress": True}),
        (3, 9, {"iou_threshold": 0.45, "top_k": 5}),
        (2, 16, {"iou_threshold": 0.25, "id_index": -1}),
        (1, 1, {"iou_threshold": 0.5}),
        (1, 24, {"iou_threshold": 0.3, "score_index": 0, "id_index": 5, "coord_start": 1}),
    ]:
        data = boxes(batch, count).astype("float32")
        if "coord_start" in attrs:
            data = data[..., [1, 2, 3, 4, 5, 0]]
        # MXNet's filter of scores is off: weft is told by valid_count instead.
        made = mx.nd.contrib.box_nms(
            mx.nd.array(data),
            overlap_thresh=attrs["iou_threshold"],
            valid_thresh=0,
            topk=attrs.get("top_k", -1),
            coord_start=attrs.get("coord_start", 2),
            score_index=attrs.get("score_index", 1),
            id_index=attrs.get("id_index", 0),
            force_suppress=attrs.get("force_suppress", False),
        ).asnumpy()
        more = {"return_indices": False, "invalid_to_bottom": True}
        valid = np.full(batch, count, "int32")
        case("non_max_suppression", {**attrs, **more}, [data, valid], [made])


BOXES = [[0, 0, 0, 4, 4], [1, 1.5, 2.2, 6.1, 7], [0, 3, 3, 3.2, 3.1], [1, -3, 5, 2, 30]]


def regions():
    """The gradient is that of the sum of what comes out, weighted by random numbers."""
    for attrs in [
        {"pooled_size": [2, 2], "spatial_scale": 1.0, "sample_ratio": 2},
        {"pooled_size": [3, 2], "spatial_scale": 0.5, "sample_ratio": 3},
        {"pooled_size": [1, 2], "spatial_scale": 1.0, "aligned": True, "sample_ratio": 1},
    ]:
        x, rois = floats(2, 3, 8, 9, low=-2, high=2), np.array(BOXES, "float32")
        data = mx.nd.array(x)
        data.attach_grad()
        with mx.autograd.record():
            made = mx.nd.contrib.ROIAlign(
                data, mx.nd.array(rois), **{key: _given(value) for key, value in attrs.items()}
            )
        g = floats(*made.shape, low=-1)
        made.backward(mx.nd.array(g))
        case("roi_align", attrs, [x, rois], [made.asnumpy()])
        case("_roi_align_grad", attrs, [g, x, rois], [data.grad.asnumpy()])


def main():
    for make in (priors, decoding, suppression_with_gaps, suppression, regions):
        make()
    np.savez_compressed(Path(__file__).with_name("mxnet_witness.npz"), **ROWS)
    print(sum(key.endswith("/attrs") for key in ROWS), "cases")


if __name__ == "__main__":
    main()

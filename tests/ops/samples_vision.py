"""Samples of the operators of detection networks. MXNet and OpenCV, which have them too, have said
what some of them give; for random ones the oracles are written with scalars and PyTorch, straight
from what the operators are to do."""

import itertools
import math

import numpy as np
from sample import Sample, floats, recorded, samples

recorded("multibox_prior", "MXNet 1.9.1")
recorded("multibox_transform_loc", "MXNet 1.9.1")
recorded("non_max_suppression", "MXNet 1.9.1")
recorded("roi_align", "MXNet 1.9.1", differentiable=(0,))
recorded("_roi_align_grad", "MXNet 1.9.1", differentiable=(0,))
recorded("yolo_reorg", "OpenCV 4.14")
recorded("_yolo_reorg_grad", "OpenCV 4.14")


def _prior(torch, shape, sizes=(1.0,), ratios=(1.0,), steps=(-1, -1), offsets=(0.5, 0.5), clip=False):
    _, _, height, width = shape
    boxes = []
    for row, column in itertools.product(range(height), range(width)):
        y = (row + offsets[0]) * (steps[0] if steps[0] > 0 else 1 / height)
        x = (column + offsets[1]) * (steps[1] if steps[1] > 0 else 1 / width)
        kinds = [(size, 1.0) for size in sizes] + [(sizes[0], ratio) for ratio in ratios[1:]]
        for size, ratio in kinds:
            w, h = size * math.sqrt(ratio) * height / width, size / math.sqrt(ratio)
            boxes.append([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
    made = torch.tensor(boxes, dtype=torch.float64).reshape(1, -1, 4)
    return made.clamp(0, 1) if clip else made


@samples("multibox_prior")
def multibox_prior(rng, torch):
    for shape, attrs in [
        ((1, 3, 4, 4), {"sizes": (0.5, 0.25), "ratios": (1.0, 2.0)}),
        ((2, 1, 3, 5), {"sizes": (0.3,), "ratios": (1.0, 2.0, 0.5), "clip": True}),
        ((1, 2, 2, 3), {"steps": (0.4, 0.3), "offsets": (0.1, 0.7)}),
        ((1, 1, 1, 1), {}),
        ((1, 1, 0, 4), {}),
    ]:
        run = lambda x, s=shape, a=attrs: _prior(torch, s, **a)
        yield Sample([floats(rng, shape)], attrs, run)


def _transform(torch, probs, loc, anchor, clip=True, threshold=0.01, variances=(0.1, 0.1, 0.2, 0.2)):
    batch, classes, anchors = probs.shape
    rows = torch.full((batch, anchors, 6), -1.0)
    counts = torch.zeros(batch, dtype=torch.int32)
    for n, i in itertools.product(range(batch), range(anchors)):
        if classes < 2:
            continue
        score, kind = probs[n, 1:, i].max(0)
        if score < threshold:
            continue
        left, top, right, bottom = anchor[0, i]
        w, h = right - left, bottom - top
        dx, dy, dw, dh = loc[n, 4 * i : 4 * i + 4] * torch.tensor(variances)
        x, y = (left + right) / 2 + dx * w, (top + bottom) / 2 + dy * h
        w, h = w * dw.exp(), h * dh.exp()
        box = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
        box = box.clamp(0, 1) if clip else box
        rows[n, counts[n], 0], rows[n, counts[n], 1] = kind, score
        rows[n, counts[n], 2:] = box
        counts[n] += 1
    return rows, counts


def _anchors(rng, count):
    corner = rng.uniform(0, 0.6, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(0.1, 0.4, (count, 2))], 1)[None]


@samples("multibox_transform_loc")
def multibox_transform_loc(rng, torch):
    for batch, classes, count, attrs in [
        (1, 3, 4, {}),
        (2, 4, 9, {"threshold": 0.45}),
        (1, 2, 5, {"clip": False, "variances": (1.0, 0.5, 0.3, 0.7)}),
        (2, 1, 3, {}),
        (0, 3, 4, {}),
        (1, 3, 0, {}),
    ]:
        probs = floats(rng, (batch, classes, count), 0, 1)
        probs = (probs / np.maximum(probs.sum(1, keepdims=True), 1e-9)).astype("float32")
        loc = floats(rng, (batch, 4 * count), -1, 1)
        anchor = _anchors(rng, count).astype("float32")
        run = lambda p, d, a, attrs=attrs: _transform(torch, p, d, a, **attrs)
        yield Sample([probs, loc, anchor], attrs, run)


def _nms(torch, data, counts, attrs):
    """The same greedy choice, by a matrix of overlaps and masks."""
    get = {
        "max_output_size": -1,
        "iou_threshold": 0.5,
        "force_suppress": False,
        "top_k": -1,
        "coord_start": 2,
        "score_index": 1,
        "id_index": 0,
        "return_indices": True,
        "invalid_to_bottom": False,
        **attrs,
    }
    places = torch.full(data.shape[:2], -1, dtype=torch.int32)
    for n, count in enumerate(counts.tolist()):
        rows = data[n, : max(count, 0)]
        order = torch.arange(len(rows))
        if get["iou_threshold"] > 0:
            order = torch.sort(rows[:, get["score_index"]], descending=True, stable=True).indices
            order = order[: get["top_k"]] if get["top_k"] > 0 else order
            order = torch.where(_survivors(torch, rows[order], get), order, -1)
        if get["max_output_size"] > 0:
            order = torch.where((order >= 0).cumsum(0) <= get["max_output_size"], order, -1)
        if get["invalid_to_bottom"]:
            order = order[order >= 0]
        places[n, : len(order)] = order.int()
    if get["return_indices"]:
        return places
    picked = torch.gather(data, 1, places.clamp(min=0).long()[..., None].expand(data.shape))
    return torch.where(places[..., None] >= 0, picked, torch.tensor(-1.0))


def _survivors(torch, rows, get):
    start = get["coord_start"]
    low, high = rows[:, start : start + 2], rows[:, start + 2 : start + 4]
    sides = torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low)
    shared = sides.clamp(min=0).prod(-1)
    areas = (high - low).prod(-1)
    union = areas[:, None] + areas - shared
    close = torch.where(union > 0, shared / union, 0) >= get["iou_threshold"]
    live = rows[:, get["score_index"]] > 0
    if get["id_index"] >= 0:
        kinds = rows[:, get["id_index"]]
        live = live & (kinds >= 0)
        if not get["force_suppress"]:
            close = close & (kinds[:, None] == kinds)
    kept = torch.ones(len(rows), dtype=torch.bool)
    for place in range(len(rows)):
        if kept[place] and live[place]:
            later = torch.arange(len(rows)) > place
            kept = kept & ~(close[place] & live & later)
    return kept


def _boxes(rng, batch, count, classes=3):
    kinds = rng.integers(0, classes, (batch, count, 1))
    scores = rng.permutation(batch * count).reshape(batch, count, 1) / max(batch * count, 1) + 0.01
    low = rng.integers(0, 20, (batch, count, 2))
    high = low + rng.integers(2, 15, (batch, count, 2))
    return np.concatenate([kinds, scores, low, high], -1).astype("float32")


# Detections, how many count, and what is left of them.
FIVE = np.float32(
    [
        [
            [0, 0.8, 1, 20, 25, 45],
            [1, 0.7, 30, 60, 50, 80],
            [0, 0.4, 4, 21, 19, 40],
            [2, 0.9, 35, 61, 52, 79],
            [1, 0.5, 100, 60, 70, 110],
        ]
    ]
)


@samples("non_max_suppression")
def non_max_suppression(rng, torch):
    def known(attrs, rows):
        indices = np.int32([[*rows, *[-1] * (5 - len(rows))]])
        made = np.where(indices[..., None] >= 0, FIVE[0][indices], np.float32(-1))
        result = indices if attrs.get("return_indices", True) else made
        return Sample([FIVE, np.int32([4])], attrs, lambda *_: result)

    yield known({"force_suppress": True, "iou_threshold": 0.7, "top_k": 2}, [3, 0])
    yield known({"force_suppress": True, "iou_threshold": 0.7, "top_k": 2, "return_indices": False}, [3, 0])
    yield known({}, [3, 0, 1, 2])
    yield known({"iou_threshold": 0.47, "return_indices": False}, [3, 0, 1])
    yield known({"force_suppress": True}, [3, 0, -1, 2])
    for number, (batch, count, attrs) in enumerate(
        [
            (2, 12, {}),
            (2, 17, {"return_indices": False, "iou_threshold": 0.3}),
            (1, 20, {"force_suppress": True, "iou_threshold": 0.2, "max_output_size": 3}),
            (2, 15, {"invalid_to_bottom": True, "return_indices": False, "iou_threshold": 0.2}),
            (1, 9, {"iou_threshold": 0.0, "max_output_size": 2}),
            (1, 9, {"id_index": -1, "score_index": 1, "iou_threshold": 0.25}),
            (1, 1, {}),
            (0, 3, {}),
            (2, 0, {"return_indices": False}),
        ]
    ):
        data = _boxes(rng, batch, count)
        if number == 1:
            data[0, 3, 1], data[1, 4, 0] = 0, -1  # neither suppress nor are suppressed
        valid = rng.integers(0, count + 1, batch).astype("int32")
        run = lambda d, v, a=attrs: _nms(torch, d, v, a)
        yield Sample([data, valid], attrs, run)


def _reorg(torch, x, s):
    """Element by element, on memory as the layer of Darknet sees it."""
    n, c, h, w = x.shape
    flat, parts = x.reshape(n, -1), c // (s * s)
    made = torch.empty_like(flat)
    for k, j, i in itertools.product(range(c), range(h), range(w)):
        block, part = divmod(k, parts)
        row, column = j * s + block // s, i * s + block % s
        made[:, i + w * (j + h * k)] = flat[:, column + w * s * (row + h * s * part)]
    return made.reshape(n, c * s * s, h // s, w // s)


REORGS = [((1, 4, 6, 6), 2), ((2, 8, 2, 4), 2), ((1, 9, 3, 6), 3), ((2, 3, 2, 2), 1)]


@samples("yolo_reorg")
def yolo_reorg(rng, torch):
    for shape, s in REORGS:
        yield Sample([floats(rng, shape)], {"stride": s}, lambda x, s=s: _reorg(torch, x, s))


@samples("_yolo_reorg_grad")
def yolo_reorg_grad(rng, torch):
    for (n, c, h, w), s in REORGS:
        g = floats(rng, (n, c * s * s, h // s, w // s))

        def run(g, shape=(n, c, h, w), s=s):
            x = torch.arange(math.prod(shape)).reshape(shape)
            made = torch.empty(math.prod(shape))
            made[_reorg(torch, x, s).reshape(-1)] = g.reshape(-1)
            return made.reshape(shape)

        yield Sample([g], {"stride": s}, run)

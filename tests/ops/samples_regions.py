"""Samples of the pools over boxes, and of the operator that proposes boxes."""

import math

import numpy as np
from sample import Sample, floats, samples

BOXES = np.array([[0, 0, 0, 4, 4], [1, 1.4, 2.2, 6.1, 7], [0, 3, 3, 3.2, 3.1], [-1, 0, 0, 3, 3]], "float32")
MORE = np.concatenate([BOXES, [[1, -3, 5, 2, 30]]]).astype("float32")
NONE = np.zeros((0, 5), "float32")


def _each_box(torch, x, rois, outs, cells, make):
    """make(image, box) for every box of an image; 0 for the others."""
    made = [
        make(x[int(roi[0])].double(), roi[1:].double())
        if 0 <= roi[0] < len(x)
        else torch.zeros((outs, *cells), dtype=torch.float64)
        for roi in rois
    ]
    return torch.stack(made).to(x.dtype) if made else torch.zeros((0, outs, *cells))


def _nearest(value):
    """Halves go away from zero."""
    return math.copysign(math.floor(abs(float(value)) + 0.5), float(value))


# The greatest element: for boxes inside the image an adaptive pool of what they cut out.


def _roi_pool(torch, x, rois, pooled_size, spatial_scale=1.0):
    def make(image, box):
        left, top, right, bottom = (int(_nearest(side * spatial_scale)) for side in box)
        part = image[None, :, top : bottom + 1, left : right + 1]
        return torch.nn.functional.adaptive_max_pool2d(part, pooled_size)[0]

    return _each_box(torch, x, rois, x.shape[1], pooled_size, make)


@samples("roi_pool")
def roi_pool(rng, torch):
    for attrs in ({"pooled_size": (2, 3)}, {"pooled_size": (3, 2), "spatial_scale": 0.5}):
        yield Sample(
            [floats(rng, (2, 3, 8, 9)), BOXES],
            attrs,
            lambda x, r, a=attrs: (_roi_pool(torch, x, r, **a),),
            differentiable=(0,),
        )
    attrs = {"pooled_size": (2, 2)}
    yield Sample([floats(rng, (2, 2, 4, 4)), MORE], attrs, differentiable=(0,))
    yield Sample(
        [floats(rng, (1, 2, 4, 4)), NONE], attrs, lambda x, r: (_roi_pool(torch, x, r, **attrs),), differentiable=(0,)
    )


# The mean in a channel of the cell's own.


def _psroi_pool(torch, x, rois, output_dim, pooled_size, group_size=0, spatial_scale=1.0):
    group = group_size or pooled_size
    height, width = x.shape[2:]

    def cut(low, high, cell, extent):
        low, high = _nearest(low) * spatial_scale, (_nearest(high) + 1) * spatial_scale
        step = max(high - low, 0.1) / pooled_size
        begin, end = math.floor(cell * step + low), math.ceil((cell + 1) * step + low)
        return slice(min(max(begin, 0), extent), min(max(end, 0), extent))

    def make(image, box):
        left, top, right, bottom = box.tolist()
        made = torch.zeros((output_dim, pooled_size, pooled_size), dtype=torch.float64)
        for c, i, j in np.ndindex(*made.shape):
            channel = (c * group + i * group // pooled_size) * group + j * group // pooled_size
            part = image[channel, cut(top, bottom, i, height), cut(left, right, j, width)]
            made[c, i, j] = part.mean() if part.numel() else 0
        return made

    return _each_box(torch, x, rois, output_dim, (pooled_size, pooled_size), make)


PS_CASES = [
    {"output_dim": 2, "pooled_size": 2},
    {"output_dim": 2, "pooled_size": 3, "group_size": 2, "spatial_scale": 0.5},
]


@samples("psroi_pool")
def psroi_pool(rng, torch):
    for attrs in PS_CASES:
        yield Sample(
            [floats(rng, (2, 8, 8, 9)), MORE],
            attrs,
            lambda x, r, a=attrs: _psroi_pool(torch, x, r, **a),
            differentiable=(0,),
        )
    yield Sample(
        [floats(rng, (1, 8, 4, 4)), NONE],
        PS_CASES[0],
        lambda x, r: _psroi_pool(torch, x, r, **PS_CASES[0]),
        differentiable=(0,),
    )


@samples("_psroi_pool_grad")
def psroi_pool_grad(rng, torch):
    yield from _gradients(rng, torch, _psroi_pool, PS_CASES, 8, 2)


def _gradients(rng, torch, function, cases, channels, outs):
    """Samples of the gradient of the data."""
    for attrs in cases:
        cells = np.broadcast_to(attrs["pooled_size"], (2,))
        inputs = [floats(rng, (len(MORE), outs, *cells)), floats(rng, (2, channels, 8, 9)), MORE]
        yield Sample(inputs, attrs, _backward(torch, function, attrs), differentiable=(0,))
        yield Sample([inputs[0][:0], inputs[1], NONE], attrs, lambda g, x, r: 0 * x)


def _backward(torch, function, attrs):
    def gradient(g, x, *others):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(function(torch, x, *others, **attrs), x, g)[0]

    return gradient


# The mean of interpolated points: grid_sample, the border counting as far as one element away.


def _interpolated(torch, image, y, z):
    """Channels of an image at all pairs of places, (c, y, z)."""
    height, width = image.shape[1:]
    rows, columns = torch.meshgrid(2 * y / (height - 1) - 1, 2 * z / (width - 1) - 1, indexing="ij")
    grid = torch.stack([columns, rows], -1)[None]
    sample = torch.nn.functional.grid_sample
    return sample(image[None], grid, padding_mode="border", align_corners=True)[0]


def _align(torch, x, rois, pooled_size, spatial_scale=1.0, sample_ratio=0, aligned=False, position_sensitive=False):
    half = 0.5 if aligned else 0.0

    def points(low, high, cells, extent):
        low, high = low * spatial_scale - half, high * spatial_scale - half
        size = high - low if aligned else torch.clamp(high - low, min=1)
        count = sample_ratio or math.ceil(size / cells)
        place = low + (torch.arange(cells * count) + 0.5).double() / (cells * count) * size
        return place, (place >= -1) & (place <= extent), count

    def make(image, box):
        left, top, right, bottom = box
        y, y_in, down = points(top, bottom, pooled_size[0], x.shape[2])
        z, z_in, across = points(left, right, pooled_size[1], x.shape[3])
        values = _interpolated(torch, image, y, z) * (y_in[:, None] & z_in[None])
        made = torch.nn.functional.avg_pool2d(values, (down, across))
        if not position_sensitive:
            return made
        split = made.reshape(-1, *pooled_size, *pooled_size)
        i, j = torch.meshgrid(*map(torch.arange, pooled_size), indexing="ij")
        return split[:, i, j, i, j]

    outs = x.shape[1] // (math.prod(pooled_size) if position_sensitive else 1)
    return _each_box(torch, x, rois, outs, pooled_size, make)


ALIGN_CASES = [
    {"pooled_size": (2, 2)},
    {"pooled_size": (3, 2), "spatial_scale": 0.5},
    {"pooled_size": (1, 2), "aligned": True},
    {"pooled_size": (2, 2), "sample_ratio": 2, "spatial_scale": 0.7},
]
OWN_CASES = [{"pooled_size": (2, 2), "position_sensitive": True}]


@samples("adaptive_roi_align")
def adaptive_roi_align(rng, torch):
    for attrs in ALIGN_CASES + OWN_CASES:
        yield Sample(
            [floats(rng, (2, 8, 8, 9)), MORE],
            attrs,
            lambda x, r, a=attrs: _align(torch, x, r, **a),
            differentiable=(0,),
        )
    yield Sample(
        [floats(rng, (1, 8, 4, 4)), NONE],
        ALIGN_CASES[0],
        lambda x, r: _align(torch, x, r, **ALIGN_CASES[0]),
        differentiable=(0,),
    )


@samples("_adaptive_roi_align_grad")
def adaptive_roi_align_grad(rng, torch):
    yield from _gradients(rng, torch, _align, ALIGN_CASES, 3, 3)
    yield from _gradients(rng, torch, _align, OWN_CASES, 8, 2)


# The greatest share: onnx's own evaluator has no gradients, so that of the four elements around each point is taken.


def _align_max(torch, x, rois, pooled_size, spatial_scale=1.0, sample_ratio=0, aligned=False):
    half = 0.5 if aligned else 0.0

    def points(low, high, cells, extent):
        low, high = low * spatial_scale - half, high * spatial_scale - half
        size = high - low if aligned else torch.clamp(high - low, min=1)
        count = sample_ratio or math.ceil(size / cells)
        place = low + (torch.arange(cells * count) + 0.5).double() / (cells * count) * size
        inside = (place >= -1) & (place <= extent)
        place = place.clamp(0, extent - 1)
        before = place.floor().long()
        part = place - before
        taps = [(before, (1 - part) * inside), ((before + 1).clamp(max=extent - 1), part * inside)]
        return taps, count

    def make(image, box):
        left, top, right, bottom = box
        rows, down = points(top, bottom, pooled_size[0], x.shape[2])
        columns, across = points(left, right, pooled_size[1], x.shape[3])
        shares = [image[:, y][:, :, z] * v[:, None] * h for y, v in rows for z, h in columns]
        return torch.nn.functional.max_pool2d(torch.stack(shares).amax(0), (down, across))

    return _each_box(torch, x, rois, x.shape[1], pooled_size, make)


@samples("roi_align_max")
def roi_align_max(rng, torch):
    for attrs in [*ALIGN_CASES, {"pooled_size": (1, 2), "sample_ratio": 3, "aligned": True}]:
        yield Sample(
            [floats(rng, (2, 3, 8, 9)), MORE],
            attrs,
            lambda x, r, a=attrs: (_align_max(torch, x, r, **a),),
            differentiable=(0,),
        )
    attrs = ALIGN_CASES[0]
    yield Sample(
        [floats(rng, (1, 2, 4, 4)), NONE], attrs, lambda x, r: (_align_max(torch, x, r, **attrs),), differentiable=(0,)
    )


# Cells that are moved.


def _deformable(
    torch,
    x,
    rois,
    trans=None,
    *,
    output_dim,
    pooled_size,
    group_size,
    spatial_scale=1.0,
    part_size=0,
    sample_per_part=1,
    trans_std=0.0,
    no_trans=False,
):
    parts = part_size or pooled_size
    made = []
    for number, roi in enumerate(rois.double()):
        rows = []
        for c, i, j in np.ndindex(output_dim, pooled_size, pooled_size):
            if not 0 <= roi[0] < len(x):
                rows.append(torch.zeros((), dtype=torch.float64))
                continue
            axes = []
            for axis, (cell, extent) in enumerate(zip((i, j), x.shape[2:])):
                low = _nearest(roi[2 - axis]) * spatial_scale - 0.5
                high = (_nearest(roi[4 - axis]) + 1) * spatial_scale - 0.5
                size, move = max(high - low, 0.1), 0.0
                if not no_trans:
                    kind = c // (output_dim // (trans.shape[1] // 2))
                    part = i * parts // pooled_size, j * parts // pooled_size
                    move = trans[(number, 2 * kind + 1 - axis, *part)].double() * trans_std
                step = size / pooled_size
                place = cell * step + low + move * size
                place = place + torch.arange(sample_per_part).double() * step / sample_per_part
                place = place[(place >= -0.5) & (place <= extent - 0.5)]
                axes.append(place.clamp(0, extent - 1))
            channel = (c * group_size + i * group_size // pooled_size) * group_size
            channel += j * group_size // pooled_size
            image = x[int(roi[0])][channel : channel + 1].double()
            values = _interpolated(torch, image, *axes)
            rows.append(values.mean() if values.numel() else values.sum())
        made.append(torch.stack(rows).reshape(output_dim, pooled_size, pooled_size))
    return torch.stack(made).to(x.dtype)


DEFORMABLE = {"output_dim": 2, "pooled_size": 2, "group_size": 2, "sample_per_part": 2}
DEFORMABLE_CASES = [
    ((len(MORE), 4, 2, 2), {**DEFORMABLE, "trans_std": 0.1}),
    ((len(MORE), 2, 3, 3), {**DEFORMABLE, "trans_std": 0.3, "part_size": 3, "spatial_scale": 0.5}),
    ((), {**DEFORMABLE, "no_trans": True, "pooled_size": 3}),
]


def _deformable_inputs(rng):
    for shape, attrs in DEFORMABLE_CASES:
        moves = [floats(rng, shape, -1, 1)] if shape else []
        yield [floats(rng, (2, 8, 6, 7)), MORE, *moves], attrs


@samples("deformable_psroi_pool")
def deformable_psroi_pool(rng, torch):
    for inputs, attrs in _deformable_inputs(rng):
        yield Sample(inputs, attrs, lambda *v, a=attrs: _deformable(torch, *v, **a), differentiable=(0, 2))


@samples("_deformable_psroi_pool_grad")
def deformable_psroi_pool_grad(rng, torch):
    for inputs, attrs in _deformable_inputs(rng):
        g = floats(rng, (len(MORE), 2, attrs["pooled_size"], attrs["pooled_size"]))
        yield Sample([g, *inputs], attrs, _backward(torch, _deformable, attrs), differentiable=False)
    none = [g[:0], inputs[0], NONE]
    yield Sample(none, attrs, lambda g, x, r: 0 * x, differentiable=False)


@samples("_deformable_psroi_pool_grad_trans")
def deformable_psroi_pool_grad_trans(rng, torch):
    for inputs, attrs in _deformable_inputs(rng):
        if attrs.get("no_trans"):
            continue

        def gradient(g, x, rois, trans, a=attrs):
            trans = trans.clone().requires_grad_()
            return torch.autograd.grad(_deformable(torch, x, rois, trans, **a), trans, g)[0]

        g = floats(rng, (len(MORE), 2, attrs["pooled_size"], attrs["pooled_size"]))
        yield Sample([g, *inputs], attrs, gradient, differentiable=False)
        none = [g[:0], inputs[0], NONE, inputs[2][:0]]
        yield Sample(none, attrs, lambda g, x, r, t: t, differentiable=False)


# Proposals: one anchor at a time, in float64.


def _anchors(stride, scales, ratios):
    for ratio in ratios:
        wide = round(math.sqrt(stride * stride // ratio))
        for scale in scales:
            width, height = wide * scale, math.floor(wide * ratio + 0.5) * scale
            yield width, height


def _proposal(
    torch,
    scores,
    moves,
    info,
    rpn_post_nms_top_n,
    threshold,
    rpn_min_size,
    scales,
    ratios,
    feature_stride,
    rpn_pre_nms_top_n=6000,
    iou_loss=False,
):
    anchors = list(_anchors(feature_stride, scales, ratios))
    rows, kept_scores = [], []
    for image in range(len(scores)):
        height, width, scale = info[image].tolist()
        found = []
        for y, z, a in np.ndindex(scores.shape[2], scores.shape[3], len(anchors)):
            w, h = anchors[a]
            cx, cy = ((feature_stride - 1) / 2 + at * feature_stride for at in (z, y))
            d = moves[image, 4 * a : 4 * a + 4, y, z].tolist()
            if iou_loss:
                box = [
                    cx - (w - 1) / 2 + d[0],
                    cy - (h - 1) / 2 + d[1],
                    cx + (w - 1) / 2 + d[2],
                    cy + (h - 1) / 2 + d[3],
                ]
            else:
                cx, cy, w, h = cx + d[0] * w, cy + d[1] * h, w * math.exp(d[2]), h * math.exp(d[3])
                box = [cx - (w - 1) / 2, cy - (h - 1) / 2, cx + (w - 1) / 2, cy + (h - 1) / 2]
            box = [min(max(side, 0), last - 1) for side, last in zip(box, [width, height] * 2)]
            score = float(scores[image, len(anchors) + a, y, z])
            if y >= height // feature_stride or z >= width // feature_stride:
                score = -1.0
            least = rpn_min_size * scale
            if min(box[2] - box[0], box[3] - box[1]) + 1 < least:
                score, grow = -1.0, least / 2
                box = [box[0] - grow, box[1] - grow, box[2] + grow, box[3] + grow]
            found.append((score, box))
        found.sort(key=lambda item: -item[0])
        kept = []
        for score, box in found[:rpn_pre_nms_top_n]:
            if len(kept) < rpn_post_nms_top_n and not any(_overlap(box, other) > threshold for _, other in kept):
                kept.append((score, box))
        for place in range(rpn_post_nms_top_n):
            score, box = kept[place % len(kept)]
            rows.append([image, *box])
            kept_scores.append([score])
    return torch.tensor(rows), torch.tensor(kept_scores)


def _overlap(a, b):
    sides = [min(a[k + 2], b[k + 2]) - max(a[k], b[k]) + 1 for k in (0, 1)]
    shared = max(sides[0], 0) * max(sides[1], 0)
    areas = [(s[2] - s[0] + 1) * (s[3] - s[1] + 1) for s in (a, b)]
    return shared / (sum(areas) - shared)


@samples("proposal")
def proposal(rng, torch):
    common = {"scales": (2, 4), "ratios": (0.5, 1, 2), "feature_stride": 8, "rpn_min_size": 3}
    for images, more in (
        (1, {"rpn_post_nms_top_n": 9, "threshold": 0.4}),
        (2, {"rpn_post_nms_top_n": 12, "threshold": 0.6, "rpn_pre_nms_top_n": 10}),
        (1, {"rpn_post_nms_top_n": 5, "threshold": 0.5, "iou_loss": True, "rpn_min_size": 20}),
    ):
        attrs = {**common, **more}
        inputs = [
            floats(rng, (images, 12, 3, 4), 0, 1),
            floats(rng, (images, 24, 3, 4), -0.5, 0.5),
            np.array([[25, 31, 1.0], [17, 30, 0.5]], "float32")[:images],
        ]
        yield Sample(
            inputs, attrs, lambda *v, a=attrs: _proposal(torch, *v, **a), differentiable=False, rtol=1e-4, atol=1e-4
        )

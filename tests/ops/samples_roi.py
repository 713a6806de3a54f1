"""Samples of the operators that take parts of images."""

import numpy as np
from sample import Sample, floats, samples

BOXES = np.array(
    [[0, 0, 0, 4, 4], [1, 1.5, 2.2, 6.1, 7], [0, 3, 3, 3.2, 3.1], [1, -3, 5, 2, 30], [-1, 0, 0, 4, 4], [2, 0, 0, 4, 4]],
    "float32",
)
CASES = [
    {"pooled_size": (2, 2)},
    {"pooled_size": (3, 2), "spatial_scale": 0.5, "sample_ratio": 3},
    {"pooled_size": (1, 2), "aligned": True, "sample_ratio": 1},
]


def _roi_align(torch, x, rois, pooled_size, spatial_scale=1.0, sample_ratio=2, aligned=False):
    """One grid_sample for each box, whose points beyond the border count as 0; zeros for a box of
    no image."""
    half = 0.5 if aligned else 0.0
    made = []
    for image, *sides in rois.double():
        if not 0 <= image < len(x):
            made.append(torch.zeros((x.shape[1], *pooled_size), dtype=torch.float64))
            continue
        left, top, right, bottom = (side * spatial_scale - half for side in sides)
        grids = []
        for low, high, cells, extent in (
            (top, bottom, pooled_size[0], x.shape[2]),
            (left, right, pooled_size[1], x.shape[3]),
        ):
            size = high - low if aligned else torch.clamp(high - low, min=1)
            steps = (torch.arange(cells * sample_ratio) + 0.5) / (cells * sample_ratio)
            place = low + steps.double() * size
            grids.append((place, (place >= -1) & (place <= extent), extent))
        (y, y_in, height), (z, z_in, width) = grids
        rows, columns = torch.meshgrid(2 * y / (height - 1) - 1, 2 * z / (width - 1) - 1, indexing="ij")
        grid = torch.stack([columns, rows], -1)[None]
        values = torch.nn.functional.grid_sample(
            x[int(image)][None].double(), grid, padding_mode="border", align_corners=True
        )
        values = values * (y_in[:, None] & z_in[None])
        made.append(torch.nn.functional.avg_pool2d(values, sample_ratio)[0])
    if not made:
        return torch.zeros((0, x.shape[1], *pooled_size))
    return torch.stack(made).to(x.dtype)


@samples("roi_align")
def roi_align(rng, torch):
    for attrs in CASES:
        x = floats(rng, (2, 3, 8, 9))
        yield Sample([x, BOXES], attrs, lambda x, r, a=attrs: _roi_align(torch, x, r, **a), differentiable=(0,))
    none = np.zeros((0, 5), "float32")
    yield Sample(
        [floats(rng, (1, 2, 4, 4)), none],
        CASES[0],
        lambda x, r: _roi_align(torch, x, r, **CASES[0]),
        differentiable=(0,),
    )


@samples("_roi_align_grad")
def roi_align_grad(rng, torch):
    for attrs in CASES:

        def gradient(g, x, r, a=attrs):
            x = x.clone().requires_grad_()
            return torch.autograd.grad(_roi_align(torch, x, r, **a), x, g)[0]

        g = floats(rng, (len(BOXES), 3, *attrs["pooled_size"]))
        yield Sample([g, floats(rng, (2, 3, 8, 9)), BOXES], attrs, gradient, differentiable=(0,))

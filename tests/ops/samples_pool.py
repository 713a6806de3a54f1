"""Samples of pools, upsampling and resize."""

from __future__ import annotations

import numpy as np
from sample import Sample, distinct, floats, integers, samples

LOOSE = {"rtol": 1e-4, "atol": 1e-5}


def last(x):
    """NCHW as NHWC."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


# size, strides, padding, dilation, ceil_mode, extents
POOLS = [
    ((2, 2), (2, 2), (0, 0), (1, 1), False, (4, 5)),
    ((3, 2), (2, 1), (1, 1), (1, 1), False, (5, 4)),
    ((3, 3), (2, 2), (1, 1), (1, 1), True, (6, 5)),
    ((2, 2), (3, 3), (1, 1), (1, 1), True, (4, 4)),  # the last window would start in the padding
    ((2, 3), (1, 2), (1, 1), (2, 1), False, (5, 4)),
    ((2, 2), (1, 1), (0, 0, 1, 1), (1, 1), False, (3, 4)),
]


def pool_attrs(case, **more):
    size, strides, padding, dilation, ceil, _ = case
    return {"pool_size": size, "strides": strides, "padding": padding, "dilation": dilation, "ceil_mode": ceil, **more}


def max_pool(torch, case):
    size, strides, padding, dilation, ceil, _ = case
    fn, pad = torch.nn.functional.max_pool2d, torch.nn.functional.pad
    if len(padding) == 4:
        top, left, bottom, right = padding
        filled = lambda x: pad(x, (left, right, top, bottom), value=float("-inf"))
        return lambda x: fn(filled(x), size, strides, 0, dilation, ceil)
    return lambda x: fn(x, size, strides, padding, dilation, ceil)


def averaging(case):
    return case[3] == (1, 1) and len(case[2]) == 2


def avg_pool(torch, case, include):
    size, strides, padding, _, ceil, _ = case
    fn = torch.nn.functional.avg_pool2d
    return lambda x: fn(x, size, strides, padding, ceil, include)


def data_of(rng, case, ties=False):
    shape = (1, 2, *case[-1])
    return integers(rng, shape, 0, 3, "float32") if ties else distinct(rng, shape)


def backward(torch, forward, g, x):
    x = x.detach().requires_grad_()
    forward(x).backward(g)
    return x.grad


@samples("max_pool2d")
def max_pool2d(rng, torch):
    for case in POOLS:
        yield Sample([data_of(rng, case)], pool_attrs(case), max_pool(torch, case))
    case = POOLS[1]
    yield Sample(
        [last(data_of(rng, case))],
        pool_attrs(case, layout="NHWC"),
        lambda x: max_pool(torch, case)(x.movedim(-1, 1)).movedim(1, -1),
    )
    yield Sample(
        [integers(rng, (1, 1, 4, 4), -9, -1, "int8")],
        pool_attrs(case),
        lambda x: max_pool(torch, case)(x.float()).to(torch.int8),
    )


def max_grads(rng, torch, case, ties):
    x = data_of(rng, case, ties)
    y = max_pool(torch, case)(torch.tensor(x)).numpy()
    return floats(rng, y.shape), x, y


@samples("_max_pool2d_grad")
def max_pool2d_grad(rng, torch):
    for case in POOLS:
        for ties in (False, True):
            yield Sample(
                [*max_grads(rng, torch, case, ties)],
                pool_attrs(case),
                lambda g, x, y, case=case: backward(torch, max_pool(torch, case), g, x),
                differentiable=(0,) if ties else True,
                **LOOSE,
            )


@samples("_max_pool2d_pick")
def max_pool2d_pick(rng, torch):
    for case in POOLS:
        _, x, y = max_grads(rng, torch, case, True)

        def pick(v, x, y, case=case):
            """The derivative of the pool along v: torch gives it as the transpose twice."""
            g = torch.zeros_like(y, requires_grad=True)
            leaf = x.detach().requires_grad_()
            grad = torch.autograd.grad(max_pool(torch, case)(leaf), leaf, g, create_graph=True)[0]
            return torch.autograd.grad(grad, g, v)[0]

        yield Sample([floats(rng, x.shape), x, y], pool_attrs(case), pick, differentiable=(0,), **LOOSE)


@samples("avg_pool2d")
def avg_pool2d(rng, torch):
    for case in filter(averaging, POOLS):
        for include in (False, True):
            yield Sample(
                [data_of(rng, case)],
                pool_attrs(case, count_include_pad=include),
                avg_pool(torch, case, include),
                **LOOSE,
            )
    case = POOLS[1]
    yield Sample(
        [last(data_of(rng, case))],
        pool_attrs(case, layout="NHWC"),
        lambda x: avg_pool(torch, case, False)(x.movedim(-1, 1)).movedim(1, -1),
        **LOOSE,
    )
    corners = {"pool_size": (2, 2), "padding": (0, 1, 1, 0)}
    pad = torch.nn.functional.pad
    mean = lambda x: torch.nn.functional.avg_pool2d(pad(x, (1, 0, 0, 1)), 2, 1)
    yield Sample([floats(rng, (1, 2, 3, 3))], {**corners, "count_include_pad": True}, mean, **LOOSE)
    yield Sample([floats(rng, (1, 2, 3, 3))], corners, lambda x: mean(x) / mean(torch.ones_like(x)), **LOOSE)


@samples("_avg_pool2d_grad")
def avg_pool2d_grad(rng, torch):
    for case in filter(averaging, POOLS):
        for include in (False, True):
            x, run = data_of(rng, case), avg_pool(torch, case, include)
            g = floats(rng, run(torch.tensor(x)).shape)
            yield Sample(
                [g, x],
                pool_attrs(case, count_include_pad=include),
                lambda g, x, run=run: backward(torch, run, g, x),
                **LOOSE,
            )


def everything(torch, kind):
    fn = getattr(torch.nn.functional, f"adaptive_{kind}_pool2d")
    return lambda x: fn(x, 1)


@samples("global_max_pool2d")
def global_max_pool2d(rng, torch):
    yield Sample([distinct(rng, (2, 3, 2, 4))], {}, everything(torch, "max"))
    yield Sample(
        [distinct(rng, (2, 2, 4, 3))],
        {"layout": "NHWC"},
        lambda x: everything(torch, "max")(x.movedim(-1, 1)).movedim(1, -1),
    )


@samples("_global_max_pool2d_grad")
def global_max_pool2d_grad(rng, torch):
    for x in (distinct(rng, (2, 3, 2, 4)), integers(rng, (2, 3, 2, 4), 0, 3, "float32")):
        y = x.max(axis=(2, 3), keepdims=True)
        yield Sample(
            [floats(rng, y.shape), x, y],
            {},
            lambda g, x, y: backward(torch, everything(torch, "max"), g, x),
            differentiable=(0,),
        )


@samples("_global_max_pool2d_pick")
def global_max_pool2d_pick(rng, torch):
    x = distinct(rng, (2, 3, 2, 4))
    y = x.max(axis=(2, 3), keepdims=True)
    yield Sample(
        [floats(rng, x.shape), x, y],
        {},
        lambda v, x, y: v.flatten(2).gather(2, x.flatten(2).argmax(2, True))[..., None],
        differentiable=(0,),
    )


@samples("global_avg_pool2d")
def global_avg_pool2d(rng, torch):
    yield Sample([floats(rng, (2, 3, 2, 4))], {}, everything(torch, "avg"), **LOOSE)
    yield Sample(
        [floats(rng, (2, 2, 4, 3))],
        {"layout": "NHWC"},
        lambda x: everything(torch, "avg")(x.movedim(-1, 1)).movedim(1, -1),
        **LOOSE,
    )


@samples("_global_avg_pool2d_grad")
def global_avg_pool2d_grad(rng, torch):
    yield Sample(
        [floats(rng, (2, 3, 1, 1)), floats(rng, (2, 3, 2, 4))],
        {},
        lambda g, x: backward(torch, everything(torch, "avg"), g, x),
        **LOOSE,
    )


BINS = [((5, 6), (5, 6)), ((5, 6), (2, 4)), ((2, 3), (3, 2)), ((4, 4), (2, 1))]


@samples("adaptive_avg_pool2d")
def adaptive_avg_pool2d(rng, torch):
    fn = torch.nn.functional.adaptive_avg_pool2d
    for extents, out in BINS:
        yield Sample([floats(rng, (1, 2, *extents))], {"output_size": out}, lambda x, o=out: fn(x, o), **LOOSE)
    yield Sample(
        [floats(rng, (1, 5, 4, 2))],
        {"output_size": (2, 3), "layout": "NHWC"},
        lambda x: fn(x.movedim(-1, 1), (2, 3)).movedim(1, -1),
        **LOOSE,
    )


@samples("_adaptive_avg_pool2d_grad")
def adaptive_avg_pool2d_grad(rng, torch):
    fn = torch.nn.functional.adaptive_avg_pool2d
    for extents, out in BINS:
        yield Sample(
            [floats(rng, (1, 2, *out)), floats(rng, (1, 2, *extents))],
            {"output_size": out},
            lambda g, x, o=out: backward(torch, lambda v: fn(v, o), g, x),
            **LOOSE,
        )


# Resizing: attributes, and what torch calls them.

RESIZES = [
    ({"coordinate_mode": "half_pixel"}, {"mode": "bilinear", "align_corners": False}),
    ({"align_corners": True}, {"mode": "bilinear", "align_corners": True}),
    ({"method": "NEAREST_NEIGHBOR"}, {"mode": "nearest"}),
    (
        {"method": "NEAREST_NEIGHBOR", "coordinate_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
        {"mode": "nearest-exact"},
    ),
]
EXTENTS = [((3, 4), (5, 6)), ((5, 4), (2, 3)), ((3, 2), (1, 4))]


@samples("resize")
def resize(rng, torch):
    fn = torch.nn.functional.interpolate
    for attrs, options in RESIZES:
        for extents, out in EXTENTS:
            yield Sample(
                [floats(rng, (1, 2, *extents))],
                {"size": out, **attrs},
                lambda x, o=out, options=options: fn(x, size=o, **options),
                **LOOSE,
            )
    attrs, options = RESIZES[0]
    yield Sample(
        [floats(rng, (1, 3, 4, 2))],
        {"size": (5, 3), "layout": "NHWC", **attrs},
        lambda x: fn(x.movedim(-1, 1), size=(5, 3), **options).movedim(1, -1),
        **LOOSE,
    )
    yield Sample(
        [floats(rng, (1, 1, 5, 5))],
        {"size": (3, 3), "scales": (0.7, 0.7), **attrs},
        lambda x: fn(x, scale_factor=0.7, **options),
        **LOOSE,
    )
    yield Sample([floats(rng, (1, 1, 2, 2))], {"size": (4, 4)}, asymmetric_double(torch), **LOOSE)


@samples("_bilinear")
def bilinear(rng, torch):
    fn = torch.nn.functional.interpolate
    for attrs, options in RESIZES[:2]:
        for extents, out in [*EXTENTS, ((7, 5), (9, 37))]:
            for layout, shape in (("NCHW", (2, 3, *extents)), ("NHWC", (2, *extents, 19))):
                yield Sample(
                    [floats(rng, shape)],
                    {"size": out, "layout": layout, **attrs},
                    lambda x, o=out, options=options, layout=layout: (
                        fn(x, size=o, **options)
                        if layout == "NCHW"
                        else fn(x.movedim(-1, 1), size=o, **options).movedim(1, -1)
                    ),
                    differentiable=False,
                    **LOOSE,
                )


def asymmetric_double(torch):
    """Twice as large from 2 x 2: even places on elements, odd ones halfway to the next."""

    def run(x):
        for axis in (2, 3):
            between = (x + x.narrow(axis, 1, 1)) / 2
            x = torch.stack([x, between], axis + 1).flatten(axis, axis + 1)
        return x

    return run


@samples("_resize_grad")
def resize_grad(rng, torch):
    fn = torch.nn.functional.interpolate
    for attrs, options in RESIZES:
        for extents, out in EXTENTS[:2]:
            yield Sample(
                [floats(rng, (1, 2, *out)), floats(rng, (1, 2, *extents))],
                {"size": out, **attrs},
                lambda g, x, o=out, options=options: backward(torch, lambda v: fn(v, size=o, **options), g, x),
                **LOOSE,
            )


@samples("upsampling")
def upsampling(rng, torch):
    fn = torch.nn.functional.interpolate
    for scale in (1, 2, 3):
        yield Sample([floats(rng, (1, 2, 2, 3))], {"scale": scale}, lambda x, s=scale: fn(x, scale_factor=s))
    yield Sample([floats(rng, (1, 2, 2, 2))], {"scale": 2, "method": "BILINEAR"}, asymmetric_double(torch), **LOOSE)
    yield Sample(
        [floats(rng, (1, 2, 3, 2))],
        {"scale": 2, "layout": "NHWC"},
        lambda x: fn(x.movedim(-1, 1), scale_factor=2).movedim(1, -1),
    )


@samples("_upsampling_grad")
def upsampling_grad(rng, torch):
    fn = torch.nn.functional.interpolate
    for scale in (1, 2):
        yield Sample(
            [floats(rng, (1, 2, 2 * scale, 3 * scale))],
            {"scale": scale},
            lambda g, s=scale: backward(torch, lambda v: fn(v, scale_factor=s), g, torch.zeros(1, 2, 2, 3)),
            **LOOSE,
        )
    yield Sample(
        [floats(rng, (1, 2, 4, 4))],
        {"scale": 2, "method": "BILINEAR"},
        lambda g: backward(torch, asymmetric_double(torch), g, torch.zeros(1, 2, 2, 2)),
        **LOOSE,
    )

"""Samples of convolutions, pools and resizing."""

from __future__ import annotations

import numpy as np
from sample import Sample, floats, integers, samples

LOOSE = {"rtol": 1e-4, "atol": 1e-5}

# channels, outputs, groups, kernel, strides, padding, dilation, extents
CONVOLUTIONS = [
    (2, 3, 1, (3, 3), (1, 1), (1, 1), (1, 1), (4, 5)),
    (4, 2, 2, (2, 3), (2, 1), (0, 1), (1, 1), (5, 4)),
    (3, 3, 3, (3, 2), (1, 2), (1, 0), (2, 1), (6, 5)),  # depthwise, dilated
    (2, 4, 2, (1, 1), (2, 2), (0, 0), (1, 1), (3, 4)),
    (1, 2, 1, (3, 3), (3, 2), (2, 1, 0, 1), (1, 2), (6, 6)),
]


def conv_attrs(case, **more):
    _, outputs, groups, kernel, strides, padding, dilation, _ = case
    return {
        "channels": outputs,
        "kernel_size": kernel,
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        **more,
    }


def conv_oracle(torch, case):
    _, _, groups, _, strides, padding, dilation, _ = case
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)

    def run(x, w, b=None):
        padded = torch.nn.functional.pad(x, (left, right, top, bottom))
        return torch.nn.functional.conv2d(padded, w, b, strides, 0, dilation, groups)

    return run


def conv_arrays(rng, case):
    channels, outputs, groups, kernel, *_, extents = case
    return [
        floats(rng, (2, channels, *extents)),
        floats(rng, (outputs, channels // groups, *kernel)),
        floats(rng, (outputs,)),
    ]


def last(x):
    """NCHW as NHWC."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def back(x):
    return x.movedim(-1, 1)


NHWC = {"layout": "NHWC", "kernel_layout": "HWIO"}


def hwio(w):
    return np.ascontiguousarray(w.transpose(2, 3, 1, 0))


def oihw(w):
    return w.permute(3, 2, 0, 1)


@samples("conv2d")
def conv2d(rng, torch):
    for case in CONVOLUTIONS:
        run = conv_oracle(torch, case)
        x, w, b = conv_arrays(rng, case)
        yield Sample([x, w, b], conv_attrs(case), run, **LOOSE)
        yield Sample([x, w], conv_attrs(case, use_bias=False), run, **LOOSE)
    x, w, b = conv_arrays(rng, CONVOLUTIONS[2])
    yield Sample(
        [last(x), hwio(w), b],
        conv_attrs(CONVOLUTIONS[2], **NHWC),
        lambda x, w, b: conv_oracle(torch, CONVOLUTIONS[2])(back(x), oihw(w), b).movedim(1, -1),
        **LOOSE,
    )
    yield Sample(
        [integers(rng, (1, 2, 3, 3), dtype="int8"), integers(rng, (2, 2, 3, 3), dtype="int8")],
        {"channels": 2, "kernel_size": (3, 3), "use_bias": False, "out_dtype": "int32"},
        lambda x, w: torch.nn.functional.conv2d(x.double(), w.double()).int(),
    )
    yield Sample(
        [floats(rng, (0, 2, 3, 3)), floats(rng, (2, 2, 3, 3)), floats(rng, (2,))],
        {"channels": 2, "kernel_size": (3, 3)},
        torch.nn.functional.conv2d,
    )


@samples("_contrib_conv2d_NCHWc")
def conv2d_nchwc(rng, torch):
    x, w, b = floats(rng, (1, 4, 3, 4)), floats(rng, (4, 4, 3, 2)), floats(rng, (4,))
    blocked = x.reshape(1, 2, 2, 3, 4).transpose(0, 1, 3, 4, 2)
    weight = w.reshape(1, 4, 2, 2, 3, 2).transpose(0, 2, 4, 5, 3, 1)  # OIHW2i4o
    expected = torch.nn.functional.conv2d(*map(torch.tensor, (x, w, b)), padding=1)
    expected = expected.reshape(1, 1, 4, 3, 5).permute(0, 1, 3, 4, 2)
    yield Sample(
        [*map(np.ascontiguousarray, (blocked, weight)), b.reshape(1, 4)],
        {
            "channels": 4,
            "kernel_size": (3, 2),
            "padding": (1, 1),
            "layout": "NCHW2c",
            "kernel_layout": "OIHW2i4o",
            "out_layout": "NCHW4c",
        },
        lambda x, w, b: expected,
        **LOOSE,
    )


def conv_backward(torch, case, wanted):
    """The gradient of the data or the weight, by torch."""

    def run(g, x, w):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        conv_oracle(torch, case)(x, w).backward(g)
        return x.grad if wanted == "data" else w.grad

    return run


def conv_grads(rng, torch, case):
    x, w, _ = conv_arrays(rng, case)
    out = conv_oracle(torch, case)(torch.tensor(x), torch.tensor(w))
    return floats(rng, out.shape), x, w


def with_infinities(rng, arrays):
    """Copies with an infinite and a NaN element each."""
    made = [x.copy() for x in arrays]
    for x in made:
        x.reshape(-1)[rng.integers(0, x.size, 2)] = [np.inf, np.nan]
    return made


@samples("_conv2d_grad_data")
def conv2d_grad_data(rng, torch):
    for case in CONVOLUTIONS:
        g, x, w = conv_grads(rng, torch, case)
        attrs = conv_attrs(case, use_bias=False)
        yield Sample([g, x, w], attrs, conv_backward(torch, case, "data"), **LOOSE)
    for case in CONVOLUTIONS[:3]:
        values = with_infinities(rng, conv_grads(rng, torch, case))
        run = conv_backward(torch, case, "data")
        yield Sample(values, conv_attrs(case, use_bias=False), run, False, **LOOSE)
    case = CONVOLUTIONS[-1]
    run = conv_backward(torch, case, "data")
    yield Sample(
        [last(g), last(x), hwio(w)],
        {**attrs, **NHWC},
        lambda g, x, w: run(back(g), back(x), oihw(w)).movedim(1, -1),
        **LOOSE,
    )


def unpadded_weight_gradient(torch, case, shape):
    """By PyTorch's own padding, which it does not multiply by what is infinite."""
    _, _, groups, _, strides, padding, dilation, _ = case
    return lambda g, x: torch.ops.aten.convolution_backward(
        g, x, torch.zeros(shape), None, strides, padding, dilation, False, (0, 0), groups, (False, True, False)
    )[1]


@samples("_conv2d_grad_weight")
def conv2d_grad_weight(rng, torch):
    for case in CONVOLUTIONS:
        g, x, w = conv_grads(rng, torch, case)
        run = conv_backward(torch, case, "weight")
        attrs = conv_attrs(case, use_bias=False)
        shape = w.shape
        said = lambda g, x, s=shape, run=run: run(g, x, torch.zeros(s))
        yield Sample([g, x], attrs, said, **LOOSE)
        if case in CONVOLUTIONS[:3]:
            said = unpadded_weight_gradient(torch, case, shape)
            yield Sample(with_infinities(rng, [g, x]), attrs, said, False, **LOOSE)
    yield Sample(
        [last(g), last(x)],
        {**attrs, **NHWC},
        lambda g, x: run(back(g), back(x), torch.zeros(shape)).permute(2, 3, 1, 0),
        **LOOSE,
    )


@samples("_conv2d_grad")
def conv2d_grad(rng, torch):
    def run(g, x, w, case, use_bias):
        made = [conv_backward(torch, case, wanted)(g, x, w) for wanted in ("data", "weight")]
        return [*made, g.sum((0, 2, 3))] if use_bias else made

    for number, case in enumerate(CONVOLUTIONS):
        use_bias = number % 2 == 0
        attrs = conv_attrs(case, use_bias=use_bias)
        backward = lambda *a, c=case, u=use_bias: run(*a, c, u)
        yield Sample(conv_grads(rng, torch, case), attrs, backward, **LOOSE)


# channels, outputs, groups, kernel, strides, padding, output_padding, dilation, extents
TRANSPOSES = [
    (2, 3, 1, (3, 3), (2, 2), (1, 1), (1, 0), (1, 1), (3, 2)),
    (4, 2, 2, (2, 3), (1, 2), (0, 1), (0, 1), (2, 1), (3, 3)),
    (2, 2, 2, (4, 4), (2, 2), (1, 1), (0, 0), (1, 1), (2, 3)),
    (3, 2, 1, (2, 2), (1, 1), (0, 1), (1, 1), (2, 3), (3, 2)),  # more padding than a stride
]


def transpose_attrs(case, **more):
    _, outputs, groups, kernel, strides, padding, extra, dilation, _ = case
    return {
        "channels": outputs,
        "kernel_size": kernel,
        "strides": strides,
        "padding": padding,
        "output_padding": extra,
        "dilation": dilation,
        "groups": groups,
        **more,
    }


def transpose_oracle(torch, case):
    _, _, groups, _, strides, padding, extra, dilation, _ = case
    fn = torch.nn.functional.conv_transpose2d
    return lambda x, w, b=None: fn(x, w, b, strides, padding, extra, groups, dilation)


def transpose_arrays(rng, case):
    channels, outputs, groups, kernel, *_, extents = case
    return [
        floats(rng, (2, channels, *extents)),
        floats(rng, (channels, outputs // groups, *kernel)),
        floats(rng, (outputs,)),
    ]


@samples("conv2d_transpose")
def conv2d_transpose(rng, torch):
    for case in TRANSPOSES:
        run = transpose_oracle(torch, case)
        x, w, b = transpose_arrays(rng, case)
        yield Sample([x, w, b], transpose_attrs(case), run, **LOOSE)
        yield Sample([x, w], transpose_attrs(case, use_bias=False), run, **LOOSE)
        values = with_infinities(rng, [x, w, b])
        yield Sample(values, transpose_attrs(case), run, False, **LOOSE)
    case = TRANSPOSES[1]
    x, w, b = transpose_arrays(rng, case)
    yield Sample(
        [last(x), np.ascontiguousarray(w.transpose(2, 3, 0, 1)), b],
        transpose_attrs(case, layout="NHWC", kernel_layout="HWOI"),
        lambda x, w, b: transpose_oracle(torch, case)(back(x), w.permute(2, 3, 0, 1), b).movedim(1, -1),
        **LOOSE,
    )


def transpose_backward(torch, case, wanted):
    def run(g, x, w):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        transpose_oracle(torch, case)(x, w).backward(g)
        return x.grad if wanted == "data" else w.grad

    return run


@samples("_conv2d_transpose_grad_data")
def conv2d_transpose_grad_data(rng, torch):
    for case in TRANSPOSES:
        x, w, _ = transpose_arrays(rng, case)
        g = floats(rng, transpose_oracle(torch, case)(torch.tensor(x), torch.tensor(w)).shape)
        run, shape = transpose_backward(torch, case, "data"), x.shape
        yield Sample(
            [g, w],
            transpose_attrs(case, use_bias=False),
            lambda g, w, run=run, shape=shape: run(g, torch.zeros(shape), w),
            **LOOSE,
        )


@samples("_conv2d_transpose_grad_weight")
def conv2d_transpose_grad_weight(rng, torch):
    for case in TRANSPOSES:
        x, w, _ = transpose_arrays(rng, case)
        g = floats(rng, transpose_oracle(torch, case)(torch.tensor(x), torch.tensor(w)).shape)
        run, shape = transpose_backward(torch, case, "weight"), w.shape
        yield Sample(
            [g, x],
            transpose_attrs(case, use_bias=False),
            lambda g, x, run=run, shape=shape: run(g, x, torch.zeros(shape)),
            **LOOSE,
        )

"""Kernels of convolutions whose extents are arguments, on every instruction set of this machine:
values against PyTorch in float64, and no memory touched but that of the arrays."""

from functools import cache

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import agrees, targets
from oracles import oracle

from weft.base.dtype import FLOAT32, FLOAT64
from weft.compiler.kernels import kernel_cache
from weft.eager.native.convolution import KERNELS, in_blocks
from weft.lower.cpu.conv_filters import open_sizes
from weft.lower.cpu.windows.depthwise import SUMMED
from weft.lower.cpu.windows.window_plans import even_parts, forward_sum, plan_filters, plan_sum, transposed_sum
from weft.ops.nn._convolution import NCHW, OIHW, Convolution
from weft.ops.nn._windows import Window
from weft.runtime.cpu.open_kernel import OpenKernel

TARGETS = targets()


@cache
def kernel(kind, isa, dtype, *form):
    target = TARGETS[isa]
    return OpenKernel(kernel_cache.compiled(KERNELS[kind](*form, target, dtype), target))


def guarded_nans(shape, dtype, front):
    return guarded(np.full(shape, np.nan, dtype), front)


def run(plan, isa, dtype, front, *inputs):
    """The output of a plan whose arrays all end, or begin, at pages that may not be touched."""
    made = guarded_nans((plan.splits, *plan.out), dtype, front)
    if plan.form is not None:
        wide, other = inputs[::-1] if plan.form.by_output else inputs
        images, groups, *numbers = plan.scalars
        ends = [images * number // plan.splits for number in range(plan.splits + 1)]
        for part, first, end in zip(made, ends, ends[1:]):
            blocks = in_blocks(wide[first:end], groups, plan.lanes)
            arrays = [guarded(blocks, front), guarded(other[first:end], front), part]
            scalars = (end - first, groups, *numbers)
            kernel(plan.kind, isa, dtype, *plan.form).run(arrays, scalars, plan.turns, plan.work)
    else:
        tables = [guarded(table, front) for table in plan.tables]
        nonfinite = guarded(np.zeros(TARGETS[isa].lanes(dtype), dtype), front)
        arrays = [*(guarded(array, front) for array in inputs), *tables, made, nonfinite]
        kernel(plan.kind, isa, dtype).run(arrays, plan.scalars, plan.turns, plan.work)
        assert not np.isnan(nonfinite).any()
    if plan.splits == 1:
        return made[0]
    out = guarded_nans(plan.out, dtype, front)
    turns = -(-out.size // SUMMED)
    adding = kernel("added_parts", isa, dtype)
    adding.run([made, out], [plan.splits, out.size, turns], turns, 1.0)
    return out


@st.composite
def geometries(draw):
    """(x, w, out, convolution): shapes of any groups, strides, pads and dilations."""
    few = lambda low, high: draw(st.integers(low, high))
    groups = draw(st.sampled_from([1, 1, 2, 5]))
    deep, rows = draw(st.sampled_from([(1, 1), (1, 3), (3, 1), (2, 17), (21, 4), (11, 9)]))
    windows = [Window(few(1, 5), few(1, 3), few(0, 3), few(0, 3), few(1, 3)) for _ in range(2)]
    extents = []
    for window in windows:
        least = max(window.reach - window.before - window.after, 1)
        extents.append(few(least, least + draw(st.sampled_from([1, 8, 40]))))
    x = (few(1, 4), groups * deep, *extents)
    outs = [window.out_extent(extent) for window, extent in zip(windows, extents)]
    w = (groups * rows, deep, windows[0].size, windows[1].size)
    conv = Convolution((windows[0], windows[1]), groups, NCHW, OIHW, NCHW)
    return x, w, (x[0], groups * rows, *outs), conv


def arrays_of(*shapes, dtype=FLOAT32, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def oracle_of(x, w, bias, conv):
    """The output in float64, and its gradients for an output gradient."""
    torch = oracle("torch")
    x, w, bias = (torch.tensor(a.astype("float64"), requires_grad=True) for a in (x, w, bias))
    down, across = conv.windows
    padded = torch.nn.functional.pad(x, (across.before, across.after, down.before, down.after))
    strides, dilations = zip(*[(win.stride, win.dilation) for win in conv.windows])
    out = torch.nn.functional.conv2d(padded, w, bias, strides, 0, dilations, conv.groups)
    return out, lambda g: torch.autograd.grad(out, (x, w), torch.tensor(g.astype("float64")))


@pytest.mark.parametrize("isa", range(len(TARGETS)), ids=[t.isa for t in TARGETS])
@given(geometry=geometries(), front=st.booleans(), double=st.booleans())
@settings(max_examples=40, deadline=None)
def test_all_three_maps(isa, geometry, front, double):
    x_shape, w_shape, out_shape, conv = geometry
    target, dtype = TARGETS[isa], FLOAT64 if double else FLOAT32
    x, w, g, bias = arrays_of(x_shape, w_shape, out_shape, out_shape[1:2], dtype=dtype)
    expected, gradients = oracle_of(x, w, bias, conv)
    plan = plan_sum(forward_sum(conv, x_shape, w_shape, out_shape), target, dtype)
    agrees(run(plan, isa, dtype, front, x, w, bias), expected.detach().numpy())
    data, weight = (made.numpy() for made in gradients(g))
    nothing = np.zeros(x_shape[1], dtype)
    plan = plan_sum(transposed_sum(conv, out_shape, w_shape, x_shape), target, dtype)
    agrees(run(plan, isa, dtype, front, g, w, nothing), data)
    plan = plan_filters(forward_sum(conv, x_shape, w_shape, out_shape), target, dtype)
    agrees(run(plan, isa, dtype, front, x, g), weight)


LARGE = {  # x, w, stride, pads, dilation, groups
    "many blocks of products": ((1, 200, 9, 9), (130, 200, 3, 3), 1, 1, 1, 1),
    "few rows, many blocks, uneven panels": ((1, 100, 9, 17), (3, 100, 3, 3), 1, 1, 1, 1),
    "more taps than a block has": ((2, 3, 30, 30), (20, 3, 21, 19), 1, 9, 1, 1),
    "many pixels": ((3, 5, 40, 41), (17, 5, 3, 3), 2, 1, 1, 1),
    "many splits": ((41, 2, 20, 20), (40, 2, 3, 3), 1, 1, 1, 1),
    "a plane wider than a copy": ((1, 2, 1, 20000), (2, 1, 1, 5), 1, 2, 1, 2),
    "a plane higher than a copy": ((2, 3, 300, 100), (3, 1, 3, 3), 2, 1, 1, 3),
    "taps too far apart for a copy": ((1, 2, 200, 200), (2, 1, 3, 3), 1, 95, 95, 2),
    "taps of a plane in many groups": ((2, 2, 40, 40), (2, 1, 11, 13), 1, 5, 1, 2),
    "one tap, more outputs": ((3, 20, 15, 16), (210, 20, 1, 1), 2, 0, 1, 1),
    "one tap, more outputs of groups": ((3, 20, 15, 16), (50, 4, 1, 1), 1, 0, 1, 5),
    "strides beyond the filter": ((1, 8, 33, 33), (24, 8, 2, 2), 4, 0, 1, 1),
    "images smaller than the filter": ((3, 40, 8, 8), (20, 20, 7, 7), 1, 0, 1, 2),
    "one window": ((2, 30, 5, 5), (12, 30, 5, 5), 1, 0, 1, 1),
    "many parts": ((1, 1, 64, 64), (8, 1, 16, 16), 16, 0, 1, 1),
}


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_work_that_is_cut(case):
    x_shape, w_shape, stride, pad, dilation, groups = case
    windows = [Window(size, stride, pad, pad, dilation) for size in w_shape[2:]]
    conv = Convolution((windows[0], windows[1]), groups, NCHW, OIHW, NCHW)
    outs = [window.out_extent(extent) for window, extent in zip(windows, x_shape[2:])]
    out_shape = (x_shape[0], w_shape[0], *outs)
    x, w, g, bias = arrays_of(x_shape, w_shape, out_shape, out_shape[1:2])
    expected, gradients = oracle_of(x, w, bias, conv)
    isa = len(TARGETS) - 1
    forward = forward_sum(conv, x_shape, w_shape, out_shape)
    plan = plan_sum(forward, TARGETS[isa], FLOAT32)
    agrees(run(plan, isa, FLOAT32, False, x, w, bias), expected.detach().numpy())
    data, weight = (made.numpy() for made in gradients(g))
    backward = transposed_sum(conv, out_shape, w_shape, x_shape)
    plan = plan_sum(backward, TARGETS[isa], FLOAT32)
    agrees(run(plan, isa, FLOAT32, False, g, w, np.zeros(x_shape[1], "float32")), data)
    plan = plan_filters(forward, TARGETS[isa], FLOAT32)
    agrees(run(plan, isa, FLOAT32, False, x, g), weight)


@given(st.integers(1, 5000), st.integers(1, 50), st.sampled_from([1, 3, 8, 48]))
def test_even_parts_cover_and_are_whole_units(total, parts, unit):
    size = even_parts(total, parts, unit)
    assert size % unit == 0
    assert size * parts >= total
    assert size - unit < -(-total // parts)


@pytest.mark.parametrize("kind", KERNELS)
def test_kernels_do_not_depend_on_extents(kind):
    form = (False, *open_sizes(TARGETS[-1])[0]) if kind == "filters" else ()
    made = KERNELS[kind](*form, TARGETS[-1], FLOAT32)
    assert made.parallel is not None
    assert made.parallel.extent in made.scalars

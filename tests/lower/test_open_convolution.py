"""Kernels of convolutions whose extents are arguments, on every instruction set of this machine:
values against PyTorch in float64, and no memory touched but that of the arrays."""

from functools import cache, partial
from math import prod

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import agrees, targets
from oracles import oracle

from weft.base.dtype import FLOAT32, FLOAT64
from weft.compiler.open.calls import lower_numbers
from weft.compiler.open.programs import assembled
from weft.eager.native.convolution import in_blocks
from weft.lower.cpu.conv_filters import chosen, open_sizes
from weft.lower.cpu.taps import Line
from weft.lower.cpu.windows.kernels import write_filters, write_sum
from weft.lower.cpu.windows.patch_convolution import even_parts
from weft.lower.cpu.windows.planes import copies_of
from weft.lower.cpu.windows.window_sum import WindowSum
from weft.ops.nn._convolution import NCHW, OIHW, Convolution
from weft.ops.nn._windows import Window
from weft.runtime.cpu.executor import CpuExecutor

TARGETS = targets()


@cache
def programs(*key):
    """The programs of a key there are so far: each serves the numbers that answer its guards."""
    return []


def bound(write, isa, dtype, numbers, *form):
    made = programs(write, isa, dtype, *form)
    found = next((one for one in (program.bound(numbers) for program in made) if one is not None), None)
    if found is None:
        write = partial(write, *form, dtype, TARGETS[isa])
        made.append(CpuExecutor(assembled(lower_numbers(numbers, write), TARGETS[isa])))
        found = made[-1].bound(numbers)
    return found


def run(job, write, isa, dtype, front, out, *inputs, form=()):
    """What is made of arrays that all end, or begin, at pages that may not be touched."""
    made = guarded(np.full(out, np.nan, dtype), front)
    bound(write, isa, dtype, job.numbers, *form).run_into([guarded(array, front) for array in inputs], [made])
    return made


def run_filters(job, isa, dtype, front, x, g):
    target = TARGETS[isa]
    if copies_of(job, target, dtype) is not None:
        return run(job, write_filters, isa, dtype, front, job.filters, x, g, form=(None,))
    lanes = target.lanes(dtype)
    form = chosen(job.rows, job.deep, (lanes, lanes), open_sizes(target))
    wide, other = (g, x) if form.by_output else (x, g)
    blocks = in_blocks(wide, job.groups, lanes)
    return run(job, write_filters, isa, dtype, front, job.filters, blocks, other, form=(form,))


def sum_of(conv, source, out, transposed):
    lines = [Line(*axis, transposed) for axis in zip(conv.windows, out[2:], source[2:])]
    return WindowSum.of(source[0], conv.groups, source[1] // conv.groups, out[1] // conv.groups, *lines)


def check_all_three(isa, dtype, front, conv, x_shape, w_shape, out_shape):
    x, w, g, bias = arrays_of(x_shape, w_shape, out_shape, out_shape[1:2], dtype=dtype)
    expected, gradients = oracle_of(x, w, bias, conv)
    forward = sum_of(conv, x_shape, out_shape, False)
    agrees(run(forward, write_sum, isa, dtype, front, out_shape, x, w, bias), expected.detach().numpy())
    data, weight = (made.numpy() for made in gradients(g))
    backward = sum_of(conv, out_shape, x_shape, True)
    agrees(run(backward, write_sum, isa, dtype, front, x_shape, g, w, np.zeros(x_shape[1], dtype)), data)
    agrees(run_filters(forward, isa, dtype, front, x, g), weight)


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
    *shapes, conv = geometry
    check_all_three(isa, FLOAT64 if double else FLOAT32, front, conv, *shapes)


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
    check_all_three(len(TARGETS) - 1, FLOAT32, False, conv, x_shape, w_shape, (x_shape[0], w_shape[0], *outs))


@given(st.integers(1, 5000), st.integers(1, 50), st.sampled_from([1, 3, 8, 48]))
def test_even_parts_cover_and_are_whole_units(total, parts, unit):
    size = even_parts(total, parts, unit)
    assert size % unit == 0
    assert size * parts >= total
    assert size - unit < -(-total // parts)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.isa)
def test_a_product_of_few_channels_is_more_work(target):
    """Results that are moved, and lanes that stand for no channel: by their work kernels are shared by threads."""
    axis, lanes = Line(Window(3, 1, 1, 1), 28, 28, False), (target.lanes(FLOAT32),) * 2
    sums, filters = [], []
    for deep in (1, 64):
        job = WindowSum.of(8, 1, deep, 16, axis, axis)
        form = chosen(job.rows, job.deep, lanes, open_sizes(target))
        writers = ((sums, write_sum), (filters, partial(write_filters, form)))
        for found, write in writers:
            (kernel,) = write(FLOAT32, target, [*job.numbers]).kernels
            found.append(kernel.work / job.work)
    assert sums[0] > 1.5 * sums[1]
    assert filters[0] >= 2 * filters[1]


def test_few_programs_serve_all_numbers():
    """Asked is only what decides which template it is."""
    plain, window = Line(Window(3, 1, 1, 1), 30, 30, False), Line(Window(5, 2, 0, 0, 2), 11, 29, True)
    jobs = [WindowSum.of(2, 1, 16, 32, plain, plain), WindowSum.of(1, 3, 7, 1, window, window)]
    jobs += [WindowSum.of(2, 16, 1, 1, plain, plain), WindowSum.of(1, 9, 1, 2, window, window)]
    programs.cache_clear()
    for job in jobs:
        executor = bound(write_sum, len(TARGETS) - 1, FLOAT32, job.numbers)
        assert executor.program.outputs[0].extents == job.out
        assert [prod(spec.extents) for spec in executor.program.inputs[:2]] == [prod(job.source), prod(job.filters)]
    assert len(programs(write_sum, len(TARGETS) - 1, FLOAT32)) == 2

"""Random tensor computes, lowered to kernels and run, against numpy.

A program of a few steps (element-wise with broadcasting, transposes, slices, reshapes, reductions,
padded windows, products) is written in te and in numpy at once.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import te
from weft.base.cpu_target import host
from weft.base.errors import Unsupported
from weft.codegen.cpu.compile import compile_kernel
from weft.core.fused import FusedGroup
from weft.core.ir import Fact, Node, NodeEntry
from weft.core.op import Op
from weft.lower.cpu.stage import lower_group
from weft.lower.group import Temporary
from weft.runtime.cpu.kernel import NativeKernel
from weft.te.interpret import run_kernel

FLOAT32 = np.dtype("float32")
_current = []
program_op = Op.register("lower_test_program")
program_op.compute = lambda *tensors: _current[0](*tensors)

shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 16, 17, 33]), max_size=3).map(tuple)


def small(rng, shape):
    """Small whole numbers: sums of them are exact in any order."""
    return np.asarray(rng.integers(-3, 4, shape)).astype("float32")


# A step is (te function, numpy function); both get the values it reads.


def element_wise(draw, shape):
    kind = draw(st.sampled_from(["scale", "relu", "abs", "select"]))
    formulas = {
        "scale": (lambda v: v * 2 + 1, lambda v: v * 2 + 1),
        "relu": (lambda v: te.max(v, 0), lambda v: np.maximum(v, 0)),
        "abs": (te.abs, np.abs),
        "select": (lambda v: te.select(v > 0, v, v * -3), lambda v: np.where(v > 0, v, v * -3)),
    }
    in_te, in_numpy = formulas[kind]
    return lambda x: te.compute(shape, lambda *i: in_te(x[i])), in_numpy


def transpose(draw, shape):
    order = draw(st.permutations(range(len(shape))))
    back = {axis: position for position, axis in enumerate(order)}
    made = tuple(shape[axis] for axis in order)
    return (
        lambda x: te.compute(made, lambda *i: x[tuple(i[back[a]] for a in range(len(i)))]),
        lambda x: x.transpose(order),
    )


def strided_slice(draw, shape):
    axis = draw(st.integers(0, len(shape) - 1))
    start = draw(st.integers(0, shape[axis] - 1))
    step = draw(st.sampled_from([1, 2, 3, -1]))
    cut = tuple(slice(start, None, step) if a == axis else slice(None) for a in range(len(shape)))
    made = np.empty(shape)[cut].shape
    return (
        lambda x: te.compute(made, lambda *i: x[tuple(v * step + start if a == axis else v for a, v in enumerate(i))]),
        lambda x: x[cut],
    )


def reshape(draw, shape):
    made = draw(st.sampled_from([(prod(shape),), (1, prod(shape)), (prod(shape), 1)]))

    def in_te(x):
        def element(*i):
            flat = te.as_expr(0)
            for index, extent in zip(i, made):
                flat = flat * extent + index
            indices = []
            for extent in reversed(shape):
                indices.append(flat % extent)
                flat = flat // extent
            return x[tuple(reversed(indices))]

        return te.compute(made, element)

    return in_te, lambda x: x.reshape(made)


def reduction(draw, shape):
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    keep = draw(st.booleans())
    kind = draw(st.sampled_from(["sum", "max", "min"]))
    reducer = {"sum": te.sum, "max": te.max_of, "min": te.min_of}[kind]
    wide = tuple(1 if a in axes else extent for a, extent in enumerate(shape))
    made = wide if keep else tuple(e for a, e in enumerate(shape) if a not in axes)

    def in_te(x):
        reduced = {a: te.reduce_axis(shape[a], f"k{a}") for a in sorted(axes)}

        def element(*i):
            rest = list(i) if keep else None
            others = iter(i)
            index = []
            for a in range(len(shape)):
                if a in reduced:
                    index.append(reduced[a].var)
                else:
                    index.append(rest[a] if rest is not None else next(others))
            return reducer(x[tuple(index)], list(reduced.values()))

        return te.compute(made, element)

    return in_te, lambda x: getattr(np, kind)(x, axis=tuple(sorted(axes)), keepdims=keep)


def window(draw, shape):
    """Sums or maxima of padded windows along the last axis."""
    extent = shape[-1]
    size = draw(st.integers(1, min(extent, 4)))
    pad, step = draw(st.integers(0, size - 1)), draw(st.integers(1, 2))
    count = (extent + 2 * pad - size) // step + 1
    made = (*shape[:-1], count)

    def in_te(x):
        k = te.reduce_axis(size)

        def element(*i):
            place = i[-1] * step + k.var - pad
            inside = (place >= 0) & (place < extent)
            return te.sum(te.read_or(x, (*i[:-1], place), inside, 0), [k])

        return te.compute(made, element)

    def in_numpy(x):
        padded = np.pad(x, [(0, 0)] * (len(shape) - 1) + [(pad, pad)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, size, -1)[..., ::step, :]
        return windows.sum(axis=-1)

    return in_te, in_numpy


STEPS = [element_wise, element_wise, transpose, strided_slice, reshape, reduction, window]


def broadcasting(shape, other):
    """The sum of two tensors, each read at 0 where its extent is 1."""
    made = np.broadcast_shapes(shape, other)

    def read(x, i):
        own = i[len(i) - len(x.shape) :]
        return x[tuple(0 if extent == 1 else v for v, extent in zip(own, x.shape))]

    return (lambda x, y: te.compute(made, lambda *i: read(x, i) + read(y, i) * 2), lambda x, y: x + y * 2)


def product(shape, columns):
    """Rows times a matrix, and a bias after the sum."""

    def in_te(x, w, b):
        k = te.reduce_axis(shape[-1])
        made = (*shape[:-1], columns)
        dot = te.compute(made, lambda *i: te.sum(x[(*i[:-1], k.var)] * w[k.var, i[-1]], [k]))
        return te.compute(made, lambda *i: te.max(dot[i] + b[i[-1]], 0))

    return in_te, lambda x, w, b: np.maximum(x @ w + b, 0)


@st.composite
def programs(draw):
    """(numpy inputs, function on te tensors, numpy outputs)."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    first = draw(shapes)
    inputs = [small(rng, first)]
    values = [inputs[0]]
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        source = draw(st.integers(0, len(values) - 1))
        shape = values[source].shape
        kind = draw(st.sampled_from(["one", "one", "broadcast", "product"]))
        extra = []
        if kind == "broadcast":
            other = tuple(draw(st.sampled_from([1, extent])) for extent in shape)
            extra = [small(rng, other[draw(st.integers(0, len(other))) :])]
            step = broadcasting(shape, extra[0].shape)
        elif kind == "product" and shape:
            columns = draw(st.sampled_from([1, 3, 16, 19]))
            extra = [small(rng, (shape[-1], columns)), small(rng, (columns,))]
            step = product(shape, columns)
        else:
            step = draw(st.sampled_from(STEPS if shape else STEPS[:1]))(draw, shape)
        places = [len(inputs) + n for n in range(len(extra))]
        inputs += extra
        steps.append((step[0], source, places))
        values.append(np.asarray(step[1](values[source], *extra)).astype("float32"))
    outputs = [len(values) - 1] + ([draw(st.integers(0, len(values) - 1))] if draw(st.booleans()) else [])

    def in_te(*tensors):
        made = [tensors[0]]
        for function, source, places in steps:
            made.append(function(made[source], *(tensors[place] for place in places)))
        return tuple(made[number] for number in outputs)

    return inputs, in_te, [values[number] for number in outputs]


def lowered(inputs, in_te, outputs, target):
    """The kernels of a program as one group, and the keys of its inputs and outputs."""
    variables = [NodeEntry(Node(None, f"x{n}")) for n in range(len(inputs))]
    node = Node(program_op, "program", {}, variables)
    results = [NodeEntry(node, n) for n in range(len(outputs))]
    facts = {key: Fact(value.shape, FLOAT32) for key, value in zip(variables, inputs)}
    facts |= {key: Fact(value.shape, FLOAT32) for key, value in zip(results, outputs)}
    _current[:] = [in_te]
    group = FusedGroup((node,), tuple(variables), tuple(results))
    return lower_group(group, facts.__getitem__, target), variables, results


def check(inputs, in_te, outputs, target, run, place=np.array):
    kernels, variables, results = lowered(inputs, in_te, outputs, target)
    memory = {key: place(value) for key, value in zip(variables, inputs)}
    memory |= {key: place(np.full(value.shape, np.nan, FLOAT32)) for key, value in zip(results, outputs)}
    for kernel in kernels:
        for key in kernel.arguments:
            if isinstance(key, Temporary) and key not in memory:
                memory[key] = place(np.full(key.shape, np.nan, key.dtype))
        arrays = [memory[key].reshape(-1) for key in kernel.arguments]
        run(kernel.kernel, arrays)
    for key, wanted in zip(results, outputs):
        np.testing.assert_allclose(memory[key], wanted, rtol=1e-5, atol=1e-3)


@settings(max_examples=120)
@given(programs())
def test_interpreted(program):
    check(*program, host(), lambda kernel, arrays: run_kernel(kernel, arrays))


@pytest.mark.parametrize("isa", ["sse", "avx2", "avx512"])
def test_native_between_guard_pages(isa):
    try:
        target = host().with_isa(isa)
    except Unsupported as error:
        pytest.skip(str(error))

    def run(kernel, arrays):
        NativeKernel(compile_kernel(kernel, target))(arrays)

    @settings(max_examples=25)
    @given(programs(), st.booleans())
    def examples(program, front):
        check(*program, target, run, lambda value: guarded(value, front))

    examples()

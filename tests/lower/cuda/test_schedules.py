"""Schedules for GPUs, run block by block and thread by thread in the interpreter, against numpy: vectors, tails,
warps and blocks that share a row, rows in registers, chunks."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import te
from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda.emit import emit_kernel
from weft.core.fused import FusedGroup
from weft.core.ir import NodeEntry
from weft.core.op import Op
from weft.lower.cuda.dispatch import LOWERING
from weft.lower.cuda.stage import stage_kernel
from weft.te.expr import Load
from weft.te.grid import grid_of, launch_extents
from weft.te.interpret import run_kernel
from weft.te.printer import show
from weft.te.visit import postorder
from weft.testing import op_check
from weft.testing.op_check import Sample

TARGET = CudaTarget()
rng = np.random.default_rng(5)


def normal(*shape, dtype="float32"):
    return rng.normal(0.3, 1.2, shape).astype(dtype)


def lowered(name, inputs, **attrs):
    """The kernels of an operator, and what they give in the interpreter."""
    kernels = []

    def run(kernel, arrays):
        kernels.append(kernel)
        run_kernel(kernel, list(arrays))

    outputs = op_check.run_kernels_of(Op.get(name), Sample(inputs, attrs), LOWERING, TARGET, run)
    return kernels, outputs


def test_neighbours_are_vectors_of_16_bytes():
    x, y = normal(6, 64), normal(6, 64)
    (kernel,), (result,) = lowered("elemwise_add", [x, y])
    np.testing.assert_array_equal(result, x + y)
    assert launch_extents(kernel).threads == (64, 1, 1)
    assert {node.lanes for node in postorder((kernel.body,)) if isinstance(node, Load)} == {4}


@pytest.mark.parametrize("shape", [(7, 9), (1,), (3, 4, 6), (130,)])
def test_elements_beside_whole_vectors_and_blocks(shape):
    x, y = normal(*shape), normal(*shape)
    np.testing.assert_array_equal(lowered("elemwise_mul", [x, y])[1][0], x * y)


def test_what_is_broadcast_is_read_once_for_a_vector():
    x, y = normal(5, 1, 8), normal(3, 1)
    np.testing.assert_array_equal(lowered("broadcast_sub", [x, y])[1][0], x - y)


@pytest.mark.parametrize(("shape", "axes"), [((40, 33), (1, 0)), ((2, 35, 64), (0, 2, 1)), ((33, 2, 34), (2, 1, 0))])
def test_transposes_go_through_shared_memory(shape, axes):
    x = normal(*shape)
    (kernel,), (y,) = lowered("transpose", [x], axes=axes)
    np.testing.assert_array_equal(y, x.transpose(axes))
    assert grid_of(kernel).shared_bytes == 32 * 33 * 4


def test_what_is_read_across_may_be_computed_with():
    x, y = normal(40, 36), normal(36, 40)
    source, other = te.placeholder(x.shape, "float32", "x"), te.placeholder(y.shape, "float32", "y")
    result = te.compute(y.shape, lambda i, j: source[j, i] * 2 + other[i, j], "sums")
    made = stage_kernel("sums", result, {source: "x", other: "y", result: "sums"}, TARGET)
    given = {"x": x, "y": y, "sums": np.full(y.shape, np.nan, "float32")}
    run_kernel(made.kernel, [given[place].reshape(-1) for place in made.arguments])
    np.testing.assert_array_equal(given["sums"], x.T * 2 + y)


@pytest.mark.parametrize(
    ("shape", "axes", "threads"),
    [
        ((5, 96), (1,), (32, 4, 1)),  # a warp a row, in vectors
        ((3, 67), (1,), (32, 4, 1)),  # no vectors
        ((2, 7, 130), (1, 2), (32, 4, 1)),
        ((2, 2500), (1,), (256, 1, 1)),  # a block a row
        ((70, 5), (0,), (8, 16, 1)),  # neighbours belong to different sums, which many threads share
        ((2, 100, 2, 33), (0, 1), (8, 32, 1)),
        ((600, 40), (0,), (8, 128, 1)),
        ((65, 4100), (0,), (32, 16, 1)),
        ((63, 5), (0,), (64, 1, 1)),  # too short
        ((4, 9), (1,), (64, 1, 1)),  # too short
    ],
)
@pytest.mark.parametrize("combiner", ["sum", "max"])
def test_reductions(shape, axes, threads, combiner):
    x = normal(*shape)
    kernel, y = reduced(x, axes, combiner)
    expected = x.astype("float64").sum(axes) if combiner == "sum" else x.max(axes)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert launch_extents(kernel).threads == threads


def reduced(x, axes, combiner):
    source = te.placeholder(x.shape, x.dtype, "x")
    loops = {axis: te.reduce_axis(x.shape[axis]) for axis in axes}

    def body(*at):
        own = iter(at)
        index = tuple(loops[axis].var if axis in axes else next(own) for axis in range(x.ndim))
        return te.reduce(combiner, source[index], list(loops.values()))

    shape = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    result = te.compute(shape, body, "y")
    kernel = stage_kernel("reduced", result, {source: "x", result: "y"}, TARGET).kernel
    y = np.full(shape, np.nan, x.dtype)
    run_kernel(kernel, [x, y])
    return kernel, y


def test_a_maximum_is_nan_where_there_is_one():
    x = normal(3, 200)
    x[1, 77] = np.nan
    _, y = reduced(x, (1,), "max")
    np.testing.assert_array_equal(np.isnan(y), [False, True, False])


def test_columns_in_16_bits_are_read_by_whole_sectors():
    x = normal(130, 40, dtype="float16")
    kernel, y = reduced(x, (0,), "max")
    np.testing.assert_array_equal(y, x.max(0))
    assert launch_extents(kernel).threads == (16, 32, 1)


def test_columns_of_several_reductions():
    """Sums of a norm's gradient over all rows, in one kernel with another."""
    x, y = normal(130, 40), normal(130, 40)
    sources = [te.placeholder(each.shape, "float32", name) for each, name in ((x, "x"), (y, "y"))]
    rows = te.reduce_axis(130)
    one, other = (te.compute((40,), lambda j, s=s: te.reduce("sum", s[rows.var, j], [rows])) for s in sources)
    result = te.compute((40,), lambda j: one[j] * other[j], "products")
    places = {sources[0]: "x", sources[1]: "y", result: "products"}
    kernel = stage_kernel("products", result, places, TARGET)
    made = np.full(40, np.nan, "float32")
    run_kernel(kernel.kernel, [{"x": x, "y": y, "products": made}[place].reshape(-1) for place in kernel.arguments])
    np.testing.assert_allclose(made, x.astype("float64").sum(0) * y.astype("float64").sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(5, 64), (6, 40), (3, 33), (2, 1100), (1, 2100)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softmax_has_its_row_in_registers(shape, dtype):
    x = normal(*shape, dtype=dtype)
    (kernel,), (y,) = lowered("softmax", [x])
    wide = np.exp(x.astype("float64") - x.astype("float64").max(-1, keepdims=True))
    expected, error = wide / wide.sum(-1, keepdims=True), 3e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(y.astype("float64"), expected, rtol=error, atol=1e-6)
    assert_reads_once(kernel, shape[-1])


def assert_reads_once(kernel, length):
    """Loads of the row cover it once, whatever is computed from it."""
    threads = launch_extents(kernel).threads[0]
    reads = [n for n in postorder((kernel.body,)) if isinstance(n, Load) and n.source is kernel.buffers[0]]
    lanes = {read.lanes for read in reads}
    assert len(lanes) == 1
    assert len(reads) == -(-length // (threads * lanes.pop()))


def test_layer_norm_of_rows():
    x, scale, shift = normal(5, 72), normal(72), normal(72)
    (_,), outputs = lowered("layer_norm", [x, scale, shift])
    wide = x.astype("float64")
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(outputs[0], expected, rtol=1e-5, atol=1e-5)


def test_rows_of_several_results_and_across_memory_still_agree():
    x = normal(3, 5, 4)
    y = lowered("softmax", [x], axis=1)[1][0]
    wide = np.exp(x.astype("float64"))
    np.testing.assert_allclose(y, wide / wide.sum(1, keepdims=True), rtol=1e-5)


def test_long_reductions_are_two_stages_whose_chunks_are_fixed():
    node, fact = op_check._typed_node(Op.get("sum"), Sample([np.empty((1 << 20,), "float32")], {}))
    group = FusedGroup((node,), tuple(node.inputs), (NodeEntry(node),), node)
    chunks, whole = (made.kernel for made in LOWERING.lower(group, fact, TARGET))
    launch = launch_extents(chunks)
    assert launch.blocks[0] * launch.threads[0] * launch.threads[1] >= 128 * TARGET.sms
    assert launch_extents(whole).blocks[0] == 1
    other = [made.kernel for made in LOWERING.lower(group, fact, TARGET.changed(sms=7))]
    assert show(other[0]) == show(chunks)  # the same sums on a smaller GPU


def test_nothing_is_done_for_empty_results():
    (kernel,), (y,) = lowered("relu", [np.empty((0, 3), "float32")])
    assert y.shape == (0, 3)
    assert launch_extents(kernel).blocks == (1, 1, 1)


def test_kernels_written_as_loops_are_bound_to_a_grid():
    x = normal(3, 17)
    kernels, outputs = lowered("argsort", [x], axis=1)
    assert all(grid_of(kernel) is not None for kernel in kernels)
    np.testing.assert_array_equal(np.take_along_axis(x, outputs[0].astype("int64"), 1), np.sort(x, 1))


def test_shared_memory_beyond_what_a_block_has_is_refused():
    b = te.KernelBuilder("large")
    y = b.arg("y", "float32", (32,))
    with b.block("block", 1):
        row = b.alloc("row", "float32", (20000,), scope="shared")
        with b.thread("t", 32) as t:
            b.store(row, t, 1)
            b.barrier()
            b.store(y, t, row[t])
    with pytest.raises(weft.Error, match="80000 bytes"):
        emit_kernel(b.finish(), TARGET)


# Parts


@pytest.mark.parametrize(
    ("shape", "axis", "cuts"), [((1, 300), 1, 3), ((5, 7, 3), 1, (2, 6)), ((6, 4), 0, (1, 2)), ((2, 3, 8), -1, 2)]
)
def test_parts_of_a_small_tensor_are_one_kernel(shape, axis, cuts):
    x = normal(*shape)
    (kernel,), results = lowered("split", [x], indices_or_sections=cuts, axis=axis)
    for result, wanted in zip(results, np.split(x, cuts, axis), strict=True):
        np.testing.assert_array_equal(result, wanted)
    assert "part" in show(kernel)


def test_parts_of_a_large_tensor_are_copied_in_vectors(monkeypatch):
    monkeypatch.setattr("weft.lower.cuda.split.FEW", 100)
    x = normal(2, 64)
    kernels, results = lowered("split", [x], indices_or_sections=2, axis=1)
    np.testing.assert_array_equal(np.concatenate(results, 1), x)
    assert len(kernels) == 2
    assert {n.lanes for k in kernels for n in postorder((k.body,)) if isinstance(n, Load)} == {4}

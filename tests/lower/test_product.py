"""The template of packed products: tiles, panels, chunks of rows and blocks of long sums, at guard
pages, with what follows; against float64 products in numpy."""

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import agrees, targets

import weft
from weft.base.cpu_target import CpuTarget
from weft.core.op import Op
from weft.lower.cpu.product import plan_product
from weft.lower.cpu.tile import registers
from weft.testing.op_check import Sample, run_lowered

rng = np.random.default_rng(9)
TARGETS = targets()


def normal(*shape):
    return rng.standard_normal(shape).astype("f")


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 9), min_size=0, max_size=3),
    st.sampled_from([1, 2, 3, 4, 5, 7, 33, 64, 131]),
    st.sampled_from([1, 3, 4, 15, 16, 17, 40, 48, 64, 97, 130]),
    st.sampled_from(TARGETS),
    st.booleans(),
)
def test_any_product_between_guard_pages(leading, depth, columns, target, front):
    lanes = target.lanes(np.dtype("f"))
    x, w = normal(*leading, depth), normal(depth, columns)
    padded = np.pad(w, [(0, 0), (0, -columns % lanes)])
    panels = padded.reshape(depth, -1, lanes).swapaxes(0, 1)
    sample = Sample([x, panels], {"units": columns}, None)
    op = Op.get("_packed_matmul")
    (found,) = run_lowered(op, sample, target, lambda a: guarded(a, front))
    agrees(found, x.astype("d") @ w)


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 3), min_size=0, max_size=2),
    st.sampled_from([8, 9, 16, 31, 70]),
    st.sampled_from([1, 16, 17, 33, 400]),
    st.sampled_from([1, 3, 16, 31, 48, 100]),
    st.sampled_from([(True, False), (False, True), (True, True)]),
    st.sampled_from(TARGETS),
    st.booleans(),
)
def test_matrices_read_down_their_columns_between_guard_pages(leading, rows, depth, columns, turned, target, front):
    a, b = normal(*leading, rows, depth), normal(*leading, depth, columns)
    stored = [x.swapaxes(-1, -2).copy() if is_turned else x for x, is_turned in zip((a, b), turned)]
    attrs = {"transpose_a": turned[0], "transpose_b": turned[1]}
    for op in ["batch_matmul", *(["matmul"] if not leading else [])]:
        (found,) = run_lowered(Op.get(op), Sample(stored, attrs, None), target, lambda x: guarded(x, front))
        agrees(found, a.astype("d") @ b)


def test_gradients_of_a_layer_pack_nothing_but_the_weight():
    """What a training step of a layer runs: of dw = g' x no transpose and no packed copy is left."""
    sym, x, w, g = weft.symbol, normal(4, 32, 48), normal(40, 48), normal(4, 32, 40)
    names = [sym.Variable(name) for name in "xwg"]
    computed = sym.relu(names[0]), sym.relu(names[2])
    dw = sym.matmul(sym._as_rows(computed[1]), sym._as_rows(computed[0]), transpose_a=True)
    dx = sym.matmul(computed[1], names[1])
    model = weft.compile(sym.Group([dw, dx]), shape={"x": x.shape, "w": w.shape, "g": g.shape})
    found = model.run({"x": x, "w": w, "g": g})
    kept, rows = (np.maximum(value, 0).astype("d").reshape(128, -1) for value in (x, g))
    agrees(found[0], rows.T @ kept)
    agrees(found[1], (rows @ w).reshape(x.shape))
    operators = [name for kernel in model.report().kernels for name in kernel.operators]
    assert "transpose" not in operators
    assert operators.count("_pack_panels") == 1


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.isa)
@pytest.mark.parametrize(
    "shape",
    [
        (3, 70, 1700, 50),
        (1, 200, 2400, 130),
        (1, 210, 1536, 16),
        (2, 3, 4000, 20),
        (1, 700, 500, 33),
        (2, 700, 1600, 40),
    ],
)
def test_long_sums_in_blocks_with_what_follows(target, shape):
    batch, rows, depth, columns = shape
    sym = weft.symbol
    values = {
        "w": normal(depth, columns) / np.float32(depth**0.5),
        "b": normal(columns),
        "r": normal(batch, rows, columns),
    }
    x = normal(batch, rows, depth)
    y = sym.broadcast_add(sym.matmul(sym.Variable("x"), sym.Variable("w")), sym.Variable("b"))
    y = sym.tanh(y) + sym.Variable("r")
    found = []
    for threads in (1, 2, 4):
        model = weft.compile((y, values), shape={"x": x.shape}, target=target, threads=threads)
        assert len(model.report().kernels) == 1
        found.append(model.run({"x": x})[0])
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    agrees(found[0], np.tanh(x.astype("d") @ values["w"] + values["b"]) + values["r"])


@given(
    st.integers(1, 400),
    st.integers(1, 5000),
    st.integers(1, 400),
    st.sampled_from([4, 8, 16]),
    st.sampled_from(["x86-64-v3", "x86-64-v4"]),
)
def test_plans_cover_every_row_and_column(rows, depth, columns, lanes, cpu):
    target = CpuTarget.create("llvm -mtriple=x86_64-linux", cpu=cpu)
    plan, budget = plan_product(rows, depth, columns, lanes, target), registers(target)
    assert sum(size * count for size, count in plan.tiles) == rows
    covered = sum(size * count for size, count in plan.groups) * lanes
    assert covered == -(-columns // lanes) * lanes
    assert 1 <= plan.chunk <= sum(count for _, count in plan.tiles)
    largest, side = plan.tiles[0][0], plan.groups[0][0]
    assert largest * side + side + 1 <= budget
    assert 1 <= plan.block <= depth


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=2),
    st.sampled_from([3, 8, 9, 33]),
    st.sampled_from([16, 17, 100]),
    st.sampled_from([1, 9, 16, 17, 32, 48, 65]),
    st.sampled_from(TARGETS),
    st.booleans(),
)
def test_any_product_of_columns_that_are_apart(leading, rows, depth, columns, target, front):
    x, w = normal(*leading, rows, depth), normal(*leading, columns, depth)
    sample = Sample([x, w], {"transpose_b": True}, None)
    (found,) = run_lowered(Op.get("batch_matmul"), sample, target, lambda a: guarded(a, front))
    agrees(found, x.astype("d") @ w.swapaxes(-1, -2))

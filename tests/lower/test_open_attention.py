"""Attention whose batch, queries and keys are arguments: one kernel, run at many sizes between guard pages and compared
with numpy in float64."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from codegen.guard import guarded
from lower.accuracy import agrees, targets

from weft.base.dtype import as_dtype
from weft.base.extents import Extent
from weft.base.sizes import NUMBER
from weft.codegen.cpu.compile import compile_kernel
from weft.compiler.open.binding import OpenSizes
from weft.core.fused import FusedGroup
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.ir import NodeEntry
from weft.core.op import Op
from weft.core.symbol import Variable
from weft.lower.cpu.attention.blocks import KEY_BLOCK
from weft.lower.cpu.dispatch import LOWERING
from weft.runtime.cpu.kernel import NativeKernel

TARGETS = targets()
HEADS, SCALE = 3, 0.25
LAYOUTS = {  # of keys, and how many columns there are of them and of values
    "columns": (20, 21),
    "turned": (20, 21),
    "rows": (20, 21),
    "narrow rows": (5, 40),
    "whole rows": (32, 16),
}
MASKS = {  # as (batch, heads, keys, queries)
    None: None,
    "full": (1, 1, 1, 1),
    "column": (0, 0, 1, 0),
    "row": (0, 1, 0, 1),
    "padding": (1, 0, 1, 0),
}
SIZES = [
    (1, 1, 1),
    (2, 1, 7),
    (1, 2, KEY_BLOCK),
    (3, 16, 5),
    (2, 17, KEY_BLOCK + 1),
    (1, 33, KEY_BLOCK - 1),
    (1, 65, 2 * KEY_BLOCK + 13),
    (2, 31, 3),
]
FORMS = [
    (None, "nan", "float32", "rows"),
    ("full", "nan", "float32", "columns"),
    ("full", "zero", "float32", "narrow rows"),
    ("full", "clean", "float32", "rows"),
    ("column", "clean", "float64", "columns"),
    ("row", "zero", "float64", "rows"),
    ("padding", "nan", "float64", "whole rows"),
    (None, "zero", "float64", "columns"),
    ("full", "zero", "float32", "turned"),
]


def extents(layout, batch, queries, keys):
    """The shapes of query, key and value, in the order of memory."""
    width, values = LAYOUTS[layout]
    key = {"columns": (keys, width, HEADS), "turned": (HEADS, width, keys)}.get(layout, (keys, HEADS, width))
    return (batch, queries, HEADS, width), (batch, *key), (batch, HEADS, keys, values)


def mask_extents(mask, batch, queries, keys):
    return tuple(n if there else 1 for n, there in zip((batch, HEADS, keys, queries), MASKS[mask]))


@cache
def lowered(mask, unseen, dtype, layout, open_names, target):
    """The kernel, made for sizes other than those that it is run at, and how to compute its turns."""
    sizes, (width, values) = {"n": 2, "q": 9, "k": 12}, LAYOUTS[layout]
    n, q, k = (name if name in open_names else sizes[name] for name in "nqk")
    row = HEADS * width
    turned = (Extent.of(k) * width, 1, Extent.of(k))
    key = {"columns": (1, row, HEADS), "turned": turned}.get(layout, (width, row, 1))
    attrs = {
        "batch": (n, HEADS),
        "queries": q,
        "keys": k,
        "width": width,
        "values": values,
        "query": (0, Extent.of(q) * row, width, row, 1),
        "key": (0, Extent.of(k) * row, *key),
        "value": (0, Extent.of(k) * (HEADS * values), Extent.of(k) * values, values, 1),
        "scale": SCALE,
        "masked": mask is not None,
        "unseen": unseen,
        "out_axes": (0, 2, 1, 3),
    }
    shapes = dict(zip("abc", extents(layout, n, q, k)))
    if mask is not None:
        shapes["m"] = mask_extents(mask, n, q, k)
    symbol = Op.get("_strided_attention")(*map(Variable, shapes), **attrs)
    graph = infer(Graph(symbol.outputs), shapes, dict.fromkeys(shapes, as_dtype(dtype)))
    assert graph.fact(graph.outputs[0]).shape == (n, q, HEADS, values)
    opened = OpenSizes({name: sizes[name] for name in open_names})
    graph = opened.with_facts(opened.with_params(graph))
    (node,) = (node for node in graph.indexed.nodes if node.op is not None)
    group = FusedGroup((node,), tuple(node.inputs), (NodeEntry(node),), node)
    (made,) = LOWERING.lower(group, graph.fact, target)
    turns, table = opened.trace.row_of_expression(made.kernel.parallel.extent), opened.trace.table()
    assert all(guard.ask == "ge" and table.rows[guard.b][:2] == (NUMBER, 1) for guard in table.guards)
    code = compile_kernel(replace(made.kernel, scalars=tuple(opened.trace.arguments)), target)
    return NativeKernel(code), lambda numbers: table.numbers(numbers)[turns]


@pytest.fixture(scope="module", autouse=True)
def kernels_are_dropped():
    yield
    lowered.cache_clear()


def attended(form, q, k, v, mask=None):
    """By definition, in float64."""
    _, unseen, _, layout = form
    k = k.transpose({"columns": (0, 3, 1, 2), "turned": (0, 1, 3, 2)}.get(layout, (0, 2, 1, 3)))
    q, k, v = q.transpose(0, 2, 1, 3).astype("d"), k.astype("d"), v.astype("d")
    with np.errstate(invalid="ignore", over="ignore"):
        scores = q @ k.swapaxes(-1, -2) * SCALE
        scores = scores if mask is None else scores + mask.astype("d").swapaxes(-1, -2)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
        if unseen == "zero":
            p = np.where(np.isneginf(scores).all(-1, keepdims=True), 0, p)
        p = np.where(np.isnan(p), 0, p) if unseen == "clean" else p
        return (p @ v).transpose(0, 2, 1, 3)


def drawn(rng, form, sizes):
    mask, _, dtype, layout = form
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in extents(layout, *sizes)]
    if mask is not None:
        hidden = rng.standard_normal(mask_extents(mask, *sizes)).astype(dtype)
        hidden[rng.random(hidden.shape) < 0.4] = -np.inf
        if MASKS[mask][3]:
            hidden[..., rng.integers(sizes[1])] = -np.inf
        arrays.append(hidden)
    return arrays


def ran(form, arrays, sizes, open_names="nqk", target=TARGETS[-1], front=False):
    kernel, turns = lowered(*form, open_names, target)
    numbers = [size for name, size in zip("nqk", sizes) if name in open_names]
    out = np.full((*sizes[:2], HEADS, LAYOUTS[form[3]][1]), -1e30, arrays[0].dtype)
    memory = [guarded(array, front) for array in (*arrays, out)]
    kernel([array.reshape(-1) for array in memory], numbers, end=turns(numbers))
    return memory[-1]


def check(found, expected):
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    agrees(np.nan_to_num(found), np.nan_to_num(expected))
    if found.dtype == np.float64:
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_all_sizes_by_one_kernel(form, sizes):
    rng = np.random.default_rng(0)
    arrays = drawn(rng, form, sizes)
    check(ran(form, arrays, sizes, front=bool(rng.integers(2))), attended(form, *arrays))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.isa)
@pytest.mark.parametrize("open_names", ["n", "q", "k", "nq", "nk", "qk", "nqk"])
def test_some_sizes_are_numbers(open_names, target):
    form = ("full", "zero", "float32", "rows")
    for wanted in ((3, 35, 260), (1, 1, 250)):
        sizes = tuple(size if name in open_names else fixed for name, fixed, size in zip("nqk", (2, 9, 12), wanted))
        arrays = drawn(np.random.default_rng(0), form, sizes)
        check(ran(form, arrays, sizes, open_names, target), attended(form, *arrays))


@pytest.mark.parametrize("queries", [1, 18])
@pytest.mark.parametrize("unseen", ["nan", "zero", "clean"])
def test_what_is_not_finite(unseen, queries):
    """NaN and infinities among queries, keys, values and masks, in any block of keys."""
    form, sizes, rng = ("full", unseen, "float64", "rows"), (2, queries, 2 * KEY_BLOCK + 5), np.random.default_rng(0)
    for where in range(4):
        for bad in (np.nan, np.inf, -np.inf):
            arrays = drawn(rng, form, sizes)
            at = tuple(rng.integers(n) for n in arrays[where].shape)
            arrays[where][at] = bad
            check(ran(form, arrays, sizes), attended(form, *arrays))


@pytest.mark.parametrize("queries", [1, 40])
def test_queries_that_see_no_key_of_the_first_blocks(queries):
    form, sizes, rng = ("full", "nan", "float64", "rows"), (1, queries, 3 * KEY_BLOCK), np.random.default_rng(0)
    arrays = drawn(rng, form, sizes)
    arrays[3][:, :, : 2 * KEY_BLOCK] = -np.inf
    arrays[3][:, :, -1] = 30 * rng.random(queries)
    check(ran(form, arrays, sizes), attended(form, *arrays))

"""The attention template: any number of queries, keys and columns, at guard pages, on every
instruction set; and attention that models compose, against float64 in numpy."""

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import agrees, targets

import weft
from weft.core.op import Op
from weft.testing.op_check import Sample, run_lowered

rng = np.random.default_rng(5)
TARGETS = targets()
sizes = st.sampled_from([1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 65])


def normal(*shape):
    return rng.standard_normal(shape).astype("f")


def attended(q, k, v, scale=1.0, mask=None, unseen="nan"):
    """By definition, in float64: q, k, v are (..., rows, columns)."""
    scores = q.astype("d") @ k.astype("d").swapaxes(-1, -2) * scale
    scores = scores if mask is None else scores + mask
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
    return (p if unseen == "nan" else np.nan_to_num(p, nan=0.0)) @ v.astype("d")


def steps_of(x):
    return tuple(step // x.itemsize for step in x.strides)


@settings(max_examples=50)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    st.tuples(sizes, sizes, sizes, sizes),
    st.sampled_from([None, "column", "full", "row"]),
    st.sampled_from(["nan", "zero", "clean"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(TARGETS),
    st.booleans(),
)
def test_any_attention_between_guard_pages(batch, counts, mask, unseen, last, causal, target, front):
    (n, heads), (queries, keys, width, values) = batch, counts
    q, k = normal(n, queries, heads, width), normal(n, keys, width, heads)
    v = normal(n, heads, keys, values)
    seen = q.transpose(0, 2, 1, 3), k.transpose(0, 3, 1, 2), v
    attrs = {
        "batch": (n, heads),
        "queries": queries,
        "keys": keys,
        "width": width,
        "values": values,
        "query": (0, *steps_of(seen[0])),
        "key": (0, *steps_of(seen[1])),
        "value": (0, *steps_of(seen[2])),
        "scale": 0.5,
        "masked": mask is not None,
        "is_causal": causal,
        "unseen": unseen,
        "out_axes": (0, 2, 1, 3) if last else (0, 1, 2, 3),
    }
    inputs, added = [q, k, v], None
    if mask is not None:
        shape = {"column": (keys, 1), "full": (n, 1, keys, queries), "row": (heads, 1, queries)}
        given_mask = normal(*shape[mask])
        hidden = rng.random(given_mask.shape) < 0.3
        given_mask[hidden] = -np.inf
        inputs.append(given_mask)
        added = given_mask.swapaxes(-1, -2)
    if causal:
        added = np.where(np.tri(queries, keys, dtype=bool), 0.0 if added is None else added, -np.inf)
    expected = attended(*seen, 0.5, added, unseen)
    expected = expected.transpose(0, 2, 1, 3) if last else expected
    sample = Sample(inputs, attrs, None)
    op = Op.get("_strided_attention")
    (found,) = run_lowered(op, sample, target, lambda a: guarded(a, front))
    assert (np.isnan(found) == np.isnan(expected)).all()
    agrees(np.nan_to_num(found), np.nan_to_num(expected))


def from_one_product(length, heads, width, batch=2):
    """x W as queries, keys and values side by side, as models compute them."""
    sym = weft.symbol
    size = heads * width
    values = {"x": normal(batch, length, 24), "w": normal(24, 3 * size) * 0.3}
    y = sym.matmul(sym.Variable("x"), sym.Variable("w"))
    parts = sym.split(y, indices_or_sections=3, axis=2)
    split = [
        sym.transpose(sym.reshape(part, shape=(0, 0, heads, width)), axes=(0, 2, 1, 3))
        for part in (parts[0], parts[1], parts[2])
    ]
    product = values["x"].astype("d") @ values["w"]
    arrays = product.reshape(batch, length, 3, heads, width).transpose(2, 0, 3, 1, 4)
    return split, values, arrays


def test_no_copy_is_left_around_attention():
    sym = weft.symbol
    (q, k, v), values, arrays = from_one_product(37, 3, 8)
    scores = sym.batch_matmul(q, k, transpose_b=True) / 3.0
    y = sym.batch_matmul(sym.softmax(scores), v)
    y = sym.reshape(sym.transpose(y, axes=(0, 2, 1, 3)), shape=(0, 0, -1))
    model = weft.compile((y, {"w": values["w"]}), shape={"x": values["x"].shape})
    operators = [kernel.operators for kernel in model.report().kernels]
    assert operators == [("_packed_matmul",), ("_strided_attention",)]
    expected = attended(*arrays, 1 / 3).transpose(0, 2, 1, 3).reshape(2, 37, 24)
    agrees(model.run({"x": values["x"]})[0], expected)


@pytest.mark.parametrize("length", [8, 50, 200])
def test_the_same_bits_for_any_number_of_threads(length):
    sym = weft.symbol
    (q, k, v), values, arrays = from_one_product(length, 4, 20)
    mask = normal(length, length)
    scores = sym.broadcast_add(sym.batch_matmul(q * 0.5, k, transpose_b=True), sym.Variable("m"))
    y = sym.batch_matmul(sym.softmax(scores, axis=3), v)
    found = []
    for threads in (1, 2, 4):
        params = {"w": values["w"], "m": mask}
        model = weft.compile((y, params), shape={"x": values["x"].shape}, threads=threads)
        found.append(model.run({"x": values["x"]})[0])
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    agrees(found[0], attended(*arrays, 0.5, mask))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_more_keys_than_caches_hold(causal, dtype):
    sym = weft.symbol
    values = {name: normal(1, 2, 2300, 6).astype(dtype) for name in "qkv"}
    y = sym.scaled_dot_product_attention(*map(sym.Variable, "qkv"), is_causal=causal)
    model = weft.compile(y, shape={name: x.shape for name, x in values.items()}, dtype=dict.fromkeys(values, dtype))
    assert [kernel.operators for kernel in model.report().kernels] == [("_strided_attention",)]
    hidden = np.where(np.tri(2300, dtype=bool), 0.0, -np.inf) if causal else None
    agrees(model.run(values)[0], attended(*values.values(), 6**-0.5, hidden))

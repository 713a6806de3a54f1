"""Attention by native products and rows: blocks of queries and heads, masks, views, gradients."""

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.core.op import Op
from weft.eager.autograd.derivative import params_of
from weft.eager.native import attention as native_attention

NAME = "scaled_dot_product_attention"


def inputs(rng, dtype, mask, lead, queries, keys, width, values):
    ends = ((queries, width), (keys, width), (keys, values))
    arrays = [rng.standard_normal((*lead, *end)).astype(dtype) for end in ends]
    if mask == "none":
        return arrays
    whole = (*lead, queries, keys)
    shape = [1 if rng.random() < 0.3 else n for n in whole[rng.integers(len(whole)) :]]
    made = rng.standard_normal(shape)
    if mask == "boolean":
        return [*arrays, made > 0]
    return [*arrays, np.where(made > 1, -np.inf, made).astype(dtype)]


@pytest.mark.parametrize("scores", [60, 1500, 1 << 19])
@pytest.mark.parametrize("mask", ["none", "boolean", "additive"])
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_agree_with_the_reference(scores, mask, causal, monkeypatch):
    monkeypatch.setattr(native_attention, "SCORES", scores)
    rng = np.random.default_rng([scores, len(mask), causal])
    op, grad = Op.get(NAME), Op.get(f"_{NAME}_grad")
    for dtype in ("float32", "float64"):
        lead = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 3)))
        sizes = [int(n) for n in rng.choice([1, 2, 7, 16, 17, 33], 4)]
        arrays = inputs(rng, dtype, mask, lead, *sizes)
        params = params_of(op, {"mask": mask, "is_causal": causal, "scale": 0.3})
        expected = op.call_with(Op.reference[op], params, *arrays)
        found = native_attention.run_attention(op, params, arrays)
        agrees(found, expected)
        g = rng.standard_normal(expected.shape).astype(dtype)
        made = native_attention.run_attention_grad(grad, params, [g, *arrays])
        for got, wanted in zip(made, grad.call_with(Op.reference[grad], params, g, *arrays)):
            agrees(got, wanted)


def agrees(found, expected):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    scale = max(float(np.abs(expected).max()), 1e-3)
    assert float(np.abs(found - expected).max()) <= 5e-5 * scale


@pytest.mark.parametrize("causal", [False, True])
def test_heads_that_are_views_with_gradients_agree_with_pytorch(causal):
    torch = oracle("torch")
    rng = np.random.default_rng(causal)
    given = [rng.standard_normal((2, 70, 3, 24)).astype("float32") for _ in range(3)]
    results = []
    for library in (weft, torch):
        leaves = [library.from_numpy(a.copy()).requires_grad_() for a in given]
        heads = [leaf.transpose(1, 2) for leaf in leaves]
        y = library.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal)
        (y * y).sum().backward()
        results.append([y.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)])
    for ours, theirs in zip(*results):
        agrees(np.ascontiguousarray(ours), theirs)


def test_rows_that_see_nothing_are_zeros():
    q, k, v = (weft.ones(2, 64, 32) for _ in range(3))
    mask = weft.ones(64, 64, dtype=weft.bool)
    mask[5] = False
    made = weft.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert made[:, 5].abs().sum() == 0
    assert weft.allclose(made[:, 6], weft.ones(2, 32))

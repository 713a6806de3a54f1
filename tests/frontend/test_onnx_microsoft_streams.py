"""Operators of com.microsoft on streams of features, and rotary embeddings of three positions, against ONNX Runtime."""

import numpy as np
import pytest
from microsoft_nodes import check, floats, one_node, rng, weft_run
from onnx_runs import onnxruntime_run

from weft.base.errors import Error


@pytest.mark.parametrize("packed", [0, 3])
@pytest.mark.parametrize("scale", [None, (3, 4), (4,), (12,)])
def test_the_norm_of_each_branch(packed, scale):
    data = floats(2, 5, 12) if packed else floats(2, 5, 3, 4)
    arrays = (data,) if scale is None else (data, floats(*scale))
    check("BranchwiseRMSNorm", *arrays, num_branches=packed, epsilon=0.1)


@pytest.mark.parametrize("packed", [0, 3])
@pytest.mark.parametrize("gates", [(2, 5, 3), (2, 5, 3, 1), (2, 5, 3, 4), (2, 5, 12)])
def test_branches_become_one(packed, gates):
    if gates == (2, 5, 12) and not packed:
        gates = (2, 5, 3, 4)
    data = floats(2, 5, 12) if packed else floats(2, 5, 3, 4)
    check("HyperConnectionPreMix", data, floats(*gates), num_branches=packed, reduction_scale=0.7)


@pytest.mark.parametrize("packed", [0, 3])
@pytest.mark.parametrize("gates", [(2, 5, 3), (2, 5, 3, 1), (2, 5, 3, 4)])
@pytest.mark.parametrize("mixed", [False, True])
def test_one_goes_to_all_branches(packed, gates, mixed):
    data = floats(2, 5, 12) if packed else floats(2, 5, 3, 4)
    matrix = [floats(2, 5, 3, 3)] if mixed else []
    check("HyperConnectionPostMix", data, floats(2, 5, 4), floats(*gates), *matrix, num_branches=packed)


@pytest.mark.parametrize("normed", [False, True])
def test_engram_gate(normed):
    arrays = floats(2, 5, 3, 4), floats(2, 5, 3, 4), floats(2, 5, 4), *(floats(3, 4) for _ in range(3))
    check("EngramGate", *arrays[: 6 if normed else 5], epsilon=0.01, outputs=2 if normed else 1)


def test_gates_of_linear_attention():
    check("LinearAttentionGate", floats(2, 5, 4), floats(4), floats(4), floats(2, 5, 4), outputs=2)
    check("LinearAttentionGate", floats(2, 5, 4, scale=30.0), floats(4), floats(4))


def test_a_gate_for_each_row():
    check("GatedAdd", floats(2, 5, 4), floats(2, 5, 4), floats(2, 5, 1))


def test_scaled_silu():
    check("ScaledSiLU", floats(2, 5), alpha=0.3)
    check("ScaledSiLU", floats(2, 5), np.float32(1.7), alpha=0.3)


@pytest.mark.parametrize(("dim", "size", "step"), [(-1, 3, 1), (0, 2, 2), (1, 5, 1), (1, 2, 3), (2, 7, 4)])
def test_slices_side_by_side(dim, size, step):
    for data in (floats(4, 5, 7), rng.integers(0, 99, (4, 5, 7))):
        check("UnfoldTensor", data, dim=dim, size=size, step=step)


def test_slices_that_do_not_fit():
    with pytest.raises(Error, match="slices of 8 every 1 places of 7"):
        weft_run(*one_node("UnfoldTensor", floats(4, 7), size=8))


def test_products_of_int16():
    a, b = (rng.integers(-3000, 3000, shape).astype(np.int16) for shape in ((2, 3, 4), (4, 5)))
    check("MatMulInteger16", a, b)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("sections", [[4, 2, 2], [2, 3, 3], [8, 0, 0], [3, 3, 2]])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_three_positions_of_a_token(layout, sections, packed, interleaved):
    data = floats(2, 3, 32) if packed else floats(2, 2, 3, 16)
    arrays = data, rng.integers(0, 10, (3, 2, 3)), floats(10, 8), floats(10, 8)
    attrs = {"mrope_section": sections, "mrope_layout": layout, "interleaved": interleaved}
    check("MRotaryEmbedding", *arrays, **attrs, num_heads=2 if packed else 0)


def test_three_positions_that_turn_a_part():
    arrays = floats(2, 3, 48), rng.integers(0, 10, (3, 2, 3)), floats(10, 8), floats(10, 8)
    check("MRotaryEmbedding", *arrays, mrope_section=[4, 2, 2], num_heads=2, rotary_embedding_dim=16)


def test_half_precision_is_rounded_at_the_end():
    """But for the last bit: ONNX Runtime rounds between the steps, too."""
    half = lambda *shape: floats(*shape).astype(np.float16)
    for op, arrays, attrs in (
        ("BranchwiseRMSNorm", (half(2, 5, 3, 4), half(3, 4)), {}),
        ("HyperConnectionPreMix", (half(2, 5, 3, 4), half(2, 5, 3)), {}),
        ("GatedAdd", (half(2, 5, 4), half(2, 5, 4), half(2, 5, 1)), {}),
        ("ScaledSiLU", (half(2, 5),), {"alpha": 0.7}),
    ):
        model, inputs = one_node(op, *arrays, **attrs)
        (ours,), (theirs,) = weft_run(model, inputs), onnxruntime_run(model, inputs)
        assert ours.dtype == theirs.dtype == np.float16
        np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), rtol=4e-3, atol=4e-3, err_msg=op)

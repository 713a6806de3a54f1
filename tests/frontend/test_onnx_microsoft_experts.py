"""Mixtures of experts of com.microsoft, against ONNX Runtime."""

import numpy as np
import pytest
from microsoft_nodes import check, floats, levels, one_node, rng, weft_run
from onnx_runs import onnxruntime_run

from weft.base.errors import Error

EXPERTS, WIDTH, INNER = 6, 32, 16
ACTIVATIONS = {
    "relu": {},
    "gelu": {},
    "silu": {},
    "identity": {},
    "swiglu": {"swiglu_fusion": 1, "activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.6},
}


def layers(fused, biased=True):
    """Matrices and biases of both layers."""
    first = (2 if fused else 1) * INNER
    matrices = floats(EXPERTS, first, WIDTH, scale=0.3), floats(EXPERTS, WIDTH, INNER, scale=0.3)
    biases = (floats(EXPERTS, first), floats(EXPERTS, WIDTH)) if biased else (None, None)
    return matrices[0], biases[0], matrices[1], biases[1]


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("tokens", [2, 9])
@pytest.mark.parametrize("chosen", [1, 3])
def test_a_mixture(kind, tokens, chosen):
    """Of few tokens, whose experts are gathered, and of many."""
    arrays = floats(tokens, WIDTH), floats(tokens, EXPERTS), *layers(kind == "swiglu")
    check("MoE", *arrays, k=chosen, activation_type=kind, **ACTIVATIONS[kind])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("tokens", [1, 4])
def test_weights_that_are_normalised(biased, tokens):
    arrays = floats(2, tokens, WIDTH), floats(2 * tokens, EXPERTS), *layers(False, biased)
    check("MoE", *arrays, k=2, normalize_routing_weights=1)


def test_gates_behind_each_other():
    """ONNX Runtime has them in turn on the CPU: it is given the same matrices so."""
    first, bias, second, _ = layers(True)
    x, router, order = floats(9, WIDTH), floats(9, EXPERTS), np.argsort(np.arange(2 * INNER) % 2, kind="stable")
    attrs = {"k": 2, "activation_type": "swiglu", "activation_beta": 0.5}
    expected = onnxruntime_run(*one_node("MoE", x, router, first, bias, second, swiglu_fusion=1, **attrs))
    arrays = x, router, first[:, order], bias[:, order], second
    check("MoE", *arrays, swiglu_fusion=2, expected=expected, **attrs)


def packed(rows, columns, bits):
    return levels(EXPERTS, rows, columns * bits // 8)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", ["silu", "swiglu"])
def test_a_mixture_of_levels(bits, block, zeros, kind):
    """ONNX Runtime rounds what goes into blocks of 8 bits to levels, too."""
    first, tolerance = (2 if kind == "swiglu" else 1) * INNER, 2e-2 if block and bits == 8 else 1e-3
    matrices = (first, WIDTH), (WIDTH, INNER)
    sizes = [(EXPERTS, rows, columns // block) if block else (EXPERTS, rows) for rows, columns in matrices]
    scales = [(rng.uniform(0.2, 0.4, shape) / 2**bits).astype(np.float32) for shape in sizes]
    points = [levels(*shape[:-1], -(-shape[-1] * bits // 8)) for shape in sizes] if zeros else []
    arrays = [floats(9, WIDTH), floats(9, EXPERTS), packed(first, WIDTH, bits), scales[0], floats(EXPERTS, first)]
    arrays += [packed(WIDTH, INNER, bits), scales[1], floats(EXPERTS, WIDTH), None, None, None, *points]
    attrs = {"block_size": block} if block else {}
    attrs |= {"k": 2, "expert_weight_bits": bits, "activation_type": kind, **ACTIVATIONS[kind]}
    check("QMoE", *arrays, constants=(2, 3, 5, 6, 11, 12), rtol=tolerance, atol=tolerance, **attrs)


@pytest.mark.parametrize("normalised", [0, 1])
@pytest.mark.parametrize("weighed", [False, True])
def test_the_weights_of_a_mixture_of_levels(normalised, weighed):
    """Those of the chosen ones add up to 1, unless they come from elsewhere."""
    scales = [(rng.uniform(0.2, 0.4, (EXPERTS, rows)) / 16).astype(np.float32) for rows in (INNER, WIDTH)]
    arrays = [floats(3, WIDTH), floats(3, EXPERTS), packed(INNER, WIDTH, 4), scales[0], None]
    arrays += [packed(WIDTH, INNER, 4), scales[1], *[None] * 7]
    arrays += [rng.uniform(0.1, 1, (3, EXPERTS)).astype(np.float32)] if weighed else []
    check("QMoE", *arrays, constants=(2, 3, 5, 6), k=2, normalize_routing_weights=normalised, rtol=1e-3, atol=1e-3)


def test_mixtures_that_make_no_sense():
    arrays = floats(3, WIDTH), floats(3, EXPERTS), *layers(False)
    for attrs, told in (
        ({"k": 7}, "7 of 6 experts"),
        ({"use_sparse_mixer": 1}, "sparse mixer"),
        ({"activation_type": "tanh"}, "activation 'tanh'"),
        ({"activation_type": "swiglu"}, "swiglu_fusion 0"),
    ):
        with pytest.raises(Error, match=told):
            weft_run(*one_node("MoE", *arrays, **attrs))

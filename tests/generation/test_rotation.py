"""Rotations of positions: frequencies that published decoders have, and those that PyTorch's decoders work out pair by
pair."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.base.errors import InvalidType, InvalidValue, NotFound, Unsupported
from weft.generation import LlamaSettings
from weft.generation.rotation import Plain, rotation_of

torch = pytest.importorskip("torch")
from generation.torch_decoders import rotations  # noqa: E402

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def found_of(scaling, theta=500.0, width=64, positions=256):
    return rotation_of(Plain(theta, width, positions), scaling)


@pytest.mark.parametrize(
    ("theta", "scaling", "known", "factor"),
    [
        (  # Llama 3.1
            5e5,
            LLAMA3,
            {0: 1, 1: 0.8146172, 20: 0.01656044, 29: 0.002166571, 31: 0.0008567515, 34: 0.0001785078, 63: 3.068926e-07},
            1,
        ),
        (  # Qwen2.5 for long texts
            1e6,
            YARN,
            {0: 1, 1: 0.8058422, 20: 0.01333521, 25: 0.004131738, 29: 0.001405112, 35: 0.0002462584, 63: 3.102344e-07},
            1.1386294,
        ),
    ],
)
def test_frequencies_of_published_decoders(theta, scaling, known, factor):
    found = found_of(scaling, theta, 128, 131072)
    np.testing.assert_allclose(found.frequencies[list(known)], list(known.values()), rtol=2e-6)
    assert found.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        {},
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 3},
        {"type": "linear", "factor": 1.5, "rope_type": "linear", "finetuned": True},
        {**LLAMA3, "original_max_position_embeddings": 64},
        {**LLAMA3, "original_max_position_embeddings": None, "low_freq_factor": 2.5, "high_freq_factor": 3},
        {**YARN, "original_max_position_embeddings": 64},
        {"rope_type": "yarn", "factor": 2.5, "truncate": False, "attention_factor": None},
        {**YARN, "original_max_position_embeddings": 64, "attention_factor": 0.75, "beta_fast": 5, "beta_slow": 0.5},
        {**YARN, "original_max_position_embeddings": 100, "mscale": 0.7, "mscale_all_dim": 1.3},
    ],
)
def test_frequencies_are_those_worked_out_pair_by_pair(scaling):
    found = found_of(scaling)
    given = {key: value for key, value in (scaling or {}).items() if value is not None}
    settings = SimpleNamespace(rope_theta=500.0, max_position_embeddings=256, rope_scaling=given)
    frequencies, factor = rotations(settings, 64)
    np.testing.assert_allclose(found.frequencies, frequencies, rtol=1e-12)
    assert found.factor == pytest.approx(factor, rel=1e-12)


def test_tables_turn_pairs():
    """Column e and column e + width / 2, by the position times the frequency."""
    cosines, sines = found_of({"rope_type": "yarn", "factor": 4}, 100.0, 4).tables(3)
    found = found_of({"rope_type": "yarn", "factor": 4}, 100.0, 4)
    for position in range(3):
        for pair, frequency in enumerate(found.frequencies):
            cosine, sine = (found.factor * turn(position * frequency) for turn in (math.cos, math.sin))
            np.testing.assert_allclose(cosines[position, [pair, pair + 2]], [cosine, cosine], rtol=1e-6)
            np.testing.assert_allclose(sines[position, [pair, pair + 2]], [-sine, sine], rtol=1e-6)


@pytest.mark.parametrize(
    ("scaling", "kind", "told"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, Unsupported, "dynamic"),
        ({"type": "longrope", "short_factor": [1.0]}, Unsupported, "longrope"),
        ({"type": "su"}, Unsupported, "su"),
        ({"rope_type": "default", "mrope_section": [1, 2]}, Unsupported, "mrope_section"),
        ({"rope_type": "linear", "type": "yarn", "factor": 2}, InvalidValue, "linear.*yarn"),
        ({"rope_type": 3}, InvalidType, "rope_type"),
        ({"factor": 8.0}, NotFound, "no 'rope_type'"),
        ({"rope_type": "linear"}, NotFound, "no 'factor'"),
        ({"rope_type": "linear", "factor": 0.5}, InvalidValue, "factor of rope_scaling is 0.5"),
        ({"rope_type": "linear", "factor": "4"}, InvalidType, "'4'"),
        ({"rope_type": "linear", "factor": True}, InvalidType, "True"),
        ({"rope_type": "yarn", "factor": math.nan}, InvalidValue, "nan"),
        ({"rope_type": "yarn", "factor": 10**400}, InvalidValue, "huge"),
        ({**YARN, "beta_fast": 1, "beta_slow": 2}, InvalidValue, "beta_slow"),
        ({**YARN, "truncate": 1}, InvalidType, "truncate"),
        ({**YARN, "original_max_position_embeddings": 0}, InvalidValue, "original_max"),
        ({**YARN, "attention_factor": -1}, InvalidValue, "attention_factor"),
        ({**LLAMA3, "low_freq_factor": 4}, InvalidValue, "low_freq_factor"),
        ({k: v for k, v in LLAMA3.items() if k != "high_freq_factor"}, NotFound, "high_freq_factor"),
        ([1], InvalidType, "a list"),
    ],
)
def test_errors_name_the_setting(scaling, kind, told):
    with pytest.raises(kind, match=told):
        LlamaSettings(rope_scaling=scaling)


@pytest.mark.parametrize("theta", [0, -1.0, 0.5, math.nan, math.inf, "10000", None, True])
def test_theta_is_one_or_more(theta):
    with pytest.raises(weft.Error, match="rope_theta"):
        LlamaSettings(rope_theta=theta)


def test_yarn_needs_frequencies_that_differ():
    with pytest.raises(weft.Error, match="above 1"):
        LlamaSettings(rope_theta=1, rope_scaling=YARN)

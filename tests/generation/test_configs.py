"""What config.json says: each type of network with its own defaults, and errors of weft for all that makes no sense."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.base.errors import FormatError, InvalidType, InvalidValue, NotFound, Unsupported
from weft.eager.archive.safetensors import save_safetensors
from weft.generation import load
from weft.generation.families import FAMILIES, described

LLAMA32 = {  # as published, of one billion parameters
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 128256,
}


def settings_of(**config):
    return described(config).settings


def test_a_published_one():
    found = settings_of(**LLAMA32)
    assert (found.shared, found.width, found.tie_word_embeddings) == (8, 64, True)
    assert found.rotation.frequencies[-1] == pytest.approx(500000 ** (-62 / 64) / 32)


def told_of(found):
    names = "num_key_value_heads head_dim max_position_embeddings rms_norm_eps rope_theta tie_word_embeddings"
    more = "attention_bias output_bias mlp_bias head_norms sliding_window"
    return tuple(getattr(found, name) for name in f"{names} {more}".split())


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("llama", (None, None, 2048, 1e-6, 1e4, False, False, None, False, False, None)),
        ("mistral", (8, None, 131072, 1e-6, 1e4, False, False, None, False, False, 4096)),
        ("qwen2", (32, None, 32768, 1e-6, 1e4, False, True, False, False, False, None)),
        ("qwen3", (32, 128, 32768, 1e-6, 1e4, False, False, None, False, True, None)),
        ("phi3", (None, None, 4096, 1e-5, 1e4, False, False, None, False, False, None)),
    ],
)
def test_what_files_leave_out(kind, told):
    assert told_of(settings_of(model_type=kind)) == told


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_null_is_what_follows_from_other_settings(kind):
    found = settings_of(model_type=kind, num_key_value_heads=None, head_dim=None, sliding_window=None, rope_theta=None)
    assert (found.shared, found.width, found.sliding_window, found.rope_theta) == (32, 128, None, 1e4)


def test_types_decide_about_biases():
    biased = {"attention_bias": True, "mlp_bias": True, "output_bias": True, "head_norms": True}
    made = {kind: told_of(settings_of(model_type=kind, **biased))[6:10] for kind in FAMILIES if kind != "gpt2"}
    assert made == {
        "llama": (True, None, True, False),
        "mistral": (False, None, False, False),
        "qwen2": (True, False, False, False),
        "qwen3": (True, None, False, True),
        "phi3": (False, None, False, False),
    }


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": 7e5, "rope_scaling": {"type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 7e5}},
        {"rope_theta": 1e4, "rope_parameters": {"type": "yarn", "factor": 4, "rope_theta": 7e5}, "rope_scaling": None},
        {"rope_theta": 7e5, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "partial_rotary_factor": 1.0},
        {
            "rope_theta": 7e5,
            "original_max_position_embeddings": 1024,
            "max_position_embeddings": 4096,
            "rope_scaling": {"rope_type": "yarn", "factor": 4},
        },
    ],
)
def test_rotations_are_said_in_several_ways(config):
    found = settings_of(model_type="llama", **{"max_position_embeddings": 1024, **config})
    wanted = settings_of(model_type="qwen2", max_position_embeddings=1024, rope_theta=7e5)
    assert found.rope_theta == 7e5
    assert found.rotation.factor == pytest.approx(1 + 0.1 * math.log(4))
    np.testing.assert_allclose(found.rotation.frequencies[0], wanted.rotation.frequencies[0])
    np.testing.assert_allclose(found.rotation.frequencies[-1], wanted.rotation.frequencies[-1] / 4)


@pytest.mark.parametrize(
    ("kind", "config", "windows"),
    [
        ("mistral", {"sliding_window": 512}, [512] * 4),
        ("phi3", {"sliding_window": 512}, [512] * 4),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 3}, [None] * 3 + [512]),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 4}, [None] * 4),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 0}, [512] * 4),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 512, "max_window_layers": 0}, [None] * 4),
        ("qwen3", {"use_sliding_window": True, "layer_types": ["full_attention"] * 4}, [None] * 4),
        (
            "qwen3",
            {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"] * 2},
            [None, 4096] * 2,
        ),
        ("llama", {"sliding_window": 64}, [64] * 4),
    ],
)
def test_windows(kind, config, windows):
    found = settings_of(model_type=kind, num_hidden_layers=4, **config)
    assert [found.window(layer) for layer in range(4)] == windows
    assert found.sliding_window == max(windows, key=lambda window: window or 0)


@pytest.mark.parametrize(
    ("config", "kind", "told"),
    [
        ({"model_type": "rwkv"}, Unsupported, "rwkv"),
        ({"model_type": ["llama"]}, InvalidType, "model_type is a list"),
        ({}, InvalidType, "model_type is None"),
        ({"quantization_config": {"quant_method": "awq"}}, Unsupported, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, Unsupported, "partial_rotary_factor"),
        ({"rope_interleaved": True}, Unsupported, "rope_interleaved"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, Unsupported, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, NotFound, "rope_type"),
        ({"rope_parameters": [1]}, InvalidType, "rope_parameters is a list"),
        ({"rope_scaling": "linear"}, InvalidType, "rope_scaling is 'linear'"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"type": "default"}},
            InvalidValue,
            "one",
        ),
        ({"original_max_position_embeddings": 8, "rope_scaling": {"type": "dynamic"}}, Unsupported, "dynamic"),
        (
            {
                "original_max_position_embeddings": 8,
                "rope_scaling": {"type": "yarn", "original_max_position_embeddings": 9},
            },
            InvalidValue,
            "is 8 and 9",
        ),
        ({"layer_types": ["chunked_attention"]}, Unsupported, "chunked_attention"),
        ({"layer_types": "full_attention"}, InvalidType, "layer_types"),
        ({"max_window_layers": "3", "sliding_window": 8}, InvalidType, "max_window_layers"),
        ({"use_sliding_window": 1, "sliding_window": 8}, InvalidType, "use_sliding_window"),
        ({"model_type": "phi3", "rope_scaling": {"type": "longrope", "long_factor": [1]}}, Unsupported, "longrope"),
        ({"model_type": "phi3", "rope_scaling": {"type": "yarn", "factor": 2}}, Unsupported, "rope_type is 'yarn'"),
        ({"model_type": "phi3", "partial_rotary_factor": 0.75}, Unsupported, "partial_rotary_factor"),
        ({"model_type": "gpt2", "n_head": 0}, InvalidValue, "n_head"),
        ({"model_type": "gpt2", "tie_word_embeddings": False}, Unsupported, "tie_word_embeddings"),
    ],
)
def test_errors_name_the_setting(config, kind, told):
    with pytest.raises(kind, match=told):
        described({"model_type": "llama", **config} if config else {})


NUMBERS = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings"
WRONG = ["8", "", [], {}, [8], -1, 0.5, math.nan, math.inf, -math.inf, 10**400, True, None, "9" * 1000]


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_numbers_that_are_none(kind):
    for name in f"{NUMBERS} num_key_value_heads head_dim sliding_window".split():
        can_be_null = name in ("num_key_value_heads", "head_dim", "sliding_window")
        for wrong in (*WRONG, 0):
            if not (wrong is None and can_be_null):
                with pytest.raises(weft.Error, match=f"{name} is"):
                    settings_of(model_type=kind, use_sliding_window=True, max_window_layers=0, **{name: wrong})
    for name in ("rms_norm_eps", "rope_theta"):
        for wrong in WRONG:
            if wrong not in (0.5, None):
                with pytest.raises(weft.Error, match=f"{name} is"):
                    settings_of(model_type=kind, **{name: wrong})


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, 2, 64, 128, 10**400]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["silu", "yarn", "linear", "llama3", "default", "full_attention"]),
)
ROPE_KEYS = "rope_type type factor rope_theta low_freq_factor high_freq_factor original_max_position_embeddings".split()
ROPE = st.dictionaries(st.sampled_from([*ROPE_KEYS, "beta_fast", "truncate", "mscale", "x"]), SCALARS, max_size=6)
VALUES = st.one_of(SCALARS, ROPE, st.lists(SCALARS, max_size=3))
KEYS = sorted({*LLAMA32, "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "rope_parameters"})


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(st.sampled_from([*KEYS, "n_head", "n_embd", "partial_rotary_factor"]), VALUES, max_size=5),
    st.none() | ROPE,
)
def test_anything_else_is_an_error_of_weft(kind, config, scaling):
    config = {**LLAMA32, **config, "model_type": kind, **({} if scaling is None else {"rope_scaling": scaling})}
    try:
        make, found, _ = described(config)
    except weft.Error:
        return
    for name in NUMBERS.split() if kind != "gpt2" else ():
        assert getattr(found, name) == config[name]
    assert all(size > 0 for shape in make.shapes(found).values() for size in shape)
    if kind != "gpt2" and found.width < 2**16:
        assert np.isfinite(found.rotation.tables(3)).all()


# Folders


SMALL = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2}


def folder_of(path, **config):
    """With parameters of a tiny network."""
    settings = {"model_type": "llama", **SMALL}
    found = described(settings)
    tensors = found.make(found.settings).state_dict()
    save_safetensors({f"model.{name}": value for name, value in tensors.items()}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({**settings, **config}))
    return path, tensors


@pytest.mark.parametrize("name", [*SMALL, "num_key_value_heads", "head_dim"])
@pytest.mark.parametrize("size", [10, 2**31 - 2, 2**31 - 1])
def test_sizes_are_those_of_the_files(tmp_path, name, size):
    """Which is seen before memory is asked for."""
    path, _ = folder_of(tmp_path, **{name: size})
    with pytest.raises(weft.Error, match=r"config\.json says|columns|share"):
        load(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "no JSON object"),
        ("{", "no JSON"),
        ("[" * 100000, "no JSON"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "no JSON"),
        ('{"model_type": "llama", "rms_norm_eps": NaN}', r"rms_norm_eps is nan\n  where: .*config\.json"),
        ('{"model_type": "llama", "hidden_size": 1e999}', "hidden_size is inf"),
    ],
)
def test_files_that_make_no_sense(tmp_path, text, told):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(weft.Error, match=told):
        load(tmp_path)


def test_files_that_cannot_be_read(tmp_path):
    path, _ = folder_of(tmp_path)
    (path / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(FormatError, match="no JSON"):
        load(path)
    (path / "config.json").unlink()
    (path / "config.json").mkdir()
    with pytest.raises(NotFound, match="cannot be read"):
        load(path)


@pytest.mark.parametrize(
    ("index", "told"),
    [
        ([], "no JSON object"),
        ({}, "weight_map"),
        ({"weight_map": [1]}, "weight_map"),
        ({"weight_map": {"a": 3}}, "'3'"),
    ],
)
def test_indices_that_make_no_sense(tmp_path, index, told):
    path, _ = folder_of(tmp_path)
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(weft.Error, match=told):
        load(path)


def test_parameters_that_do_not_fit(tmp_path):
    path, tensors = folder_of(tmp_path)
    save = lambda **changed: save_safetensors({**tensors, **changed}, path / "model.safetensors")
    save(**{"norm.weight": weft.ones(4)})
    with pytest.raises(FormatError, match=r"norm\.weight.*\(4,\)"):
        load(path)
    save(**{"norm.weight": weft.ones(8, dtype=weft.int8)})
    with pytest.raises(FormatError, match="int8"):
        load(path)
    save(**{"layers.0.self_attn.q_proj.bias": weft.ones(8)})
    with pytest.raises(FormatError, match=r"q_proj\.bias"):
        load(path)
    save()
    (path / "config.json").write_text(json.dumps({"model_type": "llama", **SMALL, "tie_word_embeddings": True}))
    with pytest.raises(FormatError, match="is not the table of tokens"):
        load(path)
    save(**{"lm_head.weight": tensors["embed_tokens.weight"]})
    assert load(path).settings.tie_word_embeddings

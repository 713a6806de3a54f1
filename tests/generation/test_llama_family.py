"""Networks that are shaped like Llama, with biases, norms of heads, other activations and scaled rotations: modules and
steps give the scores that PyTorch computes in float64 for the whole sequence."""

import json

import numpy as np
import pytest

import weft
from weft.base.errors import InvalidType, InvalidValue, Unsupported
from weft.eager.archive.safetensors import save_safetensors
from weft.generation import Generator, load

torch = pytest.importorskip("torch")
from generation.test_generator import llama, parameters, scores_of_levels, stepped_scores, tokens_of, wanted_scores  # noqa: E402

LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 18}
LINEAR = {"type": "linear", "factor": 2.5}
NETWORKS = {
    "llama": {"attention_bias": True, "mlp_bias": True, "rope_scaling": LLAMA3, "rope_theta": 90.0},
    "qwen2": {"attention_bias": True, "output_bias": False, "rope_scaling": LINEAR, "tie_word_embeddings": True},
    "qwen3": {"head_norms": True, "head_dim": 12, "rope_scaling": YARN},
    "all": {"attention_bias": True, "mlp_bias": True, "head_norms": True, "hidden_act": "gelu", "rope_scaling": YARN},
    "others": {"hidden_act": "gelu_pytorch_tanh", "output_bias": True, "num_key_value_heads": None},
    "rectified": {"hidden_act": "relu"},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_modules(name):
    model, tokens = llama(**NETWORKS[name]), tokens_of(60)
    with weft.no_grad():
        found = model(weft.tensor([tokens, tokens[::-1]])).numpy()
    for row, read in enumerate((tokens, tokens[::-1])):
        np.testing.assert_allclose(found[row], wanted_scores(model, read), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_steps(name):
    """A prompt of more than is read at once, and tokens one by one."""
    model, tokens = llama(**NETWORKS[name]), tokens_of(45)
    found = stepped_scores(Generator(model), tokens, 39)
    np.testing.assert_allclose(found, wanted_scores(model, tokens)[38:], rtol=1e-4, atol=1e-4)


def test_weights_of_bfloat16():
    """Biases and norms stay as they are."""
    model, tokens = llama(hidden_size=80, intermediate_size=102, **NETWORKS["all"]), tokens_of(36)
    wanted = wanted_scores(model, tokens)[33:]
    found = stepped_scores(Generator(model, "bf16"), tokens, 34)
    assert 1e-5 < np.abs(found - wanted).max() / np.abs(wanted).max() < 0.03


@pytest.mark.parametrize(("weights", "bits"), [("int8", 8), ("int4", 4)])
def test_levels(weights, bits):
    model, tokens = llama(**NETWORKS["all"]), tokens_of(36)
    wanted = scores_of_levels(model, tokens, bits)[33:]
    found = stepped_scores(Generator(model, weights, group=16), tokens, 34)
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(found / largest, wanted / largest, rtol=0, atol=5e-4)


def test_all_parts_count():
    """What is compared above changes if one of them does."""
    model, tokens = llama(**NETWORKS["all"]), tokens_of(9)
    plain = wanted_scores(model, tokens)
    for part in ("q_proj.bias", "o_proj.bias", "down_proj.bias", "gate_proj.bias", "k_norm.weight"):
        params = parameters(model)
        params |= {name: value + 0.1 for name, value in params.items() if name.endswith(part)}
        assert np.abs(wanted_scores(model, tokens, params) - plain).max() > 1e-3, part


@pytest.mark.parametrize("scaling", [LLAMA3, YARN, LINEAR])
def test_scaling_counts(scaling):
    plain, scaled = (llama(rope_scaling=given, rope_theta=90.0) for given in (None, scaling))
    tokens = tokens_of(30)
    assert np.abs(wanted_scores(plain, tokens) - wanted_scores(scaled, tokens)).max() > 1e-2


@pytest.mark.parametrize(
    ("settings", "kind", "told"),
    [
        ({"hidden_act": "mish"}, Unsupported, "hidden_act is 'mish'"),
        ({"hidden_act": 1}, InvalidType, "hidden_act is 1"),
        ({"hidden_size": 42}, InvalidValue, "42 columns for 4 heads"),
        ({"head_dim": 7}, InvalidValue, "7 columns"),
        ({"head_dim": 2**30}, InvalidValue, "1073741824 columns"),
        ({"num_key_value_heads": 8}, InvalidValue, "share"),
        ({"num_key_value_heads": 0}, InvalidValue, "num_key_value_heads is 0"),
        ({"vocab_size": "67"}, InvalidType, "vocab_size is '67'"),
        ({"num_hidden_layers": 10**400}, InvalidValue, "huge"),
        ({"rms_norm_eps": float("nan")}, InvalidValue, "rms_norm_eps is nan"),
        ({"rms_norm_eps": -1e-6}, InvalidValue, "rms_norm_eps"),
        ({"mlp_bias": None}, InvalidType, "mlp_bias is None"),
        ({"sliding_window": -1}, InvalidValue, "sliding_window"),
        ({"layer_types": ("full_attention",)}, InvalidValue, "layer_types has 1 for 2 layers"),
        ({"layer_types": ("full_attention", "chunked_attention")}, Unsupported, "chunked_attention"),
    ],
)
def test_settings_that_are_wrong(settings, kind, told):
    with pytest.raises(kind, match=told):
        llama(**settings)


# Folders


PUBLISHED = {
    "llama": {"attention_bias": True, "mlp_bias": True, "rope_scaling": LLAMA3, "rope_theta": 90.0},
    "mistral": {"sliding_window": None, "head_dim": 12, "rope_theta": 1e6},
    "qwen2": {"rope_scaling": LINEAR, "use_sliding_window": False, "sliding_window": 4, "tie_word_embeddings": True},
    "qwen3": {"head_dim": 12, "attention_bias": False, "rope_parameters": {**YARN, "rope_theta": 90.0}},
    "phi3": {"sliding_window": 40, "original_max_position_embeddings": 70, "rope_scaling": None, "rms_norm_eps": 1e-6},
}
ALIKE = {  # the same networks
    "llama": PUBLISHED["llama"],
    "mistral": {"head_dim": 12, "rope_theta": 1e6},
    "qwen2": NETWORKS["qwen2"],
    "qwen3": {**NETWORKS["qwen3"], "rope_theta": 90.0},
    "phi3": {},
}
JOINED = {"self_attn.qkv_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]}
JOINED["mlp.gate_up_proj"] = ["mlp.gate_proj", "mlp.up_proj"]


@pytest.mark.parametrize(
    ("kind", "dtype", "files"),
    [
        ("llama", "bfloat16", 2),
        ("mistral", "float16", 1),
        ("qwen2", "bfloat16", 1),
        ("qwen3", "float16", 3),
        ("phi3", "bfloat16", 2),
    ],
)
def test_folders_as_they_are_published(kind, dtype, files, tmp_path):
    """In 16 bits, in one file or in several with an index."""
    model, tokens = llama(**ALIKE[kind]), tokens_of(20)
    state = {
        name if name == "lm_head.weight" else f"model.{name}": value.to(getattr(weft, dtype))
        for name, value in model.state_dict().items()
    }
    if kind == "phi3":
        for at in (f"model.layers.{number}." for number in range(model.settings.num_hidden_layers)):
            for name, parts in JOINED.items():
                state[f"{at}{name}.weight"] = weft.cat([state.pop(f"{at}{part}.weight") for part in parts])
    names = [f"model-{number + 1:05}-of-{files:05}.safetensors" for number in range(files)]
    if files == 1:
        names = ["model.safetensors"]
    else:
        index = {"metadata": {}, "weight_map": {name: names[at % files] for at, name in enumerate(state)}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for number, file in enumerate(names):
        save_safetensors({name: state[name] for name in list(state)[number::files]}, tmp_path / file)
    sizes = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads"
    given = {name: getattr(model.settings, name) for name in f"{sizes} max_position_embeddings".split()}
    config = {"model_type": kind, "torch_dtype": dtype, **given, **PUBLISHED[kind]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = load(tmp_path)
    rounded = {name: value.to(getattr(torch, dtype)).double() for name, value in parameters(model).items()}
    wanted = wanted_scores(model, tokens, rounded)
    assert np.abs(wanted - wanted_scores(model, tokens)).max() > 1e-4
    with weft.no_grad():
        np.testing.assert_allclose(found(weft.tensor(tokens)).numpy(), wanted, rtol=1e-4, atol=1e-4)

"""Which decoder a config.json describes: its values come in; a class of modules, settings for it, and which parameters
its files have as one go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from ..base.errors import InvalidType, InvalidValue, Unsupported
from .gpt2 import GPT2, GPT2Settings
from .llama import LAYER_TYPES, SLIDING, Llama, LlamaSettings
from .rotation import scaling_type
from .setting_values import flag, one_of, told, whole

Config = Mapping[str, Any]


class Family(NamedTuple):
    """Networks of a type."""

    make: Any
    settings: Any
    absent: dict[str, Any]  # settings that files may leave out, where they are not the class's own
    fixed: dict[str, Any]  # settings that follow from the type, whatever files say
    only: dict[str, tuple[Any, ...]]  # settings that change what is computed, and the values that are computed here
    joined: dict[str, tuple[str, ...]] = {}  # parameters that files have as one, by its name


GPT2_ONLY = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "tie_word_embeddings": (True,),
    "add_cross_attention": (False,),
    "quantization_config": (None,),
}
LLAMA_ONLY = {"partial_rotary_factor": (None, 1), "rope_interleaved": (None, False), "quantization_config": (None,)}
LLAMA: dict[str, Any] = {"output_bias": None, "head_norms": False}
MISTRAL = {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}
QWEN = {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
PHI3 = {
    "vocab_size": 32064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}
PHI3_JOINED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
NO_BIAS = {"attention_bias": False, "mlp_bias": False}

FAMILIES = {
    "gpt2": Family(GPT2, GPT2Settings, {}, {}, GPT2_ONLY),
    "llama": Family(Llama, LlamaSettings, {}, LLAMA, LLAMA_ONLY),
    "mistral": Family(Llama, LlamaSettings, MISTRAL, {**LLAMA, **NO_BIAS}, LLAMA_ONLY),
    "qwen2": Family(
        Llama, LlamaSettings, QWEN, {**LLAMA, **NO_BIAS, "attention_bias": True, "output_bias": False}, LLAMA_ONLY
    ),
    "qwen3": Family(
        Llama, LlamaSettings, {**QWEN, "head_dim": 128}, {**LLAMA, "mlp_bias": False, "head_norms": True}, LLAMA_ONLY
    ),
    "phi3": Family(
        Llama, LlamaSettings, PHI3, {**LLAMA, **NO_BIAS}, {**LLAMA_ONLY, "rope_type": ("default",)}, PHI3_JOINED
    ),
}


class Described(NamedTuple):
    """A class of modules, settings for it, and parameters that files have as one."""

    make: Any
    settings: Any
    joined: dict[str, tuple[str, ...]]


def described(config: Config) -> Described:
    """What a config.json says.

    >>> found = described({"model_type": "qwen2", "num_hidden_layers": 24, "rope_theta": 1000000.0})
    >>> found.make.__name__, found.settings.num_hidden_layers, found.settings.attention_bias
    ('Llama', 24, True)
    """
    family = FAMILIES[one_of("model_type", config.get("model_type"), FAMILIES)]
    given = {**family.absent, **config}
    if family.make is Llama:
        given |= {**_rotation(given), **_windows(given)}
    known = {field.name for field in fields(family.settings)}
    plain = {name: value for name, value in {**given, **family.fixed}.items() if name in known}
    settings = family.settings(**plain)
    for name, allowed in family.only.items():
        if name in given and given[name] not in allowed:
            raise Unsupported(f"{name} is {told(given[name])}", why=f"computed for {allowed} only")
    return Described(family.make, settings, family.joined)


def _rotation(config: Config) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling`, which newer files have in `rope_parameters`, and a part of it beside them."""
    old, new = config.get("rope_scaling") or {}, config.get("rope_parameters") or {}
    for name, value in (("rope_scaling", old), ("rope_parameters", new)):
        if not isinstance(value, dict):
            raise InvalidType(f"{name} is {told(value)}", why="it has settings by name")
    if old and new and old != new:
        raise InvalidValue("rope_scaling and rope_parameters say different things", hint="one of them")
    scaling = {name: value for name, value in (new or old).items() if value is not None}
    theta = scaling.pop("rope_theta", config.get("rope_theta"))
    if scaling.pop("partial_rotary_factor", None) not in (None, 1):
        raise Unsupported("a part of each head is rotated", why="partial_rotary_factor is computed for 1 only")
    kind, name = scaling_type(scaling), "original_max_position_embeddings"
    original = config.get(name)
    if kind != "default" and original is not None and scaling.setdefault(name, original) != original:
        raise InvalidValue(f"{name} is {told(original)} and {told(scaling[name])}", hint="one of them")
    return {
        "rope_type": kind,
        "rope_scaling": scaling or None,
        "rope_theta": LlamaSettings.rope_theta if theta is None else theta,
    }


def _windows(config: Config) -> dict[str, Any]:
    """How many tokens a token sees in some layers, if not all, and which layers those are: all where nothing is said of
    layers."""
    window, kinds, first = (config.get(name) for name in ("sliding_window", "layer_types", "max_window_layers"))
    if kinds is not None and not isinstance(kinds, list):
        raise InvalidType(f"layer_types is {told(kinds)}", why="it has a type for each layer")
    for kind in kinds or []:
        one_of("a type of layer_types", kind, LAYER_TYPES)
    settings: dict[str, Any] = dict.fromkeys(("sliding_window", "layer_types", "max_window_layers"))
    if window is None or not flag("use_sliding_window", config.get("use_sliding_window", True)):
        return settings
    settings["sliding_window"] = whole("sliding_window", window)
    if first is None:
        return settings
    if kinds:
        return {**settings, "layer_types": tuple(kinds)} if SLIDING in kinds else dict.fromkeys(settings)
    if first == 0 and not isinstance(first, bool):
        return settings
    layers = whole("num_hidden_layers", config.get("num_hidden_layers", LlamaSettings.num_hidden_layers))
    if whole("max_window_layers", first) >= layers:
        return dict.fromkeys(settings)
    return {**settings, "max_window_layers": first}

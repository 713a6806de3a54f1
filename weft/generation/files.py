"""Decoders from folders as they are published: config.json, and parameters in safetensors files."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..base.errors import FormatError, NotFound, Unsupported
from ..eager.archive.safetensors import load_safetensors
from ..eager.tensor.tensor import Tensor
from ..eager.torch_core.public_names import NAMES
from .gpt2 import GPT2, GPT2Settings
from .llama import Llama, LlamaSettings

MODELS: dict[str, tuple[Any, Any]] = {"gpt2": (GPT2, GPT2Settings), "llama": (Llama, LlamaSettings)}
UNUSED = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")  # buffers that files may have
# Settings that change what a network computes, and the only values of them that are computed here.
ONLY: dict[str, dict[str, tuple[Any, ...]]] = {
    "gpt2": {"activation_function": ("gelu_new", "gelu_pytorch_tanh"), "scale_attn_by_inverse_layer_idx": (False,)},
    "llama": {"hidden_act": ("silu",), "rope_scaling": (None,), "attention_bias": (False,), "mlp_bias": (False,)},
}


def load(folder: str | os.PathLike[str]) -> Any:
    """The decoder of a folder with a config.json and model.safetensors, or several such files with an index."""
    path = Path(folder)
    config = _json(path / "config.json")
    kind = config.get("model_type")
    if kind not in MODELS:
        raise Unsupported(f"a model of type {kind!r}", where=str(path), why="there are " + ", ".join(MODELS))
    for name, allowed in ONLY[kind].items():
        if config.get(name, allowed[0]) not in allowed:
            raise Unsupported(f"{name} {config[name]!r}", where=str(path), why=f"computed for {allowed} only")
    make, settings = MODELS[kind]
    known = {field.name for field in fields(settings)}
    model: Any = make(settings(**{name: value for name, value in config.items() if name in known}))
    _fill(model, _tensors(path), path)
    return model


def _json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text())
    except FileNotFoundError:
        raise NotFound(f"no file {path.name!r}", where=str(path.parent)) from None
    except ValueError as error:
        raise FormatError(f"{path.name} is no JSON", where=str(path), why=str(error)) from None
    if not isinstance(read, dict):
        raise FormatError(f"{path.name} is no JSON object", where=str(path))
    return read


def _tensors(folder: Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        files = _json(index).get("weight_map", {})
        names = sorted({Path(str(name)).name for name in files.values()})  # inside the folder, whatever they say
    tensors: dict[str, Tensor] = {}
    for name in names:
        if not (folder / name).exists():
            raise NotFound(f"no file {name!r}", where=str(folder), why="parameters are in safetensors files")
        tensors |= load_safetensors(folder / name)
    return tensors


def _fill(model: Any, tensors: dict[str, Tensor], where: Path) -> None:
    """Puts tensors into the parameters of their names, as float32."""
    own = model.state_dict()
    given = {}
    for name, value in tensors.items():
        plain = name.removeprefix(model.PREFIX)
        if plain in own:
            given[plain] = value.to(NAMES["float32"])
        elif plain != "lm_head.weight" and not plain.endswith(UNUSED):
            raise FormatError(f"no parameter for {name!r}", where=str(where), why=f"{type(model).__name__} has none")
    missing = sorted(own.keys() - given.keys())
    if missing:
        raise NotFound(f"{len(missing)} parameters are not in the files: {', '.join(missing[:5])}", where=str(where))
    model.load_state_dict(given)

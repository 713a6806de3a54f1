"""Decoders from folders as they are published: config.json, and parameters in safetensors files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import Error, FormatError, NotFound
from ..eager.archive.safetensors import load_safetensors
from ..eager.tensor.memory import array_of
from ..eager.tensor.tensor import Tensor
from ..nn.init import unfilled
from .families import described

UNUSED = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")  # buffers that files may have
SCORES = "lm_head.weight"  # which files may have where it is the table of tokens


def load(folder: str | os.PathLike[str]) -> Any:
    """The decoder of a folder with a config.json and model.safetensors, or several such files with an index."""
    path = Path(folder)
    config = _json(path / "config.json")
    try:
        found = described(config)
    except Error as error:
        raise error.at(str(path / "config.json")) from None
    tensors = {name.removeprefix(found.make.PREFIX): value for name, value in _tensors(path).items()}
    for name, parts in found.joined.items():
        _part(tensors, name, {part: found.settings.rows[part] for part in parts}, path)
    _check_sizes(found.make.shapes(found.settings), tensors, path)
    with unfilled():  # all is in the files
        model: Any = found.make(found.settings)
    _fill(model, tensors, path)
    return model


def _json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(f"no file {path.name!r}", where=str(path.parent)) from None
    except OSError as error:
        raise NotFound(f"{path.name} cannot be read", where=str(path), why=str(error)) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path.name} is no JSON", where=str(path), why=str(error)) from None
    if not isinstance(read, dict):
        raise FormatError(f"{path.name} is no JSON object", where=str(path))
    return read


def _tensors(folder: Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        files = _json(index).get("weight_map")
        if not isinstance(files, dict):
            raise FormatError("weight_map is no JSON object", where=str(index), why="it has a file for each parameter")
        names = sorted({Path(str(name)).name for name in files.values()})  # inside the folder, whatever they say
    tensors: dict[str, Tensor] = {}
    for name in names:
        if not (folder / name).is_file():
            raise NotFound(f"no file {name!r}", where=str(folder), why="parameters are in safetensors files")
        tensors |= load_safetensors(folder / name)
    return tensors


def _part(tensors: dict[str, Tensor], joined: str, rows: Mapping[str, int], where: Path) -> None:
    """Puts parameters of so many rows each in the place of those that are joined, of all blocks."""
    for name in [name for name in tensors if name.endswith(f"{joined}.weight")]:
        value = tensors.pop(name)
        if value.ndim != 2 or value.shape[0] != sum(rows.values()):
            told, count = f"{name!r} is of shape {tuple(value.shape)}", sum(rows.values())
            raise FormatError(told, where=str(where), why=f"config.json says {count} rows")
        for part, piece in zip(rows, value.split(list(rows.values()))):
            tensors[name.replace(joined, part)] = piece


def _check_sizes(shapes: Mapping[str, tuple[int, int]], tensors: Mapping[str, Tensor], where: Path) -> None:
    """Sizes are those of what files have before memory is asked for."""
    for name, shape in shapes.items():
        if name not in tensors:
            raise NotFound(f"no parameter {name!r} in the files", where=str(where), why="config.json says there is one")
        found = tuple(tensors[name].shape)
        if found != shape:
            raise FormatError(f"{name!r} is of shape {found}", where=str(where), why=f"config.json says {shape}")


def _fill(model: Any, tensors: dict[str, Tensor], where: Path) -> None:
    """Moves tensors into the parameters of their names, as float32."""
    own = model.state_dict()
    for name, value in tensors.items():
        if name == SCORES and name not in own:
            _check_tied(value, tensors[model.TABLE], where)
        elif name not in own and not name.endswith(UNUSED):
            raise FormatError(f"no parameter for {name!r}", where=str(where), why=f"{type(model).__name__} has none")
    missing = sorted(own.keys() - tensors.keys())
    if missing:
        raise NotFound(f"{len(missing)} parameters are not in the files: {', '.join(missing[:5])}", where=str(where))
    for name, parameter in own.items():
        found, wanted = tensors[name], tuple(parameter.shape)
        if tuple(found.shape) != wanted or not found.is_floating_point():
            told = f"{name!r} is of shape {tuple(found.shape)} and {found.dtype.name}"
            raise FormatError(told, where=str(where), why=f"the network's is of shape {wanted} and floats")
    for name, parameter in own.items():
        parameter.copy_(tensors.pop(name))


def _check_tied(scores: Tensor, table: Tensor, where: Path) -> None:
    """A matrix of scores beside a network without one is the table of tokens."""
    if not np.array_equal(array_of(scores), array_of(table)):
        raise FormatError(
            f"{SCORES!r} is not the table of tokens", where=str(where), why="tie_word_embeddings says that it is"
        )

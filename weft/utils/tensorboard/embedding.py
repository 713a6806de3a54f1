"""Files of points that TensorBoard's projector shows: their coordinates, labels and pictures."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import InvalidValue
from .pictures import pixels, png

Array = NDArray[Any]


def write_embedding(
    log_dir: str,
    points: Array,
    labels: Sequence[Any] | None,
    pictures: Array | None,
    step: int,
    tag: str,
    header: Sequence[str] | None,
) -> str:
    """Writes points (count, size) to a folder of their own; gives their part of the projector's settings."""
    if points.ndim != 2:
        raise InvalidValue(f"points of shape {points.shape}", why="mat should be 2D: a row for each point")
    for what, given in (("labels", labels), ("pictures", pictures)):
        if given is not None and len(given) != len(points):
            raise InvalidValue(f"{len(given)} {what} of {len(points)} points")
    folder = f"{step:05d}/{_file_name(tag)}"
    os.makedirs(os.path.join(log_dir, folder), exist_ok=True)
    settings = [f"  tensor_name: {json.dumps(f'{tag}:{step:05d}')}"]
    if labels is not None:
        if header and any(len(row) != len(header) for row in labels):
            raise InvalidValue("labels have as many columns as their header", why=f"which has {len(header)}")
        rows = [header, *labels] if header else [[label] for label in labels]
        _write(log_dir, f"{folder}/metadata.tsv", _table(rows).encode())
        settings.append(f"  metadata_path: {json.dumps(f'{folder}/metadata.tsv')}")
    if pictures is not None:
        _, _, height, width = pictures.shape
        _write(log_dir, f"{folder}/sprite.png", png(_sprite(pictures)))
        sprite = f"    image_path: {json.dumps(f'{folder}/sprite.png')}"
        settings += ["  sprite {", sprite, f"    single_image_dim: {width}", f"    single_image_dim: {height}", "  }"]
    _write(log_dir, f"{folder}/tensors.tsv", _table(points.tolist()).encode())
    settings.append(f"  tensor_path: {json.dumps(f'{folder}/tensors.tsv')}")
    return "\n".join(["embeddings {", *settings, "}\n"])


def write_settings(log_dir: str, embeddings: Sequence[str]) -> None:
    """Writes the projector's settings: what it finds where."""
    _write(log_dir, "projector_config.pbtxt", "".join(embeddings).encode())


def _sprite(pictures: Array) -> NDArray[np.uint8]:
    """All pictures in a square of as many rows as columns, in colours."""
    columns = math.ceil(len(pictures) ** 0.5)
    page = pixels(pictures, "NCHW", columns)
    page = np.repeat(page, 3, axis=2) if page.shape[2] == 1 else page
    square = np.zeros((columns * pictures.shape[2], *page.shape[1:]), np.uint8)
    square[: len(page)] = page
    return square


def _table(rows: Sequence[Sequence[Any]]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def _file_name(tag: str) -> str:
    """A tag as the name of a folder: what parts paths is written as its number."""
    return tag.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")


def _write(log_dir: str, name: str, content: bytes) -> None:
    with open(os.path.join(log_dir, name), "wb") as file:
        file.write(content)

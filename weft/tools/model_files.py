"""The files that commands are given: a model, maybe with its parameters beside it, is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import frontend
from ..base.errors import FormatError, NotFound
from ..base.param_dict import LIST_MAGIC, load_param_dict
from ..base.shape import Dim
from ..core.json_load import graph_from_json
from ..core.symbol import Symbol
from ..frontend.files import from_file


def read_model(
    path: Path, params: Path | None, shapes: Mapping[str, Sequence[Dim]]
) -> tuple[Symbol, Mapping[str, Any]]:
    """A model file, or a graph with parameters of MXNet's or of weft's own format beside it."""
    if params is None:
        return from_file(path, shapes)
    for file in (path, params):
        if not file.is_file():
            raise NotFound(f"there is no file {file}")
    data = params.read_bytes()
    if data[:8] == LIST_MAGIC.to_bytes(8, "little"):
        return _own_graph(path), load_param_dict(data)
    model: tuple[Symbol, Mapping[str, Any]] = frontend.from_mxnet(path, params, shape=shapes)
    return model


def _own_graph(path: Path) -> Symbol:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"cannot read {path}", why=str(error)) from None
    return Symbol(graph_from_json(text).outputs)

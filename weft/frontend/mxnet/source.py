"""Where a model comes from: paths, JSON, or live objects of MXNet come in; a graph and its arrays
go out."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import FormatError, InvalidType, NotFound, Unsupported
from ..reading import read_bytes
from .params_file import SparseArray, read_params
from .symbol_file import SymbolFile, read_symbol, text_of_symbol

Arrays = Mapping[str, np.ndarray]
_SUFFIX = "-symbol.json"


class MxnetModel(NamedTuple):
    """A graph and the values of its variables, as far as they are known."""

    graph: SymbolFile
    arrays: Arrays


def read_model(symbol: object, arg_params: object, aux_params: object) -> MxnetModel:
    """The model that the arguments of from_mxnet mean."""
    path = _path(symbol)
    if path is not None:
        graph = _graph(read_bytes(path, "symbol file"), str(path))
        if arg_params is None and aux_params is None:
            arg_params = newest_params(path)
        return MxnetModel(graph, _arrays(arg_params, aux_params))
    if hasattr(symbol, "collect_params"):
        symbol, params = _block(symbol)
        arg_params = params if arg_params is None else arg_params
    graph = _graph(text_of_symbol(symbol), "symbol")
    return MxnetModel(graph, _arrays(arg_params, aux_params))


def _graph(text: Any, where: str) -> SymbolFile:
    try:
        return read_symbol(text)
    except FormatError as error:
        error.at(where)
        raise


def _path(symbol: object) -> Path | None:
    if isinstance(symbol, os.PathLike):
        return Path(symbol)
    if isinstance(symbol, str) and not symbol.lstrip().startswith("{"):
        return Path(symbol)
    return None


def newest_params(path: Path) -> Path:
    """PREFIX-NNNN.params with the highest number, beside PREFIX-symbol.json."""
    prefix = path.name.removesuffix(_SUFFIX)
    pattern = re.compile(re.escape(prefix) + r"-(\d{4,})\.params")
    numbered = [
        (int(match[1]), beside)
        for beside in path.parent.iterdir()
        if (match := pattern.fullmatch(beside.name)) is not None
    ]
    if not numbered or not path.name.endswith(_SUFFIX):
        raise NotFound(
            f"there is no parameter file {prefix}-NNNN.params beside {str(path)!r}",
            hint="from_mxnet(path, params_path), or --params on the command line; {} for a model without any",
        )
    return max(numbered)[1]


# Arrays, by the names of variables.


def _arrays(arg_params: object, aux_params: object) -> Arrays:
    arrays: dict[str, np.ndarray] = {}
    for kind, params in (("arg", arg_params), ("aux", aux_params)):
        for name, value in _named(params, kind).items():
            arrays[name.removeprefix("arg:").removeprefix("aux:")] = _dense(value, name)
    return arrays


def _named(params: object, kind: str) -> Mapping[str, Any]:
    if params is None:
        return {}
    if isinstance(params, (str, bytes, os.PathLike)):
        return read_params(params)
    items = getattr(params, "items", None)  # a dict, or gluon's ParameterDict
    if not callable(items):
        raise InvalidType(f"{kind}_params is a path or a mapping, not {type(params).__name__}")
    return dict(items())


def _dense(value: Any, name: str) -> np.ndarray:
    """A numpy array of one of ours, of MXNet's, or of a gluon parameter."""
    if isinstance(value, SparseArray):
        return value.dense()
    if hasattr(value, "list_data"):
        value = value.list_data()[0]
    if hasattr(value, "asnumpy"):
        value = value.asnumpy()
    elif hasattr(value, "numpy"):
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype == object:
        raise InvalidType(f"parameter {name!r} is a {type(value).__name__}, not an array")
    return array


def _block(block: Any) -> tuple[Any, Mapping[str, Any]]:
    """The symbol and parameters of a HybridBlock that has run once."""
    graph = getattr(block, "_cached_graph", None)
    if not graph:
        raise Unsupported(
            f"the block {type(block).__name__} has no graph yet",
            hint="call block.hybridize() and run it once, or use block.export(prefix)",
        )
    params = block.collect_params()
    return graph[1], {param.name: param for param in params.values()}

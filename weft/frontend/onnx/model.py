"""Reads an ONNX model: a path, bytes or ModelProto comes in; a checked Model goes out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from google.protobuf.message import DecodeError

from ...base.errors import FormatError, InvalidType, NotFound
from ...base.ndarray import NDArray
from ..reading import read_bytes
from .functions import inlined, plain_domain, subgraphs_of
from .large import read_without_large
from .restated import OWN, OWN_VERSION, restated
from .tensors import Folder

_LARGEST_FILE = 1 << 31  # protobuf reads no more


class Model(NamedTuple):
    """A model whose names are known to fit together."""

    graph: onnx.GraphProto
    opsets: dict[str, int]
    folder: Folder | None
    large: dict[int, NDArray]  # bytes of initialisers that are not in the graph, by position
    metadata: dict[str, Any]  # what the file says of itself


def read_model(source: object, links: bool = False) -> Model:
    """The model, after a check of its structure; `links`: whether external data may be links."""
    proto, path, large = _load(source)
    if not proto.HasField("graph"):
        raise FormatError("the model has no graph", why="the file is empty or not an ONNX model")
    _check_text(proto)
    metadata = _metadata(proto)
    proto = inlined(proto)
    proto = restated(proto)
    opsets = {OWN: OWN_VERSION, **{plain_domain(item.domain): item.version for item in proto.opset_import}}
    _check_names(proto.graph)
    return Model(proto.graph, opsets, None if path is None else Folder(path.parent, links), large, metadata)


def _load(source: object) -> tuple[onnx.ModelProto, Path | None, dict[int, NDArray]]:
    if isinstance(source, onnx.ModelProto):
        return source, None, {}
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(bytes(source), "bytes"), None, {}
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.is_file():
            raise NotFound(f"there is no model file {str(path)!r}")
        cut = read_without_large(path)
        if cut is not None:
            return _parse(cut.data, str(path)), path, cut.tensors
        _check_size(path)
        return _parse(read_bytes(path, "model file"), str(path)), path, {}
    raise InvalidType(f"from_onnx takes a path, bytes or a ModelProto, not {type(source).__name__}")


def _check_size(path: Path) -> None:
    if path.stat().st_size >= _LARGEST_FILE:
        raise FormatError(
            f"{str(path)!r} is larger than 2 GiB, and not because of its weights",
            why="protobuf reads no more in one go",
            hint="keep weights as raw bytes, or in external data",
        )


def _metadata(proto: onnx.ModelProto) -> dict[str, Any]:
    texts = {
        "producer": proto.producer_name,
        "producer_version": proto.producer_version,
        "domain": proto.domain,
        "doc": proto.doc_string,
        "graph": proto.graph.name,
    }
    numbers = {"ir_version": proto.ir_version, "model_version": proto.model_version}
    opsets = {item.domain or "ai.onnx": item.version for item in proto.opset_import}
    properties = {_plain(item.key): _plain(item.value) for item in proto.metadata_props}
    return {**{key: _plain(text) for key, text in texts.items()}, **numbers, "opsets": opsets, "properties": properties}


def _plain(text: str | bytes) -> str:
    """Text that is not UTF-8 comes out of protobuf as bytes."""
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    try:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise FormatError("this is not an ONNX model", where=where, why="it is truncated, or another format") from None
    return proto


def node_label(node: onnx.NodeProto, position: int) -> str:
    """How errors call a node."""
    name = node.name or next(iter(filter(None, node.output)), "")
    return f"node {name!r} ({node.op_type})" if name else f"node {position} ({node.op_type})"


def node_domain(node: onnx.NodeProto) -> str:
    return plain_domain(node.domain)


def _check_text(proto: onnx.ModelProto) -> None:
    """Text that is not UTF-8 comes out of protobuf as bytes."""
    graph = proto.graph
    texts = [item.domain for item in proto.opset_import]
    for items in (graph.input, graph.output, graph.initializer):
        texts += [item.name for item in items]
    nodes = [*graph.node]
    for function in proto.functions:
        texts += [function.name, function.domain, *function.input, *function.output]
        nodes += function.node
    for node in nodes:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        texts += [attribute.name for attribute in node.attribute]
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        raise FormatError(f"the name {wrong[:80]!r} is not UTF-8 text")


def _check_names(graph: onnx.GraphProto) -> None:
    """Every name is made once, and before it is read."""
    known = {""}
    _add_all(known, (item.name for item in graph.input), "graph input")
    names = [*(item.name for item in graph.initializer), *(item.values.name for item in graph.sparse_initializer)]
    stored = set(names)
    if len(stored) != len(names):
        raise FormatError("two initialisers have the same name")
    known |= stored
    later = {name for node in graph.node for name in node.output}
    for position, node in enumerate(graph.node):
        where = node_label(node, position)
        for name in node.input:
            if name not in known:
                raise _missing(name, later, where)
        _add_all(known, filter(None, node.output), where)
    _check_subgraphs(graph)
    if not graph.output:
        raise FormatError("the graph has no outputs")
    for item in graph.output:
        if item.name not in known or not item.name:
            raise FormatError(f"no node makes the graph output {item.name!r}")


def _check_subgraphs(graph: onnx.GraphProto) -> None:
    """A subgraph, too, makes every name once; what it reads is looked up as its nodes are converted."""
    pending = [inner for node in graph.node for inner in subgraphs_of(node)]
    while pending:
        inner = pending.pop()
        own: set[str] = set()
        _add_all(own, (item.name for item in inner.input), "input of a subgraph")
        for position, node in enumerate(inner.node):
            _add_all(own, filter(None, node.output), node_label(node, position))
            pending += subgraphs_of(node)


def _add_all(known: set[str], names: Iterable[str], where: str) -> None:
    for name in names:
        if name in known:
            raise FormatError(f"the name {name!r} is made twice", where=where)
        known.add(name)


def _missing(name: str, later: set[str], where: str) -> FormatError:
    if name in later:
        return FormatError(
            f"{name!r} is read before it is made",
            where=where,
            why="the nodes have a cycle, or are not sorted as ONNX demands",
        )
    return FormatError(f"nothing makes {name!r}", where=where)

"""Nodes that are said in other nodes before they are read: a model comes in, and goes out with them.

A classifier whose labels are text numbers its classes, natively, and a LabelEncoder gives them their names. A
OneHotEncoder that must fail on what it does not know is one of weft's own, which runs on the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx import helper

ML, OWN = "ai.onnx.ml", "weft"
OWN_VERSION = 1  # of weft's own nodes, which every model may be given
_LABELS = {
    "TreeEnsembleClassifier": "classlabels_int64s",
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
}


def restated(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself where there is nothing to say otherwise."""
    version = max((item.version for item in model.opset_import if item.domain == ML), default=0)
    if not version or not any(_named(node) is not None or _is_strict(node) for node in model.graph.node):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = model.graph
    taken = {name for node in graph.node for name in node.output}
    taken |= {item.name for items in (graph.input, graph.initializer) for item in items}
    nodes = [new for node in graph.node for new in _restated(node, version, taken)]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def _named(node: onnx.NodeProto) -> onnx.AttributeProto | None:
    """The labels of a classifier, if they are text."""
    if node.domain != ML or node.op_type not in _LABELS:
        return None
    return next((item for item in node.attribute if item.name == "classlabels_strings" and item.strings), None)


def _is_strict(node: onnx.NodeProto) -> bool:
    """Whether a OneHotEncoder fails on what it does not know."""
    return (
        node.domain == ML
        and node.op_type == "OneHotEncoder"
        and any(item.name == "zeros" and item.i == 0 for item in node.attribute)
    )


def _restated(node: onnx.NodeProto, version: int, taken: set[str]) -> Iterable[onnx.NodeProto]:
    labels = _named(node)
    if labels is None and not _is_strict(node):
        return [node]
    made = onnx.NodeProto()
    made.CopyFrom(node)
    if labels is None:
        made.domain, made.op_type = OWN, "StrictOneHotEncoder"
        return [made]
    kept = [item for item in node.attribute if item is not labels]
    del made.attribute[:]
    made.attribute.extend(kept)
    made.attribute.append(helper.make_attribute(_LABELS[node.op_type], list(range(len(labels.strings)))))
    if not node.output or not node.output[0]:
        return [made]
    made.output[0] = _fresh(f"{node.output[0]}_number", taken)
    return [made, _names(made.output[0], node.output[0], labels, version)]


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _names(source: str, target: str, labels: onnx.AttributeProto, version: int) -> onnx.NodeProto:
    """A LabelEncoder from numbers to names."""
    words = list(labels.strings)
    tables: dict[str, Any] = {"keys_int64s": list(range(len(words))), "values_strings": words}
    attrs: dict[str, Any] = {"classes_strings": words} if version == 1 else tables
    return helper.make_node("LabelEncoder", [source], [target], domain=ML, name=f"{target}_names", **attrs)

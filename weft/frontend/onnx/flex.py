"""FlexAttention: attention that subgraphs of the file may change, before the softmax and behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from ...base.errors import FormatError
from ..emitter import Value
from .convert.flex import STEPS

if TYPE_CHECKING:
    from .scope import Scope


def flex_attention(scope: Scope, node: onnx.NodeProto, label: str) -> Sequence[Value]:
    """Scores, their softmax and the weighted values, with a subgraph of one tensor behind either of the first two."""
    if len(node.input) != 3 or not all(node.input):
        raise FormatError("FlexAttention needs a query, a key and a value")
    query, key, value = node.input
    stem = node.name or node.output[0]
    names = [f"{stem}/{word}" for word in ("scores", "weights", "output")]
    steps = [
        helper.make_node("Scores", [query, key], names[:1], domain=STEPS),
        helper.make_node("Weights", names[:1], names[1:2], domain=STEPS),
        helper.make_node("Output", [names[1], value], names[2:], domain=STEPS),
    ]
    steps[0].attribute.extend(item for item in node.attribute if item.name in ("scale", "softmax_precision"))
    inside = scope.nested({STEPS: 1})
    for position, step in enumerate(steps):
        inside.read(step, position)
        if position < 2:
            _change(inside, names[position], node, ("score_mod", "prob_mod")[position])
    return [inside[names[2]]]


def _change(scope: Scope, name: str, node: onnx.NodeProto, attribute: str) -> None:
    """Puts what a subgraph makes of a value in its place."""
    for item in node.attribute:
        if item.name != attribute:
            continue
        if len(item.g.input) != 1 or len(item.g.output) != 1:
            raise FormatError(f"{attribute} must take one tensor and give one")
        body = scope.nested()
        body.values[item.g.input[0].name] = scope[name]
        (scope.values[name],) = body.read_all(item.g)

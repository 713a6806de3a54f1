"""Writer of recurrent layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....base.dtype import INT32
from ....core.ir import NodeEntry
from ....ops.nn.rnn import input_names
from ..writing import Writing, writes

_OP_TYPES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
# Where ONNX's gates stand among weft's: LSTM has i, o, f, c there, and GRU z, r, h.
_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
_MOST_GATES = 1024  # that are copied by a matrix where they are no product


@writes("rnn")
def rnn(w: Writing) -> None:
    """ONNX's layer multiplies its inputs by weights itself, before the steps."""
    params, (_, batch, wide) = w.params, w.shape
    input_of = dict(zip(input_names(params), w.inputs))
    size = wide // len(_GATES[params.mode])
    w.require(not params.projected, "a projection")
    w.require(not params.kept, "what its gradient reads")
    w.require(math.isinf(params.clip_min) and math.isinf(params.clip_max), "limits of its cells")
    if 0 in w.outs[0].shape:
        w.give("Expand", w.constant(0), w.ints(w.outs[0].shape))
        for index, name in enumerate(("state", "cell")[: len(w.outputs) - 1], 1):
            w.give_value(input_of[name], index)
        return
    data, weight, bias = _product(w)
    turned = w.node("Transpose", input_of["weight"], perm=[1, 0])
    weights = [_ordered(w, name) for name in (weight, turned)]
    biases = w.node("Concat", _ordered(w, bias), _ordered(w, input_of["bias"]), axis=1)
    lengths = _lengths(w, input_of["length"]) if params.lengths else ""
    states = [w.reshape(input_of[name], (1, batch, size)) for name in ("state", "cell") if name in input_of]
    attrs: dict[str, Any] = {"linear_before_reset": int(not params.reset_first)} if params.mode == "gru" else {}
    if params.mode.startswith("rnn"):
        attrs["activations"] = ["Tanh" if params.mode == "rnn_tanh" else "Relu"]
    results = w.nodes(
        _OP_TYPES[params.mode],
        len(w.outputs),
        *(data, *weights, biases, lengths, *states),
        hidden_size=size,
        direction="reverse" if params.reverse else "forward",
        **attrs,
    )
    w.give_value(w.reshape(results[0], w.outs[0].shape))
    for index, (name, first) in enumerate(zip(results[1:], ("state", "cell")), 1):
        last = w.reshape(name, w.outs[index].shape)
        w.give_value(_unless_empty(w, last, input_of[first], lengths), index)


def _unless_empty(w: Writing, last: str, first: str, lengths: str) -> str:
    """A sequence without steps ends as it began, which runtimes do not agree on."""
    if not lengths:
        return last
    empty = w.node("LessOrEqual", lengths, w.constant(0, INT32))
    return w.node("Where", w.node("Unsqueeze", empty, w.ints([1])), first, last)


def _lengths(w: Writing, name: str) -> str:
    steps = w.constant(w.shape[0], INT32)
    return w.node("Min", w.cast(name, INT32), steps)


def _ordered(w: Writing, name: str) -> str:
    """Rows, or numbers, of all gates in ONNX's order, and as those of the only direction."""
    order, wide = _GATES[w.params.mode], w.shape[2]
    places = np.arange(wide).reshape(len(order), -1)[list(order)].reshape(-1)
    rows = w.node("Gather", name, w.ints(places), axis=0) if len(order) > 1 else name
    return w.node("Unsqueeze", rows, w.ints([0]))


def _product(w: Writing) -> tuple[str, str, str]:
    """The inputs, weights and biases whose product the gates are; else a product that copies."""
    steps, batch, wide = w.shape
    entry = w.source.inputs[0]
    while entry.node.op is not None and entry.node.op.name == "reshape":
        entry = entry.node.inputs[0]
    op = entry.node.op
    if op is not None and op.name == "dense" and entry.node.params.use_bias:
        data, weight, bias = (w.name_of(NodeEntry(e.node, e.index)) for e in entry.node.inputs)
        features = w.type_of(entry.node.inputs[1]).shape[1]
        return w.reshape(data, (steps, batch, features)), weight, bias
    w.require(wide <= _MOST_GATES, f"{wide} gates that are no product")
    return w.inputs[0], w.constant(np.eye(wide)), w.constant(np.zeros(wide))

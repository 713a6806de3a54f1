"""Labels of classes: what a classifier calls the classes that it numbers."""

from __future__ import annotations

import numpy as np

from .....base.dtype import INT64
from .....base.errors import FormatError, Unsupported
from ....emitter import Value
from ...call import OnnxCall


def class_labels(call: OnnxCall, name: str = "classlabels_int64s") -> list[int]:
    """The labels in the order of the classes; those that are text have become numbers already."""
    labels = call.attr(name)
    if call.attr("classlabels_strings"):
        raise Unsupported(f"{call.op_type} with labels that are text, inside of a subgraph")
    if not labels:
        raise FormatError(f"{call.op_type} has no labels")
    return list(labels)


def labelled(call: OnnxCall, which: Value, labels: list[int]) -> Value:
    """The labels of classes given by number, an int64 a row."""
    if labels == list(range(len(labels))):
        return call.cast(which, INT64)
    return call.op("take", call.make(np.array(labels, np.int64)), which, axis=0)


def likeliest(call: OnnxCall, scores: Value) -> Value:
    """The number of the class with the greatest score, the first of equal ones."""
    return call.op("argmax", scores, axis=1)


def above(call: OnnxCall, score: Value, limit: float) -> Value:
    """1 where the score of a row, of shape (rows, 1), is above a limit, else 0."""
    over = call.op("broadcast_greater", score, call.make(limit, call.dtype(score)))
    return call.op("squeeze", call.cast(over, INT64), axis=(1,))

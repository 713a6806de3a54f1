"""Converters of linear models."""

from __future__ import annotations

import warnings

import numpy as np

from .....base.dtype import FLOAT32, FLOAT64, DType
from .....base.errors import FormatError
from ....emitter import Value
from ...call import OnnxCall
from ...registry import converter
from .labels import above, class_labels, labelled, likeliest
from .lookup import ML
from .scores import transformed, with_second_class


def floats(call: OnnxCall, name: str) -> np.ndarray:
    return np.array(call.attr(name) or [], np.float32)


def rows_of(call: OnnxCall) -> tuple[Value, DType]:
    """The input as a matrix of floats, a vector being one row, and their dtype."""
    x = call[0]
    x = call.cast(x, FLOAT64 if x.dtype == FLOAT64 else FLOAT32)
    x = x if call.rank(x) == 2 else call.reshape(x, (1, -1))
    return x, call.dtype(x)


def _products(call: OnnxCall, rows: int) -> Value:
    """x times the transposed coefficients, plus the intercepts. Of coefficients for more features than there are the
    first ones count, in rows as long as x has features: so does ONNX Runtime, and files rely on it."""
    x, dtype = rows_of(call)
    coefficients, intercepts = floats(call, "coefficients"), floats(call, "intercepts")
    columns = call.extent(x, 1)
    wanted = rows * columns
    if coefficients.size < wanted or intercepts.size not in (0, rows):
        raise FormatError(
            f"{coefficients.size} coefficients and {intercepts.size} intercepts",
            why=f"{columns} features and {rows} rows of scores need {wanted} and {rows}",
        )
    if coefficients.size > wanted:
        warnings.warn(
            f"node {call.name!r} ({call.op_type}): of {coefficients.size} coefficients the first {wanted} count, since "
            f"there are {columns} features and {rows} rows of scores",
            stacklevel=2,
        )
    weights = call.make(coefficients[:wanted].reshape(rows, columns).T, dtype)
    made = call.op("matmul", x, weights)
    return call.op("broadcast_add", made, call.make(intercepts.reshape(1, -1), dtype)) if intercepts.size else made


@converter("LinearRegressor", domain=ML)
def linear_regressor(call: OnnxCall) -> Value:
    targets = call.attr("targets")
    if targets < 1:
        raise FormatError(f"targets is {targets}")
    return call.cast(transformed(call, _products(call, targets), call.attr("post_transform")), FLOAT32)


@converter("LinearClassifier", domain=ML)
def linear_classifier(call: OnnxCall) -> list[Value]:
    """Labels and scores; one row of coefficients tells the second of two classes."""
    call.ignore("multi_class")  # how the scores were learned
    labels, transform = class_labels(call, "classlabels_ints"), call.attr("post_transform")
    x, _ = rows_of(call)
    columns = call.extent(x, 1)
    alone = len(labels) == 2 and (floats(call, "coefficients").size == columns or floats(call, "intercepts").size == 1)
    scores = _products(call, 1 if alone else len(labels))
    if alone:
        which, scores = above(call, scores, 0.0), with_second_class(call, scores, transform, complement=True)
    else:
        which, scores = likeliest(call, scores), transformed(call, scores, transform)
    return [labelled(call, which, labels), call.cast(scores, FLOAT32)]

"""Converters of support vector machines."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from .....base.dtype import FLOAT32, DType
from .....base.errors import FormatError
from ....emitter import Value
from ...call import OnnxCall
from ...registry import converter
from .labels import class_labels, labelled, likeliest
from .linear import floats, rows_of
from .lookup import ML
from .scores import transformed, with_second_class

_SURE = 1e-7  # as far as a probability stays from 0 and 1


def _kernel(call: OnnxCall, x: Value, vectors: np.ndarray, dtype: DType) -> Value:
    """(rows, vectors): how near each row is to each support vector."""
    gamma, shift, degree = (*floats(call, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    kind = call.attr("kernel_type")
    dot = call.op("matmul", x, call.make(vectors.T, dtype))
    match kind:
        case "LINEAR":
            return dot
        case "POLY":
            return call.op("__pow_scalar__", call.shifted(call.scaled(dot, gamma), shift), scalar=degree)
        case "SIGMOID":
            return call.op("tanh", call.shifted(call.scaled(dot, gamma), shift))
        case "RBF":
            apart = call.square(call.op("distances", x, call.make(vectors, dtype)))
            return call.op("exp", call.scaled(apart, -gamma))
    raise FormatError(f"kernel_type {kind!r:.40}", why="it is LINEAR, POLY, RBF or SIGMOID")


def _table(values: np.ndarray, rows: int, what: str) -> np.ndarray:
    if rows < 1 or not values.size or values.size % rows:
        raise FormatError(f"{values.size} numbers of {what} for {rows} rows")
    return values.reshape(rows, -1)


def _check_columns(call: OnnxCall, x: Value, table: np.ndarray) -> None:
    if table.shape[1] != call.extent(x, 1):
        raise FormatError(f"vectors of {table.shape[1]} numbers", why=f"the data has {call.extent(x, 1)} features")


def _plus(call: OnnxCall, value: Value, number: np.ndarray, dtype: DType) -> Value:
    return call.op("broadcast_add", value, call.make(number.reshape(1, -1), dtype))


@converter("SVMRegressor", domain=ML)
def svm_regressor(call: OnnxCall) -> Value:
    """The weighted sum of kernels; without support vectors the product with the coefficients."""
    x, dtype = rows_of(call)
    supports, rho = call.attr("n_supports"), floats(call, "rho")
    weights = floats(call, "coefficients")
    if not rho.size:
        raise FormatError("rho is missing")
    if supports > 0:
        vectors = _table(floats(call, "support_vectors"), supports, "support_vectors")
        _check_columns(call, x, vectors)
        x = _kernel(call, x, vectors, dtype)
    else:
        call.ignore("kernel_type", "kernel_params", "support_vectors")
    rows = _table(weights, 1, "coefficients")
    _check_columns(call, x, rows)
    score = _plus(call, call.op("matmul", x, call.make(rows.T, dtype)), rho[:1], dtype)
    if call.attr("one_class"):
        inside = call.op("broadcast_greater", score, call.make(0, dtype))
        score = call.shifted(call.scaled(call.cast(inside, dtype), 2.0), -1.0)
        call.ignore("post_transform")
    else:
        score = transformed(call, score, call.attr("post_transform"))
    return call.cast(score, FLOAT32)


@converter("SVMClassifier", domain=ML)
def svm_classifier(call: OnnxCall) -> list[Value]:
    labels = class_labels(call, "classlabels_ints")
    counts = call.attr("vectors_per_class") or []
    which, scores = _by_votes(call, counts, labels) if counts else _by_rows(call, len(labels))
    return [labelled(call, which, labels), call.cast(scores, FLOAT32)]


def _by_rows(call: OnnxCall, classes: int) -> tuple[Value, Value]:
    """Without support vectors: a row of coefficients a class, and one shift for all."""
    call.ignore("kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b")
    x, dtype = rows_of(call)
    rows, rho = _table(floats(call, "coefficients"), classes, "coefficients"), floats(call, "rho")
    _check_columns(call, x, rows)
    if not rho.size:
        raise FormatError("rho is missing")
    scores = _plus(call, call.op("matmul", x, call.make(rows.T, dtype)), rho[:1], dtype)
    return likeliest(call, scores), transformed(call, scores, call.attr("post_transform"))


def _by_votes(call: OnnxCall, counts: list[int], labels: list[int]) -> tuple[Value, Value]:
    """Each pair of classes has a score that votes for the first where it is above 0; most votes win."""
    classes, transform = len(labels), call.attr("post_transform")
    if len(counts) != classes or classes < 2 or any(count < 0 for count in counts):
        raise FormatError(f"vectors_per_class has {len(counts)} numbers for {classes} classes")
    x, dtype = rows_of(call)
    vectors = _table(floats(call, "support_vectors"), sum(counts), "support_vectors")
    weights = _table(floats(call, "coefficients"), classes - 1, "coefficients")
    pairs, rho = list(combinations(range(classes), 2)), floats(call, "rho")
    if weights.shape[1] != len(vectors) or rho.size != len(pairs):
        raise FormatError(f"{weights.size} coefficients and {rho.size} rho", why=f"of {len(pairs)} pairs of classes")
    _check_columns(call, x, vectors)
    of_pairs = _pair_weights(weights, counts, pairs)
    scores = call.op("matmul", _kernel(call, x, vectors, dtype), call.make(of_pairs, dtype))
    scores = _plus(call, scores, rho, dtype)
    which = likeliest(call, _votes(call, scores, pairs, classes, dtype))
    if call.attr("prob_a"):
        return which, transformed(call, _probabilities(call, scores, pairs, classes, dtype), transform)
    call.ignore("prob_b")
    if len(pairs) == 1:
        return which, with_second_class(call, scores, transform, complement=bool((weights >= 0).all()))
    return which, transformed(call, scores, transform)


def _pair_weights(weights: np.ndarray, counts: list[int], pairs: list[tuple[int, int]]) -> np.ndarray:
    """(vectors, pairs): a pair has weights of the vectors of its two classes."""
    start = np.cumsum([0, *counts])
    made = np.zeros((start[-1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        of_i, of_j = slice(start[i], start[i + 1]), slice(start[j], start[j + 1])
        made[of_i, column] = weights[j - 1, of_i]
        made[of_j, column] = weights[i, of_j]
    return made


def _votes(call: OnnxCall, scores: Value, pairs: list[tuple[int, int]], classes: int, dtype: DType) -> Value:
    """(rows, classes): how many pairs are for each class."""
    wins = call.cast(call.op("broadcast_greater", scores, call.make(0, dtype)), dtype)
    gained, had = np.zeros((len(pairs), classes)), np.zeros(classes)
    for row, (i, j) in enumerate(pairs):
        gained[row, i], gained[row, j] = 1, -1
        had[j] += 1
    return _plus(call, call.op("matmul", wins, call.make(gained, dtype)), had, dtype)


def _probabilities(call: OnnxCall, scores: Value, pairs: list[tuple[int, int]], classes: int, dtype: DType) -> Value:
    """Of classes, from those of pairs: 1 / (1 + exp(a score + b))."""
    a, b = floats(call, "prob_a"), floats(call, "prob_b")
    if a.size != len(pairs) or b.size != len(pairs):
        raise FormatError(f"{a.size} prob_a and {b.size} prob_b", why=f"of {len(pairs)} pairs of classes")
    steep = _plus(call, call.op("broadcast_mul", scores, call.make(a.reshape(1, -1), dtype)), b, dtype)
    of_first = call.op("sigmoid", call.op("negative", steep))
    of_first = call.op("clip", of_first, a_min=_SURE, a_max=1 - _SURE)
    of_second = call.shifted(call.op("negative", of_first), 1.0)
    table = call.joined([of_first, of_second], 1)
    order = np.zeros((classes, classes), np.int64)  # the diagonal is not read
    for column, (i, j) in enumerate(pairs):
        order[i, j], order[j, i] = column, column + len(pairs)
    return call.op("pairwise_coupling", call.op("take", table, call.make(order), axis=1))

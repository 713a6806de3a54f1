"""Scores of classes and targets: what is done to them in the end."""

from __future__ import annotations

import math

from .....base.errors import FormatError
from ....emitter import Value
from ...call import OnnxCall

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # by number


def transformed(call: OnnxCall, scores: Value, how: str | int) -> Value:
    """Scores of shape (rows, targets) after a post_transform, which is a name or a number."""
    name = TRANSFORMS[how] if isinstance(how, int) and 0 <= how < len(TRANSFORMS) else how
    match name:
        case "NONE":
            return scores
        case "SOFTMAX":
            return call.op("softmax", scores, axis=-1)
        case "LOGISTIC":
            return call.op("sigmoid", scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(call, scores)
        case "PROBIT":
            return _probit(call, scores)
    raise _unknown(name)


def _unknown(name: str | int) -> FormatError:
    return FormatError(f"post_transform {name!r:.40}", why=f"it is one of {', '.join(TRANSFORMS)}")


def with_second_class(call: OnnxCall, score: Value, how: str, complement: bool) -> Value:
    """The scores of two classes from that of the second, (rows, 1): the first has what the score lacks of 1, or
    the negative score. Only LOGISTIC and PROBIT change them."""
    negative = call.op("negative", score)
    complement = how == "PROBIT" or (complement and how != "LOGISTIC")
    both = call.joined([call.shifted(negative, 1.0) if complement else negative, score], 1)
    if how not in TRANSFORMS:
        raise _unknown(how)
    return transformed(call, both, how if how in ("LOGISTIC", "PROBIT") else "NONE")


def _softmax_zero(call: OnnxCall, scores: Value) -> Value:
    """Softmax in which a score of 0 stays one; without any other all are 0.5."""
    top = call.op("max", scores, axis=1, keepdims=True)
    power = call.op("exp", call.op("broadcast_sub", scores, top))
    limit = call.make(1e-7, call.dtype(scores))
    is_zero = call.op("broadcast_less_equal", call.op("abs", scores), limit)
    kept = call.op("broadcast_mul", scores, call.op("exp", call.op("negative", top)))
    part = call.op("broadcast_where", is_zero, kept, power)
    total = call.op("sum", part, axis=1, keepdims=True)
    ratio = call.op("broadcast_div", part, total)
    none = call.op("broadcast_equal", total, call.make(0, call.dtype(scores)))
    return call.op("broadcast_where", none, call.make(0.5, call.dtype(scores)), ratio)


def _probit(call: OnnxCall, scores: Value) -> Value:
    """sqrt(2) erfinv(2 p - 1), with the erfinv that is common to runtimes of ONNX: about
    sgn(x) sqrt(sqrt(v^2 - l) - v), where l = log(1 - x^2) / a, v = 2 / (pi a) + a l / 2 and a = 0.147.
    The difference of roots is written as -l / (sqrt(v^2 - l) + v), which is exact for small x."""
    a = 0.147
    x = call.shifted(call.scaled(scores, 2.0), -1.0)
    log = call.scaled(call.op("log1p", call.op("negative", call.square(x))), 1 / a)
    v = call.shifted(call.scaled(log, a / 2), 2 / (math.pi * a))
    root = call.op("sqrt", call.op("elemwise_sub", call.square(v), log))
    size = call.op("sqrt", call.op("elemwise_div", call.op("negative", log), call.op("elemwise_add", root, v)))
    return call.scaled(call.op("elemwise_mul", call.op("sign", x), size), math.sqrt(2))

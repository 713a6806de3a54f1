"""Rows: losses of predictions against classes, in nn.functional and as the core has them."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from ....base.dtype import is_complex, is_float
from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ....ops.nn.cross_entropy import ClassLossAttrs, CrossEntropyAttrs
from ...autograd.modes import modes
from ...dispatch import apply
from ...tensor.indexing import chosen_from
from ...tensor.memory import Array, array_of, checked_elements, is_foreign, memory_of
from ...tensor.tensor import DimensionError, Tensor, wrap
from ..fusion import fused
from ..hosted import hosted
from ..index.index import gather
from ..math.arithmetic import add, div, mul, rsub, sub
from ..math.compare import choose, eq
from ..math.pairs import clamp
from ..math.special import log_softmax
from ..math.unary import log, log1p, neg
from ..operands import floating, must_be_real
from ..reduce.reduce import mean
from ..reduce.reduce import sum as total
from ..shape.shape import expand, reshape, unsqueeze
from ..table import NN, row
from .linear_maps import linear
from .loss import CORE_DEFAULT, numbered, reduced, reduction_of

_SOFTPLUS, _COPY = Op.get("softplus"), Op.get("copy")
_CROSS_ENTROPY, _NLL = Op.get("softmax_cross_entropy"), Op.get("nll_loss")


def _class_axis(input: Tensor) -> int:
    return 0 if input.ndim == 1 else 1


def _check_classes(input: Tensor, target: Tensor, weight: Tensor | None, ignored: int) -> Tensor:
    """The classes, those that are ignored as -1."""
    rank, shape = input.ndim, input._shape
    if not rank:
        raise RunError("input tensor should be at least 1D")
    axis = _class_axis(input)
    places = memory_of(target)
    if rank == 1 and places.ndim > 1:
        raise RunError("0D or 1D target tensor expected, multi-target not supported")
    want = (*shape[:axis], *shape[axis + 1 :])
    if places.shape != want and not (rank == 1 and places.shape == (1,)):
        if rank > 1 and places.shape[:1] != want[:1]:
            raise InvalidValue(
                f"Expected input batch_size ({shape[0]}) to match target batch_size "
                f"({places.shape[0] if places.ndim else 1})."
            )
        raise RunError(f"Expected target size {list(want)}, got {list(places.shape)}")
    if places.dtype not in (np.int64, np.uint8):
        raise RunError(f"expected scalar type Long but found {target.dtype.title}")
    if weight is not None and weight._shape != (shape[axis],):
        raise RunError(
            "weight tensor should be defined either for all or no classes, got weight tensor of "
            f"shape: {list(weight.shape)}"
        )
    if is_foreign(target):
        checked = _checked_batch(target, shape[axis], ignored)
        return checked if rank > 1 else reshape(checked, ())
    if modes.trace is not None:
        return hosted(partial(_checked, shape[axis], ignored, rank), target)
    inside = _inside(places, shape[axis], ignored)
    if rank == 1:
        return wrap(inside.reshape(()).copy())
    return target.detach() if inside is places else wrap(inside)


def _checked_batch(target: Tensor, classes: int, ignored: int) -> Tensor:
    """The same by functions of tensors."""
    _inside(checked_elements(target), classes, ignored)
    return choose(eq(target, ignored), -1, target._cast(np.dtype(np.int64)))


def _checked(classes: int, ignored: int, rank: int, places: Array) -> Array:
    inside = _inside(places, classes, ignored)
    return inside.reshape(()) if rank == 1 else inside


def _inside(places: Array, classes: int, ignored: int) -> Array:
    if not places.size or (places.min() >= 0 and places.max() < classes and ignored < 0):
        return places.astype(np.int64, copy=False)
    wrong = (places != ignored) & ((places < 0) | (places >= classes))
    if wrong.any():
        raise DimensionError(f"Target {int(places[wrong].flat[0])} is out of bounds.")
    return np.where(places == ignored, -1, places).astype(np.int64)


@row(space=NN, method=False)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """-x of the right class, where x are logarithms of probabilities

    >>> import weft
    >>> logs = weft.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    >>> weft.nn.functional.nll_loss(logs, weft.tensor([0, 1]), reduction="none")
    tensor([0.6931, 0.2877])
    """
    must_be_real("nll_loss", input)
    how = reduction_of(reduction, size_average, reduce)
    places = _check_classes(input, target, weight, ignore_index)
    return _class_losses(_NLL, input, places, weight, how)


@lru_cache(64)
def _params(op: Op, axis: int, reduction: str, smoothing: float) -> Any:
    if op is _NLL:
        return ClassLossAttrs(axis=axis, reduction=reduction)
    return CrossEntropyAttrs(axis=axis, reduction=reduction, smoothing=smoothing)


def _class_losses(
    op: Op, input: Tensor, places: Tensor, weight: Tensor | None, how: str, smoothing: float = 0.0
) -> Tensor:
    """The losses of an operator, with weights of classes."""
    params = _params(op, _class_axis(input), how if weight is None else "none", smoothing)
    values = apply(op, params, [input, places])[0]
    if weight is None:
        return values
    return _averaged(values, _Counted(array_of(places), weight, input), how)


class _Counted:
    """Which rows count, and by how much: that of their class."""

    def __init__(self, places: Array, weight: Tensor, input: Tensor) -> None:
        counts = places >= 0
        class_weights = reshape(chosen_from(weight, [np.maximum(places, 0).reshape(-1)]), places.shape)
        self.mask = None if counts.all() else wrap(np.asarray(counts))
        self.weights = mul(class_weights, wrap(np.asarray(counts, input._dtype)))

    def masked(self, values: Tensor) -> Tensor:
        return values if self.mask is None else choose(self.mask, values, 0.0)

    def mean(self, values: Tensor) -> Tensor:
        return div(total(values), total(self.weights))


def _averaged(values: Tensor, counted: _Counted, how: str) -> Tensor:
    """Losses with their weights; the mean is that of the weights that count."""
    scaled = counted.masked(mul(values, counted.weights))
    return counted.mean(scaled) if how == "mean" else reduced(scaled, how)


@row(space=NN, method=False)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log of the softmax of the right class, or of classes by their probabilities

    >>> import weft
    >>> logits = weft.tensor([[2.0, 0.0], [0.0, 0.0]])
    >>> weft.nn.functional.cross_entropy(logits, weft.tensor([0, 1]))
    tensor(0.4100)
    >>> weft.nn.functional.cross_entropy(logits, weft.tensor([0, 1]), reduction="none")
    tensor([0.1269, 0.6931])
    """
    how = reduction_of(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RunError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if not input.ndim:
        raise RunError("input tensor should be at least 1D")
    if is_float(target._dtype):
        if target._shape != input._shape:
            raise RunError(
                "Expected floating point type for target with class probabilities, got "
                f"{list(target.shape)} for an input of {list(input.shape)}"
            )
        if ignore_index >= 0:
            raise RunError("ignore_index is not supported for floating point target")
        scores = log_softmax(input, _class_axis(input))
        return _soft(scores, target, weight, how, label_smoothing)
    must_be_real("cross_entropy", input)
    places = _check_classes(input, target, weight, ignore_index)
    if label_smoothing and weight is not None:
        scores = log_softmax(input, _class_axis(input))
        return _smoothed(scores, places, weight, how, label_smoothing)
    scores = floating(input)
    return _class_losses(_CROSS_ENTROPY, scores, places, weight, how, label_smoothing)


def _by_class(weight: Tensor, input: Tensor) -> Tensor:
    axis = _class_axis(input)
    return reshape(weight, [-1 if at == axis else 1 for at in range(input.ndim)])


def _soft(scores: Tensor, target: Tensor, weight: Tensor | None, how: str, smoothing: float) -> Tensor:
    axis = _class_axis(scores)
    classes = scores._shape[axis]
    if smoothing:
        target = add(mul(target, 1 - smoothing), smoothing / classes)
    weighed = scores if weight is None else mul(scores, _by_class(weight, scores))
    values = neg(total(mul(weighed, target), axis))
    if how == "mean":
        count = scores.numel() // classes if classes else 0
        return div(total(values), max(count, 1)) if scores.ndim > 1 else values
    return reduced(values, how)


def _smoothed(scores: Tensor, places: Tensor, weight: Tensor, how: str, smoothing: float) -> Tensor:
    axis, counted = _class_axis(scores), _Counted(array_of(places), weight, scores)
    sharp = _class_losses(_NLL, scores, places, weight, how)
    spread = counted.masked(neg(total(mul(scores, _by_class(weight, scores)), axis)))
    even = counted.mean(spread) if how == "mean" else reduced(spread, how)
    share = smoothing / scores._shape[axis]
    return add(mul(sharp, 1 - smoothing), mul(even, share))


@row(space=NN, method=False)
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """-(y log x + (1 - y) log(1 - x)), logarithms not below -100

    >>> import weft
    >>> weft.nn.functional.binary_cross_entropy(weft.tensor([0.5, 0.25]), weft.tensor([1.0, 0.0]), reduction="none")
    tensor([0.6931, 0.2877])
    """
    if input._shape != target._shape:
        raise InvalidValue(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    elements = checked_elements(input)
    if ((elements < 0) | (elements > 1)).any():
        raise RunError("all elements of input should be between 0 and 1")
    return reduced(_loss_of_chances(input, target, weight), reduction, size_average, reduce)


@fused
def _loss_of_chances(input: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    yes, no = clamp(log(input), min=-100), clamp(log1p(neg(input)), min=-100)
    values = sub(mul(sub(target, 1), no), mul(target, yes))
    return values if weight is None else mul(values, weight)


@row(space=NN, method=False)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """-(y log s + (1 - y) log(1 - s)) with s = sigmoid(x)

    >>> import weft
    >>> x, target = weft.tensor([0.0, 2.0]), weft.tensor([1.0, 1.0])
    >>> weft.nn.functional.binary_cross_entropy_with_logits(x, target, reduction="none")
    tensor([0.6931, 0.1269])
    """
    if input._shape != target._shape:
        raise InvalidValue(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    return reduced(_loss_of_scores(input, target, weight, pos_weight), reduction, size_average, reduce)


@fused
def _loss_of_scores(input: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None) -> Tensor:
    softened = apply(_SOFTPLUS, None, [neg(input)])[0]  # -log s
    if pos_weight is not None:
        softened = mul(softened, add(mul(sub(pos_weight, 1), target), 1))
    values = add(mul(rsub(target, 1), input), softened)
    return values if weight is None else mul(values, weight)


@row(name="binary_cross_entropy_with_logits", method=False)
def _bce_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = CORE_DEFAULT,
) -> Tensor:
    """-(y log s + (1 - y) log(1 - s)) with s = sigmoid(x)"""
    if input._shape != target._shape:
        input = expand(input, target._shape)
    how = numbered(reduction)
    return binary_cross_entropy_with_logits(input, target, weight, reduction=how, pos_weight=pos_weight)


# Margins.


def _rows_of(input: Tensor, target: Tensor) -> tuple[Tensor, Array]:
    rank, shape = input.ndim, input._shape
    good = (rank == 2 and shape[1]) or (rank == 1 and shape[0]) or not rank
    if not good:
        raise RunError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(shape)}")
    return reshape(input, (-1, shape[-1])) if rank else reshape(input, (1, 1)), array_of(target)


@row(space=NN, method=False)
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over other classes of max(0, margin - x[right] + x) to the power p"""
    how = reduction_of(reduction, size_average, reduce)  # before anything is said about the target
    if p not in (1, 2):
        raise InvalidValue("only p == 1 and p == 2 supported")
    rows, places = _rows_of(input, target)
    count, classes = rows._shape
    if places.ndim > 1 or places.size != count:
        raise RunError(f"inconsistent target size, expected {count} but got {list(places.shape)}")
    if weight is not None and weight.ndim != 1:
        raise InvalidValue("weight must be one-dimensional")
    if weight is not None and weight._shape != (classes,):
        raise RunError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    places = places.reshape(-1)
    if places.size and not (places.min() >= 0 and places.max() < classes):
        raise RunError("target out of range")
    right = gather(rows, 1, wrap(places.reshape(-1, 1)))
    gaps = clamp(add(sub(rows, right), margin), min=0)
    gaps = gaps if p == 1 else mul(gaps, gaps)
    if weight is not None:
        gaps = mul(gaps, reshape(chosen_from(weight, [places]), (-1, 1)))
    others = wrap(np.arange(classes) != places.reshape(-1, 1))
    values = div(total(choose(others, gaps, 0.0), 1), classes)
    return reduced(values if input.ndim > 1 else reshape(values, ()), how)


@row(space=NN, method=False)
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Tensor:
    """Over right and other classes, max(0, 1 - x[right] + x[other]); targets end at a -1"""
    how = reduction_of(reduction, size_average, reduce)  # before anything is said about the target
    rows, places = _rows_of(input, target)
    count, classes = rows._shape
    if places.shape != input._shape:
        raise RunError(f"inconsistent target size: {list(places.shape)} for input of size: {list(input.shape)}")
    places = places.reshape(count, classes)
    if places.size and not (places.min() >= -1 and places.max() < classes):
        raise RunError("target out of range")
    ended = np.cumsum(places < 0, 1) > 0
    right = np.zeros((count, classes + 1), bool)
    np.put_along_axis(right, np.where(ended, classes, places), True, 1)
    right_scores = gather(rows, 1, wrap(np.where(ended, 0, places)))
    gaps = clamp(add(rsub(unsqueeze(right_scores, 2), 1), unsqueeze(rows, 1)), min=0)
    wanted = ~ended[:, :, None] & ~right[:, None, :classes]
    values = div(total(choose(wrap(wanted), gaps, 0.0), (1, 2)), classes)
    return reduced(values if input.ndim > 1 else reshape(values, ()), how)


@row(space=NN, method=False)
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of binary cross entropy with logits"""
    values = add(
        mul(target, apply(_SOFTPLUS, None, [neg(input)])[0]), mul(rsub(target, 1), apply(_SOFTPLUS, None, [input])[0])
    )
    values = values if weight is None else mul(values, weight)
    return reduced(mean(values, -1), reduction, size_average, reduce)


# Of linear scores.


@row(space=NN, method=False)
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """The cross entropy of linear(input, linear_weight); options of memory change nothing"""
    in_parts = options is not None and not label_smoothing and target._dtype == np.int64
    if in_parts and linear_weight.ndim == 2 and is_complex(input._dtype):
        raise InvalidValue(f"acc_dtype must be a floating dtype, got {input.dtype}")
    lead, outs = _score_sizes(input, linear_weight, linear_bias)
    if ignore_index is not None and target._shape == (*lead, *outs):
        raise RunError("ignore_index cannot be specified when target contains probabilities")
    width = input._shape[-1]
    scores = linear(input, reshape(linear_weight, (-1, width)))
    if len(outs) > 1:
        scores = reshape(scores, (*lead, *outs))
    if linear_bias is not None:
        scores = add(scores, linear_bias)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        scores, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


def _score_sizes(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of items, and of classes and what they are asked for at."""
    shape, wide = input._shape, weight._shape
    if len(shape) not in (1, 2):
        raise RunError(f"expected input with dimensionality 1 or 2, got {len(shape)}")
    if len(wide) < 2:
        raise RunError(f"expected linear_weight with dimensionality at least 2, got {len(wide)}")
    if shape[-1] != wide[-1]:
        raise RunError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{shape[-1]} and {wide[-1]}, respectively"
        )
    if bias is not None and bias._shape != wide[:-1]:
        raise RunError(f"expected linear_bias shape {wide[:-1]}, got {bias.shape}")
    if len(wide) > 2 and len(shape) == 1:
        raise RunError(
            f"K-dimensional loss defined by linear_weight shape {wide} requires batched input, got "
            f"unbatched input with shape {shape}"
        )
    return shape[:-1], wide[:-1]

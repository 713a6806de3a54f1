"""Rows: connectionist temporal classification."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.dtype import FLOAT32, FLOAT64, is_integer
from ....base.errors import RunError, Unsupported
from ....core.op import Op
from ....ops.nn.ctc import CtcAttrs
from ...dispatch import apply
from ...tensor.memory import Array, array_of
from ...tensor.tensor import Tensor, wrap
from ..math.arithmetic import div
from ..shape.shape import reshape, unsqueeze
from ..table import NN, row
from .loss import numbered, reduced, reduction_of

_CTC = Op.get("ctc_loss")


@row(method=False)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """How unlikely targets are, over all ways to stretch them to the steps of log_probs"""
    return _loss(log_probs, targets, input_lengths, target_lengths, blank, numbered(reduction), zero_infinity)


@row(name="ctc_loss", space=NN, method=False)
def _named_ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """How unlikely targets are, over all ways to stretch them to the steps of log_probs"""
    return _loss(log_probs, targets, input_lengths, target_lengths, blank, reduction_of(reduction), zero_infinity)


def _loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int,
    reduction: str,
    zero_infinity: bool,
) -> Tensor:
    if log_probs._dtype not in (FLOAT32, FLOAT64):
        raise Unsupported(f'"ctc_loss_cpu" not implemented for {log_probs.dtype.title!r}')
    batched = log_probs.ndim != 2
    x = log_probs if batched else unsqueeze(log_probs, 1)
    if x.ndim != 3 or not x.numel():
        raise RunError("log_probs must have the dimensions (steps, batch, classes), none empty")
    steps, batch, classes = x._shape
    if not 0 <= blank < classes:
        raise RunError("blank must be in label range")
    ends = _lengths("input_lengths", input_lengths, batch)
    counts = _lengths("target_lengths", target_lengths, batch)
    if ends.max() > steps:
        raise RunError(f"Expected input_lengths to have value at most {steps}, but got value {ends.max()}")
    labels = _padded(array_of(targets).astype(np.int64), counts, batched)
    used = labels[np.arange(labels.shape[1]) < counts[:, None]]
    if used.size and (used.min() < 0 or used.max() >= classes):
        raise RunError(f"targets must be classes from 0 to {classes - 1}")
    params = CtcAttrs(blank=blank, zero_infinity=bool(zero_infinity), normalized=True, kept=log_probs._followed())
    losses = apply(_CTC, params, [x, *map(wrap, (labels, ends, counts))])[0]
    losses = losses if batched else reshape(losses, ())
    if reduction == "mean":
        per = np.maximum(counts, 1).astype(x._dtype)
        losses = div(losses, wrap(per if batched else per[0].reshape(())))
    return reduced(losses, reduction)


def _lengths(name: str, lengths: Any, batch: int) -> Array:
    array = array_of(lengths) if isinstance(lengths, Tensor) else np.asarray(lengths, np.int64)
    if not is_integer(array.dtype):
        raise RunError(f"{name} must be integral")
    if array.size != batch:
        raise RunError(f"{name} must be of size batch_size")
    if array.min() < 0:
        raise RunError(f"Expected {name} to have value at least 0, but got value {array.min()}")
    return array.reshape(batch).astype(np.int64)


def _padded(targets: Array, counts: Array, batched: bool) -> Array:
    """(batch, most) labels; they may be given one sequence after the other."""
    if not batched and targets.ndim == 1 and targets.size >= counts[0]:
        targets = targets[: counts[0]]
    if targets.ndim == 2:
        if len(targets) != len(counts) or targets.shape[1] < counts.max():
            raise RunError(
                f"Expected targets of size at least ({len(counts)}, {counts.max()}), but got size {targets.shape}"
            )
        return targets
    if targets.ndim != 1 or targets.size != counts.sum():
        raise RunError(
            f"Expected tensor to have size {counts.sum()} at dimension 0, but got size "
            f"{targets.shape} for argument 'targets'"
        )
    result = np.zeros((len(counts), counts.max()), np.int64)
    result[np.arange(result.shape[1]) < counts[:, None]] = targets
    return result

"""Losses: functions of predictions and targets whose settings are attributes.

What is given for each element or item is reduced to its mean or sum, or not ("none").
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from ...base.errors import InvalidValue, RunError
from ...eager.functions.nn.loss import reduction_of
from ...eager.tensor.tensor import Tensor
from .. import functional as F
from .distance import PairwiseDistance
from .linear import Linear
from .module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LinearCrossEntropyLoss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class _Loss(Module):
    """`_function` of predictions and targets, with `reduction` and the attributes that `_settings` names as its
    arguments. `size_average` and `reduce` are old ways to say `reduction`."""

    _function: ClassVar[Callable[..., Any]]
    _settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        is_old = size_average is not None or reduce is not None
        self.reduction = reduction_of(reduction, size_average, reduce) if is_old else reduction

    def _of(self, *tensors: Any) -> Tensor:
        settings = {name: getattr(self, name) for name in self._settings}
        result: Tensor = type(self)._function(*tensors, **settings, reduction=self.reduction)
        return result


class _TargetLoss(_Loss):
    """A loss of predictions, one target for each."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self._of(input, target)


class _WeightedLoss(_TargetLoss):
    """A loss with a buffer of weights: of classes, or of items."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


# Of numbers.


class L1Loss(_TargetLoss):
    """|x - y|

    >>> import weft
    >>> weft.nn.L1Loss()(weft.tensor([1.0, 2.0]), weft.tensor([2.0, 4.0]))
    tensor(1.5000)
    """

    _function = F.l1_loss


class MSELoss(_TargetLoss):
    """(x - y)^2

    >>> import weft
    >>> weft.nn.MSELoss(reduction="none")(weft.tensor([1.0, 2.0]), weft.tensor([2.0, 4.0]))
    tensor([1., 4.])
    """

    _function = F.mse_loss


class SmoothL1Loss(_TargetLoss):
    """d^2 / (2 beta) where d = |x - y| is below beta, else d - beta / 2"""

    _function = F.smooth_l1_loss
    _settings = ("beta",)

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta


class HuberLoss(_TargetLoss):
    """d^2 / 2 where d = |x - y| is below delta, else delta (d - delta / 2)"""

    _function = F.huber_loss
    _settings = ("delta",)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta


class PoissonNLLLoss(_Loss):
    """exp(x) - y x, or x - y log(x + eps) if the prediction is no logarithm"""

    _function = F.poisson_nll_loss
    _settings = ("log_input", "full", "eps")

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return self._of(log_input, target)


class GaussianNLLLoss(_Loss):
    """(log(v) + (x - y)^2 / v) / 2, where variances v are at least eps"""

    _function = F.gaussian_nll_loss
    _settings = ("full", "eps")

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return self._of(input, target, var)


class KLDivLoss(_TargetLoss):
    """y (log y - x), where x, and the target if so said, are logarithms. "batchmean" divides the sum by the items."""

    _function = F.kl_div
    _settings = ("log_target",)

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target


# Of classes.


class _ClassLoss(_WeightedLoss):
    """A loss with weights of classes, and one class that does not count."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index


class NLLLoss(_ClassLoss):
    """-w x of the right class, where x are logarithms of probabilities; the mean is that of weights that count."""

    _function = F.nll_loss
    _settings = ("weight", "ignore_index")


class NLLLoss2d(NLLLoss):
    """The old name of NLLLoss."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        warnings.warn("`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead.", FutureWarning, stacklevel=2)
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class CrossEntropyLoss(_ClassLoss):
    """-log of the softmax of the right class, or of classes by their probabilities.

    >>> import weft
    >>> scores = weft.tensor([[2.0, 0.0, 0.0]])
    >>> weft.nn.CrossEntropyLoss()(scores, weft.tensor([0]))
    tensor(0.2395)
    >>> weft.nn.CrossEntropyLoss(label_smoothing=0.1)(scores, weft.tensor([0]))
    tensor(0.3729)
    """

    _function = F.cross_entropy
    _settings = ("weight", "ignore_index", "label_smoothing")

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction)
        self.label_smoothing = label_smoothing


class BCELoss(_WeightedLoss):
    """-w (y log x + (1 - y) log(1 - x)) of probabilities x; logarithms are not below -100"""

    _function = F.binary_cross_entropy
    _settings = ("weight",)


class BCEWithLogitsLoss(_WeightedLoss):
    """-w (p y log s + (1 - y) log(1 - s)), with s = sigmoid(x) and weights p of what is true

    >>> import weft
    >>> weft.nn.BCEWithLogitsLoss()(weft.zeros(2), weft.tensor([0.0, 1.0]))
    tensor(0.6931)
    """

    _function = F.binary_cross_entropy_with_logits
    _settings = ("weight", "pos_weight")
    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross entropy of a linear layer's scores: the layer and the loss in one.

    The scores of a class may have axes of their own, `out_features`. `options` of memory change no result.
    """

    _function = F.linear_cross_entropy
    _settings = ("linear_bias", "weight", "ignore_index", "label_smoothing", "options")

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        if weight is not None and weight.shape != (num_classes,):
            raise RunError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RunError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.options = options
        self.linear = Linear(in_features, num_classes * math.prod(out_features), bias, device, dtype)

    @property
    def linear_bias(self) -> Tensor | None:
        bias: Tensor | None = self.linear.bias
        return None if bias is None else bias.reshape(self.num_classes, *self.out_features)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        weight = self.linear.weight.reshape(self.num_classes, *self.out_features, self.linear.in_features)
        return self._of(input, weight, target)

    def extra_repr(self) -> str:
        shown: dict[str, Any] = {"in_features": self.linear.in_features, "num_classes": self.num_classes}
        shown |= {"out_features": self.out_features, "bias": self.linear.bias is not None}
        names = ("reduction", "ignore_index", "label_smoothing", "options")
        shown |= {name: getattr(self, name) for name in names}
        return ", ".join(f"{name}={value}" for name, value in shown.items())


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The mean over classes of binary cross entropy with logits"""

    _function = F.multilabel_soft_margin_loss
    _settings = ("weight",)


# Of margins.


class SoftMarginLoss(_TargetLoss):
    """log(1 + exp(-y x))"""

    _function = F.soft_margin_loss


class MultiLabelMarginLoss(_TargetLoss):
    """Over right and other classes, max(0, 1 - x[right] + x[other]); targets end at a -1"""

    _function = F.multilabel_margin_loss


class MultiMarginLoss(_WeightedLoss):
    """The mean over other classes of max(0, margin - x[right] + x)^p, times the right class's weight"""

    _function = F.multi_margin_loss
    _settings = ("p", "margin", "weight")

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise InvalidValue("only p == 1 and p == 2 supported")
        if weight is not None and weight.ndim != 1:
            raise InvalidValue(f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.ndim}D instead")
        self.p = p
        self.margin = margin


class HingeEmbeddingLoss(_TargetLoss):
    """x where y is 1, max(0, margin - x) where it is -1"""

    _function = F.hinge_embedding_loss
    _settings = ("margin",)

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class _PairLoss(_Loss):
    """A loss of two inputs, and of what their target says about them."""

    _settings = ("margin",)

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return self._of(input1, input2, target)


class CosineEmbeddingLoss(_PairLoss):
    """1 - cos(x1, x2) where y is 1, max(0, cos(x1, x2) - margin) where it is -1"""

    _function = F.cosine_embedding_loss


class MarginRankingLoss(_PairLoss):
    """max(0, -y (x1 - x2) + margin)"""

    _function = F.margin_ranking_loss


class _TripletLoss(_Loss):
    def _check_margin(self, margin: float) -> None:
        if margin <= 0:
            name = type(self).__name__
            raise InvalidValue(f"{name}: expected margin to be greater than 0, got {margin} instead")

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return self._of(anchor, positive, negative)


class TripletMarginLoss(_TripletLoss):
    """max(0, |a - p| - |a - n| + margin); with `swap`, n is as near as it is to a or to p"""

    _function = F.triplet_margin_loss
    _settings = ("margin", "p", "eps", "swap")

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self._check_margin(margin)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap


class TripletMarginWithDistanceLoss(_TripletLoss):
    """TripletMarginLoss with another distance: any function or module of two tensors"""

    _function = F.triplet_margin_with_distance_loss
    _settings = ("distance_function", "margin", "swap")

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self._check_margin(margin)
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin = margin
        self.swap = swap


# Of sequences.


class CTCLoss(_Loss):
    """-log of the probability of all alignments of a sequence of labels to longer sequences of scores"""

    _function = F.ctc_loss
    _settings = ("blank", "zero_infinity")

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return self._of(log_probs, targets, input_lengths, target_lengths)

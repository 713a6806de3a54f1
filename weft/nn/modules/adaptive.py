"""Softmax over many classes, of which few are frequent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...base.errors import InvalidValue, RunError
from ...eager.functions.math.special import log_softmax
from ...eager.functions.shape.join import cat
from ...eager.tensor.tensor import Tensor
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    """The log probability of each target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Scores of classes that are sorted by frequency: those before the first cutoff are scored by the head itself, the
    others by a smaller map for each cluster that ends at a cutoff. Of class c in cluster k,

        log p(c) = log p(k) + log p(c | k)

    Cluster i projects its input to in_features / div_value^(i + 1) features before it scores them.

    >>> import weft
    >>> soft = weft.nn.AdaptiveLogSoftmaxWithLoss(8, 100, cutoffs=[10, 50], div_value=2)
    >>> result = soft(weft.randn(3, 8), weft.tensor([2, 20, 99]))
    >>> result.output.shape, bool(result.loss == -result.output.mean())
    (weft.Size([3]), True)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        ends = _checked_cutoffs(list(cutoffs), n_classes)
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*ends, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = ends[0]
        self.n_clusters = len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for place, (start, end) in enumerate(self._clusters()):
            width = int(in_features // div_value ** (place + 1))
            first = Linear(in_features, width, False, device, dtype)
            self.tail.append(Sequential(first, Linear(width, end - start, False, device, dtype)))

    def _clusters(self) -> list[tuple[int, int]]:
        """The first class of each cluster, and that after its last."""
        return list(zip(self.cutoffs, self.cutoffs[1:]))

    def reset_parameters(self) -> None:
        for layer in (self.head, *(part for pair in self.tail for part in pair)):
            layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        input, target = self._batched(input_, target_)
        in_cluster = [target.ge(start) & target.lt(end) for start, end in self._clusters()]
        column = target
        for place, mask in enumerate(in_cluster):
            column = column.masked_fill(mask, self.shortlist_size + place)
        output = log_softmax(self.head(input), 1).gather(1, column.unsqueeze(1)).squeeze(1)
        for mask, layer, (start, _) in zip(in_cluster, self.tail, self._clusters()):
            rows = mask.nonzero().squeeze(1)
            if rows.numel():
                inside = (target[rows] - start).unsqueeze(1)
                scores = log_softmax(layer(input[rows]), 1).gather(1, inside).squeeze(1)
                output = output.index_add(0, rows, scores)
        return _ASMoutput(output if target_.ndim else output.squeeze(0), -output.mean())

    def _batched(self, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """A batch and its targets, also of an item alone."""
        if target.ndim > 1:
            raise RunError("0D or 1D target tensor expected, multi-target not supported")
        if target.ndim == 0 and input.ndim == 1:
            input, target = input.unsqueeze(0), target.unsqueeze(0)
        if target.ndim == 0 or input.ndim != 2 or input.shape[0] != target.shape[0]:
            raise RunError(
                "Input and target should have the same size in the batch dimension.",
                why=f"an input of shape {tuple(input.shape)}, a target of {tuple(target.shape)}",
            )
        if target.numel() and (target.min() < 0 or target.max() >= self.n_classes):
            least, most = target.min().item(), target.max().item()
            message = f"Target values should be in [0, {self.n_classes - 1}], but values in range [{least}, {most}]"
            raise RunError(f"{message} were found.")
        return input, target

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probabilities of all classes, for each item of a batch."""
        head = log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for place, layer in enumerate(self.tail):
            of_cluster = head[:, self.shortlist_size + place].unsqueeze(1)
            parts.append(of_cluster + log_softmax(layer(input), 1))
        return cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The class of each item of a batch: the best of the shortlist, or of all where the head prefers a cluster."""
        best: Tensor = self.head(input).argmax(1)
        rows = best.ge(self.shortlist_size).nonzero().squeeze(1)
        if rows.numel():
            best = best.index_copy(0, rows, self.log_prob(input[rows]).argmax(1))
        return best


def _checked_cutoffs(cutoffs: list[int], n_classes: int) -> list[int]:
    if not cutoffs:
        raise InvalidValue("cutoffs should be a sequence of length larger than 0")
    whole = all(int(cutoff) == cutoff for cutoff in cutoffs)
    if not whole or cutoffs != sorted(set(cutoffs)) or not 1 <= cutoffs[0] <= cutoffs[-1] < n_classes:
        raise InvalidValue(
            "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
            "value is between 1 and n_classes-1",
            why=f"{cutoffs} for {n_classes} classes",
        )
    return cutoffs

"""Vectors for whole numbers, one by one and bag by bag, as layers."""

from __future__ import annotations

from typing import Any

from ...base.errors import InvalidValue, Unsupported
from ...eager.functions.create.create import full
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from .. import init
from ._making import F
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


class _Vectors(Module):
    """A matrix with a row for each number; `padding_idx` is one whose row begins as zeros and is not trained."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        norm_type: float,
        scale_grad_by_freq: bool,
        sparse: bool,
        weight: Tensor | None,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        if sparse:
            raise Unsupported(
                f"{type(self).__name__} with sparse=True",
                why="weft has no sparse tensors, which the gradient would be",
                hint="leave out `sparse`: only the rows that are used get a gradient that is not zero",
            )
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise InvalidValue("padding_idx must be within num_embeddings", why=f"{padding_idx} of {num_embeddings}")
        if weight is not None and weight.shape != (num_embeddings, embedding_dim):
            raise InvalidValue(
                "Shape of weight does not match num_embeddings and embedding_dim",
                why=f"{tuple(weight.shape)} instead of {(num_embeddings, embedding_dim)}",
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_embeddings
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if weight is not None:
            self.weight = Parameter(weight)
        else:
            self.weight = Parameter(full((num_embeddings, embedding_dim), 0.0, device=device, dtype=dtype))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight[self.padding_idx])

    def _shown(self) -> dict[str, str]:
        """What a repr says of the settings that are not the usual ones."""
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False}
        found = {name: getattr(self, name) for name in usual}
        return {name: f"{name}={found[name]}" for name in usual if found[name] != usual[name]}


def _matrix_sizes(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.ndim != 2:
        raise InvalidValue("Embeddings parameter is expected to be 2-dimensional", why=f"it has {embeddings.ndim}")
    rows, columns = embeddings.shape
    return rows, columns


class Embedding(_Vectors):
    """The rows of a trained matrix at whole numbers.

    The row of `padding_idx` has no gradient. Rows that are used and longer than `max_norm` are shortened in place;
    `scale_grad_by_freq` divides a row's gradient by how often it is used.

    >>> import weft
    >>> table = weft.nn.Embedding.from_pretrained(weft.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> table(weft.tensor([1, 0, 1]))
    tensor([[3., 4.],
            [1., 2.],
            [3., 4.]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, *settings, _weight, device, dtype)
        self.weight.requires_grad_(not _freeze)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        return ", ".join([str(self.num_embeddings), str(self.embedding_dim), *self._shown().values()])

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A layer around a matrix, whose memory it shares; it is trained if it is not `freeze`."""
        rows, columns = _matrix_sizes(embeddings)
        settings = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(rows, columns, *settings, _weight=embeddings, _freeze=freeze)


class EmbeddingBag(_Vectors):
    """The sum, mean or greatest of the rows of a trained matrix at the whole numbers of each bag.

    Bags are the rows of a matrix, or parts of a vector that begin at `offsets`; what is `padding_idx` counts in none.

    >>> import weft
    >>> bags = weft.nn.EmbeddingBag.from_pretrained(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), mode="sum")
    >>> bags(weft.tensor([0, 1, 1]), weft.tensor([0, 2]))
    tensor([[4., 6.],
            [3., 4.]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, *settings, _weight, device, dtype)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        shown = self._shown()
        padding = [shown.pop("padding_idx")] if "padding_idx" in shown else []
        sizes = [str(self.num_embeddings), str(self.embedding_dim)]
        return ", ".join([*sizes, *shown.values(), f"mode={self.mode!r}", *padding])

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A layer around a matrix, whose memory it shares; it is trained if it is not `freeze`."""
        rows, columns = _matrix_sizes(embeddings)
        settings = (max_norm, norm_type, scale_grad_by_freq, mode, sparse)
        made = cls(rows, columns, *settings, embeddings, include_last_offset, padding_idx)
        made.weight.requires_grad_(not freeze)
        return made

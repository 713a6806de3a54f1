"""Normalisation of each channel over a batch, with moments that run along for evaluation."""

from __future__ import annotations

from typing import Any, ClassVar

from ...base.errors import InvalidValue
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from ...eager.tensor.types import int64
from .. import init
from ..parameter import UninitializedBuffer, UninitializedParameter
from ._making import F, ones, parameter, tensor, zeros
from .lazy import LazyModuleMixin
from .module import Module

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
]


class _NormBase(Module):
    """Weight and bias of channels, if affine, and running moments, if they are tracked."""

    _version = 2  # from which on the number of batches is in state dicts
    _ranks: ClassVar[tuple[int, ...]] = ()  # of inputs that are taken; none: all

    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._make_parameters(affine, affine and bias, device, dtype)
        self._make_moments(track_running_stats, device, dtype)
        self.reset_parameters()

    def _make_parameters(self, weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        for name, wanted in (("weight", weight), ("bias", bias)):
            self.register_parameter(name, parameter((self.num_features,), device, dtype) if wanted else None)

    def _make_moments(self, wanted: bool, device: Any, dtype: Any) -> None:
        count = tensor(0, dtype=int64, device=device) if wanted else None
        for name, make in (("running_mean", zeros), ("running_var", ones)):
            self.register_buffer(name, make(self.num_features, device=device, dtype=dtype) if wanted else None)
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches."""
        if self.track_running_stats:
            for moment, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
                if moment is not None:
                    moment.fill_(value)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and running moments as at the start."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if self._ranks and input.ndim not in self._ranks:
            expected = " or ".join(f"{rank}D" for rank in self._ranks)
            raise InvalidValue(f"expected {expected} input (got {input.ndim}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """State dicts of version 1 have no number of batches: it stays what it is."""
        key, version = prefix + "num_batches_tracked", local_metadata.get("version")
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            kept = self.num_batches_tracked
            state_dict[key] = tensor(0, dtype=int64) if kept is None else kept
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        moves = self.training and self.track_running_stats
        if moves and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain mean of all batches
                factor = 1.0 / float(self.num_batches_tracked)
        mean, var = (moment if moves or not self.training else None for moment in (self.running_mean, self.running_var))
        of_batch = self.training or (self.running_mean is None and self.running_var is None)
        return F.batch_norm(input, mean, var, self.weight, self.bias, of_batch, factor, self.eps)


class BatchNorm1d(_BatchNorm):
    """Each channel of (N, C) or (N, C, L) less its mean, divided by its deviation.

    y = (x - mean) / sqrt(var + eps) * weight + bias. In training, moments are those of the batch, and the running ones
    move: running = (1 - momentum) running + momentum of the batch, the variance by n - 1; with momentum None, they are
    the mean over all batches. In evaluation, the running ones are used, if they are tracked.

    >>> import weft
    >>> layer = weft.nn.BatchNorm1d(1)
    >>> layer(weft.tensor([[1.0], [3.0]]))
    tensor([[-1.0000],
            [ 1.0000]], grad_fn=<NativeBatchNormBackward0>)
    >>> layer.running_mean, layer.num_batches_tracked
    (tensor([0.2000]), tensor(1))
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Each channel of images (N, C, H, W) less its mean, divided by its deviation: `BatchNorm1d` over three axes.

    >>> import weft
    >>> weft.nn.BatchNorm2d(3)
    BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    >>> weft.nn.BatchNorm2d(3).eval()(weft.ones(2, 3, 4, 4)).shape
    weft.Size([2, 3, 4, 4])
    """

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Each channel of volumes (N, C, D, H, W) less its mean, divided by its deviation: `BatchNorm1d` over four axes.

    >>> import weft
    >>> weft.nn.BatchNorm3d(3, affine=False)(weft.rand(2, 3, 2, 2, 2)).shape
    weft.Size([2, 3, 2, 2, 2])
    """

    _ranks = (5,)


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Parameters and moments that are made for the channels of the first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _make_parameters(self, weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        for name, wanted in (("weight", weight), ("bias", bias)):
            self.register_parameter(name, UninitializedParameter(device=device, dtype=dtype) if wanted else None)

    def _make_moments(self, wanted: bool, device: Any, dtype: Any) -> None:
        for name in ("running_mean", "running_var"):
            self.register_buffer(name, UninitializedBuffer(device=device, dtype=dtype) if wanted else None)
        self.register_buffer("num_batches_tracked", tensor(0, dtype=int64, device=device) if wanted else None)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Makes the parameters and moments for inputs like this one, if no state has brought them."""
        vectors = [self.weight, self.bias, self.running_mean, self.running_var]
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            for lazy in vectors:
                if isinstance(lazy, (UninitializedParameter, UninitializedBuffer)):
                    lazy.materialize((self.num_features,))
            self.reset_parameters()
        else:
            self.num_features = next((len(made) for made in vectors if made is not None), input.shape[1])


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """A `BatchNorm1d` that takes num_features from its first input, and is one from then on.

    >>> import weft
    >>> layer = weft.nn.LazyBatchNorm1d()
    >>> layer(weft.rand(4, 3)).shape, layer.num_features
    (weft.Size([4, 3]), 3)
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """A `BatchNorm2d` that takes num_features from its first input, and is one from then on.

    >>> import weft
    >>> weft.nn.LazyBatchNorm2d()(weft.rand(2, 3, 4, 4)).shape
    weft.Size([2, 3, 4, 4])
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """A `BatchNorm3d` that takes num_features from its first input, and is one from then on.

    >>> import weft
    >>> weft.nn.LazyBatchNorm3d()(weft.rand(2, 3, 2, 2, 2)).shape
    weft.Size([2, 3, 2, 2, 2])
    """

    cls_to_become = BatchNorm3d


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of inputs of two or more dimensions, over the batches of all processes.

    There is one process, so that it computes what `BatchNorm1d` does; a process_group is kept.

    >>> import weft
    >>> weft.nn.SyncBatchNorm.convert_sync_batchnorm(weft.nn.Sequential(weft.nn.BatchNorm1d(3, affine=False)))
    Sequential(
      (0): SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=False, bias=False, track_running_stats=True)
    )
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise InvalidValue(f"expected at least 2D input (got {input.ndim}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with every batch norm in it as a SyncBatchNorm of the same parameters and moments."""
        made: dict[int, Module] = {}

        def synchronised(norm: _BatchNorm) -> Module:
            if id(norm) not in made:
                made[id(norm)] = cls._like(norm, process_group)
            return made[id(norm)]

        if isinstance(module, _BatchNorm):
            return synchronised(module)
        for parent in list(module.modules()):
            for name, child in list(parent._modules.items()):
                if isinstance(child, _BatchNorm):
                    parent.add_module(name, synchronised(child))
        return module

    @classmethod
    def _like(cls, norm: _BatchNorm, process_group: Any) -> SyncBatchNorm:
        sizes = (norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        made = cls(*sizes, process_group, bias=norm.bias is not None)
        made.weight, made.bias = norm.weight, norm.bias
        made.running_mean, made.running_var = norm.running_mean, norm.running_var
        made.num_batches_tracked, made.training = norm.num_batches_tracked, norm.training
        return made

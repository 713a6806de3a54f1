"""Averages of models: stochastic weight averaging, and exponential moving averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from math import cos, pi
from typing import Any, Literal

from ..base.errors import Error, InvalidValue
from ..eager.autograd.modes import no_grad
from ..eager.tensor.tensor import Tensor
from ..eager.tensor.types import int64
from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from .optimizer import F, Optimizer
from .schedule import LRScheduler, checked, for_groups

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def __dir__() -> list[str]:
    return list(__all__)


AvgFn = Callable[[Tensor, Tensor, Any], Tensor]
MultiAvgFn = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


class _BothGiven(Error, AssertionError):
    """Two functions that say the same."""


def get_ema_avg_fn(decay: float = 0.999) -> AvgFn:
    """decay * average + (1 - decay) * parameter"""
    if not 0.0 <= decay <= 1.0:
        raise InvalidValue(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")

    def average(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return ema_param * decay + current_param * (1 - decay)

    return average


def get_swa_avg_fn() -> AvgFn:
    """average + (parameter - average) / (n + 1), the mean of all."""

    def average(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            made: Tensor = averaged_param + (current_param - averaged_param) / (num_averaged + 1)
            return made

    return average


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAvgFn:
    """The same as `get_ema_avg_fn` of lists, in place."""
    return _in_place(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> MultiAvgFn:
    """The same as `get_swa_avg_fn` of lists, in place."""
    return _in_place(get_swa_avg_fn())


def _in_place(average: AvgFn) -> MultiAvgFn:
    def update(averaged: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Any) -> None:
        with no_grad():
            for mean, now in zip(averaged, current):
                mean.copy_(average(mean, now.to(mean.device), num_averaged))

    return update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of that model's; `update_parameters` takes up the present ones.

    >>> import weft
    >>> model = weft.nn.Linear(2, 1)
    >>> mean = AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = weft.nn.init.constant_(model.bias, value)
    ...     mean.update_parameters(model)
    >>> mean.module.bias
    Parameter containing:
    tensor([3.], requires_grad=True)
    """

    n_averaged: Tensor
    module: Module

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise _BothGiven("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", F.tensor(0, dtype=int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Takes the parameters of a model into the averages; buffers, too, or as they are."""
        with no_grad():
            self._update(model)

    def _update(self, model: Module) -> None:
        mine, its = (self._averaged(module) for module in (self.module, model))
        if not self.n_averaged:
            for mean, now in zip(mine, its):
                mean.copy_(now)
        elif self.multi_avg_fn is not None:
            self.multi_avg_fn(mine, its, self.n_averaged)
        else:
            _in_place(self.avg_fn or get_swa_avg_fn())(mine, its, self.n_averaged)
        if not self.use_buffers:
            for own, buffer in zip(self.module.buffers(), model.buffers()):
                own.detach().copy_(buffer.detach().to(own.device))
        self.n_averaged += 1

    def _averaged(self, module: Module) -> list[Tensor]:
        found = chain(module.parameters(), module.buffers()) if self.use_buffers else module.parameters()
        return [tensor.detach() for tensor in found]


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Computes the statistics of all batch normalisations anew, over the batches of a loader."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
    with no_grad():
        for batch in loader:
            data = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(data if device is None else data.to(device))
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """lr goes from what it is to swa_lr in `anneal_epochs`, along half a wave or a line, and stays there.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.zeros(2, requires_grad=True)], lr=1.0)
    >>> schedule = SWALR(optimizer, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     schedule.step()
    ...     print(schedule.get_last_lr())
    [0.75]
    [0.5]
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        for rate, group in zip(for_groups(checked(optimizer), "swa_lr", swa_lr), optimizer.param_groups):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidValue(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise InvalidValue(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _part(self, epoch: int) -> float:
        """How much of the way is behind at an epoch."""
        part = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return (1 - cos(pi * part)) / 2 if self._anneal_strategy == "cos" else part

    def get_lr(self) -> list[Any]:
        lrs, epoch = self._lrs(), self._step_count - 1
        epoch = max(1, epoch) if self.anneal_epochs == 0 else epoch
        before, now = self._part(epoch - 1), self._part(epoch)
        rates = []
        for lr, group in zip(lrs, self.optimizer.param_groups):
            end = group["swa_lr"]
            start = lr if before == 1 else (lr - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates

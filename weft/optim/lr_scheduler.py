"""Schedules of learning rates: each changes the rates of an optimiser's groups, epoch by epoch.

Most are chainable: the next rate follows from the last one, so several schedules of one optimiser multiply. Where the
rate of an epoch is also known by itself, `_get_closed_form_lr` has the formula.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from math import cos, floor, log, pi
from typing import Any

from ..base.errors import InvalidValue
from .composed_schedules import ChainedScheduler, SequentialLR
from .cyclic_schedules import CyclicLR, OneCycleLR
from .optimizer import Optimizer
from .plateau import ReduceLROnPlateau
from .schedule import LRScheduler, attributes, checked, cosine

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


def __dir__() -> list[str]:
    return list(__all__)


_LRScheduler = LRScheduler  # the name it once had


class _ByFunctions(LRScheduler):
    """Schedules by a function of the epoch, or one for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        groups = len(checked(optimizer).param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        if len(self.lr_lambdas) != groups:
            raise InvalidValue(f"Expected {groups} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """All but the optimiser and functions; of objects that are called, what they have."""
        state = super().state_dict()
        del state["lr_lambdas"]
        return {**state, "lr_lambdas": [attributes(function) for function in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        functions = state.pop("lr_lambdas")
        super().load_state_dict(state)
        for own, saved in zip(self.lr_lambdas, functions):
            if saved is not None:
                own.__dict__.update(saved)


class LambdaLR(_ByFunctions):
    """lr = base * f(epoch)

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.zeros(2, requires_grad=True)], lr=0.5)
    >>> schedule = LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def get_lr(self) -> list[Any]:
        self._lrs()
        return [base * function(self.last_epoch) for function, base in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(_ByFunctions):
    """lr = lr * f(epoch)"""

    def get_lr(self) -> list[Any]:
        lrs = self._lrs()
        return lrs if self._is_initial else [lr * f(self.last_epoch) for f, lr in zip(self.lr_lambdas, lrs)]


class StepLR(LRScheduler):
    """lr = base * gamma^floor(epoch / step_size)

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.zeros(2, requires_grad=True)], lr=0.5)
    >>> schedule = StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     print(schedule.get_last_lr())
    [0.5]
    [0.25]
    [0.25]
    [0.125]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        falls = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return [lr * self.gamma for lr in self._lrs()] if falls else self._lrs()

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """lr = base * gamma^(how many milestones there were)"""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        falls = self.milestones.get(self.last_epoch)
        return [lr * self.gamma**falls for lr in self._lrs()] if falls else self._lrs()

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """lr = base * factor before epoch total_iters, base from then on."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1.0:
            raise InvalidValue("Constant multiplicative factor expected to be between 0 and 1.", why=f"it is {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        lrs = self._lrs()
        if self.last_epoch == 0:
            return [lr * self.factor for lr in lrs]
        return [lr * (1.0 / self.factor) for lr in lrs] if self.last_epoch == self.total_iters else lrs

    def _get_closed_form_lr(self) -> list[Any]:
        factor = 1.0 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """lr = base * (start_factor + (end_factor - start_factor) * min(epoch, total_iters) / total_iters)"""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1.0:
            raise InvalidValue(
                "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.",
                why=f"it is {start_factor}",
            )
        if not 0 <= end_factor <= 1.0:
            raise InvalidValue(
                "Ending multiplicative factor expected to be between 0 and 1.", why=f"it is {end_factor}"
            )
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        lrs = self._lrs()
        if self.last_epoch == 0:
            return [lr * self.start_factor for lr in lrs]
        if self._is_initial or self.last_epoch > self.total_iters:
            return lrs
        growth = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * growth
        return [lr * (1.0 + growth / before) for lr in lrs]

    def _get_closed_form_lr(self) -> list[Any]:
        part = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * part) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """lr = base * gamma^epoch"""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        lrs = self._lrs()
        return lrs if self._is_initial else [lr * self.gamma for lr in lrs]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """lr = base * (1 - min(epoch, total_iters) / total_iters)^power"""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        lrs = self._lrs()
        if self._is_initial or self.last_epoch > self.total_iters:
            return lrs
        left = 1.0 - self.last_epoch / self.total_iters
        factor = (left / (1.0 - (self.last_epoch - 1) / self.total_iters)) ** self.power
        return [lr * factor for lr in lrs]

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (base - eta_min) * (1 + cos(pi * epoch / T_max)) / 2

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.zeros(2, requires_grad=True)], lr=1.0)
    >>> schedule = CosineAnnealingLR(optimizer, T_max=4)
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     schedule.step()
    >>> print(f"{schedule.get_last_lr()[0]:.3f}")
    0.500
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        lrs, epoch, length, least = self._lrs(), self.last_epoch, self.T_max, self.eta_min
        if self._is_initial:
            return lrs
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        if (epoch - 1 - length) % (2 * length) == 0:  # the last one was the least, which nothing multiplies up
            return [lr + (base - least) * (1 - cos(pi / length)) / 2 for base, lr in zip(self.base_lrs, lrs)]
        factor = (1 + cos(pi * epoch / length)) / (1 + cos(pi * (epoch - 1) / length))
        return [factor * (lr - least) + least for lr in lrs]

    def _get_closed_form_lr(self) -> list[Any]:
        return [cosine(base, self.eta_min, self.last_epoch / self.T_max) for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """lr = eta_min + (base - eta_min) * (1 + cos(pi * T_cur / T_i)) / 2, where T_cur begins anew after T_i epochs, and
    T_i grows by T_mult each time. `step(epoch)` takes parts of epochs, too."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise InvalidValue(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise InvalidValue(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise InvalidValue(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min = T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._lrs()
        return [cosine(base, self.eta_min, self.T_cur / self.T_i) for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Sets the rates of the next epoch, or of one that is given, with a fraction if wanted."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise InvalidValue(f"Expected non-negative epoch, but got {epoch}")
        else:
            self._find_cycle(epoch)
        self.last_epoch = floor(epoch) - 1
        self._update_lr()

    def _find_cycle(self, epoch: float) -> None:
        if self.T_mult == 1:
            self.T_cur, self.T_i = epoch % self.T_0, self.T_0
            return
        number = int(log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
        self.T_cur = epoch - self.T_0 * (self.T_mult**number - 1) / (self.T_mult - 1)
        self.T_i = self.T_0 * self.T_mult**number

"""Schedules that are made of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..base.errors import InvalidValue
from .optimizer import Optimizer
from .plateau import ReduceLROnPlateau
from .schedule import LRScheduler, of_groups, set_option

__all__ = ["ChainedScheduler", "SequentialLR"]


class _Composed(LRScheduler):
    """Schedules of one optimiser."""

    _schedulers: Sequence[LRScheduler]

    def _check(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer) -> None:
        own = type(self).__name__
        for number, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise InvalidValue(
                    f"{own} does not support `ReduceLROnPlateau` scheduler, but got one at index {number}",
                    why="its steps take a figure",
                )
            if scheduler.optimizer is not optimizer:
                raise InvalidValue(
                    f"{own} expects all schedulers to belong to the same optimizer, but {type(scheduler).__name__} at "
                    f"index {number} has another"
                )

    def _undo(self) -> None:
        for scheduler in self._schedulers:
            scheduler._undo()

    def state_dict(self) -> dict[str, Any]:
        """All but the optimiser, with the states of the schedules."""
        state = super().state_dict()
        del state["_schedulers"]
        return {**state, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        saved = state.pop("_schedulers")
        super().load_state_dict(state)
        for scheduler, own in zip(self._schedulers, saved):
            scheduler.load_state_dict(own)


class ChainedScheduler(_Composed):
    """Several schedules at once: each step is one of all of them, in order."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise InvalidValue("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        self.optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        self._check(schedulers, self.optimizer)
        self._schedulers = schedulers
        self._last_lr = of_groups(self.optimizer, "lr")

    def _initial_step(self) -> None:
        for scheduler in self._schedulers:
            scheduler._initial_step()
        self._last_lr = of_groups(self.optimizer, "lr")

    def step(self, epoch: int | None = None) -> None:
        """A step of every schedule."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = of_groups(self.optimizer, "lr")

    def _update_lr(self, epoch: int | None = None) -> None:
        for scheduler in self._schedulers:
            scheduler._update_lr(epoch)
        self._last_lr = of_groups(self.optimizer, "lr")


class SequentialLR(_Composed):
    """One schedule after the other: the next one begins, with its epoch 0, at each milestone.

    >>> import weft
    >>> from weft.optim.lr_scheduler import ConstantLR, ExponentialLR
    >>> optimizer = weft.optim.SGD([weft.zeros(2, requires_grad=True)], lr=1.0)
    >>> warm, cold = ConstantLR(optimizer, factor=0.25, total_iters=2), ExponentialLR(optimizer, gamma=0.5)
    >>> schedule = SequentialLR(optimizer, [warm, cold], milestones=[2])
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     print(schedule.get_last_lr())
    [0.25]
    [1.0]
    [0.5]
    [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if len(schedulers) < 1:
            raise InvalidValue("SequentialLR expects at least one scheduler, but got no scheduler.")
        self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise InvalidValue(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got {len(schedulers)} schedulers and {len(milestones)} milestones"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch
        self.optimizer = optimizer
        for group in optimizer.param_groups:  # each schedule has set its first rates
            set_option(group, "lr", group["initial_lr"])
        for scheduler in schedulers:
            scheduler._undo()
        self._initial_step()

    def _initial_step(self) -> None:
        self.last_epoch += 1
        self._schedulers[0]._initial_step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def _undo(self) -> None:
        self.last_epoch -= 1
        super()._undo()

    def step(self, epoch: int | None = None) -> None:
        """A step of the schedule whose turn it is."""
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number > 0 and self._milestones[number - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._schedulers[0]._update_lr(epoch)
        self._last_lr = self._schedulers[0].get_last_lr()

"""What every schedule of learning rates is: it counts epochs and sets the rates of an optimiser's groups."""

from __future__ import annotations

import warnings
from functools import partial
from math import cos, pi
from typing import Any

from ..base.errors import InvalidType, InvalidValue, NotFound, Unsupported
from ..eager.autograd.modes import modes
from ..eager.tensor.tensor import Tensor
from .optimizer import Group, Optimizer

__all__ = ["LRScheduler"]

EPOCH_DEPRECATED = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible: "
    "call `scheduler.step()`. With an epoch, the closed form of the schedule is used where there is one."
)


def of_groups(optimizer: Optimizer, key: str) -> list[Any]:
    """An option of each group; tensors as they are now."""
    return [kept(group[key]) for group in optimizer.param_groups]


def kept(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def set_option(group: Group, key: str, value: Any) -> None:
    """Gives a group an option; a tensor stays the same one, and takes the value."""
    if isinstance(group[key], Tensor):
        group[key].detach().fill_(float(value))
    else:
        group[key] = value


def for_groups(optimizer: Optimizer, name: str, values: Any) -> list[Any]:
    """A value for each group, from one for all or a list."""
    groups = optimizer.param_groups
    if not isinstance(values, (list, tuple)):
        return [values] * len(groups)
    if len(values) != len(groups):
        raise InvalidValue(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(values)} values, "
            f"param_groups has {len(groups)}."
        )
    return list(values)


def checked(optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise InvalidType(f"{type(optimizer).__name__} is not an Optimizer")
    return optimizer


class LRScheduler:
    """Base of all schedules: a class of your own defines `get_lr`, which gives the rates of the groups at `last_epoch`.

    >>> import weft
    >>> class Halved(LRScheduler):
    ...     def get_lr(self):
    ...         return [base * 0.5**self.last_epoch for base in self.base_lrs]
    >>> optimizer = weft.optim.SGD([weft.zeros(2, requires_grad=True)], lr=1.0)
    >>> schedule = Halved(optimizer)
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.125]
    """

    _get_lr_called_within_step = False
    _is_initial = False
    _get_closed_form_lr: Any = None

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = checked(optimizer)
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", kept(group["lr"]))
            elif "initial_lr" not in group:
                raise NotFound(
                    f"param 'initial_lr' is not specified in param_groups[{number}]",
                    why=f"a schedule that goes on after epoch {last_epoch} takes the rates it began with from there",
                    hint="load the state of the optimizer first, or begin with last_epoch=-1",
                )
        self.base_lrs = of_groups(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        optimizer._opt_called = False
        self._initial_step()

    def _initial_step(self) -> None:
        """The step that every schedule takes when it begins."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def _undo(self) -> None:
        """Takes the initial step back, all but the rates."""
        self.last_epoch -= 1

    def state_dict(self) -> dict[str, Any]:
        """All but the optimiser."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up a state that `state_dict` gave, weft's or PyTorch's."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates that the last step set."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`, from those now."""
        raise Unsupported(f"{type(self).__name__} has no get_lr")

    def _lrs(self) -> list[Any]:
        """The rates now. A schedule asks for them while it steps; elsewhere `get_last_lr` is meant."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Sets the rates of the next epoch."""
        if modes.trace is not None:
            modes.trace.act(partial(self.step, epoch))
            return
        if self._step_count == 1 and not self.optimizer._opt_called:
            self._warn_of_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATED, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _warn_of_order(self) -> None:
        if getattr(self.optimizer.step, "__func__", None) is type(self.optimizer).step:
            text = (
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: call them in the opposite order, "
                "or the first value of the schedule is skipped."
            )
        else:
            text = (
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization: "
                "make sure that `optimizer.step()` comes before `lr_scheduler.step()`."
            )
        warnings.warn(text, UserWarning, stacklevel=3)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                lrs = self.get_lr()
            else:
                self.last_epoch = epoch
                lrs = self.get_lr() if self._get_closed_form_lr is None else self._get_closed_form_lr()
        finally:
            self._get_lr_called_within_step = False
        for group, lr in zip(self.optimizer.param_groups, lrs):
            set_option(group, "lr", lr)
        self._last_lr = of_groups(self.optimizer, "lr")


def cosine(high: Any, low: Any, part: float) -> Any:
    """From `high` at 0 to `low` at 1 along half a wave."""
    return low + (high - low) * (1 + cos(pi * part)) / 2


def line(start: Any, end: Any, part: float) -> Any:
    return (end - start) * part + start


def attributes(function: Any) -> dict[str, Any] | None:
    return None if type(function).__name__ in ("function", "builtin_function_or_method") else dict(vars(function))

"""GradScaler: losses are scaled up before a backward pass in narrow floats, so that small gradients do not vanish;
steps whose gradients overflowed are left out, and the scale follows what happened."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import Any

from ..base.errors import InvalidType, InvalidValue, RunError
from .autograd.modes import modes, no_grad
from .tensor.device import is_there
from .tensor.tensor import Tensor


class OptState(Enum):
    """What was done with an optimiser since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """Scales losses, and unscales the gradients before an optimiser's step.

    After `growth_interval` steps without an overflow the scale grows by `growth_factor`; after one with an overflow,
    which is left out, it shrinks by `backoff_factor`.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and not is_there(device):
            warnings.warn(f"GradScaler is enabled, but {device} is not available.  Disabling.", stacklevel=2)
            self._enabled = False
        if self._enabled:
            if not growth_factor > 1.0:
                raise InvalidValue("the growth factor of a scale must be > 1", why=f"it is {growth_factor}")
            if not backoff_factor < 1.0:
                raise InvalidValue("the backoff factor of a scale must be < 1", why=f"it is {backoff_factor}")
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._states: dict[int, tuple[OptState, bool | None]] = {}  # by optimiser; whether gradients overflowed

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def scale(self, outputs: Any) -> Any:
        """A tensor, or each of several, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes)):
            made = [self.scale(each) for each in outputs]
            return type(outputs)(made) if isinstance(outputs, (list, tuple)) else iter(made)
        raise InvalidValue("outputs must be a Tensor or an iterable of Tensors", why=f"got {type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimiser's parameters by the scale, and looks whether all are finite."""
        if not self._enabled:
            return
        if modes.trace is not None:  # whether gradients overflow is found out in every call
            modes.trace.act(partial(self.unscale_, optimizer))
            return
        state, _ = self._state(optimizer)
        if state is OptState.UNSCALED:
            raise RunError("unscale_() has already been called on this optimizer since the last update().")
        if state is OptState.STEPPED:
            raise RunError("unscale_() is being called after step().")
        self._states[id(optimizer)] = (OptState.UNSCALED, self._unscale(optimizer))

    def _unscale(self, optimizer: Any) -> bool | None:
        """Whether a gradient overflowed; None where there are no gradients."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        with no_grad():
            for gradient in gradients:
                gradient.mul_(1.0 / self._scale)
        return any(not bool(gradient.isfinite().all()) for gradient in gradients) if gradients else None

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step()`, unless a gradient overflowed; unscales first, if that was not done."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RunError("Closure use is not currently supported if GradScaler is enabled.")
        if modes.trace is not None:
            return modes.trace.act(partial(self.step, optimizer, *args, **kwargs))
        state, _ = self._state(optimizer)
        if state is OptState.STEPPED:
            raise RunError("step() has already been called since the last update().")
        if state is OptState.READY:
            self.unscale_(optimizer)
        _, overflowed = self._state(optimizer)
        if overflowed is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None if overflowed else optimizer.step(*args, **kwargs)
        self._states[id(optimizer)] = (OptState.STEPPED, overflowed)
        return result

    def update(self, new_scale: Any = None) -> None:
        """Sets the scale for the next turn: as given, or by whether gradients overflowed."""
        if not self._enabled:
            return
        if modes.trace is not None:
            modes.trace.act(partial(self.update, new_scale))
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            seen = [overflowed for _, overflowed in self._states.values() if overflowed is not None]
            if not seen:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._follow(any(seen))
        self._states.clear()

    def _follow(self, overflowed: bool) -> None:
        if overflowed:
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            grown = self._scale * self._growth_factor
            self._scale = grown if math.isfinite(grown) and grown < 2.0**128 else self._scale
            self._growth_tracker = 0

    def _state(self, optimizer: Any) -> tuple[OptState, bool | None]:
        return self._states.get(id(optimizer), (OptState.READY, None))

    def get_scale(self) -> float:
        """The scale; 1.0 if it does nothing."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """By what the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Says by what the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By what the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Says by what the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Says after how many good steps the scale grows."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """What goes on from here need; nothing if it does nothing."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state."""
        if not self._enabled:
            return
        if not isinstance(state_dict, dict):
            raise InvalidType(f"a state is a dict, not {type(state_dict).__name__}")
        if not state_dict:
            raise RunError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = int(state_dict["_growth_tracker"])


class CudaGradScaler(GradScaler):
    """`GradScaler` of CUDA devices by its old name."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        warnings.warn("cuda.amp.GradScaler(...) is deprecated: use amp.GradScaler('cuda', ...)", FutureWarning, 2)
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)

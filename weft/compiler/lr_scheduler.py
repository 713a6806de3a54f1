"""Learning rates that change while a graph trains: the count of updates comes in as a symbol, the
rate goes out as one."""

from __future__ import annotations

from ..base.errors import InvalidValue, Unsupported
from ..core.op import Op
from ..core.symbol import Symbol

__all__ = ["FactorScheduler", "LRScheduler"]


def __dir__() -> list[str]:
    return list(__all__)


BASE_RATE = 0.01


class LRScheduler:
    """A rule from the number of the update (a float64 symbol, 1 at the first) to a rate."""

    def __init__(self, base_lr: float = BASE_RATE, name: str = "LRScheduler") -> None:
        self.base_lr = base_lr
        self.name = name

    def __call__(self, num_update: Symbol) -> Symbol:
        raise Unsupported(
            f"{type(self).__name__} does not say how the rate changes",
            hint="define __call__(self, num_update), which gives the rate as a symbol",
        )


class FactorScheduler(LRScheduler):
    """base_lr * factor ** (num_update / step), no less than `stop_factor_lr`.

    >>> FactorScheduler(step=100, factor=0.5, base_lr=0.1).base_lr
    0.1
    """

    def __init__(
        self,
        step: int,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        name: str = "FactorScheduler",
        base_lr: float = BASE_RATE,
    ) -> None:
        super().__init__(base_lr, name)
        if step < 1:
            raise InvalidValue(f"step is {step}", why="it counts updates, of which 1 is the least")
        if not 0 < factor <= 1:
            raise InvalidValue(f"factor is {factor}", why="a rate goes down, so it is in (0, 1]")
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr

    def __call__(self, num_update: Symbol) -> Symbol:
        rate = self.factor ** (num_update / self.step) * self.base_lr
        return Op.get("clip")(rate, a_min=self.stop_factor_lr, a_max=self.base_lr)

"""Initialisers: a parameter's name and an array come in; random values of a sensible size go out.

Nothing is left at a value that hides a bug: no bias is 0, no scale and no variance is 1.
"""

from __future__ import annotations

import math

import numpy as np

from ..base.errors import InvalidValue


class Initializer:
    """Fills an array by the suffix of its name: weight, bias, gamma, beta, mean or var."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, name: str, array: np.ndarray) -> None:
        for suffix in ("weight", "bias", "gamma", "beta", "mean", "var"):
            if name.endswith(suffix):
                array[...] = getattr(self, f"init_{suffix}")(name, array.shape)
                return
        raise InvalidValue(
            f"no rule to initialise {name!r}", hint="names end with weight, bias, gamma, beta, mean or var"
        )

    def init_weight(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return 0.07 * self.rng.standard_normal(shape, np.float32)

    def init_bias(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return 0.1 * self.rng.standard_normal(shape, np.float32)

    init_beta = init_mean = init_bias

    def init_gamma(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.uniform(0.8, 1.25, shape)

    init_var = init_gamma


class Xavier(Initializer):
    """Weights whose size depends on how many elements they connect.

    `factor_type` is in, out or avg: of the number of inputs, of outputs, or their mean. With "in"
    and magnitude 2 a layer followed by relu keeps the size of what passes through it.
    """

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3, seed: int = 0
    ) -> None:
        super().__init__(seed)
        if rnd_type not in ("uniform", "gaussian") or factor_type not in ("in", "out", "avg"):
            raise InvalidValue(
                f"no Xavier of {rnd_type!r} and {factor_type!r}",
                hint="rnd_type: uniform, gaussian; factor_type: in, out, avg",
            )
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def init_weight(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) < 2:
            raise InvalidValue(f"weight {name!r} of shape {shape} connects nothing")
        taps = float(np.prod(shape[2:]))
        fan_in, fan_out = shape[1] * taps, shape[0] * taps
        if "depthwise" in name:
            fan_in = fan_out = taps
        factor = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}[self.factor_type]
        scale = math.sqrt(self.magnitude / factor)
        if self.rnd_type == "gaussian":
            return scale * self.rng.standard_normal(shape, np.float32)
        return self.rng.uniform(-scale, scale, shape)

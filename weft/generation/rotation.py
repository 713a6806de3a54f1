"""Rotations of pairs of columns by positions: what config.json says of them comes in (`rope_scaling`, `rope_theta`),
tables of cosines and sines go out.

Column e of a head and column e + width / 2 are turned by the angle p f[e] at position p. Scaling changes the
frequencies f, for more positions than a network was trained with at first, and may multiply what is turned."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import InvalidType, InvalidValue, NotFound, OutOfMemory, Unsupported
from .setting_values import flag, number, one_of, told, whole


class Rotation(NamedTuple):
    """By how much each pair of columns is turned from one position to the next, and what that is multiplied by."""

    frequencies: np.ndarray
    factor: float = 1.0

    def tables(self, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of all positions: (positions, width), the first half of the sines negative."""
        try:
            angles = np.arange(positions)[:, None] * self.frequencies
            cosines, sines = (self.factor * np.cos(angles)), (self.factor * np.sin(angles))
            both = np.concatenate([cosines, cosines], 1), np.concatenate([-sines, sines], 1)
            return both[0].astype(np.float32), both[1].astype(np.float32)
        except MemoryError:
            why = "the system reserves no more"
            raise OutOfMemory(f"tables of rotations of {positions} positions", why=why, hint="context=...") from None


class Plain(NamedTuple):
    """What scaling starts from: theta, columns of a head, and how many positions the network was made to see."""

    theta: float
    width: int
    positions: int

    @property
    def frequencies(self) -> np.ndarray:
        """f[e] = theta ** (-2 e / width)"""
        exponents: np.ndarray = np.arange(0, self.width, 2) / self.width
        return self.theta**-exponents


class Scaling:
    """The values of `rope_scaling`, which are checked as they are read."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = {key: value for key, value in given.items() if value is not None}

    def number(self, key: str, least: float = 0.0, default: float | None = None) -> float:
        if key not in self.given:
            if default is None:
                raise NotFound(f"rope_scaling has no {key!r}", why="it has " + ", ".join(map(told, self.given)))
            return default
        return number(f"{key} of rope_scaling", self.given[key], least)

    def original(self, plain: Plain) -> int:
        """Positions that the network was trained with at first."""
        key = "original_max_position_embeddings"
        return whole(f"{key} of rope_scaling", self.given[key]) if key in self.given else plain.positions


def _default(plain: Plain, scaling: Scaling) -> Rotation:
    return Rotation(plain.frequencies)


def _linear(plain: Plain, scaling: Scaling) -> Rotation:
    """f / factor"""
    return Rotation(plain.frequencies / scaling.number("factor", least=1))


def _llama3(plain: Plain, scaling: Scaling) -> Rotation:
    """f (s + (1 - s) / factor), where s goes from 0 to 1 as turns within the original positions go from
    low_freq_factor to high_freq_factor."""
    factor = scaling.number("factor", least=1)
    low, high = (scaling.number(f"{name}_freq_factor") for name in ("low", "high"))
    if not low < high:
        raise InvalidValue(f"low_freq_factor {low:g} of rope_scaling", why=f"it is below high_freq_factor, {high:g}")
    turns = scaling.original(plain) * plain.frequencies / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return Rotation(plain.frequencies * (kept + (1 - kept) / factor))


def _yarn(plain: Plain, scaling: Scaling) -> Rotation:
    """f (s + (1 - s) / factor), where s goes from 1 to 0 between the columns that make beta_fast and beta_slow turns
    within the original positions; what is turned is multiplied by attention_factor."""
    factor = scaling.number("factor", least=1)
    if plain.theta <= 1:
        raise InvalidValue(f"rope_theta {plain.theta:g}", why="it is above 1 where rope_scaling is of type 'yarn'")
    turns = scaling.number("beta_fast", default=32.0) or 32.0, scaling.number("beta_slow", default=1.0) or 1.0
    if not turns[0] > turns[1]:
        raise InvalidValue(f"beta_fast {turns[0]:g} of rope_scaling", why=f"it is above beta_slow, {turns[1]:g}")
    # Column e makes original theta ** (-2 e / width) / (2 pi) turns.
    original = scaling.original(plain)
    first, last = (
        plain.width * math.log(original / (count * 2 * math.pi)) / (2 * math.log(plain.theta)) for count in turns
    )
    if flag("truncate of rope_scaling", scaling.given.get("truncate", True)):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, plain.width - 1)
    last += 0.001 if first == last else 0
    scaled = np.clip((np.arange(plain.width // 2) - first) / (last - first), 0, 1)
    return Rotation(plain.frequencies * ((1 - scaled) + scaled / factor), _attention_factor(scaling, factor))


def _attention_factor(scaling: Scaling, factor: float) -> float:
    """attention_factor, or m(mscale) / m(mscale_all_dim) with m(x) = 1 + 0.1 x ln factor, or m(1)."""
    if "attention_factor" in scaling.given:
        return scaling.number("attention_factor")
    over, under = scaling.number("mscale", default=0.0), scaling.number("mscale_all_dim", default=0.0)
    if over and under:
        return (1 + 0.1 * over * math.log(factor)) / (1 + 0.1 * under * math.log(factor))
    return 1 + 0.1 * math.log(factor)


TYPES: dict[str, Callable[[Plain, Scaling], Rotation]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
KEYS = (
    *("rope_type", "type", "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    *("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "finetuned",  # says only how weights were made
)


def rotation_of(plain: Plain, given: Mapping[str, Any] | None) -> Rotation:
    """The rotation that `rope_scaling` asks for.

    >>> rotation_of(Plain(100.0, 4, 64), {"rope_type": "linear", "factor": 2}).frequencies
    array([0.5 , 0.05])
    """
    number("rope_theta", plain.theta, least=1)
    if given is not None and not isinstance(given, Mapping):
        raise InvalidType(f"rope_scaling is {told(given)}", why="it has settings by name")
    scaling = Scaling(given or {})
    kind = scaling_type(scaling.given)
    foreign = [told(key) for key in scaling.given if key not in KEYS]
    if foreign:
        raise Unsupported(f"rope_scaling has {', '.join(foreign)}", why="there are " + ", ".join(KEYS))
    return TYPES[kind](plain, scaling)


def scaling_type(given: Mapping[str, Any]) -> str:
    """The type of scaling, which older files call otherwise."""
    kinds = [given[key] for key in ("rope_type", "type") if given.get(key) is not None]
    if len(kinds) == 2 and kinds[0] != kinds[1]:
        raise InvalidValue(f"rope_scaling is of rope_type {told(kinds[0])} and of type {told(kinds[1])}")
    if given and not kinds:
        raise NotFound("rope_scaling has no 'rope_type'", why="there are " + ", ".join(TYPES))
    return one_of("rope_type of rope_scaling", kinds[0] if kinds else "default", TYPES)

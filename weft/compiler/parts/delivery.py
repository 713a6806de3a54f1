"""Outputs of a model in parts go to arrays of the caller's: straight from the last part where they can, else by a copy.
All that was given is checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.device import Device
from ...base.errors import InvalidType, Unsupported
from ...runtime.outputs import check_output, output_memory
from ...runtime.program import Array, TensorSpec
from ...runtime.shared import overlapping
from .ready import Places


def _memory_of(value: Any, title: str) -> Array | None:
    """Where an output is to be written, which is on the host; None if it is to be made."""
    if value is None or (isinstance(value, Device) and value.type == "cpu"):
        return None
    target: Any = value if isinstance(value, Device) else output_memory(value, title)
    if not isinstance(target, np.ndarray):
        raise Unsupported(
            f"out for {title!r} is on {getattr(target, 'device', target)}",
            why="a model that is run in parts has its outputs on the host",
            hint="leave out=, and copy what comes",
        )
    return target


class Delivery:
    """What one run was given for its outputs, None for those that are to be made, and what the outputs are called."""

    def __init__(self, given: Sequence[Any], titles: Sequence[str]) -> None:
        self._given = given
        self._titles = titles
        self._targets = [_memory_of(value, title) for value, title in zip(given, titles)]

    def places(self, outputs: Sequence[str], values: Mapping[str, Any], made_last: Sequence[str]) -> Places:
        """For the last part: where each of the values named `made_last` goes, None for new memory."""

        def places(specs: Sequence[TensorSpec]) -> list[Array | None]:
            known = dict(zip(made_last, specs))
            self._check([known[name] if name in known else values[name] for name in outputs])
            there = [value for value in values.values() if _is_memory(value)]
            numbers = [number for number, target in enumerate(self._targets) if target is not None]
            shared = overlapping([target for target in self._targets if target is not None], there)
            free = [number for place, number in enumerate(numbers) if place not in shared]
            straight: dict[str, Array | None] = {}
            for number in free:
                straight.setdefault(outputs[number], self._targets[number])
            return [straight.get(name) for name in made_last]

        return places

    def delivered(self, results: Sequence[Any]) -> list[Any]:
        """The results, copied to where they are wanted and are not yet, as if all at once."""
        self._check(results)
        wanted = [
            (made, target) for made, target in zip(results, self._targets) if target is not None and made is not target
        ]
        targets = [target for target in self._targets if target is not None]
        shared = overlapping([made for made, _ in wanted], targets)
        sources = [made.copy() if number in shared else made for number, (made, _) in enumerate(wanted)]
        for source, (_, target) in zip(sources, wanted):
            target[...] = source
        return [made if target is None else value for made, target, value in zip(results, self._targets, self._given)]

    def _check(self, values: Sequence[Any]) -> None:
        """Raises unless each value, an array or a TensorSpec, fits what was given for it."""
        for value, target, title in zip(values, self._targets, self._titles):
            if target is None:
                continue
            if not isinstance(value, TensorSpec) and not _is_memory(value):
                raise InvalidType(
                    f"output {title!r} is no array of numbers, but text, a sequence, or absent",
                    why="such a value has no memory that others could give",
                    hint=f"out=None for {title!r}",
                )
            check_output(target, TensorSpec(title, value.shape, value.dtype))


def _is_memory(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind not in "OSU"

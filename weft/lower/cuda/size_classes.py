"""What templates decide about open sizes, which wants numbers: each argument is in one of a few classes, which guards
tell, and what is decided suits some sizes all over its class. So sizes of a class have one program, and bits that do
not depend on which of them came first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeVar

from ...te.extents import Extent, value_at

CUTS = (8, 64, 512)  # the largest argument of each class but the last
SAMPLES = ((1, 8), (16, 64), (128, 512), (1024, 4096))  # of each class

T = TypeVar("T")


def samples(*sizes: int | Extent) -> list[tuple[int, ...]]:
    """What sizes are together, at some sizes of the classes that arguments are in: once where all are numbers."""
    opened = [size for size in sizes if isinstance(size, Extent)]
    if not opened:
        return [tuple(map(int, sizes))]
    trace = opened[0].trace
    numbers = sorted({number for size in opened for number in trace.arguments_of(size.row)})
    arguments = [trace.argument(number) for number in numbers]
    taken = [SAMPLES[_class_of(argument)] for argument in arguments]
    names = [trace.arguments[number] for number in numbers]
    return [tuple(max(value_at(size, dict(zip(names, values))), 1) for size in sizes) for values in product(*taken)]


def _class_of(argument: Extent) -> int:
    return next((number for number, cut in enumerate(CUTS) if argument <= cut), len(CUTS))


def least_loss(choices: Sequence[T], costs: Sequence[Callable[[T], float]]) -> T:
    """The choice that is behind the best ones by the least, on the average of some cases: of one case, the best."""
    best = [min(map(cost, choices)) for cost in costs]
    return min(choices, key=lambda choice: sum(cost(choice) / least for cost, least in zip(costs, best)))


def most_common(decide: Callable[..., T], sizes: Sequence[Any]) -> T:
    """What is decided about most of the samples of sizes; of equally many, about the smallest."""
    made = [decide(*sample) for sample in samples(*sizes)]
    return max(made, key=made.count)

"""The samples that operators are tried on: arrays, attributes and what an independent system says.

    @samples("relu", system="torch")
    def relu(rng, torch):
        for shape in SHAPES:
            yield Sample([floats(rng, shape)], {}, torch.relu)

The oracle of a sample is called with the arrays as values of its system (tensors for torch).
"""

from __future__ import annotations

import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from oracles import Unasked, installed, oracle

from weft.testing.op_check import Sample

__all__ = [
    "SHAPES",
    "SMALL_SHAPES",
    "Sample",
    "all_samples",
    "distinct",
    "floats",
    "integers",
    "oracle_module",
    "recorded",
    "sampled_ops",
    "samples",
]

Array = np.ndarray
Maker = Callable[[np.random.Generator, Any], Iterator[Sample]]

SHAPES: list[tuple[int, ...]] = [(), (5,), (3, 4), (2, 1, 7), (2, 3, 1, 5), (0,), (3, 0, 2)]
SMALL_SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (1, 2, 1, 3), (2, 0)]

_makers: dict[str, list[tuple[str, Maker]]] = {}


def samples(op_name: str, system: str = "torch") -> Callable[[Maker], Maker]:
    """Registers a generator of samples for an operator; it gets a seeded rng and the oracle."""

    def register(maker: Maker) -> Maker:
        _makers.setdefault(op_name, []).append((system, maker))
        return maker

    return register


# Systems that are not installed with the tests: scripts beside this file recorded what they say.
RECORDED = {"MXNet 1.9.1": "mxnet_witness.npz", "OpenCV 4.14": "opencv_witness.npz"}


def recorded(op_name: str, system: str, **options: Any) -> None:
    """Registers the samples of an operator that a system has been asked about."""

    def maker(rng: np.random.Generator, module: Any) -> Iterator[Sample]:
        with np.load(Path(__file__).with_name(RECORDED[system])) as rows:
            for number in itertools.count():
                place = f"{op_name}/{number}"
                if f"{place}/attrs" not in rows:
                    assert number, f"{system} was not asked about operator {op_name}"
                    return
                attrs = json.loads(str(rows[f"{place}/attrs"]))
                attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items()}
                inputs, outputs = _numbered(rows, f"{place}/in"), _numbered(rows, f"{place}/out")
                yield Sample(inputs, attrs, lambda *_, said=outputs: said, **options)

    _makers.setdefault(op_name, []).append((system, maker))


def _numbered(rows: Any, place: str) -> list[Array]:
    names = itertools.takewhile(rows.__contains__, (f"{place}/{i}" for i in itertools.count()))
    return [rows[name] for name in names]


def sampled_ops() -> set[str]:
    """Names of the operators that have samples."""
    return set(_makers)


@cache
def all_samples(op_name: str) -> tuple[Sample, ...]:
    """The samples of an operator, the same ones every time unless WEFT_TEST_SEED says otherwise."""
    made: list[Sample] = []
    for system, maker in _makers.get(op_name, ()):
        rng = np.random.default_rng([zlib.crc32(op_name.encode()), _seed(), len(made)])
        made += [sample.with_system(system) for sample in maker(rng, _named_module(system))]
    return tuple(made)


def oracle_module(system: str) -> Any:
    """What a check asks: the module of a system, or nothing where its answers are recorded."""
    return None if system in RECORDED else oracle(system)


def _named_module(system: str) -> Any:
    """What samples are made with: none of the system is called then."""
    return oracle_module(system) if system in RECORDED or installed(system) else Unasked(system)


def _seed() -> int:
    return int(os.environ.get("WEFT_TEST_SEED", "0"))


def floats(
    rng: np.random.Generator,
    shape: Sequence[int],
    low: float = -2.0,
    high: float = 2.0,
    dtype: Any = "float32",
    gap: float = 0.0,
) -> Array:
    """Uniform numbers; with a gap, none is nearer than that to zero."""
    values = rng.uniform(low, high, tuple(shape))
    if gap:
        values = np.where(np.abs(values) < gap, np.copysign(gap + np.abs(values), values), values)
    return np.asarray(values).astype(dtype)


def distinct(rng: np.random.Generator, shape: Sequence[int], dtype: Any = "float32") -> Array:
    """Numbers around zero that all differ by at least a tenth: no ties, no kinks near."""
    size = int(np.prod(tuple(shape)))
    values = (rng.permutation(size) - size // 2 + 0.37) * 0.1
    return values.reshape(tuple(shape)).astype(dtype)


def integers(
    rng: np.random.Generator, shape: Sequence[int], low: int = -9, high: int = 10, dtype: Any = "int32"
) -> Array:
    """Integers from low to high - 1."""
    return np.asarray(rng.integers(low, high, tuple(shape))).astype(dtype)

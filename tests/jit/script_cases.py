"""Programs that tests compile with weft and with PyTorch: their sources, and random values for what they take."""

from __future__ import annotations

import linecache
import math
import typing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_SHAPES = {"T": (2, 3), "V": (4,), "M": (3, 3), "V2": (2,), "V3": (3,), "IMG": (1, 2, 6, 6), "W": (2, 2, 3, 3)}


class Program(NamedTuple):
    name: str
    inputs: list[str]
    source: str


def programs(file: str = "script_programs.txt") -> list[Program]:
    """`## name | inputs`, then the source; the function is called f."""
    found = []
    for part in Path(__file__).with_name(file).read_text().split("## ")[1:]:
        head, _, source = part.partition("\n")
        name, _, inputs = head.partition(" | ")
        found.append(Program(name.strip(), inputs.split(), source))
    return found


def function(source: str, torch: Any, file: str) -> Any:
    """The function f of a source, in which `torch` is a library."""
    names = {"__name__": "programs", "torch": torch, "F": torch.nn.functional, "math": math, "Tensor": torch.Tensor}
    names |= {name: getattr(typing, name) for name in "List Dict Optional Tuple Union Any".split()}
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names["f"]


def drawn(kind: str, rng: np.random.Generator) -> Any:
    """A random value of a kind; tensors are arrays."""
    if kind in _SHAPES:
        return rng.standard_normal(_SHAPES[kind]).astype(np.float32)
    ints = [int(v) for v in rng.integers(-9, 12, rng.integers(3, 7))]
    number = int(rng.integers(-9, 12))
    values: dict[str, Any] = {
        "int": number,
        "small": int(rng.integers(0, 9)),
        "float": float(rng.standard_normal() * 5),
        "pos": float(rng.random() * 5 + 0.1),
        "bool": bool(rng.integers(2)),
        "str": "".join(rng.choice(list("abc "), rng.integers(2, 8))),
        "ints": ints,
        "floats": [float(v) for v in rng.standard_normal(4)],
        "bools": [bool(v) for v in rng.integers(0, 2, 4)],
        "strs": [str(v) for v in rng.choice(["one", "two", "three"], 5)],
        "dict": {"a": number, "b": 2, "c": int(rng.integers(9))},
        "opt_int": None if rng.integers(2) else number,
        "union": "text" if rng.integers(2) else number,
        "I": rng.integers(0, 50, 4),
        "B": rng.integers(0, 2, (2, 3)).astype(bool),
        "opt_T": None if rng.integers(2) else rng.standard_normal((2, 3)).astype(np.float32),
    }
    return values[kind]


def given(value: Any, torch: Any) -> Any:
    """A value with tensors of a library; containers are new ones, as programs write to them."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return value.copy() if isinstance(value, (list, dict)) else value


def plain(value: Any) -> Any:
    """A result without tensors: arrays, and what Python has."""
    if hasattr(value, "detach"):
        return np.asarray(value.detach().numpy())
    if isinstance(value, (list, tuple)):
        return type(value)([plain(item) for item in value]) if type(value) in (list, tuple) else list(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return str(value) if type(value).__name__ == "device" else value


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, np.ndarray):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    elif isinstance(theirs, (list, tuple)):
        assert (type(ours), len(ours)) == (type(theirs), len(theirs))
        for one, two in zip(ours, theirs):
            assert_same(one, two)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, float):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)  # sums of single precision in another order
    else:
        assert (type(ours), ours) == (type(theirs), theirs)

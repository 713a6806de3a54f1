"""Small programs on modules, run in weft and in PyTorch: results, or errors, must be the same."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from oracles import oracle

import weft

ERRORS = (
    KeyError,
    IndexError,
    AttributeError,
    TypeError,
    ValueError,
    NotImplementedError,
    AssertionError,
    RuntimeError,
)


def same_outcome(program: Callable[[Any], Any]) -> None:
    """Runs a program of the library in both."""
    mine, others = outcome(program, weft), outcome(program, oracle("torch"))
    assert mine == others, f"weft: {mine}\nPyTorch: {others}"


def outcome(program: Callable[[Any], Any], library: Any) -> Any:
    """What a program gives, as plain values; an error as what users would catch it by and its first line."""
    library.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = plain(program(library))
        except Exception as error:
            kinds = {kind.__name__ for kind in ERRORS if isinstance(error, kind)}
            what = getattr(error, "what", None) or (error.args[0] if error.args else "")
            result = ("raises", kinds, spelled(str(what)))
    told = [warning.category.__name__ for warning in caught if not issubclass(warning.category, ResourceWarning)]
    return (result, told) if told else result


def spelled(text: str) -> str:
    """Text with one name for both libraries, without addresses and places."""
    text = re.sub(r"\b(torch|weft)\b(\.nn\.modules\.\w+)?", "lib", text)
    return re.sub(r" at 0x[0-9a-f]+|, got: .*", "", text)


def plain(value: Any) -> Any:
    """A value as numbers, text and lists."""
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if hasattr(value, "detach"):
        numbers = np.round(np.asarray(value.detach().double().numpy()), 5) + 0.0
        kind = type(value).__name__
        return [kind, str(value.dtype).partition(".")[2], list(value.shape), numbers.tolist(), value.requires_grad]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return spelled(value if isinstance(value, str) else repr(value))


class Scenarios:
    """Programs by name, each under the name of its function."""

    def __init__(self) -> None:
        self.programs: dict[str, Callable[[Any], Any]] = {}

    def __call__(self, program: Callable[[Any], Any]) -> Callable[[Any], Any]:
        name = program.__name__
        assert name not in self.programs, name
        self.programs[name] = program
        return program


def affine(lib: Any, size: int = 2, out: int | None = None, **more: Any) -> Any:
    """A module of one's own: a matrix, a bias, a buffer and a buffer that is not saved."""

    class Affine(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = lib.nn.Parameter(lib.randn(out or size, size))
            self.bias = lib.nn.Parameter(lib.randn(out or size))
            self.register_buffer("seen", lib.tensor(0))
            self.register_buffer("scratch", lib.ones(2), persistent=False)
            for name, value in more.items():
                setattr(self, name, value)

        def forward(self, x: Any) -> Any:
            self.seen += 1
            return lib.nn.functional.linear(x, self.weight, self.bias)

    return Affine()

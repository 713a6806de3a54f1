"""How tensors print: a numpy array and what else a tensor says about itself come in, the text that
PyTorch would print goes out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.dtype import BOOL, DTYPES, INT64, is_complex, is_float
from ...base.errors import InvalidType
from .types import OF_NUMPY, get_default_dtype

Array = NDArray[Any]
_NARROW = (DTYPES["float16"], DTYPES["bfloat16"])


@dataclass
class PrintOptions:
    """What `set_printoptions` sets."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_options = PrintOptions()
_PROFILES = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, math.inf, 3, 80)}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors print: digits after the point, from how many elements on only the edges are
    shown, how many there, the length of a line, and whether numbers have exponents.

    `profile` is "default", "short" or "full", and comes before the others.
    """
    if profile is not None and not isinstance(profile, str):
        raise InvalidType(f"a profile is named by text, not by {profile!r:.60}")
    if profile in _PROFILES:
        row = _PROFILES[profile]
        _options.precision, _options.threshold, _options.edgeitems, _options.linewidth = row
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        if value is not None:
            setattr(_options, name, value)
    _options.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """How tensors print now."""
    return asdict(_options)


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Prints in another way inside a with block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


class _Form:
    """How the numbers of one array are written, so that all have the same width."""

    def __init__(self, values: Array) -> None:
        self.floating = is_float(values.dtype)
        self.whole = True
        self.exponent = False
        self.width = 1
        numbers = values.reshape(-1).tolist()
        if not self.floating:
            self.width = max([1, *(len(str(number)) for number in numbers)])
            return
        finite = [number for number in numbers if math.isfinite(number) and number != 0]
        if finite:
            self._choose(finite)

    def _choose(self, finite: list[float]) -> None:
        least, most = min(map(abs, finite)), max(map(abs, finite))
        self.whole = all(number == math.floor(number) for number in finite)
        spread = most / least > 1000 or most > 1e8
        self.exponent = spread or (not self.whole and least < 1e-4)
        if _options.sci_mode is not None:
            self.exponent = _options.sci_mode
        if self.exponent:
            form, more = f".{_options.precision}e", 0
        elif self.whole:
            form, more = ".0f", 1  # the point that shows that they are floats
        else:
            form, more = f".{_options.precision}f", 0
        self.width = max(1, max(len(f"{number:{form}}") for number in finite) + more)

    def write(self, number: Any) -> str:
        """A number, filled up with blanks to the width."""
        if not self.floating:
            text = str(number)
        elif self.exponent:
            text = f"{number:{self.width}.{_options.precision}e}"
        elif self.whole:
            text = f"{number:.0f}" + ("." if math.isfinite(number) else "")
        else:
            text = f"{number:.{_options.precision}f}"
        return text.rjust(self.width)


class _Writer:
    """Writes the numbers of an array; those of complex arrays have two forms."""

    def __init__(self, shown: Array) -> None:
        self.complex = is_complex(shown.dtype)
        self.real = _Form(shown.real if self.complex else shown)
        self.imag = _Form(shown.imag) if self.complex else None
        self.width = self.real.width + (1 + self.imag.width if self.imag else 0)

    def write(self, number: Any) -> str:
        if self.imag is None:
            return self.real.write(number)
        imag = (self.imag.write(number.imag) + "j").lstrip()
        sign = "" if imag[0] in "+-" else "+"
        return self.real.write(number.real) + sign + imag


def _edges(array: Array) -> Array:
    """The elements that are shown of an array that is too large to show."""
    count = _options.edgeitems
    for axis, size in enumerate(array.shape):
        if size > 2 * count:
            places = [*range(count), *range(size - count, size)]
            array = array.take(places, axis)
    return array


def _vector(array: Array, indent: int, summarize: bool, writer: _Writer) -> str:
    edge = _options.edgeitems
    if summarize and array.size > 2 * edge:
        first, last = array[:edge].tolist(), array[array.size - edge :].tolist()
        words = [*map(writer.write, first), " ...", *map(writer.write, last)]
    else:
        words = [writer.write(number) for number in array.tolist()]
    per_line = max(1, (_options.linewidth - indent) // (writer.width + 2))
    lines = [", ".join(words[at : at + per_line]) for at in range(0, len(words), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _body(array: Array, indent: int, summarize: bool, writer: _Writer) -> str:
    if array.ndim == 0:
        return writer.write(array.item())
    if array.ndim == 1:
        return _vector(array, indent, summarize, writer)
    edge, size = _options.edgeitems, array.shape[0]
    if summarize and size > 2 * edge:
        rows: list[Any] = [*range(edge), None, *range(size - edge, size)]
    else:
        rows = list(range(size))
    parts = ["..." if row is None else _body(array[row], indent + 1, summarize, writer) for row in rows]
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def format_array(array: Array, indent: int = 0) -> str:
    """The numbers of an array, without what is around them."""
    if array.size == 0:
        return "[]"
    if array.dtype in _NARROW:
        array = array.astype(np.float32)
    summarize = array.size > _options.threshold
    if summarize and not _options.edgeitems:
        return "[...]"
    writer = _Writer(_edges(array) if summarize else array)
    return _body(array, indent, summarize, writer)


def format_tensor(
    array: Array,
    *,
    requires_grad: bool = False,
    grad_fn: str | None = None,
    device: str | None = None,
    prefix: str = "tensor(",
) -> str:
    """A tensor as PyTorch prints it.

    >>> print(format_tensor(np.array([[1.5, 2], [3, 4]], np.float32), requires_grad=True))
    tensor([[1.5000, 2.0000],
            [3.0000, 4.0000]], requires_grad=True)
    """
    body = format_array(array, len(prefix))
    notes = _notes(array)
    if device is not None:
        notes.insert(0, f"device='{device}'")
    if grad_fn is not None:
        notes.append(f"grad_fn=<{grad_fn}>")
    elif requires_grad:
        notes.append("requires_grad=True")
    return _with_notes(prefix + body, notes, len(prefix))


def _notes(array: Array) -> list[str]:
    """What the numbers alone do not say: the shape of an empty tensor, an unusual dtype."""
    default = get_default_dtype()
    notes = []
    if not _options.edgeitems or (array.size == 0 and array.ndim != 1):
        notes.append(f"size={tuple(map(int, array.shape))}")
    usual = [default.numpy]
    if array.size:
        pair = DTYPES["complex128" if default.name == "float64" else "complex64"]
        usual += [pair, INT64, BOOL]
    if array.dtype not in usual:
        notes.append(f"dtype={OF_NUMPY[array.dtype]!r}")
    return notes


def _with_notes(text: str, notes: list[str], indent: int) -> str:
    parts = [text]
    column = len(text) - text.rfind("\n") + 1
    for note in notes:
        if column + len(note) + 2 > _options.linewidth:
            parts.append(",\n" + " " * indent + note)
            column = indent + len(note)
        else:
            parts.append(", " + note)
            column += len(note) + 2
    return "".join(parts) + ")"

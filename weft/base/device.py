"""Devices: where an array lives and a kernel runs."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidType, InvalidValue

_TYPE_CODE = {"cpu": 1, "cuda": 2}  # DLPack's
_ALIASES = {"llvm": "cpu"}
EXTENSION = 12  # DLPack's code of devices that it does not know


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A kind of device and which one of that kind.

    >>> cpu(0), str(context("cpu", 1))
    (Device(type='cpu', index=0), 'cpu(1)')
    """

    type: str
    index: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.type, str):
            raise InvalidType(f"a device is named by a string, not {self.type!r}")
        if self.type not in _TYPE_CODE:
            raise InvalidValue(f"unknown device {self.type!r}", why="weft runs on " + ", ".join(_TYPE_CODE))
        if not isinstance(self.index, int):
            raise InvalidType(f"a device index is a whole number, not {self.index!r}")
        if self.index < 0:
            raise InvalidValue(f"device index {self.index} is negative")

    def __str__(self) -> str:
        return f"{self.type}({self.index})"

    @property
    def device_type(self) -> int:
        """DLPack's code of the type."""
        return _TYPE_CODE[self.type]

    @property
    def device_id(self) -> int:
        return self.index


def register_device(kind: str, code: int = EXTENSION) -> None:
    """Makes a kind of device known, with DLPack's code of it."""
    _TYPE_CODE.setdefault(kind, code)


def cpu(index: int = 0) -> Device:
    """The processor this program runs on."""
    return Device("cpu", index)


def context(kind: str, index: int = 0) -> Device:
    """The device of that kind, or an error that lists the kinds.

    >>> context("llvm")
    Device(type='cpu', index=0)
    """
    return Device(_ALIASES.get(kind, kind) if isinstance(kind, str) else kind, index)

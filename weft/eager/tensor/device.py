"""device: where a tensor lives. Every type that PyTorch names can be spelled, as archives do; weft
itself computes on "cpu" and, where NVIDIA's driver is, on "cuda"."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NoReturn

from ...base.errors import InvalidType, NoDevice, RunError
from ...runtime.cuda.context import platform

_TYPES = (
    "cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu mtia privateuseone"
).split()
_SPELLING = re.compile(r"([A-Za-z_]+)(?::(0|[1-9][0-9]*))?")
_MAX_INDEX = 127


class device:
    """The kind of a device and, if told, which one of that kind.

    >>> device("cpu"), str(device("cuda", 1)), device("cpu") == device("cpu:0")
    (device(type='cpu'), 'cuda:1', False)
    """

    __module__ = "weft"
    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: Any = None, index: int | None = None) -> None:
        kind, spelled = _parse(type)
        if index is not None:
            _check_pair(type, index, spelled)
            spelled = index
        _check_index(spelled)
        object.__setattr__(self, "type", kind)
        object.__setattr__(self, "index", spelled)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"attribute {name!r} of 'weft.device' objects is not writable")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, device):
            return NotImplemented
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, tuple[str, int | None]]:
        return _rebuild, (self.type, self.index)

    def __enter__(self) -> device:
        """Makes it the device of new tensors, which can only be the processor."""
        return require_cpu(self)

    def __exit__(self, *raised: object) -> None:
        pass


def _rebuild(kind: str, index: int | None) -> device:
    return device(kind, index)


def require_cpu(where: Any = None) -> device:
    """The device meant by a device, a string or None, or an error if it is not the processor."""
    found = CPU if where is None else where if isinstance(where, device) else device(where)
    if found.type != "cpu":
        gpu = found.type == "cuda"
        raise NoDevice(
            f"weft has no device {str(found)!r}" + " for this" * gpu,
            why="what is asked for is made on the processor" if gpu else "tensors are on 'cpu', or on 'cuda'",
            hint="make it there, and move tensors by .to('cuda')" if gpu else "use device='cpu'",
        )
    return found


def located(where: Any = None) -> device:
    """The device meant by a device, a string, a number of a GPU or None, by its number; an error if it is not there.

    >>> located(), located("cpu:0")
    (device(type='cpu'), device(type='cpu'))
    """
    found = CPU if where is None else where if isinstance(where, device) else device(where)
    if found.type == "cuda":
        there = platform()
        return device("cuda", there.local.device if found.index is None else there.checked(found.index))
    require_cpu(found)
    return CPU


@cache
def numbered(index: int | None) -> device:
    """A GPU by its number; without one, the processor."""
    return CPU if index is None else device("cuda", index)


def is_there(where: Any) -> bool:
    """Whether tensors can be on a device."""
    try:
        return located(where) is not None
    except NoDevice:
        return False


def _parse(value: object) -> tuple[str, int | None]:
    if isinstance(value, device):
        return value.type, value.index
    if isinstance(value, int):
        _check_index(value)
        try:
            return "cuda", platform().checked(value)
        except NoDevice:
            raise NoDevice("Cannot access accelerator device when none is available.") from None
    if not isinstance(value, str):
        raise InvalidType(f"device() takes a device or a string such as 'cpu', not {value.__class__.__name__}")
    if not value:
        raise RunError("Device string must not be empty")
    match = _SPELLING.fullmatch(value)
    if match is None:
        raise RunError(f"Invalid device string: '{value}'")
    if match[1] not in _TYPES:
        raise RunError(f"Expected one of {', '.join(_TYPES)} device type at start of device string: {match[1]}")
    return match[1], None if match[2] is None else int(match[2])


def _check_pair(kind: object, index: object, spelled: int | None) -> None:
    if not isinstance(kind, str):
        name = "weft.device" if isinstance(kind, device) else kind.__class__.__name__
        raise InvalidType(f"device(): argument 'type' (position 1) must be str, not {name}")
    if not isinstance(index, int):
        name = index.__class__.__name__
        raise InvalidType(f"device(): argument 'index' (position 2) must be int, not {name}")
    if spelled is not None:
        raise RunError("type (string) must not include an index because index was passed explicitly: " + kind)


def _check_index(index: int | None) -> None:
    if index is not None and index < 0:
        raise RunError("Device index must not be negative")
    if index is not None and index > _MAX_INDEX:
        raise RunError(f"Device index {index} is greater than {_MAX_INDEX}")


CPU = device("cpu")

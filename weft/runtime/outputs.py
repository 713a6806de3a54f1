"""Arrays of the caller's that outputs are written to: what does not fit is an error that names the output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.device import Device
from ..base.dtype import dtype_name
from ..base.errors import DTypeError, InvalidType, InvalidValue, NotFound, ShapeError
from ..base.ndarray import empty
from .program import Array, TensorSpec
from .shared import REFUSALS, overlapping, refused, shared_array

SMALL_OUTPUT = 1024  # bytes below which the alignment of an output does not matter


def new_output(spec: TensorSpec) -> Array:
    """Memory for an output; large ones start at a cache line."""
    made = np.empty(spec.extents, spec.dtype)
    return made if made.nbytes < SMALL_OUTPUT else empty(spec.extents, spec.dtype).numpy()


def given_outputs(out: Any, names: Sequence[str]) -> list[Any]:
    """What `out=` says, one value an output in order: None for those that are to be made, or the device that all are to
    be made on.

    >>> given_outputs({"b": 7}, ["a", "b"])
    [None, 7]
    """
    device = _named_device(out)
    if device is not None:
        return [device] * len(names)
    if isinstance(out, Mapping):
        counts = Counter(names)
        for name in out:
            if counts[name] != 1:
                raise _no_output(name, names)
        return [out.get(name) for name in names]
    if not isinstance(out, (list, tuple)):
        raise InvalidType(
            f"out is a {type(out).__name__}",
            why="it is a list of arrays in the order of the outputs, or a dict from the name of an output to its array",
            hint="out=[y]",
        )
    if len(out) != len(names):
        raise InvalidValue(
            f"out has {len(out)} arrays for {len(names)} outputs",
            why="outputs: " + (", ".join(names) or "none"),
            hint="give None for an output that is to be made, or a dict with the names of some",
        )
    return list(out)


def _named_device(out: Any) -> Device | None:
    """The device that a device of any spelling is, or a text such as "cuda:1"."""
    if isinstance(out, str):
        kind, _, number = out.partition(":")
        return Device(kind, int(number) if number.isdecimal() else 0)
    if isinstance(getattr(out, "type", None), str) and hasattr(out, "index"):
        return Device(out.type, out.index or 0)
    return None


def _no_output(name: object, names: Sequence[str]) -> NotFound | InvalidValue:
    listed = "outputs: " + (", ".join(names) or "none")
    if name in names:
        return InvalidValue(f"several outputs are called {name!r}", why=listed, hint="give out as a list, in order")
    return NotFound(f"the model has no output {name!r}", why=listed)


def output_memory(value: Any, name: str) -> Array:
    """The memory of an array that was given for an output."""
    try:
        array: Array | None = shared_array(value)
    except REFUSALS as error:
        raise refused(value, f"out for {name!r}", "an array of the CPU to write to", error) from None
    if array is None:
        raise InvalidType(
            f"out for {name!r} is a {type(value).__name__}",
            why="an output is written to memory: an array of numpy, or of a library that exports DLPack",
            hint="None has the output made",
        )
    return array


def as_output(value: Any, spec: TensorSpec) -> Array:
    """The memory of an array that fits an output: of its shape and dtype, writable, dense and aligned."""
    if isinstance(value, Device) and value.type == "cpu":
        return new_output(spec)
    array = output_memory(value, spec.name)
    check_output(array, spec)
    return array


def check_output(array: Array, spec: TensorSpec) -> None:
    """Raises unless kernels can write the output there."""
    what = f"out for {spec.name!r}"
    if array.shape != spec.shape:
        raise ShapeError(f"{what} has shape {array.shape}", why=f"the output is {spec}", hint=_new_hint(spec))
    if array.dtype != spec.dtype:
        raise DTypeError(f"{what} is of {array.dtype}", why=f"the output is {spec}", hint=_new_hint(spec))
    flags = array.flags
    if not flags.writeable:
        raise InvalidValue(f"{what} is read-only", why=f"the output {spec} is written there", hint=_new_hint(spec))
    if not flags.c_contiguous or not flags.aligned:
        lack = "is not dense" if not flags.c_contiguous else "is not aligned to its elements"
        raise InvalidValue(
            f"{what} {lack}",
            why=f"the output {spec} is written row by row without gaps; strides here are {array.strides} bytes",
            hint=f"{_new_hint(spec)}, and copy from it",
        )


def _new_hint(spec: TensorSpec) -> str:
    return f'np.empty({spec.shape}, "{dtype_name(spec.dtype)}") fits'


def set_apart(outputs: Sequence[Array], inputs: Sequence[Array]) -> list[Array]:
    """The outputs, with new memory in place of those that share theirs with an input or with each other."""
    shared = overlapping(outputs, inputs)
    return [np.empty_like(array) if number in shared else array for number, array in enumerate(outputs)]


def put_in_place(made: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Copies what was computed apart, in order."""
    for source, target in zip(made, outputs):
        if source is not target:
            target[...] = source

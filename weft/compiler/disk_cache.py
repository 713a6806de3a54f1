"""Compiled groups as bytes for the disk cache, and back: a line of JSON, then the object code.

The key of a group is its signature together with everything that decides what becomes of it: the
target, LLVM's version, and the text of the modules that lower and generate code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import as_dtype, dtype_name
from ..base.errors import Error
from ..base.plan import BufferSpec, KernelCode, Launch, TensorMap
from ..core.ir import Node
from ..core.op import Op
from ..lower.group import Temporary
from ..lower.lowering import bodies_of
from .kept.fingerprint import fingerprint


class CompiledKernel(NamedTuple):
    """Code, what its buffers are (entries, positions or temporaries), and its estimated work."""

    name: str
    code: KernelCode
    arguments: tuple[Hashable, ...]
    work: int


def group_key(signature: Hashable, nodes: Iterable[Node]) -> bytes | None:
    """What a group is kept under; None if its meaning is not all in the signature: operators whose
    bodies are not weft's own may be different next time."""
    if not all(is_own(body) for node in nodes for body in bodies_of(node)):
        return None
    try:
        return f"{fingerprint()} {key_text(signature)}".encode()
    except (OSError, TypeError):
        return None


def is_own(body: Callable[..., Any]) -> bool:
    """Whether a function, and the functions it was made from, are part of this package.

    >>> is_own(group_key), is_own(print), is_own(partial(group_key, 1)), is_own(json.dumps)
    (True, False, True, False)
    """
    todo: list[Any] = [body]
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, partial):
            todo += [item.func, *item.args, *item.keywords.values()]
        elif isinstance(item, FunctionType):
            if item.__module__.split(".")[0] != __name__.split(".")[0]:
                return False
            todo += [*map(_content, item.__closure__ or ()), *(item.__defaults__ or ())]
        elif callable(item) and not isinstance(item, (type, Op, np.ufunc)):
            return False
    return True


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # of a variable that is not assigned yet
        return None


def key_text(value: Any) -> str:
    """A text that tells different values apart."""
    if isinstance(value, tuple):
        return "(" + ",".join(map(key_text, value)) + ",)"
    if isinstance(value, np.dtype):
        return dtype_name(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise TypeError(type(value))


# Bytes


def encoded(kernels: Iterable[CompiledKernel]) -> bytes:
    """Kernels whose arguments are positions and temporaries."""
    listed = list(kernels)
    objects = {kernel.code.name: kernel.code.code for kernel in listed}
    head = {
        "kernels": [_described(kernel) for kernel in listed],
        "objects": [[name, len(code)] for name, code in objects.items()],
    }
    return b"".join([json.dumps(head).encode(), b"\n", *objects.values()])


def decoded(data: bytes) -> list[CompiledKernel] | None:
    """What `encoded` was given; None for anything else."""
    try:
        line, _, rest = data.partition(b"\n")
        head = json.loads(line)
        objects: dict[str, bytes] = {}
        for name, size in head["objects"]:
            objects[name], rest = rest[:size], rest[size:]
        return [_kernel(row, objects) for row in head["kernels"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Error):
        return None


def _described(kernel: CompiledKernel) -> dict[str, Any]:
    code = kernel.code
    return {
        "name": kernel.name,
        "symbol": code.name,
        "buffers": [[b.name, dtype_name(b.dtype), b.shape, b.strides, b.alignment, b.written] for b in code.buffers],
        "scalars": [[name, dtype_name(dtype)] for name, dtype in code.scalars],
        "launch": code.launch,
        "format": code.format,
        "maps": code.maps,
        "arguments": [_argument_text(argument) for argument in kernel.arguments],
        "work": kernel.work,
    }


def _argument_text(argument: Hashable) -> Any:
    if isinstance(argument, Temporary):
        return [argument.number, argument.shape, dtype_name(argument.dtype)]
    assert isinstance(argument, int)
    return argument


def _kernel(row: dict[str, Any], objects: dict[str, bytes]) -> CompiledKernel:
    buffers = tuple(
        BufferSpec(name, as_dtype(dtype), tuple(shape), tuple(strides), alignment, written)
        for name, dtype, shape, strides, alignment, written in row["buffers"]
    )
    scalars = tuple((name, as_dtype(dtype)) for name, dtype in row["scalars"])
    launch = row["launch"] and Launch(*_tuples(row["launch"]))
    maps = tuple(TensorMap(*_tuples(found)) for found in row["maps"])
    code = KernelCode(row["symbol"], objects[row["symbol"]], buffers, scalars, launch, row["format"], maps)
    arguments = tuple(
        item if isinstance(item, int) else Temporary(item[0], tuple(item[1]), as_dtype(item[2]))
        for item in row["arguments"]
    )
    return CompiledKernel(row["name"], code, arguments, row["work"])


def _tuples(found: Any) -> Any:
    """Lists of JSON, three deep at most, as the tuples that they were."""
    return tuple(map(_tuples, found)) if isinstance(found, list) else found

"""Kinds of values that programs have as ints: dtypes, layouts, memory formats and reductions, by PyTorch's numbers."""

from __future__ import annotations

from typing import Any

from ...eager.tensor import types

DTYPES = dict(
    enumerate("uint8 int8 int16 int32 int64 float16 float32 float64 _ complex64 complex128 bool _ _ _ bfloat16".split())
) | {27: "uint16", 28: "uint32", 29: "uint64"}
OF_NUMBER = {number: types.DTYPE_NAMES[name] for number, name in DTYPES.items() if name != "_"}
REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
LAYOUTS = {0: types.strided, 1: types.sparse_coo}
FORMATS = {0: types.contiguous_format, 1: types.preserve_format, 2: types.channels_last, 3: types.channels_last_3d}
_NUMBERS: dict[Any, int] = {value: number for table in (OF_NUMBER, LAYOUTS, FORMATS) for number, value in table.items()}


def in_programs(value: Any) -> Any:
    """A value as a program has it: a dtype, a layout, a memory format is an int there."""
    return _NUMBERS[value] if isinstance(value, (types.dtype, types.layout, types.memory_format)) else value

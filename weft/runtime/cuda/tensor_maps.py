"""Tensor maps: what a GPU's copy engine is told about memory, as the 128 bytes that kernels take."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint32, c_uint64

from ...base.errors import Error, InvalidValue
from ...base.plan import TensorMap, known
from .context import Context

BYTES, ALIGNMENT = 128, 64
_ELEMENTS = {
    "uint8": 0,
    "uint16": 1,
    "uint32": 2,
    "int32": 3,
    "uint64": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "tfloat32": 11,
}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_L2_256 = 3  # bytes that the second cache fetches at once


class EncodedMap:
    """The bytes of a map, at an address that is a multiple of 64."""

    def __init__(self) -> None:
        self._raw = ctypes.create_string_buffer(BYTES + ALIGNMENT)
        self.address = -(-ctypes.addressof(self._raw) // ALIGNMENT) * ALIGNMENT
        self.shows = -1  # the address whose memory it shows

    def encode(self, context: Context, tensor_map: TensorMap, address: int) -> None:
        """Has the map show memory whose buffer begins at an address."""
        found = tensor_map
        if found.element not in _ELEMENTS or found.swizzle not in _SWIZZLES:
            raise InvalidValue(f"a tensor map of {found.element}, swizzled by {found.swizzle} bytes")
        rank, at = len(found.dims), address + known(found.offset)
        dims = (c_uint64 * rank)(*map(known, found.dims))
        strides = (c_uint64 * max(rank - 1, 1))(*map(known, found.strides))
        steps = (c_uint32 * rank)(*(found.steps or (1,) * rank))
        modes = (0, _SWIZZLES[found.swizzle], _L2_256, 0)
        try:
            if found.corners is None:
                box = (c_uint32 * rank)(*found.box)
                arguments: tuple[object, ...] = (dims, strides, box, steps, *modes)
                name = "cuTensorMapEncodeTiled"
            else:
                lower, upper = ((c_int * (rank - 2))(*corner) for corner in found.corners)
                arguments = (dims, strides, lower, upper, *found.box, steps, *modes)
                name = "cuTensorMapEncodeIm2col"
            with context:
                context.driver.call(name, self.address, _ELEMENTS[found.element], rank, at, *arguments)
            self.shows = address
        except Error as error:
            raise InvalidValue(
                f"memory at {at:#x} does not fit a tensor map of {found.element}{list(found.dims)}",
                why=f"strides {list(found.strides)} and the address must be multiples of 16 bytes, "
                f"and the box {list(found.box)} at most 256 elements along each axis; {error.why}",
                hint="give arrays that begin at a multiple of 16 bytes",
            ) from error

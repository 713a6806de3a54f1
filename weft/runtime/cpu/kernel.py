"""One compiled kernel, called on numpy arrays, which it looks at: for tests."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.dtype import DType, is_float
from ...base.errors import DTypeError, InvalidValue, OutOfRange, ShapeError
from ...base.plan import BufferSpec, KernelCode
from .jit import load_object

Array = np.ndarray[Any, np.dtype[Any]]
_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class NativeKernel:
    """Loads the code of a kernel; calling it checks the arrays and runs all iterations.

    An array has the shape and strides of its buffer, or one dimension: then it is the memory that
    the buffer's strides address.
    """

    def __init__(self, code: KernelCode) -> None:
        self.signature = code
        self.library = load_object(code.code, [code.name])
        self.address = self.library.address(code.name)
        self._function = _Function(self.address)

    def __call__(
        self, arrays: Sequence[Array], scalars: Sequence[float] = (), begin: int = 0, end: int | None = None
    ) -> None:
        """Run iterations begin .. end - 1, all of them when no end is given."""
        wanted = self.signature
        if len(arrays) != len(wanted.buffers) or len(scalars) != len(wanted.scalars):
            raise InvalidValue(
                f"kernel {wanted.name} takes {len(wanted.buffers)} arrays and "
                f"{len(wanted.scalars)} scalars, not {len(arrays)} and {len(scalars)}"
            )
        for spec, array in zip(wanted.buffers, arrays):
            _check(spec, array, wanted.name)
        end = self._end(begin, end)
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        packed = [pack_scalar(value, dtype) for value, (_, dtype) in zip(scalars, wanted.scalars)]
        numbers = (ctypes.c_int64 * len(packed))(*packed)
        self._function(ctypes.addressof(pointers), ctypes.addressof(numbers), begin, end)

    def _end(self, begin: int, end: int | None) -> int:
        launch = self.signature.launch
        extent = None if launch is None else launch.turns
        end = extent if end is None else end
        if end is None:
            raise InvalidValue(f"the extent of kernel {self.signature.name} depends on its scalars", hint="pass end=")
        if not 0 <= begin <= end or (extent is not None and end > extent):
            raise OutOfRange(f"iterations {begin}..{end} of {extent}", where=self.signature.name)
        return end


def pack_scalar(value: float, dtype: DType) -> int:
    """A scalar argument as the 64 bits in which kernels take it."""
    if not is_float(dtype):
        return struct.unpack("<q", struct.pack("<Q", int(value) & (2**64 - 1)))[0]  # type: ignore[no-any-return]
    letters = "<dq" if dtype.itemsize == 8 else "<fi"
    return struct.unpack("<" + letters[2], struct.pack(letters[:2], value))[0]  # type: ignore[no-any-return]


def _check(spec: BufferSpec, array: Array, kernel: str) -> None:
    where = f"kernel {kernel}, buffer {spec.name}"
    if array.dtype != spec.dtype:
        raise DTypeError(f"an array of {array.dtype}, not {spec.dtype}", where=where)
    if spec.written and not array.flags.writeable:
        raise InvalidValue("an array that is read-only", where=where)
    if spec.alignment and array.ctypes.data % spec.alignment:
        raise InvalidValue(f"an array not aligned to {spec.alignment} bytes", where=where)
    if array.ndim == len(spec.shape) and _same_layout(spec, array):
        return
    if array.ndim != 1 or not array.flags.c_contiguous or _reach(spec) > array.size:
        raise ShapeError(
            f"an array of shape {array.shape} and strides {array.strides}",
            where=where,
            why=f"the buffer has shape {spec.shape} and strides {spec.strides}, in elements",
        )


def _same_layout(spec: BufferSpec, array: Array) -> bool:
    for wanted, extent in zip(spec.shape, array.shape):
        if wanted is not None and wanted != extent:
            return False
    if None in spec.strides or not array.size:  # numpy gives empty arrays strides of 0
        return array.flags.c_contiguous
    steps = zip(spec.strides, array.strides, array.shape)
    return all(a is not None and a * array.itemsize == b for a, b, n in steps if n > 1)


def _reach(spec: BufferSpec) -> int:
    """How many elements a buffer spans; 0 when that depends on scalars."""
    known = [(n, s) for n, s in zip(spec.shape, spec.strides) if n is not None and s is not None]
    if len(known) < len(spec.shape) or any(n == 0 for n, _ in known):
        return 0
    return 1 + sum((n - 1) * s for n, s in known)

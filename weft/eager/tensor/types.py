"""The small value types of the eager side: dtype, layout, memory_format, finfo and iinfo, with the
default dtype; Size and device come from their own files and are named here too."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from ...base.dtype import DTYPES
from ...base.errors import InvalidType, RunError
from .device import device
from .size import Size

__all__ = [
    "ALIASES",
    "DTYPE_NAMES",
    "OF_NUMPY",
    "Size",
    "as_dtype",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "device",
    "dtype",
    "finfo",
    "get_default_dtype",
    "iinfo",
    "layout",
    "memory_format",
    "preserve_format",
    "set_default_dtype",
    "sparse_coo",
    "strided",
]


class _Constants(type):
    """The class of the types whose only instances are named constants."""

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        raise InvalidType(f"cannot create 'weft.{cls.__name__}' instances")


class dtype(metaclass=_Constants):
    """The type of a tensor's elements: one of the constants `weft.float32`, `weft.int64`, ...

    >>> as_dtype("float32"), as_dtype("float32").itemsize, as_dtype("float") is as_dtype("float32")
    (weft.float32, 4, True)
    """

    __module__ = "weft"
    __slots__ = (
        "__weakref__ _complex _real abbr is_complex is_floating_point is_signed itemsize name numpy title".split()
    )

    abbr: str
    is_complex: bool
    is_floating_point: bool
    is_signed: bool
    itemsize: int
    name: str
    numpy: np.dtype[Any]
    title: str
    _real: dtype
    _complex: dtype | None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"attribute {name!r} of 'weft.dtype' objects is not writable")

    def __repr__(self) -> str:
        return f"weft.{self.name}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return as_dtype, (self.name,)

    def to_real(self) -> dtype:
        """The dtype of the real part."""
        return self._real

    def to_complex(self) -> dtype:
        """The complex dtype whose parts are of this dtype."""
        if self._complex is None:
            raise RunError(f"Unknown Complex ScalarType for {self.title}")
        return self._complex


def _constant(kind: type, **fields: object) -> Any:
    made: Any = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


# name, short name, the word in the names of typed tensors and storages, other names
_ROWS = """
bool b8 Bool
uint8 u8 Byte
int8 i8 Char
int16 i16 Short short
int32 i32 Int int
int64 i64 Long long
uint16 u16 UInt16
uint32 u32 UInt32
uint64 u64 UInt64
float16 f16 Half half
bfloat16 bf16 BFloat16
float32 f32 Float float
float64 f64 Double double
complex64 c64 ComplexFloat cfloat
complex128 c128 ComplexDouble cdouble
"""


def _make(name: str, abbr: str, title: str) -> dtype:
    numpy = DTYPES[name]
    floating = numpy.kind == "f" or name == "bfloat16"
    made: dtype = _constant(
        dtype,
        name=name,
        abbr=abbr,
        title=title,
        numpy=numpy,
        is_floating_point=floating,
        is_complex=numpy.kind == "c",
        is_signed=floating or numpy.kind in "ic",
        itemsize=numpy.itemsize,
    )
    return made


DTYPE_NAMES: dict[str, dtype] = {}
ALIASES: dict[str, dtype] = {}
for _row in _ROWS.split("\n"):
    if _row:
        _name, _abbr, _title, *_others = _row.split()
        DTYPE_NAMES[_name] = _make(_name, _abbr, _title)
        ALIASES.update(dict.fromkeys(_others, DTYPE_NAMES[_name]))

uint8, int8, int16, int32, int64 = (DTYPE_NAMES[n] for n in "uint8 int8 int16 int32 int64".split())
uint16, uint32, uint64 = (DTYPE_NAMES[n] for n in "uint16 uint32 uint64".split())
float16, bfloat16, float32, float64 = (DTYPE_NAMES[n] for n in "float16 bfloat16 float32 float64".split())
complex64, complex128, bool_ = (DTYPE_NAMES[n] for n in "complex64 complex128 bool".split())

_REAL = {complex64: float32, complex128: float64}
_COMPLEX = {bfloat16: complex64, float32: complex64, float64: complex128}
_COMPLEX |= {complex64: complex64, complex128: complex128}
for _dtype in DTYPE_NAMES.values():
    object.__setattr__(_dtype, "_real", _REAL.get(_dtype, _dtype))
    object.__setattr__(_dtype, "_complex", _COMPLEX.get(_dtype))

OF_NUMPY: dict[np.dtype[Any], dtype] = {each.numpy: each for each in DTYPE_NAMES.values()}


def as_dtype(value: object) -> dtype:
    """The dtype meant by a dtype, its name, a numpy dtype or a Python number type.

    >>> as_dtype("long"), as_dtype(np.float16), as_dtype(bool)
    (weft.int64, weft.float16, weft.bool)
    """
    if isinstance(value, dtype):
        return value
    if isinstance(value, str):
        found = DTYPE_NAMES.get(value) or ALIASES.get(value)
    else:
        found = _of_foreign(value)
    if found is None:
        raise InvalidType(f"{value!r} is no dtype of weft", why="weft has " + ", ".join(DTYPE_NAMES))
    return found


def _of_foreign(value: object) -> dtype | None:
    if value is None:  # numpy takes None for float64
        return None
    try:
        return OF_NUMPY.get(np.dtype(value))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None


_default_dtype = float32


def get_default_dtype() -> dtype:
    """The dtype of tensors made from Python floats.

    >>> get_default_dtype()
    weft.float32
    """
    return _default_dtype


def set_default_dtype(d: dtype) -> None:
    """Sets, for the whole process, the dtype of tensors made from Python floats."""
    global _default_dtype
    if not isinstance(d, dtype):
        raise InvalidType("invalid dtype object: only floating-point types are supported as the default type")
    if not d.is_floating_point:
        raise InvalidType("only floating-point types are supported as the default type")
    _default_dtype = d


class _Named(metaclass=_Constants):
    """Constants that are nothing but a name."""

    __slots__ = ("name",)

    name: str

    def __repr__(self) -> str:
        return f"weft.{self.name}"


class layout(_Named):
    """How a tensor's elements lie in memory: `weft.strided`."""

    __module__ = "weft"
    __slots__ = ()

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return as_layout, (self.name,)


strided: layout = _constant(layout, name="strided")
sparse_coo: layout = _constant(layout, name="sparse_coo")
_LAYOUTS = {each.name: each for each in (strided, sparse_coo)}


def as_layout(name: str) -> layout:
    """The layout of that name."""
    if name not in _LAYOUTS:
        raise InvalidType(f"{name!r} is no layout of weft", why="weft has " + ", ".join(_LAYOUTS))
    return _LAYOUTS[name]


class memory_format(_Named):
    """In which order the dimensions of a new tensor lie in memory."""

    __module__ = "weft"
    __slots__ = ()

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return as_memory_format, (self.name,)


_FORMATS: dict[str, memory_format] = {
    name: _constant(memory_format, name=name)
    for name in "contiguous_format preserve_format channels_last channels_last_3d".split()
}
contiguous_format, preserve_format, channels_last, channels_last_3d = _FORMATS.values()


def as_memory_format(name: str) -> memory_format:
    """The memory format of that name."""
    if name not in _FORMATS:
        raise InvalidType(f"{name!r} is no memory format", why="weft has " + ", ".join(_FORMATS))
    return _FORMATS[name]


class _Info:
    """What finfo and iinfo share: fields that cannot be set, equality by dtype."""

    __slots__ = ("_dtype",)
    _dtype: dtype

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._dtype is other._dtype

    __hash__ = None  # type: ignore[assignment]

    @property
    def bits(self) -> int:
        return self._dtype.itemsize * 8

    @property
    def dtype(self) -> str:
        return self._dtype.name


def _checked(owner: str, value: object) -> dtype:
    if not isinstance(value, dtype):
        kind = type(value).__name__
        raise InvalidType(f"{owner}(): argument 'type' (position 1) must be weft.dtype, not {kind}")
    return value


class finfo(_Info):
    """The limits of a floating-point dtype; of a complex one, those of its parts.

    >>> finfo(float16).max, finfo(float32).eps == 2.0**-23
    (65504.0, True)
    """

    __module__ = "weft"
    __slots__ = ("_limits",)

    def __init__(self, type: dtype | None = None) -> None:
        of = (_default_dtype if type is None else _checked("finfo", type)).to_real()
        if not of.is_floating_point:
            raise InvalidType(
                "weft.finfo() requires a floating point input type. Use weft.iinfo to handle 'weft.finfo'"
            )
        self._dtype = of
        self._limits: Any = ml_dtypes.finfo(of.numpy)  # type: ignore[no-untyped-call]

    @property
    def eps(self) -> float:
        return float(self._limits.eps)

    @property
    def max(self) -> float:
        return float(self._limits.max)

    @property
    def min(self) -> float:
        return float(self._limits.min)

    @property
    def smallest_normal(self) -> float:
        return float(self._limits.smallest_normal)

    tiny = smallest_normal

    @property
    def resolution(self) -> float:
        """10 to the minus number of decimal digits that the mantissa holds."""
        digits = math.floor(-math.log10(self.eps))
        return float(f"1e-{digits}")

    def __repr__(self) -> str:
        fields = "resolution min max eps smallest_normal tiny".split()
        values = ", ".join(f"{name}={getattr(self, name):g}" for name in fields)
        return f"finfo({values}, dtype={self.dtype})"


class iinfo(_Info):
    """The limits of an integer dtype.

    >>> iinfo(int8).min, iinfo(int8).max
    (-128, 127)
    """

    __module__ = "weft"
    __slots__ = ()

    def __init__(self, type: dtype) -> None:
        of = _checked("iinfo", type)
        if of is bool_:
            raise InvalidType("weft.bool is not supported by weft.iinfo")
        if of.is_floating_point or of.is_complex:
            raise InvalidType("weft.iinfo() requires an integer input type. Use weft.finfo to handle 'weft.iinfo'")
        self._dtype = of

    @property
    def max(self) -> int:
        return int(np.iinfo(self._dtype.numpy).max)

    @property
    def min(self) -> int:
        return int(np.iinfo(self._dtype.numpy).min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"

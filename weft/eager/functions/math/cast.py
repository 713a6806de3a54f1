"""Rows: conversions between dtypes, copies, and writing values into a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.errors import InvalidType, InvalidValue, RunError
from ....core.op import Op
from ... import devices
from ...autograd.modes import modes
from ...dispatch import apply
from ...tensor.device import device as Device
from ...tensor.device import located
from ...tensor.inplace import check_writable, write
from ...tensor.memory import array_of, in_format
from ...tensor.promotion import promote, result_dtype
from ...tensor.tensor import Tensor, wrap
from ...tensor.types import DTYPE_NAMES, OF_NUMPY, as_dtype, dtype, memory_format
from ...tensor.viewing import stretched
from ..operands import in_common, must_be_tensors, must_fit
from ..table import named, row

_COPY = Op.get("copy")


@row
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """a copy in memory of its own, through which gradients flow

    >>> import weft
    >>> x = weft.tensor([1, 2])
    >>> x.clone().add_(10), x
    (tensor([11, 12]), tensor([1, 2]))
    """
    made = apply(_COPY, None, [input])[0]
    return _laid_out(made, memory_format)


def _laid_out(made: Tensor, memory_format: Any) -> Tensor:
    """A fresh tensor with its elements in the order of a memory format."""
    if getattr(memory_format, "name", "preserve_format") == "preserve_format":
        return made
    array = array_of(made)
    ordered = in_format(array, memory_format)
    if ordered is not array:
        made.data = wrap(ordered)
    return made


@row(space=None)
def to(input: Tensor, *args: Any, **options: Any) -> Tensor:
    """in another dtype or of another tensor's; itself if nothing changes

    >>> import weft
    >>> weft.tensor([1.7, 2.2]).to(weft.int64)
    tensor([1, 2])
    """
    kind, copy = input._dtype, bool(options.pop("copy", False))
    options.pop("non_blocking", None)
    layout = options.pop("memory_format", None)
    named = [options.pop(key, None) for key in ("dtype", "device", "other")]
    if options:
        raise InvalidType(f"to() got an unexpected keyword argument {next(iter(options))!r}")
    flags = [value for value in args if isinstance(value, bool)]
    copy = copy or (len(flags) > 1 and flags[1])
    where = None
    for value in (*args, *named):
        kind, layout = _asked(value, kind, layout)
        where = _asked_where(value, where)
    if where is not None and where != input.device:
        return devices.moved(_laid_out(input._cast(kind), layout), where)
    if kind != input._dtype:
        return _laid_out(input._cast(kind), layout)
    if not copy and (layout is None or _lies_in(input, layout)):
        return input
    return _laid_out(clone(input), layout)


def _asked_where(value: Any, where: Any) -> Any:
    """The device that an argument asks for."""
    if isinstance(value, Tensor):
        return value.device
    return located(value) if isinstance(value, (str, int, Device)) and not isinstance(value, bool) else where


def _lies_in(input: Tensor, layout: Any) -> bool:
    """Whether the elements have the order of a memory format."""
    return layout.name == "preserve_format" or input.is_contiguous(layout)


def _asked(value: Any, kind: Any, layout: Any) -> tuple[Any, Any]:
    if isinstance(value, dtype):
        return value.numpy, layout
    if isinstance(value, Tensor):
        return value._dtype, layout
    if isinstance(value, memory_format):
        return kind, value
    if value is not None and not isinstance(value, (bool, int, str, Device)):
        raise RunError(f"to() received an invalid argument: {value!r}")
    return kind, layout


@row(space=None, name="type")
def type_(input: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """the name of the tensor's type; or the tensor in another dtype"""
    if dtype is None:
        return f"weft.{'' if input.is_cpu else input.device.type + '.'}{input.dtype.title}Tensor"
    return input._cast(_typed(dtype).numpy)


def _typed(value: Any) -> dtype:
    """The dtype meant by one, or by the name of a type such as "weft.FloatTensor"."""
    if not isinstance(value, str):
        return as_dtype(value)
    title = value.rpartition(".")[2].removesuffix("Tensor")
    for kind in DTYPE_NAMES.values():
        if kind.title == title:
            return kind
    raise InvalidValue(f"invalid type: '{value}'")


@row(space=None)
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """in the dtype, and on the device, of another tensor"""
    must_be_tensors("type_as", other=other)
    return to(input, other)


def _cast_method(name: str, kind: dtype) -> None:
    target = kind.numpy

    def function(input: Tensor, memory_format: Any = None) -> Tensor:
        if input._dtype == target:
            return to(input, memory_format=memory_format)
        return _laid_out(input._cast(target), memory_format)

    row(named(function, name, f"in dtype {kind.name}; itself if it has that one"), space=None)


for _name in "bfloat16 bool double float half int long short cfloat cdouble".split():
    _cast_method(_name, as_dtype(_name))
_cast_method("byte", as_dtype("uint8"))
_cast_method("char", as_dtype("int8"))


# Writing.


@row(space=None)
def copy_(input: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """writes the elements of another tensor, cast and broadcast"""
    kind = input._dtype
    source = in_common(src, kind)
    check_writable(input)
    if not isinstance(src, Tensor) and not input._recorded() and modes.trace is None:
        np.copyto(array_of(input), array_of(source))
        input._counter[0] += 1
        return input
    if source._shape != input._shape:
        try:
            source = stretched(source, input._shape)
        except ValueError:
            raise RunError(
                f"The expanded size of the tensor {list(input.shape)} must match the existing size {list(source.shape)}"
            ) from None
    return write(input, source)


@row
def fill_(input: Tensor, value: Any) -> Tensor:
    """writes one value everywhere"""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RunError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
    elif not isinstance(value, (int, float, complex, np.generic)):
        raise InvalidType(f"fill_(): argument 'value' (position 1) must be Number, not {type(value).__name__}")
    must_fit(input._dtype, value)
    return copy_(input, value)


@row(method=False)
def fill(input: Tensor, value: Any) -> Tensor:
    """a tensor of the same shape and dtype, full of one value"""
    return fill_(clone(input), value)


@row
def zero_(input: Tensor) -> Tensor:
    """writes zeros everywhere"""
    return copy_(input, 0)


# What a dtype is.


@row
def is_floating_point(input: Tensor) -> bool:
    """whether the dtype is a floating one"""
    return input.dtype.is_floating_point


@row
def is_complex(input: Tensor) -> bool:
    """whether the dtype is a complex one"""
    return input.dtype.is_complex


@row
def is_signed(input: Tensor) -> bool:
    """whether the dtype has negative numbers"""
    return input.dtype.is_signed


@row(method=False)
def promote_types(type1: dtype, type2: dtype) -> dtype:
    """the dtype that two dtypes meet in"""
    return OF_NUMPY[promote(as_dtype(type1).numpy, as_dtype(type2).numpy)]


@row(method=False)
def result_type(tensor1: Any, tensor2: Any) -> dtype:
    """the dtype that two tensors or numbers meet in"""
    for value in (tensor1, tensor2):
        if not isinstance(value, (Tensor, int, float, complex, np.generic)):
            raise InvalidType(f"result_type() takes tensors and numbers, not {type(value).__name__}")
    return OF_NUMPY[result_dtype([tensor1, tensor2])]


@row(method=False)
def can_cast(from_: dtype, to: dtype) -> bool:
    """whether an operation may write a result of one dtype to a tensor of another"""
    source, target = as_dtype(from_), as_dtype(to)
    if source.is_complex or source.is_floating_point:
        return target.is_complex or (target.is_floating_point and not source.is_complex)
    return source.name == "bool" or target.name != "bool"

"""The typed tensor classes (FloatTensor, ...), which answer `isinstance` by dtype, and the old way
to make tensors that they and Tensor share: from sizes, data, a storage or a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import Error, InvalidType, NotFound
from ..functions.create.create import shape_of
from ..functions.create.data import array_from
from .storage import UntypedStorage, allocate
from .tensor import Tensor, bind, wrap
from .typed_storage import is_storage
from .types import DTYPE_NAMES, Size, dtype, get_default_dtype, set_default_dtype, strided

_NOT_A_TYPE = "invalid type object: only floating-point types are supported as the default type"


def made_as(kind: dtype, *arguments: Any) -> Tensor:
    """A tensor of a dtype from nothing, sizes, a sequence, a storage or a tensor of that dtype."""
    if not arguments:
        return wrap(np.empty(0, kind.numpy))
    first = arguments[0]
    if len(arguments) == 1 and isinstance(first, Tensor):
        if first.dtype is not kind:
            raise InvalidType(f"expected a tensor of {kind.name}, got one of {first.dtype.name}")
        return first.detach()
    if len(arguments) == 1 and is_storage(first):
        return _over(kind, first)
    if len(arguments) == 1 and isinstance(first, Size):
        return _sized(kind, first)
    if all(isinstance(size, (int, np.integer)) for size in arguments):
        return _sized(kind, Size(arguments))
    if len(arguments) > 1 or not hasattr(first, "__len__"):
        raise InvalidType(f"new(): data must be a sequence (got {type(first).__name__})")
    return wrap(array_from(first, kind))


def _sized(kind: dtype, shape: Size) -> Tensor:
    shape_of("new", (tuple(shape),))
    memory = allocate(shape.numel() * kind.itemsize)
    if kind.name == "bool":
        memory[...] = 0
    return wrap(memory.view(kind.numpy).reshape(shape))


def _over(kind: dtype, storage: Any) -> Tensor:
    """A tensor that is a storage's elements in a row."""
    if not isinstance(storage, UntypedStorage) and storage.dtype is not kind:
        raise InvalidType(f"expected a storage of {kind.name}, got {storage.type()}")
    untyped = storage.untyped()
    made = wrap(untyped._bytes[: len(untyped) // kind.itemsize * kind.itemsize].view(kind.numpy))
    made._storage, made._start = untyped, 0
    untyped._adopt(made)
    return made


def _take_over(self: Tensor, *arguments: Any) -> None:
    """Tensor(...) makes a tensor of the default dtype."""
    made = made_as(get_default_dtype(), *arguments)
    vars(self).update(vars(made))
    if made._storage is not None and made._root is None:
        made._storage._adopt(self)


bind(__init__=_take_over)


class tensortype(type):
    """The class of the typed tensor classes. Making one of their instances gives a Tensor."""

    __module__ = "weft"
    dtype: dtype

    def __call__(cls, *arguments: Any) -> Tensor:
        return made_as(cls.dtype, *arguments)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype


_TYPED = "float64 float32 float16 int64 int32 int16 int8 uint8 bool bfloat16".split()
TENSOR_CLASSES: dict[str, Any] = {
    f"{DTYPE_NAMES[name].title}Tensor": tensortype(
        f"{DTYPE_NAMES[name].title}Tensor",
        (),
        {
            "__module__": "weft",
            "__doc__": f"Tensors of {name}.",
            "dtype": DTYPE_NAMES[name],
            "layout": strided,
            "is_cuda": False,
            "is_sparse": False,
        },
    )
    for name in _TYPED
}


class NoSuchType(NotFound, AttributeError):
    """A name that should be of a tensor type is not."""

    __str__ = Error.__str__


def set_default_tensor_type(t: Any) -> None:
    """Sets the dtype of tensors made from Python floats, by a typed tensor class or its name."""
    if isinstance(t, str):
        name = t.removeprefix("weft.")
        if name not in TENSOR_CLASSES:
            raise NoSuchType(
                f"module 'weft' has no attribute {name!r}", why="the tensor types are " + ", ".join(TENSOR_CLASSES)
            )
        t = TENSOR_CLASSES[name]
    if not isinstance(t, tensortype):
        raise InvalidType(_NOT_A_TYPE)
    set_default_dtype(t.dtype)


def typename(obj: Any) -> str:
    """The name of a tensor's type, of a class or function, or of an object's class.

    >>> typename(wrap(np.ones(2, np.float32))), typename(3), typename(np.ndarray)
    ('weft.FloatTensor', 'int', 'numpy.ndarray')
    """
    if isinstance(obj, Tensor):
        return f"weft.{obj.dtype.title}Tensor"
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", None)
    return named.__qualname__ if module in (None, "builtins") else f"{module}.{named.__qualname__}"

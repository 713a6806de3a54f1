"""Casts as tensors and storages had them before `to`, and things found by a dotted name."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from ...base.errors import InvalidType, NotFound, Unsupported
from ..functions.misuse import typed_errors
from ..tensor.storage import UntypedStorage
from ..tensor.tensor import Tensor
from ..tensor.typed_storage import is_storage
from ..tensor.types import dtype as _dtype


def type_of(self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The name of the type of a tensor or storage, or its elements as another type.

    >>> import weft
    >>> type_of(weft.ones(2)), type_of(weft.ones(2), weft.int64)
    ('weft.FloatTensor', tensor([1, 1]))
    """
    waits = non_blocking_of("type", non_blocking, kwargs)
    if not isinstance(self, Tensor) and not is_storage(self):
        raise InvalidType(f"_type takes a tensor or a storage, not {self!r:.60}")
    if dtype is None:
        return self.type()
    if isinstance(self, UntypedStorage):
        raise InvalidType("an untyped storage has no elements to cast")
    return self.type(dtype, waits)


def cuda(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """Refuses: no tensor of weft is on a CUDA device."""
    non_blocking_of("cuda", non_blocking, kwargs)
    raise Unsupported(f"{type(self).__name__}.cuda()", why="tensors of weft are in the memory of the processor")


@typed_errors
def non_blocking_of(function: str, non_blocking: bool, kwargs: dict[str, Any]) -> bool:
    """What `non_blocking` means for a function that may still be called with `async=`."""
    if not kwargs:
        return non_blocking
    if list(kwargs) != ["async"]:
        (unexpected, *_) = [name for name in kwargs if name != "async"]
        raise InvalidType(f"{function}() got an unexpected keyword argument {unexpected!r}")
    warnings.warn("'async' is deprecated; use 'non_blocking'", stacklevel=3)
    return bool(kwargs["async"])


def dotted_name(name: str) -> Any:
    """What a dotted name stands for.

    >>> dotted_name("math.pi")
    3.141592653589793
    """
    if not isinstance(name, str):
        raise InvalidType(f"a dotted name is text, not {name!r:.60}")
    first, *rest = name.split(".")
    try:
        found: Any = importlib.import_module(first)
        for part in rest:
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise NotFound(f"there is no {name!r}", why=str(error)) from None
    return found


def element_size(dtype: _dtype) -> int:
    """The bytes of one element."""
    if not isinstance(dtype, _dtype):
        raise InvalidType(f"expected weft.dtype, but got {type(dtype).__name__}")
    return dtype.itemsize

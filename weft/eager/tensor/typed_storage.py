"""Storages of one element type: a class per dtype, each a face of an UntypedStorage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...base.dtype import BOOL, DTYPES
from ...base.errors import InvalidType, NotFound, RunError
from . import types
from .convert import from_python
from .device import device, require_cpu
from .storage import UntypedStorage, as_asked, interface_of, map_file, neighbours, position, read_buffer
from .storage_copy import find_copy, register_copies


class ElementStorage:
    """Elements of one dtype over bytes that others may share: what every `*StorageBase` has."""

    __module__ = "weft"
    __slots__ = ("__weakref__", "_untyped")

    dtype: ClassVar[types.dtype]
    is_cuda = False
    is_sparse = False

    def __init__(self, data: Any = 0, /, *, wrap_storage: UntypedStorage | None = None, device: Any = None) -> None:
        require_cpu(device)
        if type(self) is ElementStorage or not hasattr(type(self), "dtype"):
            raise InvalidType(f"cannot create '{type(self).__name__}' instances")
        self._untyped = _initial(self, data) if wrap_storage is None else _whole(self, wrap_storage)

    def _elements(self) -> NDArray[Any]:
        """The elements as a numpy array that shares memory."""
        return self._untyped._bytes.view(self.dtype.numpy)

    def untyped(self) -> UntypedStorage:
        return self._untyped

    def size(self) -> int:
        return len(self._untyped) // self.dtype.itemsize

    __len__ = size

    def element_size(self) -> int:
        return self.dtype.itemsize

    def nbytes(self) -> int:
        return len(self._untyped)

    def data_ptr(self) -> int:
        return self._untyped.data_ptr()

    @property
    def device(self) -> device:
        return self._untyped.device

    def get_device(self) -> int:
        return -1

    def __getitem__(self, index: Any) -> Any:
        """An element, or the storage of neighbouring elements, which shares memory."""
        if isinstance(index, slice):
            width, part = self.dtype.itemsize, neighbours(index, len(self))
            return type(self)(wrap_storage=self._untyped[part.start * width : part.stop * width])
        return _python(self._elements()[position(self, index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        where = index if isinstance(index, slice) else position(self, index)
        self._elements()[where] = self._element(value)

    def _element(self, value: Any) -> Any:
        if not isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
            kind = "a float" if self.dtype.is_floating_point else "an int"
            raise InvalidType(f"can only set storage content with {kind}, but got {type(value).__name__} instead")
        return from_python([value], self.dtype.numpy)[0]

    def fill_(self, value: Any) -> Any:
        self._elements().fill(self._element(value))
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Converts the elements of another storage of the same length into this one."""
        find_copy(type(self), type(source), non_blocking).function(self, source)
        return self

    def resize_(self, size: int) -> Any:
        """Changes the number of elements and keeps the first ones."""
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise RunError(f"resize_ expects an int, but got {type(size).__name__}")
        self._untyped.resize_(int(size) * self.dtype.itemsize)
        return self

    def resizable(self) -> bool:
        return self._untyped.resizable()

    def new(self, data: Any = 0, /) -> Any:
        return type(self)(data)

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def pin_memory(self, device: Any = None) -> Any:
        return self._untyped.pin_memory(device)

    def is_shared(self) -> bool:
        return self._untyped.is_shared()

    def share_memory_(self) -> Any:
        """Moves the elements into memory that a forked process shares."""
        self._untyped.share_memory_()
        return self

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> Any:
        """A storage over a file, see UntypedStorage.from_file."""
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise InvalidType(f"a storage has a whole number of elements, not {size!r:.60}")
        memory = map_file(filename, shared, size * cls.dtype.itemsize)
        return cls(wrap_storage=UntypedStorage._over(memory, shared=shared))

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0) -> Any:
        """A storage with a copy of elements from an object that has the buffer protocol.

        `byte_order` is 'native', 'little' or 'big', and `offset` counts bytes.
        """
        parts = 2 if cls.dtype.is_complex else 1
        memory = read_buffer(buffer, cls.dtype.itemsize, byte_order, count, offset, parts)
        if cls.dtype.numpy == BOOL:
            memory[...] = memory != 0
        return cls(wrap_storage=UntypedStorage._over(memory, resizable=True))

    def __reduce__(self) -> tuple[Any, tuple[str, UntypedStorage]]:
        return _rebuild_base, (self.dtype.name, self._untyped)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return type(self)(wrap_storage=self._untyped.__deepcopy__(memo))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return as_asked(self._elements(), dtype, copy)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.dtype.numpy == DTYPES["bfloat16"]:  # which it cannot name; `__array__` gives it
            raise AttributeError("__array_interface__")
        return interface_of(self._elements())

    def __buffer__(self, flags: int) -> memoryview:
        if self.dtype.numpy == DTYPES["bfloat16"]:  # which the buffer protocol cannot name
            return self._untyped._bytes.data
        return self._elements().data


class _StorageBase:
    """What storages do beyond element access: printing, lists, casts, copies."""

    __module__ = "weft"
    __slots__ = ()

    dtype: ClassVar[types.dtype]
    _untyped: UntypedStorage

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of this class, or a storage of another class with converted elements."""
        if dtype is None:
            return f"weft.{type(self).__name__}"
        return self._cast(storage_class(dtype))

    def _cast(self, kind: Any) -> Any:
        return self if type(self) is kind else kind(len(self)).copy_(self)  # type: ignore[arg-type]

    def clone(self) -> Any:
        return type(self)(wrap_storage=self._untyped.clone())  # type: ignore[call-arg]

    def cpu(self) -> Any:
        return self

    def tolist(self) -> list[Any]:
        elements = self._elements()  # type: ignore[attr-defined]
        exact = np.float32 if self.dtype.name == "bfloat16" else elements.dtype
        values: list[Any] = elements.astype(exact, copy=False).tolist()
        return values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._untyped is self._untyped

    def __hash__(self) -> int:
        return hash((type(self), id(self._untyped)))

    def __copy__(self) -> Any:
        return self.clone()

    def __reduce__(self) -> tuple[Any, tuple[str, UntypedStorage]]:
        return _rebuild, (self.dtype.name, self._untyped)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self._untyped)

    def __repr__(self) -> str:
        lines = "\n ".join(map(str, self.tolist()))
        return f" {lines}\n[{self.type()} of size {len(self)}]"  # type: ignore[arg-type]


def _rebuild(name: str, untyped: UntypedStorage) -> Any:
    return STORAGE_OF[types.as_dtype(name)](wrap_storage=untyped)


def _rebuild_base(name: str, untyped: UntypedStorage) -> Any:
    return STORAGE_BASES[types.as_dtype(name)](wrap_storage=untyped)


def _python(element: Any) -> Any:
    return float(element) if element.dtype == DTYPES["bfloat16"] else element.item()


def _initial(storage: ElementStorage, data: Any) -> UntypedStorage:
    width = storage.dtype.itemsize
    if isinstance(data, (int, np.integer)) and not isinstance(data, bool):
        made = UntypedStorage(int(data) * width)
        if storage.dtype.numpy == BOOL:  # a byte other than 0 and 1 is no boolean
            made.fill_(0)
        return made
    if isinstance(data, (str, bytes)) or not hasattr(data, "__iter__"):
        raise InvalidType(
            f"{type(storage).__name__}() takes a size, a sequence or wrap_storage=, not {type(data).__name__}"
        )
    elements = from_python(data, storage.dtype.numpy)
    made = UntypedStorage(elements.nbytes)
    made._bytes[...] = elements.view(np.uint8)
    return made


def _whole(storage: ElementStorage, untyped: Any) -> UntypedStorage:
    if not isinstance(untyped, UntypedStorage):
        raise InvalidType(f"wrap_storage must be UntypedStorage, not {type(untyped).__name__}")
    if len(untyped) % storage.dtype.itemsize:
        raise RunError(f"{len(untyped)} bytes are no whole number of {storage.dtype.name} elements")
    return untyped


# In the order in which they are registered; the first nine are PyTorch's own nine.
_ORDER = "float64 float32 float16 int64 int32 int16 int8 uint8 bool".split()
_LATER = "bfloat16 complex64 complex128".split()
STORAGE_BASES: dict[types.dtype, type[ElementStorage]] = {}
STORAGE_OF: dict[types.dtype, Any] = {}
STORAGE_NAMES: dict[str, Any] = {}


def _make_classes(dtype: types.dtype) -> None:
    slots: dict[str, Any] = {"__module__": "weft", "__slots__": ()}
    core = {**slots, "__module__": "weft._C"}
    base = type(f"{dtype.title}StorageBase", (ElementStorage,), {**core, "dtype": dtype})
    name = f"{dtype.title}Storage"
    doc = f"A storage of {dtype.name} elements."
    made = type(name, (_StorageBase, base), {**slots, "__doc__": doc})
    STORAGE_BASES[dtype] = base
    STORAGE_OF[dtype] = STORAGE_NAMES[name] = made


for _name in _ORDER + _LATER:
    _make_classes(types.as_dtype(_name))


def init_storage(dtype: types.dtype, registry: Any = None) -> type[ElementStorage]:
    """Registers the copies into the storage of one dtype from each of the nine, or from all if it
    is a later one; then the nine take from it as well. Gives its `*StorageBase`."""
    nine = [STORAGE_BASES[types.as_dtype(name)] for name in _ORDER]
    base = STORAGE_BASES[dtype]
    where = {} if registry is None else {"registry": registry}
    if dtype.name in _ORDER:
        register_copies(base, nine, **where)
    else:
        register_copies(base, STORAGE_BASES.values(), **where)
        for other in nine:
            register_copies(other, [base], **where)
    return base


for _name in _ORDER + _LATER:
    init_storage(types.as_dtype(_name))


def storage_class(which: Any) -> Any:
    """The storage class meant by itself, its name, or its dtype.

    >>> storage_class("weft.FloatStorage") is storage_class(types.float32)
    True
    """
    if isinstance(which, types.dtype) and which in STORAGE_OF:
        return STORAGE_OF[which]
    if which in STORAGE_NAMES.values():
        return which
    name = str(which).removeprefix("weft.")
    if name not in STORAGE_NAMES:
        raise NotFound(f"{which!r} is no storage type", why="weft has " + ", ".join(STORAGE_NAMES))
    return STORAGE_NAMES[name]


def is_storage(obj: object) -> bool:
    """Whether it is one of weft's storages."""
    return isinstance(obj, UntypedStorage) or type(obj) in STORAGE_NAMES.values()


def _caster(dtype: types.dtype) -> Any:
    def cast(self: Any) -> Any:
        return self._cast(STORAGE_OF[dtype])

    cast.__doc__ = f"The elements as {dtype.name}."
    return cast


_CASTS = "double float half long int short char byte bool bfloat16 complex_float complex_double"
for _method, _name in zip(_CASTS.split(), _ORDER + _LATER):
    setattr(_StorageBase, _method, _caster(types.as_dtype(_name)))

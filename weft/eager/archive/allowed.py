"""The names that a file may use: PyTorch's, each with what weft makes of it, and those that the
user allows."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...base.errors import InvalidType, Unsupported
from ...base.forks import held_lock
from ..functions.misuse import typed_errors
from ..tensor import types
from ..tensor.parameter import Parameter
from ..tensor.storage import UntypedStorage
from ..tensor.tensor import Tensor
from ..tensor.typed_storage import STORAGE_NAMES
from . import rebuild
from .errors import ArchiveError, UnsafeContent
from .pickle_read import Maker, check_key

_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_NEVER = {"sys", "os", "posix", "nt"}


def _ordered_dict(pairs: Any = ()) -> OrderedDict[Any, Any]:
    made: OrderedDict[Any, Any] = OrderedDict()
    if type(pairs) not in (list, tuple):
        raise ArchiveError("an OrderedDict is made from pairs")
    for key, value in pairs:
        made[check_key(key)] = value
    return made


def _set_attributes(target: OrderedDict[Any, Any], state: Any) -> None:
    if type(state) is not dict or not all(type(key) is str for key in state):
        raise ArchiveError("the state of an OrderedDict is attributes")
    target.__dict__.update(state)


def _counter(counts: Any = None) -> Counter[Any]:
    if type(counts) is not dict and counts is not None:
        raise ArchiveError("a Counter is made from a dict")
    return Counter(counts)


def _set(values: Any = ()) -> set[Any]:
    if type(values) not in (list, tuple):
        raise ArchiveError("a set is made from a list")
    return {check_key(value) for value in values}


def _bytearray(content: Any = b"", encoding: Any = None) -> bytearray:
    if type(content) is bytes and encoding is None:
        return bytearray(content)
    return bytearray(_encoded(content, encoding))


def _encoded(text: Any, encoding: Any) -> bytes:
    known = type(encoding) is str and encoding in ("latin1", "latin-1")
    if type(text) is not str or not known:
        raise ArchiveError("bytes in the file are encoded in an unknown way")
    return text.encode("latin-1")


def _complex(real: Any, imag: Any) -> complex:
    if type(real) is not float or type(imag) is not float:
        raise ArchiveError("a complex number has two floats")
    return complex(real, imag)


def _size(sizes: Any) -> types.Size:
    if type(sizes) is not tuple:
        raise ArchiveError("a Size is made from a tuple")
    return types.Size(sizes)


def _device(kind: Any, index: Any = None) -> types.device:
    if type(kind) is not str:
        raise ArchiveError("a device is named by text")
    return types.device(kind, index)


def _layout(name: Any) -> types.layout:
    if type(name) is not str:
        raise ArchiveError("a layout is named by text")
    return types.as_layout(name.removeprefix("torch."))


_MAKERS: dict[str, tuple[Callable[..., Any], Any]] = {
    "collections.OrderedDict": (_ordered_dict, _set_attributes),
    "collections.Counter": (_counter, None),
    "builtins.set": (_set, None),
    "builtins.bytearray": (_bytearray, None),
    "builtins.complex": (_complex, None),
    "_codecs.encode": (_encoded, None),
    "torch.Size": (_size, None),
    "torch.device": (_device, None),
    "torch.serialization._get_layout": (_layout, None),
    "torch._utils._rebuild_tensor": (rebuild.tensor_v1, None),
    "torch._utils._rebuild_tensor_v2": (rebuild.tensor_v2, None),
    "torch._utils._rebuild_tensor_v3": (rebuild.tensor_v3, None),
    "torch._utils._rebuild_parameter": (rebuild.parameter, None),
    "torch._utils._rebuild_parameter_with_state": (rebuild.parameter_with_state, None),
    "torch._tensor._rebuild_from_type_v2": (rebuild.from_type, None),
}
_ALLOWED: dict[str, Any] = {
    "torch.Tensor": Tensor,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.storage.UntypedStorage": UntypedStorage,
    "torch.UntypedStorage": UntypedStorage,
    **{f"torch.{name}": kind for name, kind in STORAGE_NAMES.items()},
    **{f"torch.{name}": kind for name, kind in types.DTYPE_NAMES.items()},
    **{f"torch.{name}": kind for name, kind in types.ALIASES.items()},
    **{name: Maker(name, make, build) for name, (make, build) in _MAKERS.items()},
}
# PyTorch's own names for what weft does not have.
_UNSUPPORTED = {
    "torch._utils._rebuild_sparse_tensor": "a sparse tensor",
    "torch._utils._rebuild_qtensor": "a quantised tensor",
    "torch._utils._rebuild_meta_tensor_no_storage": "a tensor without memory",
    "torch._utils._rebuild_nested_tensor": "a nested tensor",
    "torch._utils._rebuild_wrapper_subclass": "a tensor of a class of its own",
}
_FOREIGN_DTYPES = ("complex32", "float8_", "float4_", "qint", "quint", "bits", "uint", "int")

_user: dict[str, Any] = {}
_user_lock = held_lock("table")


def find_global(module: str, name: str) -> Any:
    """What a name in a file stands for: a Maker, or a value."""
    module = _PYTHON_2.get(module, module)
    full = f"{module}.{name}"
    if module.split(".")[0] in _NEVER:
        raise UnsafeContent(f"Trying to load unsupported GLOBAL {full} whose module is blocked")
    found = _ALLOWED.get(full)
    if found is not None:
        return found
    if full in _user:
        return _user_maker(full, _user[full])
    if full in _UNSUPPORTED:
        raise Unsupported(f"the file holds {_UNSUPPORTED[full]}", why=full)
    if module == "torch" and name.startswith(_FOREIGN_DTYPES):
        raise Unsupported(f"the file holds elements of {full}")
    raise UnsafeContent(
        f"Unsupported global: GLOBAL {full} was not an allowed global by default.",
        why="loading data never needs it, and running it could do anything",
        hint=f"if you trust it, weft.serialization.add_safe_globals([{full}])",
    )


def _user_maker(name: str, allowed: Any) -> Maker:
    new = (lambda *arguments: allowed.__new__(allowed, *arguments)) if _is_class(allowed) else None
    return Maker(name, allowed, _set_state if _is_class(allowed) else None, new, allowed)


def _is_class(value: Any) -> bool:
    return isinstance(value, type)


def _set_state(value: Any, state: Any) -> None:
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
    elif type(state) is dict:
        value.__dict__.update(state)
    else:
        raise ArchiveError(f"the state of a {type(value).__name__} is no dict")


def _named(entry: Any) -> tuple[str, Any]:
    value, name = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, None)
    if not callable(value):
        raise InvalidType(f"a safe global is a class or a function, not {value!r}")
    return name or f"{value.__module__}.{value.__qualname__}", value


@typed_errors
def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Allows classes and functions in files; a pair (function, "module.name") gives the name."""
    with _user_lock:
        _user.update(map(_named, safe_globals))


def get_safe_globals() -> list[Any]:
    """The classes and functions that the user allowed."""
    return list(_user.values())


def is_safe_class(kind: type) -> bool:
    """Whether the user allowed a class."""
    return _user.get(f"{kind.__module__}.{kind.__qualname__}") is kind


def clear_safe_globals() -> None:
    """Allows nothing beyond data any more."""
    with _user_lock:
        _user.clear()


@contextmanager
def safe_globals(allowed: Iterable[Any]) -> Iterator[None]:
    """Allows classes and functions in files inside a with block."""
    with _user_lock:
        before = dict(_user)
        _user.update(map(_named, allowed))
    try:
        yield
    finally:
        with _user_lock:
            _user.clear()
            _user.update(before)

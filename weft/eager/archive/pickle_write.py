"""A writer of pickles, protocol 2: plain data and tensors come in, bytes go out that PyTorch reads.
What is no data is refused, so that nothing is written that could not be loaded."""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from ...base.errors import InvalidType
from ..tensor.types import Size, device, dtype
from .allowed import is_safe_class
from .errors import ArchiveError

Reducer = Callable[[Any], Any]
_MARK, _STOP = b"(", b"."


class Reduced:
    """An object as a call: the name of a function, its arguments (a tuple, but for functions that take
    one argument as it is), and state, if it has one. An object that is `late` can be referred to once it
    has its state, and not in it."""

    __slots__ = ("arguments", "late", "name", "new", "state")

    def __init__(self, name: str, arguments: Any, state: Any = None, new: bool = False, late: bool = False) -> None:
        self.name = name
        self.arguments = arguments
        self.state = state
        self.new = new
        self.late = late


class Named:
    """An object as the name of a global."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Persistent:
    """An object as the identity of something that is stored beside the pickle."""

    __slots__ = ("key",)

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key


class Pickler:
    """Writes one value, with a list of what is left to do in place of recursion."""

    def __init__(self, reduce: Reducer) -> None:
        self._reduce = reduce
        self._out: list[bytes] = [b"\x80\x02"]
        self._memo: dict[Any, int] = {}
        self._kept: list[Any] = []  # so that no id in the memo is given to another object
        self._left: list[Any] = []

    def dump(self, value: Any) -> bytes:
        """The pickle of a value."""
        self._left = [value]
        while self._left:
            item = self._left.pop()
            if isinstance(item, _Step):
                item.run()
            else:
                self._save(item)
        self._out.append(_STOP)
        return b"".join(self._out)

    def _save(self, value: Any) -> None:
        kind = type(value)
        write = _ATOMS.get(kind)
        if write is not None:
            self._out.append(write(value))
        elif kind is str or kind is bytes:
            self._once((kind, value), lambda: self._save_text(value))
        elif kind is Named:
            self._once(("global", value.name), lambda: self._save_name(value.name))
        elif kind is Persistent:
            self._then(value.key, _Step(lambda: self._out.append(b"Q")))
        elif kind is tuple and not value:
            self._out.append(b")")
        elif id(value) in self._memo:
            self._recall(id(value))
        elif kind is tuple:
            self._save_tuple(value)
        elif kind is list:
            self._save_list(value)
        elif kind is dict:
            self._save_dict(value)
        elif kind is Reduced:
            self._save_reduced(value, None)
        else:
            self._save_other(value)

    def _then(self, *items: Any) -> None:
        """Does things in that order, before what is left."""
        self._left.extend(reversed(items))

    def _once(self, key: Any, write: Callable[[], None]) -> None:
        if key in self._memo:
            self._recall(key)
        else:
            write()

    def _remember(self, key: Any) -> None:
        number = self._memo[key] = len(self._memo)
        form = (b"q", "<B") if number < 256 else (b"r", "<I")
        self._out.append(form[0] + struct.pack(form[1], number))

    def _remember_object(self, value: Any) -> None:
        self._kept.append(value)
        self._remember(id(value))

    def _recall(self, key: Any) -> None:
        number = self._memo[key]
        form = (b"h", "<B") if number < 256 else (b"j", "<I")
        self._out.append(form[0] + struct.pack(form[1], number))

    def _save_text(self, value: str | bytes) -> None:
        if isinstance(value, bytes):  # protocol 2 has no bytes of its own
            call = Reduced("_codecs.encode", (value.decode("latin-1"), "latin1"))
            self._then(call, _Step(lambda: self._remember((bytes, value))))
            return
        data = value.encode("utf-8", "surrogatepass")
        if len(data) >= 2**32:
            raise InvalidType("a string of 4 GiB or more cannot be saved")
        self._out.append(b"X" + struct.pack("<I", len(data)) + data)
        self._remember((str, value))

    def _save_name(self, name: str) -> None:
        module, _, attribute = name.rpartition(".")
        self._out.append(f"c{module}\n{attribute}\n".encode())
        self._remember(("global", name))

    def _save_tuple(self, value: tuple[Any, ...]) -> None:
        short = {1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(value))
        if short is None:
            self._out.append(_MARK)

        def close() -> None:
            if id(value) in self._memo:  # it holds itself, through a list or dict
                self._out.append(b"0" * len(value) if short else b"1")
                self._recall(id(value))
                return
            self._out.append(short or b"t")
            self._remember_object(value)

        self._then(*value, _Step(close))

    def _save_list(self, value: list[Any]) -> None:
        self._out.append(b"]")
        self._remember_object(value)
        if value:
            self._out.append(_MARK)
            self._then(*value, _Step(lambda: self._out.append(b"e")))

    def _save_dict(self, value: dict[Any, Any]) -> None:
        self._out.append(b"}")
        self._remember_object(value)
        self._save_items(value)

    def _save_items(self, value: dict[Any, Any]) -> None:
        if value:
            self._out.append(_MARK)
            flat = [part for item in value.items() for part in item]
            self._then(*flat, _Step(lambda: self._out.append(b"u")))

    def _save_reduced(self, call: Reduced, source: Any) -> None:
        def remember() -> None:
            if source is not None:
                self._remember_object(source)

        steps = [Named(call.name), call.arguments, _Step(lambda: self._out.append(b"\x81" if call.new else b"R"))]
        state = [] if call.state is None else [call.state, _Step(lambda: self._out.append(b"b"))]
        steps += [*state, _Step(remember)] if call.late else [_Step(remember), *state]
        self._then(*steps)

    def _save_other(self, value: Any) -> None:
        kind = type(value)
        if kind is OrderedDict:
            self._save_ordered(value)
        elif kind is Counter:
            self._save_reduced(Reduced("collections.Counter", (dict(value),)), value)
        elif kind in (set, bytearray, complex, Size, device):
            self._save_reduced(_call_of(value), value)
        elif kind is dtype:
            self._save(Named(f"torch.{value.name}"))
        else:
            self._save_found(value, self._reduce(value))

    def _save_found(self, value: Any, found: Any) -> None:
        """What the archive made of an object: a name, an identity, or a call."""
        if found is None:
            found = _of_user_class(value)
        if isinstance(found, Reduced):
            self._save_reduced(found, value)
        else:
            self._save(found)

    def _save_ordered(self, value: OrderedDict[Any, Any]) -> None:
        attributes = dict(vars(value))
        steps: list[Any] = [Reduced("collections.OrderedDict", ())]
        steps += [_Step(lambda: self._remember_object(value))]
        steps += [_Step(lambda: self._save_items(value))]
        if attributes:
            steps += [attributes, _Step(lambda: self._out.append(b"b"))]
        self._then(*steps)


class _Step:
    """Something to do once what is before it is written."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run


def _integer(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + struct.pack("<B", value)
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if len(data) < 256:
        return b"\x8a" + struct.pack("<B", len(data)) + data
    return b"\x8b" + struct.pack("<I", len(data)) + data


_ATOMS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"N",
    bool: lambda value: b"\x88" if value else b"\x89",
    int: _integer,
    float: lambda value: b"G" + struct.pack(">d", value),
}


def _call_of(value: Any) -> Reduced:
    if isinstance(value, set):
        return Reduced("__builtin__.set", (list(value),))
    if isinstance(value, bytearray):
        return Reduced("__builtin__.bytearray", (bytes(value),))
    if isinstance(value, complex):
        return Reduced("__builtin__.complex", (value.real, value.imag))
    if isinstance(value, Size):
        return Reduced("torch.Size", (tuple(value),))
    where = (value.type,) if value.index is None else (value.type, value.index)
    return Reduced("torch.device", where)


_NUMPY_HINTS = {True: "make it a number by item(), or a tensor by weft.from_numpy()"}


def _of_user_class(value: Any) -> Any:
    """An object of a class that the user allowed, as Python's pickle takes it apart."""
    kind = value if isinstance(value, type) else type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not is_safe_class(kind):
        allow = f"weft.serialization.add_safe_globals([{name}]) allows it, here and when loading"
        raise InvalidType(
            f"a {name} cannot be saved",
            why="an archive holds data: tensors, numbers, text and containers of them",
            hint=_NUMPY_HINTS.get(type(value).__module__ == "numpy", allow),
        )
    if kind is value:
        return Named(name)
    parts = value.__reduce_ex__(2)
    if not isinstance(parts, tuple) or any(part is not None for part in parts[3:]):
        raise ArchiveError(f"a {name} does not come apart into a call and its state")
    function, arguments, state = parts[0], parts[1], parts[2] if len(parts) > 2 else None
    if function.__name__ == "__newobj__" and arguments[0] is kind:
        return Reduced(name, tuple(arguments[1:]), state, new=True)
    if function is kind:
        return Reduced(name, tuple(arguments), state)
    raise ArchiveError(f"a {name} is made by {function.__qualname__}, which is not allowed")

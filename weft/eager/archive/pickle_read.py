"""A reader of pickles that runs nothing: bytes come in, plain data goes out. Names are looked up in
a table of what is allowed, objects are made only by the functions found there."""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from ...base.errors import Error
from .errors import ArchiveError, UnsafeContent

_MARK = object()
_KEY_PARTS = 10_000  # a tuple of tuples of ... can take forever to hash
_KEY_BITS = 64  # of longer numbers any amount can have the same hash
_OPCODES: dict[int, Callable[[Unpickler], None]] = {}
_HIGHEST_PROTOCOL = 5


class Maker:
    """A function that a name in a pickle stands for.

    `make` takes the arguments of a call and gives an object, and `new` does so for objects that are
    made without a call; `build` takes a made object and its state. `itself` is the Python object,
    if it is one that the user allowed: it may be part of data, too. A function that `takes_one` has its
    argument as it is, and not in a tuple.
    """

    __slots__ = ("build", "itself", "make", "name", "new", "takes_one")

    def __init__(
        self,
        name: str,
        make: Callable[..., Any],
        build: Callable[[Any, Any], Any] | None = None,
        new: Callable[..., Any] | None = None,
        itself: Any = None,
        takes_one: bool = False,
    ) -> None:
        self.takes_one = takes_one
        self.name = name
        self.make = make
        self.build = build
        self.new = new
        self.itself = itself


class Unpickler:
    """One pass over the opcodes of a pickle.

    >>> Unpickler(b"\\x80\\x02]q\\x00(K\\x01K\\x02e.", None, None).load()
    [1, 2]
    """

    def __init__(
        self,
        data: Any,
        find_global: Callable[[str, str], Any] | None,
        persistent: Callable[[Any], Any] | None,
        encoding: str = "utf-8",
        start: int = 0,
    ) -> None:
        self._data = memoryview(data).cast("B")
        self.position = start
        self._find_global = find_global
        self._persistent = persistent
        self._encoding = encoding
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._makers: dict[int, Maker] = {}  # of made objects, by id
        self._calls: set[int] = set()  # tuples that hold functions, by id
        self._kept: list[Any] = []  # so that no id is given to another object

    def load(self) -> Any:
        """The value that the pickle describes; `position` is then where the pickle ends."""
        while True:
            code = self.take(1)[0]
            if code == _STOP:
                break
            operate = _OPCODES.get(code)
            if operate is None:
                raise UnsafeContent(f"Unsupported operand {code} in a pickle", where=f"byte {self.position - 1}")
            operate(self)
        value = self.pop()
        if self._stack:
            raise self.broken("values are left over at its end")
        return self.plain(value)

    def broken(self, why: str) -> ArchiveError:
        return ArchiveError("pickle is damaged", where=f"byte {self.position}", why=why)

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self._data):
            raise self.broken(f"{size} bytes are asked for, {len(self._data)} is all there is")
        part = self._data[self.position : end]
        self.position = end
        return part

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> bytes:
        """The bytes up to the end of the line."""
        window = bytes(self._data[self.position : self.position + 4096])
        end = window.find(b"\n")
        if end < 0:
            raise self.broken("a line does not end")
        self.position += end + 1
        return window[:end]

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        if not self._stack:
            raise self.broken("it takes a value where there is none")
        value = self._stack.pop()
        if value is _MARK:
            raise self.broken("it takes a value where there is a mark")
        return value

    def top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise self.broken("it uses a value where there is none")
        return self._stack[-1]

    def pop_to_mark(self) -> list[Any]:
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at] is _MARK:
                values = self._stack[at + 1 :]
                del self._stack[at:]
                return values
        raise self.broken("it looks for a mark where there is none")

    def pop_plain(self) -> Any:
        return self.plain(self.pop())

    def plain(self, value: Any) -> Any:
        """A value that may be part of data, which a function may not."""
        if isinstance(value, Maker):
            if value.itself is None:
                raise UnsafeContent(f"{value.name} is used as a value")
            return value.itself
        if id(value) in self._calls:
            raise UnsafeContent("a tuple of functions is used as a value")
        return value

    def packed(self, values: list[Any]) -> tuple[Any, ...]:
        """A tuple, which may hold functions as long as it is only used for a call."""
        made = tuple(self.plain(v) if isinstance(v, Maker) and v.itself is not None else v for v in values)
        if any(isinstance(value, Maker) or id(value) in self._calls for value in made):
            self._calls.add(id(made))
            self._kept.append(made)
        return made

    def remember(self, key: int) -> None:
        self._memo[key] = self.top()

    def recall(self, key: int) -> None:
        if key not in self._memo:
            raise self.broken(f"it recalls memo {key}, which is not set")
        self.push(self._memo[key])

    def find_global(self, module: str, name: str) -> Any:
        if self._find_global is None:
            raise UnsafeContent(f"Unsupported global: {module}.{name}")
        return self._find_global(module, name)

    def made(self, function: Any, arguments: Any, new: bool = False) -> Any:
        """What an allowed function makes of arguments."""
        make = (function.new if new else function.make) if isinstance(function, Maker) else None
        if make is None:
            name = function.name if isinstance(function, Maker) else f"a {_kind(function)}"
            raise UnsafeContent(f"Trying to make an object with {name}, which is not allowed")
        if function.takes_one:
            arguments = (arguments,)
        if type(arguments) is not tuple:
            raise self.broken("arguments are no tuple")
        for argument in arguments:
            if not isinstance(argument, Maker):
                self.plain(argument)
        value = _guarded(function.name, make, *arguments)
        if function.build is not None:
            self._makers[id(value)] = function
            self._kept.append(value)
        return value

    def build(self, value: Any, state: Any) -> None:
        """Gives a made object its state."""
        maker = self._makers.get(id(value)) or self._maker_of_class(type(value))
        if maker is None or maker.build is None:
            raise UnsafeContent(f"Can only build Tensor, Parameter or OrderedDict objects, not a {_kind(value)}")
        _guarded(f"the state of {maker.name}", maker.build, value, state)

    def _maker_of_class(self, kind: type) -> Maker | None:
        """What the user allowed for a class, when another function made the object."""
        if kind.__module__ == "builtins" or self._find_global is None:
            return None
        found = self._find_global(kind.__module__, kind.__qualname__)
        return found if isinstance(found, Maker) and found.itself is kind else None

    def persistent(self, key: Any) -> Any:
        if self._persistent is None:
            raise UnsafeContent("a persistent id, where none is expected")
        return self._persistent(key)

    def text(self, data: memoryview) -> Any:
        """A string of Python 2, which had no encoding of its own."""
        if self._encoding == "bytes":
            return bytes(data)
        try:
            return bytes(data).decode(self._encoding)
        except (UnicodeDecodeError, LookupError) as error:
            raise ArchiveError("a string cannot be decoded", why=str(error)) from None

    def unicode(self, size: int) -> str:
        try:
            return bytes(self.take(size)).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise ArchiveError("a string is no UTF-8", why=str(error)) from None


def _kind(value: Any) -> str:
    return type(value).__name__


def _guarded(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls with arguments from a file; that they do not fit is the file's fault."""
    try:
        return function(*arguments)
    except Error:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ArchiveError(f"{name} has wrong arguments", why=str(error)) from None


def check_key(key: Any) -> Any:
    """A value that may be a key: numbers, text, and tuples of them that are not too large."""
    left, parts = [key], 0
    while left:
        part = left.pop()
        parts += 1
        if type(part) is tuple and parts + len(part) + len(left) <= _KEY_PARTS:
            left += part
        elif type(part) is tuple:
            raise ArchiveError("a key is a tuple of too many values")
        elif type(part) is int and part.bit_length() > _KEY_BITS:
            raise ArchiveError(f"a key is a number of more than {_KEY_BITS} bits")
        else:
            try:
                hash(part)
            except TypeError:
                raise ArchiveError(f"a {_kind(part)} cannot be a key") from None
    return key


def operation(code: bytes) -> Callable[[Callable[[Unpickler], None]], Any]:
    def register(function: Callable[[Unpickler], None]) -> Callable[[Unpickler], None]:
        _OPCODES[code[0]] = function
        return function

    return register


_STOP = ord(".")


@operation(b"\x80")
def _proto(self: Unpickler) -> None:
    protocol = self.take(1)[0]
    if protocol > _HIGHEST_PROTOCOL:
        raise UnsafeContent(f"unsupported pickle protocol: {protocol}")


@operation(b"\x95")
def _frame(self: Unpickler) -> None:
    if self.number("<Q") > len(self._data) - self.position:
        raise self.broken("a frame is longer than the pickle")


def _pushing(codes: dict[bytes, Any], value_of: Callable[[Unpickler, Any], Any]) -> None:
    """Registers opcodes that push what a function makes of the row they have in a table."""
    for code, row in codes.items():
        _OPCODES[code[0]] = lambda self, row=row: self.push(value_of(self, row))  # type: ignore[misc]


_pushing({b"N": None, b"\x88": True, b"\x89": False}, lambda _, value: value)
_pushing({b"]": list, b"}": dict, b")": tuple, b"\x8f": set}, lambda _, make: make())
_pushing({b"J": "<i", b"K": "<B", b"M": "<H", b"G": ">d"}, lambda self, form: self.number(form))
_pushing(  # text
    {b"X": "<I", b"\x8c": "<B", b"\x8d": "<Q"}, lambda self, form: self.unicode(self.number(form))
)
_pushing(  # bytes
    {b"B": "<I", b"C": "<B", b"\x8e": "<Q"}, lambda self, form: bytes(self.take(self.number(form)))
)
_pushing(  # text or bytes of Python 2
    {b"T": "<I", b"U": "<B"}, lambda self, form: self.text(self.take(self.number(form)))
)
_pushing(  # integers of any size
    {b"\x8a": "<B", b"\x8b": "<I"},
    lambda self, form: int.from_bytes(self.take(self.number(form)), "little", signed=True),
)


@operation(b"q")
def _binput(self: Unpickler) -> None:
    self.remember(self.number("<B"))


@operation(b"r")
def _long_binput(self: Unpickler) -> None:
    self.remember(self.number("<I"))


@operation(b"h")
def _binget(self: Unpickler) -> None:
    self.recall(self.number("<B"))


@operation(b"j")
def _long_binget(self: Unpickler) -> None:
    self.recall(self.number("<I"))


@operation(b"\x96")
def _bytearray8(self: Unpickler) -> None:
    self.push(bytearray(self.take(self.number("<Q"))))


@operation(b"\x94")
def _memoize(self: Unpickler) -> None:
    self.remember(len(self._memo))


@operation(b"(")
def _mark(self: Unpickler) -> None:
    self.push(_MARK)


@operation(b"0")
def _pop(self: Unpickler) -> None:
    if self._stack and self._stack[-1] is _MARK:
        self._stack.pop()
    else:
        self.pop()


@operation(b"1")
def _pop_mark(self: Unpickler) -> None:
    self.pop_to_mark()


@operation(b"2")
def _dup(self: Unpickler) -> None:
    self.push(self.top())


@operation(b"t")
def _tuple(self: Unpickler) -> None:
    self.push(self.packed(self.pop_to_mark()))


for _code, _count in {b"\x85": 1, b"\x86": 2, b"\x87": 3}.items():

    @operation(_code)
    def _short_tuple(self: Unpickler, count: int = _count) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(self.packed(values[::-1]))


@operation(b"a")
def _append(self: Unpickler) -> None:
    _extend(self, [self.pop()])


@operation(b"e")
def _appends(self: Unpickler) -> None:
    _extend(self, self.pop_to_mark())


def _extend(self: Unpickler, values: list[Any]) -> None:
    target = self.top()
    if type(target) is not list:
        raise UnsafeContent(f"Can only append to lists, not to a {_kind(target)}")
    target.extend(self.plain(value) for value in values)


@operation(b"s")
def _setitem(self: Unpickler) -> None:
    value, key = self.pop(), self.pop()
    _update(self, [key, value])


@operation(b"u")
def _setitems(self: Unpickler) -> None:
    _update(self, self.pop_to_mark())


def _update(self: Unpickler, values: list[Any]) -> None:
    target = self.top()
    if type(target) not in (dict, OrderedDict, Counter):
        raise UnsafeContent(f"Can only set items of dicts, not of a {_kind(target)}")
    if len(values) % 2:
        raise self.broken("a key has no value")
    for key, value in zip(values[::2], values[1::2]):
        target[check_key(self.plain(key))] = self.plain(value)


@operation(b"\x90")
def _additems(self: Unpickler) -> None:
    values, target = self.pop_to_mark(), self.top()
    if type(target) is not set:
        raise UnsafeContent(f"Can only add items to sets, not to a {_kind(target)}")
    target.update(check_key(self.plain(value)) for value in values)


@operation(b"c")
def _global(self: Unpickler) -> None:
    module, name = self.line(), self.line()
    self.push(self.find_global(_ascii(self, module), _ascii(self, name)))


@operation(b"\x93")
def _stack_global(self: Unpickler) -> None:
    name, module = self.pop(), self.pop()
    if type(name) is not str or type(module) is not str:
        raise self.broken("a global is named by text")
    self.push(self.find_global(module, name))


def _ascii(self: Unpickler, name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise self.broken(f"a global is named {name!r}") from None


@operation(b"R")
def _reduce(self: Unpickler) -> None:
    arguments, function = self.pop(), self.pop()
    self.push(self.made(function, arguments))


@operation(b"\x81")
def _newobj(self: Unpickler) -> None:
    arguments, kind = self.pop(), self.pop()
    self.push(self.made(kind, arguments, new=True))


@operation(b"b")
def _build(self: Unpickler) -> None:
    state = self.pop_plain()
    self.build(self.top(), state)


@operation(b"Q")
def _binpersid(self: Unpickler) -> None:
    self.push(self.persistent(self.pop()))

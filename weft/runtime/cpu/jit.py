"""Object code becomes callable addresses, through an LLJIT that the whole process shares.

A closed library still costs LLJIT some kilobytes, so it is replaced after a number of libraries;
one that was replaced ends when its last library is closed.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence

import llvmlite.binding as llvm

from ...base.errors import NotFound, RunError
from ...base.file_cache import file_cache
from ...base.forks import held_lock

LIBRARIES_PER_JIT = 256

_lock = held_lock("linking")
_numbers = itertools.count()


class _SharedJit:
    """An LLJIT, how many libraries it was given, and how many of those are open."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.compiler = llvm.create_lljit_compiler(suppress_errors=True)
        self.given = self.open = 0

    @property
    def is_full(self) -> bool:
        return self.given >= LIBRARIES_PER_JIT

    def release(self) -> None:
        self.open -= 1
        if self.is_full and not self.open:
            self.compiler.close()


_current: _SharedJit | None = None
_dropped: deque[tuple[llvm.ResourceTracker, _SharedJit]] = deque()  # to be given back


def _unload(tracker: llvm.ResourceTracker, jit: _SharedJit) -> None:
    tracker.close()
    jit.release()


class Library:
    """Loaded object code. Its addresses are valid until `close()`, or until nobody holds it."""

    def __init__(self, jit: _SharedJit, tracker: llvm.ResourceTracker, symbols: Iterable[str]) -> None:
        self._jit = jit
        self._tracker: llvm.ResourceTracker | None = tracker
        self._addresses: dict[str, int] = {symbol: tracker[symbol] for symbol in symbols}

    def address(self, symbol: str) -> int:
        """Where a function starts."""
        if self._tracker is None:
            raise RunError(f"the library that held {symbol!r} is closed")
        if symbol not in self._addresses:
            raise NotFound(f"no symbol {symbol!r}", why="there are " + ", ".join(self._addresses))
        return self._addresses[symbol]

    def close(self) -> None:
        """Give the memory back; no address may be used afterwards."""
        with _lock:
            if self._tracker is not None:
                _unload(self._tracker, self._jit)
                self._tracker = None

    def __del__(self) -> None:
        # It may run wherever Python collects garbage, in a thread that holds any lock: so it waits
        # for none. When the interpreter ends, this one may be gone before the last library.
        if _lock is None or self._tracker is None:
            return
        if _lock.acquire(blocking=False):
            self.close()
            _lock.release()
        else:
            _dropped.append((self._tracker, self._jit))


def load_object(code: bytes | Sequence[bytes], symbols: Iterable[str]) -> Library:
    """Link object code (one or several, which may refer to each other) and look up its symbols.

    Everything that the process itself exports can be called from it.
    """
    builder = llvm.JITLibraryBuilder()
    for image in [code] if isinstance(code, bytes) else code:
        builder.add_object_img(image)
    return _link(builder, tuple(symbols))


def load_ir(ir: str, symbols: Iterable[str]) -> Library:
    """The same for LLVM IR text, compiled for the baseline of this kind of machine."""
    disk = file_cache()
    triple = llvm.get_process_triple()
    key = f"{triple} {llvm.llvm_version_info} {ir}".encode()
    code = None if disk is None else disk.get(key)
    if code is None:
        code = _compiled(ir, triple)
        if disk is not None:
            disk.put(key, code)
    return load_object(code, symbols)


def _compiled(ir: str, triple: str) -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=2, reloc="pic", codemodel="small", jit=True)
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
    except RuntimeError as error:
        raise RunError("LLVM does not accept the code", why=str(error)) from None
    module.triple, module.data_layout = triple, str(machine.target_data)
    return bytes(machine.emit_object(module))


def _link(builder: llvm.JITLibraryBuilder, names: tuple[str, ...]) -> Library:
    global _current
    builder.add_current_process()
    for name in names:
        builder.export_symbol(name)
    with _lock:
        while _dropped:
            _unload(*_dropped.pop())
        if _current is None or _current.is_full:
            _current = _SharedJit()
        try:
            tracker = builder.link(_current.compiler, f"weft.{next(_numbers)}")
        except RuntimeError as error:
            raise RunError("object code does not link", why=str(error)) from None
        _current.given += 1
        _current.open += 1
        return Library(_current, tracker, names)

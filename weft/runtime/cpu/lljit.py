"""Objects that LLVM itself links: those of other formats and machines than `elf` takes."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

import llvmlite.binding as llvm

from ...base.errors import RunError
from ...base.forks import held_lock

LIBRARIES_PER_JIT = 256  # a closed library still costs LLJIT some kilobytes

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


class LinkedObjects:
    """Objects linked by an LLJIT that the process shares."""

    def __init__(self, codes: Sequence[bytes], symbols: Sequence[str]) -> None:
        global _current
        builder = llvm.JITLibraryBuilder()
        for code in codes:
            builder.add_object_img(code)
        builder.add_current_process()
        for symbol in symbols:
            builder.export_symbol(symbol)
        with _lock:
            while _dropped:
                _unload(*_dropped.pop())
            if _current is None or _current.is_full:
                _current = _SharedJit()
            self._tracker: llvm.ResourceTracker | None = None
            try:
                self._tracker = builder.link(_current.compiler, f"weft.{next(_numbers)}")
            except RuntimeError as error:
                raise RunError("object code does not link", why=str(error)) from None
            self._jit = _current
            _current.given += 1
            _current.open += 1

    def __getitem__(self, symbol: str) -> int:
        assert self._tracker is not None
        return self._tracker[symbol]  # type: ignore[no-any-return]

    def close(self) -> None:
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

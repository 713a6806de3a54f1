"""Kernels to code, by the backend of their target. Equal kernels are compiled once: within a model, within a process,
and through the disk cache on this machine."""

from __future__ import annotations

import hashlib
import sys
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import NamedTuple

from ..base import config, counters
from ..base.file_cache import file_cache
from ..base.forks import held_lock
from ..base.plan import KernelCode
from ..base.target import Target
from ..core.bulk import collector_paused
from ..te.loops import Kernel
from ..te.printer import show
from .backends import backend_of
from .stages import reached

CACHE_ENTRIES = 4096


class _Emitted(NamedTuple):
    symbol: str
    digest: str
    text: str


@collector_paused
def _emit(kernel: Kernel, target: Target) -> _Emitted:
    """A kernel as text. What it goes through is printed where WEFT_DEBUG says so."""
    text = backend_of(target).codegen.emit(replace(kernel, name="kernel"), target)
    digest = _digest(text, target)
    symbol = f"weft_{digest[:32]}"
    text = text.replace("@kernel", f"@{symbol}")
    reached("loops", backend_of(target).lowering.lower, kernel)
    reached("text", backend_of(target).codegen.emit, text)
    _print_stages(kernel, text, target)
    return _Emitted(symbol, digest, text)


class KernelCache:
    """Code by text and target; the least recently used go first.

    A kernel's symbol is made from its content, so that equal kernels are one.
    """

    def __init__(self, size: int = CACHE_ENTRIES) -> None:
        self._objects: OrderedDict[str, bytes] = OrderedDict()
        self._codes: OrderedDict[int, tuple[Kernel, Target, KernelCode]] = OrderedDict()
        self._begun: dict[int, tuple[Kernel, Target, _Emitted, Future[bytes]]] = {}
        self._size = size
        self._lock = held_lock("table")
        self.hits = 0
        self.misses = 0

    def compiled(self, kernel: Kernel, target: Target) -> KernelCode:
        """The kernel's code; the very same kernel is not even looked at again."""
        with self._lock:
            known = self._codes.get(id(kernel))
            if known is not None and (known[0] is not kernel or known[1] != target):
                known = None
            if known is not None:
                self._codes.move_to_end(id(kernel))
        if known is not None:
            self.count(hits=1)
            return known[2]
        code = self._compiled(kernel, target)
        with self._lock:
            self._codes[id(kernel)] = (kernel, target, code)
            if len(self._codes) > self._size:
                self._codes.popitem(last=False)
        return code

    def begin(self, kernel: Kernel, target: Target, llvm: Executor) -> None:
        """Has the code of a kernel made in another thread, if one can be started; `compiled` waits for it."""
        with self._lock:
            if id(kernel) in self._codes or id(kernel) in self._begun:
                return
        emitted = _emit(kernel, target)
        try:
            task = llvm.submit(self._object, emitted.digest, emitted.text, target)
        except RuntimeError:  # the process may have no more memory for a thread
            return
        with self._lock:
            self._begun[id(kernel)] = (kernel, target, emitted, task)

    def forget(self, kernels: Iterable[Kernel]) -> None:
        """Drops what was begun and never asked for."""
        with self._lock:
            for kernel in kernels:
                self._begun.pop(id(kernel), None)

    def _compiled(self, kernel: Kernel, target: Target) -> KernelCode:
        with self._lock:
            begun = self._begun.pop(id(kernel), None)
        if begun is not None and begun[0] is kernel and begun[1] == target:
            emitted, code = begun[2], begun[3].result()
        else:
            emitted = _emit(kernel, target)
            code = self._object(emitted.digest, emitted.text, target)
        reached("code", backend_of(target).codegen.assemble, code)
        return backend_of(target).codegen.code(replace(kernel, name=emitted.symbol), code)

    def count(self, hits: int = 0, misses: int = 0) -> None:
        """Counts kernels that were found, here or elsewhere, and those that had to be compiled."""
        with self._lock:
            self.hits += hits
            self.misses += misses
        for name, number in (("hit", hits), ("miss", misses)):
            if number and counters.counting:
                counters.add_stat_value(f"weft.kernel_cache_{name}", number)

    def _object(self, digest: str, text: str, target: Target) -> bytes:
        with self._lock:
            code = self._objects.get(digest)
            if code is not None:
                self._objects.move_to_end(digest)
        found = code is not None
        if code is None:
            code = self._from_disk(text, target)
            found = code is not None
        if code is None:
            code = backend_of(target).codegen.assemble(text, target)
            self._to_disk(text, target, code)
        with self._lock:
            self._objects[digest] = code
            if len(self._objects) > self._size:
                self._objects.popitem(last=False)
        self.count(hits=int(found), misses=int(not found))
        return code

    def _from_disk(self, text: str, target: Target) -> bytes | None:
        disk = file_cache()
        return None if disk is None else disk.get(_file_key(text, target))

    def _to_disk(self, text: str, target: Target, code: bytes) -> None:
        disk = file_cache()
        if disk is not None:
            disk.put(_file_key(text, target), code)


def _digest(text: str, target: Target) -> str:
    return hashlib.sha256(_key(text, target)).hexdigest()


def _key(text: str, target: Target) -> bytes:
    """All that decides the code."""
    return f"{text}\0{backend_of(target).codegen.key(target)}".encode()


def _file_key(text: str, target: Target) -> bytes:
    """The same, shorter: the text is long and repeats itself."""
    return zlib.compress(_key(text, target), 1)


def _print_stages(kernel: Kernel, text: str, target: Target) -> None:
    stages = config.get("debug")
    if "loops" in stages:
        print(show(kernel), file=sys.stderr)
    for stage, listing in backend_of(target).codegen.listings.items():
        if stage in stages:
            print(listing(text, target), file=sys.stderr)


kernel_cache = KernelCache()

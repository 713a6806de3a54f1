"""Kernels to object code. Equal kernels are compiled once: within a model, and within a process."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from dataclasses import replace

from ..base import config
from ..base.plan import KernelCode
from ..base.target import Target
from ..codegen.compile import describe
from ..codegen.emit import emit_kernel
from ..codegen.object import cache_key, compile_assembly, compile_object
from ..te.loops import Kernel
from ..te.printer import show

CACHE_ENTRIES = 4096


class KernelCache:
    """Object code by LLVM text and target; the least recently used go first.

    A kernel's symbol is made from its content, so that equal kernels are one.
    """

    def __init__(self, size: int = CACHE_ENTRIES) -> None:
        self._objects: OrderedDict[str, bytes] = OrderedDict()
        self._codes: OrderedDict[int, tuple[Kernel, Target, KernelCode]] = OrderedDict()
        self._size = size
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    def compiled(self, kernel: Kernel, target: Target) -> KernelCode:
        """The kernel's code; the very same kernel is not even looked at again."""
        with self._lock:
            known = self._codes.get(id(kernel))
            if known is not None and known[0] is kernel and known[1] == target:
                self.hits += 1
                self._codes.move_to_end(id(kernel))
                return known[2]
        code = self._compiled(kernel, target)
        with self._lock:
            self._codes[id(kernel)] = (kernel, target, code)
            if len(self._codes) > self._size:
                self._codes.popitem(last=False)
        return code

    def _compiled(self, kernel: Kernel, target: Target) -> KernelCode:
        """What the kernel goes through is printed where WEFT_DEBUG says so."""
        text = emit_kernel(replace(kernel, name="kernel"), target)
        digest = cache_key(text, target)
        symbol = f"weft_{digest[:32]}"
        text = text.replace("@kernel", f"@{symbol}")
        _print_stages(kernel, text, target)
        return describe(replace(kernel, name=symbol), self._object(digest, text, target))

    def _object(self, digest: str, text: str, target: Target) -> bytes:
        with self._lock:
            known = self._objects.get(digest)
            if known is not None:
                self.hits += 1
                self._objects.move_to_end(digest)
                return known
            self.misses += 1
        code = compile_object(text, target)
        with self._lock:
            self._objects[digest] = code
            if len(self._objects) > self._size:
                self._objects.popitem(last=False)
        return code


def _print_stages(kernel: Kernel, text: str, target: Target) -> None:
    stages = config.get("debug")
    if "loops" in stages:
        print(show(kernel), file=sys.stderr)
    if "llvm" in stages:
        print(text, file=sys.stderr)
    if "asm" in stages:
        print(compile_assembly(text, target), file=sys.stderr)


kernel_cache = KernelCache()

"""Code of a device: the driver assembles PTX once, the result is kept on disk as all kernels are, and loaded
modules give functions by name."""

from __future__ import annotations

import ctypes
import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from typing import NamedTuple

from ...base.errors import Error, NotFound, RunError
from ...base.file_cache import file_cache
from .context import Context

_ENTRY = re.compile(rb"\.entry\s+([A-Za-z_$%][\w$]*)")
_PTX_INPUT = 1
_INFO_LOG, _INFO_SIZE, _ERROR_LOG, _ERROR_SIZE = 3, 4, 5, 6
_LOG_BYTES = 1 << 14
_ASSEMBLERS = 8  # threads: the driver assembles one module in each
_MAX_SHARED, _FREE_CLUSTERS = 8, 14  # attributes of functions that are set
DEFAULT_SHARED = 48 << 10  # bytes that a block may have without being asked for
DEFAULT_CLUSTER = 8


class FunctionFacts(NamedTuple):
    """What the assembler made of a kernel: threads that a block may have, bytes that a block and a thread take."""

    max_threads: int
    shared_bytes: int
    constant_bytes: int
    local_bytes: int  # more than 0: registers are spilled, or there is a stack
    registers: int


class Function:
    """A kernel in a loaded module, which it keeps loaded."""

    def __init__(self, module: Module, name: str) -> None:
        self.module, self.name = module, name
        found = c_void_p()
        context = module.context
        with context:
            context.driver.call("cuModuleGetFunction", byref(found), module.handle, name.encode())
        self.handle: int = found.value or 0

    def facts(self) -> FunctionFacts:
        """What the assembler made of it."""
        value, numbers = c_int(), []
        with self.module.context as context:
            for attribute in range(len(FunctionFacts._fields)):
                context.driver.call("cuFuncGetAttribute", byref(value), attribute, self.handle)
                numbers.append(value.value)
        return FunctionFacts(*numbers)

    def allow(self, shared: int, cluster: int) -> None:
        """Lets launches have so many shared bytes, and clusters of so many blocks."""
        with self.module.context as context:
            if shared > DEFAULT_SHARED:
                context.driver.call("cuFuncSetAttribute", self.handle, _MAX_SHARED, shared)
            if cluster > DEFAULT_CLUSTER:
                context.driver.call("cuFuncSetAttribute", self.handle, _FREE_CLUSTERS, 1)


class Module:
    """Assembled code in a context; it is unloaded when no function of it is left."""

    def __init__(self, context: Context, cubin: bytes) -> None:
        self.context, self.handle = context, 0
        made = c_void_p()
        with context:
            context.driver.call("cuModuleLoadData", byref(made), cubin)
        self.handle = made.value or 0

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self.context.dispose("cuModuleUnload", self.handle)


def functions_of(context: Context, objects: Sequence[bytes], kernels: Iterable[str]) -> dict[str, Function]:
    """The kernels of some names, from texts of PTX. Equal texts are one module in a context."""
    holders = {name.decode(): text for text in objects for name in _ENTRY.findall(text)}
    wanted: dict[str, bytes] = {}
    for name in kernels:
        if name not in holders:
            raise NotFound(f"the program has no code for kernel {name!r}", why="its kernels: " + ", ".join(holders))
        wanted[name] = holders[name]
    modules = modules_of(context, list(dict.fromkeys(wanted.values())))
    return {name: Function(modules[text], name) for name, text in wanted.items()}


def modules_of(context: Context, texts: Sequence[bytes]) -> Mapping[bytes, Module]:
    """The modules of texts of PTX; what has to be assembled is so by several threads."""
    digests = {text: hashlib.sha256(text).digest() for text in texts}
    found = {text: context.modules.get(digest) for text, digest in digests.items()}
    loaded: dict[bytes, Module] = {text: module for text, module in found.items() if module is not None}
    missing = [text for text in digests if text not in loaded]
    if len(missing) > 1:
        with ThreadPoolExecutor(min(len(missing), _ASSEMBLERS)) as threads:
            cubins = list(threads.map(lambda text: cubin_of(context, text), missing))
    else:
        cubins = [cubin_of(context, text) for text in missing]
    for text, cubin in zip(missing, cubins):
        loaded[text] = context.modules[digests[text]] = Module(context, cubin)
    return loaded


def cubin_of(context: Context, text: bytes) -> bytes:
    """PTX as code of the context's device: from the disk, or from the driver's assembler."""
    key = _key(context, text)
    disk = file_cache()
    found = None if disk is None else disk.get(key)
    if found is None:
        found = assembled(context, text)
        if disk is not None:
            disk.put(key, found)
    return found


def _key(context: Context, text: bytes) -> bytes:
    """All that decides the code."""
    major, minor = context.facts.capability
    version = ".".join(map(str, context.platform.version))
    return f"cubin sm_{major}{minor} driver {version}\0".encode() + zlib.compress(text, 1)


def assembled(context: Context, text: bytes) -> bytes:
    """PTX as the driver assembles it; what is wrong with it is told by the assembler's log."""
    told, wrong = create_string_buffer(_LOG_BYTES), create_string_buffer(_LOG_BYTES)
    options = (c_int * 4)(_INFO_LOG, _INFO_SIZE, _ERROR_LOG, _ERROR_SIZE)
    values = (c_void_p * 4)(ctypes.addressof(told), _LOG_BYTES, ctypes.addressof(wrong), _LOG_BYTES)
    state, image, size = c_void_p(), c_void_p(), c_size_t()
    driver, source = context.driver, text.rstrip(b"\0") + b"\0"
    with context:
        driver.call("cuLinkCreate_v2", 4, options, values, byref(state))
        try:
            driver.call(
                "cuLinkAddData_v2", state, _PTX_INPUT, source, len(source), c_char_p(b"kernel.ptx"), 0, None, None
            )
            driver.call("cuLinkComplete", state, byref(image), byref(size))
            return ctypes.string_at(image.value or 0, size.value)
        except Error as error:
            names = ", ".join(name.decode() for name in _ENTRY.findall(text)) or "no kernel"
            raise RunError(
                f"the driver does not assemble the code of {names}",
                where=f"cuda:{context.index}, {context.facts.name}",
                why="; ".join(filter(None, [error.why, wrong.value.decode(errors="replace").strip()[:2000]])),
                hint="compile the model for this GPU; if it was, this is a mistake of weft",
            ) from error
        finally:
            driver.code("cuLinkDestroy", state)

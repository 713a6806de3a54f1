"""Object code becomes callable addresses. LLVM is loaded where it is needed: to compile text, and to link what
`elf` does not take; so is the cache on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ...base.errors import NotFound, RunError
from ...base.machine import installed, machine, triple
from .elf import PlacedObjects, is_placeable

if TYPE_CHECKING:
    from .lljit import LinkedObjects


class Library:
    """Loaded object code. Its addresses are valid until `close()`, or until nobody holds it."""

    def __init__(self, objects: PlacedObjects | LinkedObjects, symbols: Iterable[str]) -> None:
        self._objects: PlacedObjects | LinkedObjects | None = objects
        self._addresses: dict[str, int] = {symbol: objects[symbol] for symbol in symbols}

    def address(self, symbol: str) -> int:
        """Where a function starts."""
        if self._objects is None:
            raise RunError(f"the library that held {symbol!r} is closed")
        if symbol not in self._addresses:
            raise NotFound(f"no symbol {symbol!r}", why="there are " + ", ".join(self._addresses))
        return self._addresses[symbol]

    def close(self) -> None:
        """Give the memory back; no address may be used afterwards."""
        objects, self._objects = self._objects, None
        if objects is not None:
            objects.close()


def load_object(code: bytes | Sequence[bytes], symbols: Iterable[str]) -> Library:
    """Link object code (one or several, which may refer to each other) and look up its symbols.

    Everything that the process itself exports can be called from it.
    """
    codes, names = [code] if isinstance(code, bytes) else list(code), tuple(symbols)
    if all([is_placeable(image) for image in codes]):
        return Library(PlacedObjects(codes), names)
    return Library(import_module(".lljit", __package__).LinkedObjects(codes, names), names)


def load_ir(ir: str, symbols: Iterable[str]) -> Library:
    """The same for LLVM IR text, compiled for the baseline of this kind of machine."""
    disk = import_module("...base.file_cache", __package__).file_cache()
    key = f"{triple(machine())} {installed('llvmlite')} {ir}".encode()
    code = None if disk is None else disk.get(key)
    if code is None:
        code = _compiled(ir)
        if disk is not None:
            disk.put(key, code)
    return load_object(code, symbols)


def _compiled(ir: str) -> bytes:
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
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

"""Object files of x86-64 in memory: the sections of a library side by side, and the places in them that name others.

Code reaches its constants by distances of 32 bits, so all that belongs together lies in one piece of memory, whatever
else the process has mapped. What lies elsewhere (libm's functions, say) is reached through slots that hold addresses.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, NoReturn

from ...base.errors import RunError

_HEADER = struct.Struct("<7s9xHH20xQ10xHHH")
_MAGIC = b"\x7fELF\x02\x01\x01"  # 64 bits, low bytes first, version 1
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _ZEROS = 2, 4, 8  # kinds of sections
_WRITABLE, _LOADED, _CODE = 1, 2, 4  # flags of sections
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1  # sections that symbols name
_LOCAL, _WEAK = 0, 2  # bindings of symbols

_ADDRESS, _LONG_DISTANCE, _DISTANCES, _SLOT_DISTANCES = 1, 24, (2, 4), (9, 41, 42)  # kinds of relocations

_JUMP = b"\xff\x25" + struct.pack("<i", -14) + b"\xcc\xcc"  # jmp [rip - 14]: to the address before it
_SLOT_BYTES = 8 + len(_JUMP)


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_bytes: int


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        return self.info >> 4


class _Relocation(NamedTuple):
    offset: int
    kind: int
    symbol: int
    addend: int


class _Image:
    """An object file, and where in a library's memory its sections and slots are."""

    def __init__(self, code: bytes) -> None:
        self.code = code
        *_, start, entry_bytes, count, names = _HEADER.unpack_from(code)
        self.sections = [
            _Section(*struct.unpack_from("<IIQQQQIIQQ", code, start + number * entry_bytes)) for number in range(count)
        ]
        self.section_names = [self._text(self.sections[names], section.name) for section in self.sections]
        self.symbols: list[_Symbol] = []
        self.symbol_names: list[str] = []
        for section in self.sections:
            if section.kind == _SYMBOLS:
                self.symbols = [_Symbol(*entry) for entry in struct.iter_unpack("<IBBHQQ", self.content(section))]
                strings = self.sections[section.link]
                self.symbol_names = [self._text(strings, symbol.name) for symbol in self.symbols]
        self.relocations = [
            (section.info, _Relocation(*entry))
            for section in self.sections
            if section.kind == _RELOCATIONS and self._is_loaded(section.info)
            for entry in struct.iter_unpack("<QIIq", self.content(section))
        ]
        self.places: dict[int, int] = {}  # of loaded sections, by number
        self.slots: dict[int, int] = {}  # of symbols, by number

    def _text(self, strings: _Section, at: int) -> str:
        start = strings.offset + at
        return self.code[start : self.code.index(b"\0", start)].decode()

    def content(self, section: _Section) -> bytes:
        if section.offset + section.size > len(self.code):
            raise ValueError("a section ends behind it")
        return self.code[section.offset : section.offset + section.size]

    def _is_loaded(self, number: int) -> bool:
        """Tables for unwinding are not: kernels raise nothing."""
        return bool(self.sections[number].flags & _LOADED) and self.section_names[number] != ".eh_frame"

    def loaded(self, flags: int) -> list[int]:
        """The loaded sections of a group."""
        return [
            number
            for number, section in enumerate(self.sections)
            if section.flags & (_CODE | _WRITABLE) == flags and self._is_loaded(number)
        ]

    def symbols_with_slots(self) -> list[int]:
        """Those that lie elsewhere, and those that code asks a slot for."""
        elsewhere = [number for number, symbol in enumerate(self.symbols) if symbol.section == _UNDEFINED and number]
        asked = [place.symbol for _, place in self.relocations if place.kind in _SLOT_DISTANCES]
        return sorted({*elsewhere, *asked})


def is_placeable(code: bytes) -> bool:
    """Whether this is an object file that `PlacedObjects` takes."""
    if len(code) < _HEADER.size:
        return False
    magic, kind, machine, *_ = _HEADER.unpack_from(code)
    return (magic, kind, machine) == (_MAGIC, _RELOCATABLE, _X86_64)


class PlacedObjects:
    """Object files in one piece of memory: code and slots, then constants, then what is written."""

    def __init__(self, codes: Sequence[bytes]) -> None:
        try:
            self._images = [_Image(code) for code in codes]
            self._exported = self._exports()
            bounds = self._lay_out()
            self._memory = mmap.mmap(-1, max(bounds[-1], 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._fill()
        except (struct.error, ValueError, IndexError, OverflowError, OSError) as error:
            _refuse(f"an object file is damaged: {error}")
        code_end, constants_end, _ = bounds
        _protect(self._base, code_end, mmap.PROT_READ | mmap.PROT_EXEC)
        _protect(self._base + code_end, constants_end - code_end, mmap.PROT_READ)
        del self._images, self._exported

    def __getitem__(self, name: str) -> int:
        """The address of what an object exports."""
        if name not in self._exported_at:
            _refuse(f"nothing defines {name}")
        return self._exported_at[name]

    def close(self) -> None:
        self._memory.close()

    def _exports(self) -> dict[str, tuple[_Image, _Symbol]]:
        exported: dict[str, tuple[_Image, _Symbol]] = {}
        for image in self._images:
            for symbol, name in zip(image.symbols, image.symbol_names):
                if symbol.section == _UNDEFINED or symbol.binding == _LOCAL:
                    continue
                if name not in exported or exported[name][1].binding == _WEAK:
                    exported[name] = (image, symbol)
                elif symbol.binding != _WEAK:
                    _refuse(f"{name} is defined twice")
        return exported

    def _lay_out(self) -> list[int]:
        """Gives sections and slots their places; where code, constants and what is written end, in whole pages."""
        end, bounds = 0, []
        for flags in (_CODE, 0, _WRITABLE):
            for image in self._images:
                for number in image.loaded(flags):
                    section = image.sections[number]
                    image.places[number] = end = _up(end, max(section.alignment, 1))
                    end += section.size
                if flags == _CODE:
                    end = _up(end, _SLOT_BYTES)
                    for symbol in image.symbols_with_slots():
                        image.slots[symbol] = end
                        end += _SLOT_BYTES
            end = _up(end, mmap.PAGESIZE)
            bounds.append(end)
        return bounds

    def _fill(self) -> None:
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._exported_at = {name: self._address(*pair) for name, pair in self._exported.items()}
        for image in self._images:
            for number, place in image.places.items():
                section = image.sections[number]
                if section.kind != _ZEROS:
                    self._memory[place : place + section.size] = image.content(section)
            addresses = [self._resolved(image, number) for number in range(len(image.symbols))]
            for number, place in image.slots.items():
                self._memory[place : place + _SLOT_BYTES] = struct.pack("<Q", addresses[number]) + _JUMP
            for section_number, relocation in image.relocations:
                self._relocate(image, section_number, relocation, addresses)

    def _address(self, image: _Image, symbol: _Symbol) -> int:
        if symbol.section == _ABSOLUTE:
            return symbol.value
        place = image.places.get(symbol.section)
        return 0 if place is None else self._base + place + symbol.value  # nothing that is loaded names the others

    def _resolved(self, image: _Image, number: int) -> int:
        """The address of what a symbol stands for: in this image, in another, or in the process."""
        symbol, name = image.symbols[number], image.symbol_names[number]
        if symbol.section != _UNDEFINED or not number:
            return self._address(image, symbol)
        if name in self._exported_at:
            return self._exported_at[name]
        address = _in_process(name)
        if address is None and symbol.binding != _WEAK:
            _refuse(f"nothing defines {name}")
        return address or 0

    def _relocate(self, image: _Image, section: int, relocation: _Relocation, addresses: Sequence[int]) -> None:
        """Writes an address, or the distance to it from where it is written."""
        offset, kind, symbol, addend = relocation
        at = image.places[section] + offset
        if kind in _SLOT_DISTANCES:
            target = self._base + image.slots[symbol]
        elif kind in _DISTANCES and image.symbols[symbol].section == _UNDEFINED:
            target = self._base + image.slots[symbol] + 8  # the jump
        elif kind in (_ADDRESS, _LONG_DISTANCE, *_DISTANCES):
            target = addresses[symbol]
        else:
            _refuse(f"a relocation is of kind {kind}")
        is_wide = kind in (_ADDRESS, _LONG_DISTANCE)
        if offset + (8 if is_wide else 4) > image.sections[section].size:
            raise ValueError("a relocation is outside its section")
        value = target + addend - (0 if kind == _ADDRESS else self._base + at)
        struct.pack_into("<Q" if is_wide else "<i", self._memory, at, value % (1 << 64) if is_wide else value)


def _refuse(why: str) -> NoReturn:
    raise RunError("object code does not link", why=why)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _in_process(name: str) -> int | None:
    """The address of a function that the process exports."""
    function = getattr(_process(), name, None)
    return ctypes.cast(function, ctypes.c_void_p).value if function else None


def _protect(address: int, size: int, protection: int) -> None:
    if size and _process().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), protection):
        raise RunError(
            "code cannot be made executable",
            why=os.strerror(ctypes.get_errno()),
            hint="the system may forbid it to this process: see its policy on executable memory (SELinux: execmem)",
        )

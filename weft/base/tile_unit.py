"""Whether this process may use the tiles of AMX: Linux gives their state to a process that asks for it, and one product
of tiles has to come out right."""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys

ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # Linux on x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, ...)
# f(config, a, b, sums): ldtilecfg, tilezero 0, tileloadd 1 and 2, tdpbusd 0 1 2, tilestored 0, tilerelease.
ONE_PRODUCT = bytes.fromhex("c4e2784907c4e27b49c0b840000000c4e27b4b0c06c4e27b4b1402c4e2695ec1c4e27a4b0401c4e27849c0c3")


def tiles_work() -> bool:
    """Asks for the permission, which lasts as long as the process, and tries one product."""
    return sys.platform == "linux" and _permitted() and _multiplies()


def _permitted() -> bool:
    try:
        return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0)
    except (OSError, AttributeError):
        return False


def _multiplies() -> bool:
    """Rows of ones times bytes 1 to 16, one for each column: sums of 64 products."""
    config = bytearray(64)
    config[0], config[48:51] = 1, bytes([16] * 3)
    config[16:22] = struct.pack("<3H", 64, 64, 64)
    columns = bytes(byte for column in range(1, 17) for byte in [column] * 4) * 16
    buffers = [ctypes.create_string_buffer(made, len(made)) for made in (bytes(config), b"\1" * 1024, columns)]
    sums = ctypes.create_string_buffer(1024)
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except (OSError, ValueError):
        return False
    memory.write(ONE_PRODUCT)
    held = ctypes.c_char.from_buffer(memory)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(ctypes.addressof(held))(*buffers, sums)
    del held
    memory.close()
    return struct.unpack("<256i", sums.raw) == tuple(64 * column for column in range(1, 17)) * 16

"""PNG files as arrays of (height, width, channels) bytes: what commands take as an input of a model. Only what cameras
and screens write is read: 8 bits a channel, not interlaced, grey, colours or a palette."""

from __future__ import annotations

import struct
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import FormatError, Unsupported
from ..base.memory import require

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by kind of colour
_PALETTE = 3
_MOST_SIDE = 1 << 16


def read_png(path: Path) -> Pixels:
    """The pixels of a file; what is transparent is dropped."""
    try:
        return png_pixels(path.read_bytes())
    except (FormatError, Unsupported) as error:
        error.at(str(path))
        raise
    except OSError as error:
        raise FormatError("the file cannot be read", where=str(path), why=str(error)) from None


def png_pixels(data: bytes) -> Pixels:
    """The pixels of a file's bytes."""
    if data[:8] != SIGNATURE:
        raise FormatError("this is no PNG file", why="it does not begin as one")
    try:
        chunks = _chunks(data)
        width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        if depth != 8 or interlace or colour not in _CHANNELS:
            raise Unsupported(
                f"a PNG file of {depth} bits a channel{', interlaced' * bool(interlace)}",
                why="weft reads 8 bits, not interlaced",
                hint="save the picture again, or give it as .npy",
            )
        if not 0 < width <= _MOST_SIDE or not 0 < height <= _MOST_SIDE:
            raise FormatError(f"a picture of {width} x {height} pixels")
        shape = (height, width, _CHANNELS[colour])
        require(4 * prod(shape), f"a picture of {width} x {height} pixels")
        length = height * (1 + width * shape[2])
        raw = zlib.decompressobj().decompress(chunks[b"IDAT"], length)
        if len(raw) != length:
            raise FormatError("the picture ends early", why=f"it has {len(raw)} of {length} bytes")
        pixels = _unfiltered(np.frombuffer(raw, np.uint8).reshape(height, -1), shape)
        if colour == _PALETTE:
            palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)
            return palette[pixels[:, :, 0]]
        return pixels[:, :, : shape[2] - (colour in (4, 6))]  # without transparency
    except (KeyError, struct.error, zlib.error, IndexError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError("the PNG file is damaged", why=f"{type(error).__name__}: {error}") from None


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """The parts of a file by name; those of the image's data as one."""
    found: dict[bytes, bytes] = {}
    pieces = []
    place = len(SIGNATURE)
    while place + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        if name == b"IDAT":
            pieces.append(body)
        else:
            found.setdefault(name, body)
        place += length + 12  # with the checksum, which zlib's own makes needless
    return {**found, b"IDAT": b"".join(pieces)}


def _unfiltered(rows: Pixels, shape: tuple[int, ...]) -> Pixels:
    """Undoes what each row was written as: differences from the pixel before it (1), above (2), their mean (3), or the
    one of three neighbours that is nearest to left + above - corner (4)."""
    height, width, channels = shape
    made = np.zeros((height + 1, width + 1, channels), np.int64)  # with a row and a column of zeros around
    for number in range(height):
        kind, line = int(rows[number, 0]), rows[number, 1:].astype(np.int64).reshape(width, channels)
        row, above = made[number + 1], made[number]
        if kind == 0:
            row[1:] = line
        elif kind == 1:
            row[1:] = np.cumsum(line, axis=0) & 255
        elif kind == 2:
            row[1:] = (line + above[1:]) & 255
        elif kind in (3, 4):
            for x in range(1, width + 1):
                left, up, corner = row[x - 1], above[x], above[x - 1]
                guess = (left + up) // 2 if kind == 3 else _nearest(left, up, corner)
                row[x] = (line[x - 1] + guess) & 255
        else:
            raise FormatError("the PNG file is damaged", why=f"row {number} is filtered by {kind}")
    return made[1:, 1:].astype(np.uint8)


def _nearest(left: Any, up: Any, corner: Any) -> Any:
    guess = left + up - corner
    a, b, c = abs(guess - left), abs(guess - up), abs(guess - corner)
    return np.where((a <= b) & (a <= c), left, np.where(b <= c, up, corner))

"""Pictures as PNG files: one, a page of several, or several that follow each other."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import InvalidValue

Array = NDArray[Any]
Pixels = NDArray[np.uint8]  # height, width, channels

_PNG = b"\x89PNG\r\n\x1a\n"
_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG's kinds of pixels, by channels


def pixels(image: Array, dataformats: str, columns: int = 8) -> Pixels:
    """Bytes of height, width and channels, from an image whose axes are named by letters of NHWC, in any order. Several
    images (N) are laid out in rows of at most `columns`.

    >>> pixels(np.zeros((9, 3, 2, 2)), "NCHW").shape
    (4, 16, 3)
    """
    axes = dataformats.upper()
    if len(axes) != image.ndim or len(set(axes)) != len(axes) or not {"H", "W"} <= set(axes) <= set("NHWC"):
        raise InvalidValue(f"an image of shape {image.shape} has no axes {dataformats!r}")
    missing = [letter for letter in "NC" if letter not in axes]
    image = image.reshape(image.shape + (1,) * len(missing))
    image = image.transpose([(axes + "".join(missing)).index(letter) for letter in "NHWC"])
    if image.dtype != np.uint8:
        image = np.clip(image.astype(np.float32) * 255, 0, 255).astype(np.uint8)
    count, height, width, channels = image.shape
    columns = max(min(count, columns), 1)
    rows = -(-count // columns)
    page = np.zeros((rows * columns, height, width, channels), np.uint8)
    page[:count] = image
    page = page.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return page.reshape(rows * height, columns * width, channels)


def with_boxes(image: Pixels, boxes: Array) -> Pixels:
    """A picture in colours with red frames, two pixels wide, of which (left, top, right, bottom) are given."""
    image = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image.copy()
    red = np.array([255, 0, 0, 255][: image.shape[2]], np.uint8)
    for left, top, right, bottom in boxes.reshape(-1, 4).astype(int).tolist():
        across, down = _from_zero(left, right + 1), _from_zero(top, bottom + 1)
        for y in (top - 1, bottom):
            image[_from_zero(y, y + 2), across] = red
        for x in (left, right - 1):
            image[down, _from_zero(x, x + 2)] = red
    return image


def _from_zero(start: int, stop: int) -> slice:
    """What is in the picture of a range that may begin before it."""
    return slice(max(start, 0), max(stop, 0))


def png(image: Pixels) -> bytes:
    """A picture of height, width and 1 to 4 channels as a PNG file.

    >>> png(np.zeros((1, 2, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    return _PNG + _head(image) + _chunk(b"IDAT", _lines(image)) + _chunk(b"IEND", b"")


def moving_png(frames: Sequence[Pixels], per_second: float) -> bytes:
    """Pictures of one size that follow each other again and again, in a PNG file whose first one is what is seen by
    those who know of no others."""
    height, width, _ = frames[0].shape
    content = _PNG + _head(frames[0]) + _chunk(b"acTL", struct.pack(">II", len(frames), 0))
    for at, frame in enumerate(frames):
        number = max(2 * at - 1, 0)  # of a frame's head; its data has the next one, but for the first frame
        times = struct.pack(">HHBB", round(1000 / per_second), 1000, 0, 0)
        content += _chunk(b"fcTL", struct.pack(">IIIII", number, width, height, 0, 0) + times)
        data = _lines(frame)
        content += _chunk(b"fdAT", struct.pack(">I", number + 1) + data) if at else _chunk(b"IDAT", data)
    return content + _chunk(b"IEND", b"")


def _head(image: Pixels) -> bytes:
    height, width, channels = image.shape
    if channels not in _COLOURS:
        raise InvalidValue(f"an image of {channels} channels", why="a picture has 1 to 4")
    return _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0))


def _lines(image: Pixels) -> bytes:
    height, width, channels = image.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each line says first that it is as it is
    lines[:, 1:] = image.reshape(height, -1)
    return zlib.compress(lines.tobytes())


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

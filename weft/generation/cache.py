"""Keys and values of tokens so far, of layers that keep the same ones, in memory that is reserved once and never
copied."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base.errors import InvalidValue, OutOfMemory
from ..ops.nn.cached_attention import BLOCK


class Kept(NamedTuple):
    """What some layers keep: keys and values of `shared` heads of `width` columns. With a window each token sees itself
    and those before it, `window` in all, and only those are kept."""

    layers: int
    shared: int
    width: int
    context: int
    window: int | None = None

    @property
    def blocks(self) -> int:
        """Blocks of tokens that there is room for."""
        tokens = self.context if self.window is None else max(self.window - 1, 1)
        return -(-tokens // BLOCK)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Of what a token adds."""
        return self.layers, self.shared, self.width


class Cache:
    """Room for what is kept. The system gives memory as it is first written to, so it costs what is in it: blocks of
    16 tokens lie one behind the other. Where there is a window, they are a ring."""

    def __init__(self, kept: Kept) -> None:
        layers, shared, width = kept.sizes
        if kept.context < 1:
            raise InvalidValue(f"a context of {kept.context} tokens", why="it is one or more")
        try:
            self.keys = np.zeros((kept.blocks, layers, shared, width, BLOCK), np.float32)
            self.values = np.zeros((kept.blocks, layers, shared, BLOCK, width), np.float32)
        except MemoryError:
            size = 2 * kept.blocks * BLOCK * layers * shared * width * 4
            raise OutOfMemory(
                f"a cache of {kept.context} tokens is {size} bytes",
                why="the system reserves no more",
                hint="context=...",
            ) from None
        self.length = 0
        self._kept = kept

    def extend(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Puts those of more tokens behind the others: (tokens, layers * shared * width) each."""
        count, room, sizes = len(keys), self._kept.blocks * BLOCK, self._kept.sizes
        self.length += count
        if count == 1:
            block, lane = divmod((self.length - 1) % room, BLOCK)
            self.keys[block, :, :, :, lane] = keys.reshape(sizes)
            self.values[block, :, :, lane] = values.reshape(sizes)
            return
        last = min(count, room)
        blocks, lanes = np.divmod(np.arange(self.length - last, self.length) % room, BLOCK)
        self.keys[blocks, :, :, :, lanes] = keys[count - last :].reshape(last, *sizes)
        self.values[blocks, :, :, lanes] = values[count - last :].reshape(last, *sizes)

    @property
    def nbytes(self) -> int:
        """Bytes that the tokens take."""
        used = min(-(-self.length // BLOCK), self._kept.blocks)
        return used * (self.keys[:1].nbytes + self.values[:1].nbytes)

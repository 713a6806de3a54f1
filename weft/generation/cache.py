"""Keys and values of all tokens so far, of all layers, in memory that is reserved once and never copied."""

from __future__ import annotations

import numpy as np

from ..base.errors import InvalidValue, OutOfMemory
from ..ops.nn.cached_attention import BLOCK


class Cache:
    """Room for `context` tokens. The system gives memory as it is first written to, so it costs what is in it: blocks
    of 16 tokens lie one behind the other."""

    def __init__(self, sizes: tuple[int, int, int], context: int) -> None:
        """`sizes`: layers, heads that have keys, and columns of each."""
        layers, shared, width = sizes
        if context < 1:
            raise InvalidValue(f"a context of {context} tokens", why="it is one or more")
        blocks = -(-context // BLOCK)
        try:
            self.keys = np.zeros((blocks, layers, shared, width, BLOCK), np.float32)
            self.values = np.zeros((blocks, layers, shared, BLOCK, width), np.float32)
        except MemoryError:
            size = 2 * blocks * BLOCK * layers * shared * width * 4
            raise OutOfMemory(
                f"a cache of {context} tokens is {size} bytes", why="the system reserves no more", hint="context=..."
            ) from None
        self.context, self.length = context, 0
        self._shape = sizes

    def extend(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Puts those of more tokens behind the others: (tokens, layers * shared * width) each."""
        count = len(keys)
        places = np.arange(self.length, self.length + count)
        blocks, lanes = places // BLOCK, places % BLOCK
        if count == 1:
            block, lane = int(blocks[0]), int(lanes[0])
            self.keys[block, :, :, :, lane] = keys.reshape(self._shape)
            self.values[block, :, :, lane] = values.reshape(self._shape)
        else:
            self.keys[blocks, :, :, :, lanes] = keys.reshape(count, *self._shape)
            self.values[blocks, :, :, lanes] = values.reshape(count, *self._shape)
        self.length += count

    @property
    def nbytes(self) -> int:
        """Bytes that the tokens take."""
        used = -(-self.length // BLOCK)
        return used * (self.keys[:1].nbytes + self.values[:1].nbytes)

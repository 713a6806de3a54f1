"""Small blocks of memory that a stream freed: what it is given next comes after all that used them, so it takes them
again without a call of the driver."""

from __future__ import annotations

from .context import Context

MOST_BYTES = 1 << 20  # of a block; what is larger goes back to the pool of the device
MOST_OF_A_SIZE = 8 << 20  # bytes
MOST_SIZES = 64


class Blocks:
    """What one stream keeps, by the exact size. Finalisers give to it in any thread and at any time, so it has no lock:
    whoever pops an address has it alone."""

    def __init__(self, context: Context, handle: int) -> None:
        self.context, self.handle, self.is_closed = context, handle, False
        self._by_size: dict[int, list[int]] = {}  # addresses; the size that was freed first is let go first
        context.blocks[handle] = self

    @property
    def nbytes(self) -> int:
        """Of all that is kept."""
        return sum([nbytes * len(found) for nbytes, found in list(self._by_size.items())])

    def take(self, nbytes: int) -> int:
        """The address of a block of so many bytes; 0 if none is there."""
        return _popped(self._by_size.get(nbytes))

    def give(self, address: int, nbytes: int) -> int:
        """Keeps a block. The answer is the address of one that is not kept, as there is enough, or 0."""
        found = self._by_size.get(nbytes)
        if found is None:
            if nbytes > MOST_BYTES or self.is_closed:
                return address
            for oldest in list(self._by_size)[: len(self._by_size) - MOST_SIZES + 1]:
                self._let_go(oldest)
            found = self._by_size.setdefault(nbytes, [])
        if len(found) * nbytes >= MOST_OF_A_SIZE:
            return address
        found.append(address)
        if self._by_size.get(nbytes) is not found or self.is_closed:  # it was let go meanwhile, maybe before this
            return _popped(found)
        return 0

    def let_go(self) -> None:
        """Frees all that is kept, in the order of the stream."""
        for nbytes in list(self._by_size):
            self._let_go(nbytes)

    def close(self) -> None:
        """Frees all, and keeps nothing from now on: the stream goes."""
        self.is_closed = True
        self.let_go()

    def _let_go(self, nbytes: int) -> None:
        found = self._by_size.pop(nbytes, None)
        while address := _popped(found):
            self.context.dispose("cuMemFreeAsync", address, self.handle)


def _popped(found: list[int] | None) -> int:
    """An address that another thread may have taken meanwhile; then it is 0."""
    try:
        return found.pop() if found else 0
    except IndexError:
        return 0

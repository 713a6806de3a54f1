"""SHA-256 of much memory, or of a file, on all cores: of pieces of a fixed size, and of their digests."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..base.machine import usable_cores

PIECE = 4 << 20  # bytes; part of what a digest is
_READ = 1 << 18  # bytes that are read at a time, and stay in a near cache

T = TypeVar("T")


def digests(blocks: Sequence[bytes | memoryview]) -> list[str]:
    """A digest of each block.

    >>> digests([b"a", b"b"])[0] == digests([b"a"])[0], digests([b"a"]) == digests([b"b"])
    (True, False)
    """
    views = [memoryview(block) for block in blocks]
    pieces = [view[at : at + PIECE] for view in views for at in range(0, len(view), PIECE)]
    made = iter(_on_threads(lambda piece: hashlib.sha256(piece).digest(), pieces, sum(map(len, views))))
    return [_joined([next(made) for _ in range(0, len(view), PIECE)]) for view in views]


def file_digest(handle: int) -> str:
    """The digest of an open file as one block, little of which is in memory at a time; OSError if it gets shorter
    meanwhile."""
    size = os.fstat(handle).st_size

    def digest_at(start: int) -> bytes:
        digest, buffer = hashlib.sha256(), memoryview(bytearray(_READ))
        end = min(start + PIECE, size)
        while start < end:
            count = os.preadv(handle, [buffer[: end - start]], start)
            if not count:
                raise OSError("the file ends early")
            digest.update(buffer[:count])
            start += count
        return digest.digest()

    return _joined(_on_threads(digest_at, range(0, size, PIECE), size))


def _joined(pieces: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(pieces)).hexdigest()


def _on_threads(work: Callable[[T], bytes], items: Sequence[T], size: int) -> list[bytes]:
    """The results in order. Work that fails is done again by the caller, who is told of the error."""
    done: dict[int, bytes] = {}
    waiting = deque(enumerate(items))

    def drain() -> None:
        while waiting:
            try:
                number, item = waiting.popleft()
                done[number] = work(item)
            except (IndexError, OSError):
                return

    threads = []
    try:
        for _ in range(min(usable_cores() - 1, size // PIECE)):
            threads.append(threading.Thread(target=drain, name="weft-digest", daemon=True))
            threads[-1].start()
    except RuntimeError:  # the process may have no more memory for a thread
        threads.pop()
    drain()
    for thread in threads:
        thread.join()
    return [done[number] if number in done else work(item) for number, item in enumerate(items)]

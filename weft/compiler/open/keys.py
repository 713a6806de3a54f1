"""What programs of eager calls are kept under in the disk cache, and the lock under which they are made."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from ...base import config
from ...base.cpu_target import CpuTarget
from ...base.forks import held_lock
from ..backends import backend_of
from ..disk_cache import key_text
from ..kept.fingerprint import PACKAGE, fingerprint

making = held_lock("making")  # held while programs are looked for and made
_writers: list[str] = []  # folders of modules that write kernels and their keys


def depends_on(folder: str) -> None:
    """Has the keys on disk depend on the modules of a folder, which comes before the first key."""
    _writers.append(os.path.join(os.path.relpath(folder, PACKAGE), "*.py"))


def file_key(key: Hashable, target: CpuTarget) -> bytes | None:
    """What a key's program is kept under; None for a key that holds in this process only."""
    try:
        machine = (backend_of(target).codegen.key(target), target.vector_bits, target.unit_bits, target.caches)
        return f"{fingerprint(tuple(_writers))} open {key_text(machine)} {key_text(key)}".encode()
    except (OSError, TypeError):
        return None


@contextmanager
def compiling(what: object) -> Iterator[None]:
    """One compilation at a time; WEFT_DEBUG=dispatch tells how long it took."""
    with making:
        start = time.perf_counter()
        yield
        if "dispatch" in config.get("debug"):
            spent = (time.perf_counter() - start) * 1e3
            print(f"weft: compiled {what} for eager calls in {spent:.0f} ms", file=sys.stderr)

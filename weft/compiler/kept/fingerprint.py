"""A hash of the compiler's own text, which is part of every key on disk."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from glob import glob

from ...version import __version__

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
# What lowering depends on, and what writes and reads its results.
SOURCES = (
    *[f"{room}/**/*.py" for room in ("base", "codegen", "core", "lower", "ops", "te")],
    "compiler/disk_cache.py",
    "compiler/open/*.py",
)
# What else decides the programs of whole models.
MODEL_SOURCES = tuple(f"{room}/**/*.py" for room in ("compiler", "frontend", "passes", "runtime"))


@lru_cache(8)
def fingerprint(more: tuple[str, ...] = ()) -> str:
    """A hash of the compiler itself, and of more sources."""
    digest = hashlib.sha256(__version__.encode())
    for name in sorted({n for s in (*SOURCES, *more) for n in glob(s, root_dir=PACKAGE, recursive=True)}):
        with open(os.path.join(PACKAGE, name), "rb", buffering=0) as file:
            digest.update(name.encode())
            digest.update(file.read())
    return digest.hexdigest()

"""`weft info`: what weft finds on this machine, as rows of text."""

from __future__ import annotations

import platform

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from ..base.cpu_target import host
from ..base.file_cache import cache_folder
from ..core.op import list_ops
from ..runtime.cpu.pool import thread_count
from ..version import __version__


def info_rows() -> list[tuple[str, str]]:
    """(what, value) about versions, the target, threads and the cache."""
    target = host()
    kibibytes = [f"{size // 1024} kB" for size in target.caches]
    return [
        ("weft", __version__),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("numpy", np.__version__),
        ("llvm", f"{'.'.join(map(str, llvm.llvm_version_info))} (llvmlite {llvmlite.__version__})"),
        ("target", f"{target.cpu}, {target.isa}, {target.vector_bits}-bit vectors"),
        ("caches", ", ".join(kibibytes)),
        ("threads", f"{thread_count()} of {target.cores} cores"),
        ("operators", str(len(list_ops()))),
        ("kernel cache", str(cache_folder() or "off")),
    ]

"""NVIDIA's assembler, where it is installed: `pip install nvidia-cuda-nvcc`. It needs no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest


class Assembled(NamedTuple):
    """What the assembler says about a kernel."""

    registers: int
    spilled: int  # bytes
    stack: int  # bytes
    log: str


@cache
def ptxas() -> str:
    """Where the assembler is; a test that asks for a missing one is skipped."""
    found = [str(path) for root in sys.path if root for path in Path(root).glob("nvidia/*/bin/ptxas")]
    at = shutil.which("ptxas") or next(iter(found), None)
    if at is None:
        pytest.skip("ptxas is not installed: pip install nvidia-cuda-nvcc")
    return at


def assembled(ptx: bytes, arch: str, folder: Path) -> Assembled:
    """The PTX through the assembler; an error of it fails the test."""
    source = folder / "kernel.ptx"
    source.write_bytes(ptx)
    command = [ptxas(), f"-arch={arch}", "-v", str(source), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    numbers = [int(n) for n in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", done.stderr)]
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", done.stderr)]
    return Assembled(max(registers), sum(numbers[1:]), numbers[0], done.stderr)

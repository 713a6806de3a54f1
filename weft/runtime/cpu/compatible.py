"""Whether machine code that was made for a target runs here."""

from __future__ import annotations

from functools import lru_cache

from ...base.cpu_target import CpuTarget, host
from ...base.errors import Unsupported


def check_target(text: str) -> None:
    """Raises if the machine lacks what code for that target, given as text, may use."""
    _check(text, host())


@lru_cache(64)
def _check(text: str, have: CpuTarget) -> None:
    wanted = CpuTarget.create(text)
    missing = sorted(set(_features(wanted)) - set(_features(have)))
    foreign = wanted.object_format != have.object_format
    if wanted.arch != have.arch or foreign or missing:
        raise Unsupported(
            f"the program is for another {'system' if foreign else 'processor'}",
            why=f"it was compiled for {wanted.triple}, {wanted.cpu}, and needs {wanted.arch}"
            f"{f', {wanted.object_format} objects' if foreign else ''}"
            f"{' with ' if missing else ''}{', '.join(missing)}; this machine is {have.triple}, {have.cpu}",
            hint='compile for this machine (target="cpu"), or save the program and load it on one that it is for',
        )


def _features(target: CpuTarget) -> list[str]:
    return [feature[1:] for feature in target.features.split(",") if feature.startswith("+")]

"""What the host computes for tensors of a device: counted, and told once of each kind."""

from __future__ import annotations

import sys

from ...base import config, counters

_told: set[str] = set()


def tell_host(what: str) -> None:
    """Counts that elements went to the host and back."""
    if counters.counting:
        counters.add_stat_value(f"weft.device_hosted.{what}", 1)
    if what not in _told:
        _told.add(what)
        if "dispatch" in config.get("debug"):
            print(f"weft: {what}: on the host, with copies from the device and back", file=sys.stderr)

"""Errors of data that PyTorch users catch as failed assertions."""

from __future__ import annotations

from ...base.errors import InvalidValue


class InvalidData(InvalidValue, AssertionError):
    """Datasets or settings that do not go together."""

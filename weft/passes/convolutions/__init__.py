"""Passes that make convolutions smaller, or others of them, before layouts are chosen."""

from . import idle_taps, transposed_products

__all__ = ["idle_taps", "transposed_products"]

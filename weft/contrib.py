"""Operators registered as `_contrib_x`, here as x; filled by weft.symbol."""

"""Operators whose names begin with an underscore, as functions; filled by weft.symbol."""

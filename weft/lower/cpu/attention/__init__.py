"""Attention: one kernel, in one of two forms."""

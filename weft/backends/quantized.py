"""Engines of quantised tensors: none."""

engine = "none"
supported_engines = ["none"]
__all__ = ["engine", "supported_engines"]

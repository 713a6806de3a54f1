"""Registration of operator columns, with NNVM's names."""

from . import registry

__all__ = ["registry"]

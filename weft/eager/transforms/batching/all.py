"""All batching rules."""

from . import indices, norms, products, shapes

__all__ = ["indices", "norms", "products", "shapes"]

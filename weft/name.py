"""Names of nodes: NameManager and Prefix."""

from .core.naming import NameManager, Prefix

__all__ = ["NameManager", "Prefix"]

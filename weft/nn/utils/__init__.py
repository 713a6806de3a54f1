"""What is done with modules and their parameters beside running them."""

from . import parametrizations, parametrize, stateless

__all__ = ["parametrizations", "parametrize", "stateless"]

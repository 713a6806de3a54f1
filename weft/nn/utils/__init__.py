"""What is done with modules and their parameters beside running them."""

from . import rnn

__all__ = ["rnn"]

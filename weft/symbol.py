"""Symbols, and every operator as a function on them."""

from collections.abc import Callable

from . import _symbol_internal, contrib
from . import ops as _ops  # noqa: F401  registers the operators
from .core.functions import fill_namespace as _fill_namespace
from .core.symbol import Group, Symbol, Variable
from .core.symbol import variable_inits as _all_var_init  # noqa: F401  NNVM's name

__all__ = ["Group", "Symbol", "Variable", "contrib"]

_fill_namespace(Symbol, globals(), vars(_symbol_internal), vars(contrib))


def __getattr__(name: str) -> Callable[..., Symbol]:
    raise AttributeError(
        f"weft.symbol has no {name!r}: no operator of that name is registered (weft.list_ops() shows all)"
    )

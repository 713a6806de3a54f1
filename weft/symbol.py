"""Symbols, and every operator as a function on them."""

from . import _symbol_internal, contrib
from . import ops as _ops  # noqa: F401  registers the operators
from .core.functions import fill_namespace as _fill_namespace
from .core.symbol import Group, Symbol, Variable
from .core.symbol import variable_inits as _all_var_init

__all__ = ["Group", "Symbol", "Variable", "contrib"]

_fill_namespace(Symbol, globals(), vars(_symbol_internal), vars(contrib))


def __getattr__(name: str) -> object:
    if name == "_all_var_init":
        return _all_var_init
    raise AttributeError(
        f"weft.symbol has no {name!r}: no operator of that name is registered (weft.list_ops() shows all)"
    )

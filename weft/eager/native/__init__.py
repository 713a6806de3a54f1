"""Eager calls in native code. `choice.py` says which calls those are, by operator, dtypes and sizes
alone; `calls.py` has the table that families of kernels, whose extents are arguments, register in; `thresholds.py`
has sizes from which on they pay, where no operator has them. A family takes numpy arrays and gives arrays.

What others call loads when it is first used, operators with all families: until a call is large, nothing here needs
LLVM."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...lower.cpu.nests.element import element_of as element_of
    from .choice import native_call as native_call
    from .copy import copy_into as copy_into
    from .copy import ordered_copy as ordered_copy
    from .gradient import fused_gradient as fused_gradient
    from .index import add_elements as add_elements
    from .index import add_rows as add_rows
    from .index import nonzero as nonzero
    from .index import put_elements as put_elements
    from .inplace import write_native as write_native
    from .pointwise import add_into as add_into
    from .pointwise import are_native as are_native
    from .pointwise import element as element
    from .pointwise import op_key as op_key
    from .pointwise import run_pointwise as run_pointwise
    from .random import normal_blocks as normal_blocks
    from .random import random_numbers as random_numbers
    from .random import random_words as random_words
    from .reduce import integer_sum as integer_sum

_MODULES = {
    "choice": ("native_call",),
    "copy": ("copy_into", "ordered_copy"),
    "gradient": ("fused_gradient",),
    "index": ("add_elements", "add_rows", "nonzero", "put_elements"),
    "inplace": ("write_native",),
    "pointwise": ("add_into", "are_native", "element", "element_of", "op_key", "run_pointwise"),
    "random": ("normal_blocks", "random_numbers", "random_words"),
    "reduce": ("integer_sum",),
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_NAMES[name]}", __name__), name)
    return value

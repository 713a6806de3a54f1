"""The operators: importing this registers all of them. The families are for writing new ones:
`from weft.ops import unary, pointwise`."""

from ..core.op import list_op_names
from . import _families, compiled_group, control_flow, linalg, math, ml, nn, random, reduce, shape, vision
from ._families import EARLIER, F, binary, broadcasting, define, pointwise, scalar, unary

__all__ = ["OWN", "F", "binary", "broadcasting", "define", "pointwise", "scalar", "unary"]

OWN = frozenset(list_op_names()) - EARLIER  # names of weft's operators; all others are of users

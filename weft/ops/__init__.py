"""The operators: importing this registers all of them. Each is an attribute, `weft.ops.relu`, that is called on
tensors or symbols; so are those that users register. The families are for writing new ones:
`from weft.ops import unary, pointwise`."""

from ..core.op import Op, list_op_names
from . import (
    _families,
    channels_last,
    compiled_group,
    control_flow,
    linalg,
    math,
    ml,
    nn,
    random,
    reduce,
    shape,
    vision,
)
from ._families import EARLIER, F, binary, broadcasting, define, pointwise, scalar, unary

__all__ = ["OWN", "F", "binary", "broadcasting", "define", "pointwise", "scalar", "unary"]

OWN = frozenset(list_op_names()) - EARLIER  # names of weft's operators; all others are of users


def __getattr__(name: str) -> Op:
    if name not in list_op_names():
        raise AttributeError(f"module 'weft.ops' has no attribute {name!r}")
    return Op.get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *list_op_names()})

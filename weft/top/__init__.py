"""The operator registry: operators, their groups and columns, and registration by NNVM's names."""

from .. import ops as _ops  # noqa: F401  registers the operators, so that rules find theirs
from ..core.op import Op, OpGroup, OpMap
from ..core.pattern import OpPattern
from . import registry

__all__ = ["Op", "OpGroup", "OpMap", "OpPattern", "registry"]

"""The core namespace of the tensor side, under the name that PyTorch gives it."""

from . import cpp as cpp
from .eager.torch_core.namespace import filled as _filled

globals().update(_filled())

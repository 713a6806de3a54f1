"""The core namespace of the tensor side, under the name that PyTorch gives it."""

from importlib import import_module as _import_module

from . import cpp as cpp
from .eager.torch_core.namespace import filled as _filled
from .jit.public_names import CORE_NAMES as _CORE_NAMES
from .jit.public_names import PASSES as _PASSES
from .jit.public_names import PUBLIC_NAMES as _PUBLIC_NAMES

globals().update(_filled())
globals().update({_n: getattr(_import_module(f"weft.{_m}"), _n) for _n, _m in _PUBLIC_NAMES.items()})
globals().update({_n: getattr(_import_module(f"weft.{_m}"), _f) for _n, (_m, _f) in (_PASSES | _CORE_NAMES).items()})

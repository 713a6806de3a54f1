"""Which engine runs backward passes: the base engine, Python's own, or one of yours.

weft.autograd.engine.set_default_engine_stub(weft.autograd.engine.get_base_engine)
"""

from ..eager.autograd.engine import Engine
from ..eager.autograd.python_engine import (
    PythonEngine,
    get_base_engine,
    get_default_engine,
    get_python_engine,
    set_default_engine,
    set_default_engine_stub,
)

__all__ = [
    "Engine",
    "PythonEngine",
    "get_base_engine",
    "get_default_engine",
    "get_python_engine",
    "set_default_engine",
    "set_default_engine_stub",
]

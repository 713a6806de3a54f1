"""What `weft.compile` makes of Python's functions and of modules."""

from __future__ import annotations

from typing import Any

from ...core.symbol import Symbol
from ...nn.modules.module import Module
from .compiled import Compiled
from .compiled_module import CompiledModule


def compiled(model: Any, fullgraph: bool, dynamic: bool | None, precision: str) -> Compiled | CompiledModule | None:
    """A function or a module that is traced when it is called; None of what is a model already."""
    options = fullgraph, dynamic, precision
    if isinstance(model, Module):
        return CompiledModule(model, *options)
    return Compiled(model, *options) if callable(model) and not isinstance(model, Symbol) else None

"""Modules of Python as modules of programs with parameters, buffers and modules, whose methods a trace adds."""

from __future__ import annotations

from typing import Any

from ...nn.modules.module import Module
from ..classes import BUFFER, PARAMETER, ScriptClass
from ..frontend.modules import free_name
from ..modules import ScriptModule, innermost_first
from ..types import BoolType, NoneType, TensorType


class TracedModule(ScriptModule):
    """A module in one that was traced."""

    def _get_name(self) -> str:
        return self.original_name


def traced_tree(module: Module, top: type[ScriptModule]) -> dict[int, ScriptModule]:
    """A module of a program for each module of Python, by its identity; those in others come first."""
    made: dict[int, ScriptModule] = {}
    for current in innermost_first(module):
        kind = top if current is module else TracedModule
        made[id(current)] = current if isinstance(current, ScriptModule) else _made(current, made, kind)
    return made


def _made(module: Module, known: dict[int, ScriptModule], top: type[ScriptModule]) -> ScriptModule:
    kind = ScriptClass(free_name(type(module)), is_module=True)
    slots: dict[str, Any] = {"training": module.training}
    kind.add_attribute("training", BoolType.get())
    for role, held in ((PARAMETER, module._parameters), (BUFFER, module._buffers)):
        for name, value in held.items():
            if value is None:
                kind.add_constant(name, NoneType.get(), None)
            else:
                kind.add_attribute(name, TensorType.get(), role)
                slots[name] = value
    for name, inner in module._modules.items():
        if inner is not None:
            kind.add_attribute(name, known[id(inner)]._type)
            slots[name] = known[id(inner)]
    result = top(kind)
    for name, value in slots.items():
        result.set_attribute(name, value)
    return result

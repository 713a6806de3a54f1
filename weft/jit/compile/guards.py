"""What a traced function may have read beside its arguments: closures, globals, attributes of modules and objects. In
comes the function, out go the tensors that it can reach, and questions whose answers a plan holds for."""

from __future__ import annotations

import argparse
import functools
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...eager.tensor.tensor import Tensor
from ...nn.modules.module import Module
from ...optim.optimizer import Optimizer

Guard = tuple[Callable[[Any], Any], Any, Any]  # what is asked, of what, and the answer
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic)
CONTAINERS = (list, tuple, dict, set, frozenset)
NAMESPACES = (types.SimpleNamespace, argparse.Namespace)  # Python's own that hold what users say
LIBRARIES = {__name__.split(".")[0], "numpy", "llvmlite", "ml_dtypes"}
MOST = 50_000  # objects that are looked at
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_MISSING = object()


class Reached:
    """Tensors that can be reached from objects, and guards of what is on the way."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.tensors: dict[int, Tensor] = {}
        self.guards: list[Guard] = []
        self._met: dict[int, Any] = {}
        stack = list(roots)
        while stack and len(self._met) < MOST:
            value = stack.pop()
            if isinstance(value, PLAIN) or id(value) in self._met:
                continue
            self._met[id(value)] = value
            stack += self._look(value)

    def _look(self, value: Any) -> Sequence[Any]:
        if isinstance(value, Tensor):
            self.tensors[id(value)] = value
            return ()
        if isinstance(value, Module):
            return self._module(value)
        if isinstance(value, Optimizer):
            return [p for group in value.param_groups for p in group["params"]]
        if isinstance(value, types.MethodType):
            return [value.__self__, value.__func__]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, CONTAINERS):
            return self._container(value)
        if isinstance(value, functools.partial):
            return [value.func, value.args, value.keywords]
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and not isinstance(value, type):
            return [wrapped]
        own = getattr(value, "__dict__", None)
        if not isinstance(own, dict) or not (_is_users(type(value)) or isinstance(value, NAMESPACES)):
            return ()
        return self._entries(own, list(own))

    def _function(self, function: types.FunctionType) -> list[Any]:
        if not _is_users(function):
            return []
        found = []
        for cell in function.__closure__ or ():
            if _is_filled(cell):
                self._ask(_cell, cell, cell.cell_contents)
                found.append(cell.cell_contents)
        names = [name for code in _codes(function.__code__) for name in code.co_names]
        found += self._entries(function.__globals__, [name for name in names if name in function.__globals__])
        return [*found, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]

    def _module(self, module: Module) -> list[Any]:
        own = module.__dict__
        found = self._entries(own, [name for name in own if name not in _MODULE_TABLES and name not in _HOOKS])
        for name in _MODULE_TABLES:
            table = own.get(name) or {}
            self.guards.append((len, table, len(table)))
            found += self._entries(table, list(table))
        for name in _HOOKS:
            if own.get(name) is not None:
                self.guards.append((len, own[name], len(own[name])))
        forward = type(module).forward
        return [*found, forward] if isinstance(forward, types.FunctionType) else found

    def _container(self, value: Any) -> list[Any]:
        self.guards.append((len, value, len(value)))
        if isinstance(value, dict):
            return self._entries(value, list(value))
        items = list(value)
        for place, item in enumerate(items):
            if isinstance(value, list):
                self._ask(value.__getitem__, place, item)
        return items

    def _entries(self, table: dict[Any, Any], names: Sequence[Any]) -> list[Any]:
        found = []
        for name in names:
            value = table.get(name, _MISSING)
            self._ask(table.get, name, value)
            found.append(value)
        return found

    def _ask(self, get: Callable[[Any], Any], of: Any, answer: Any) -> None:
        self.guards.append((get, of, answer))


def _is_users(maker: Any) -> bool:
    """Whether a class or function is neither Python's nor a library's that has no state of users'."""
    package = str(getattr(maker, "__module__", "")).split(".")[0]
    return package not in LIBRARIES and (package == "__main__" or package not in sys.stdlib_module_names)


def holds(guards: Sequence[Guard]) -> bool:
    """Whether all questions have the answers that they had."""
    for get, of, answer in guards:
        try:
            found = get(of)
        except (LookupError, ValueError):
            return False
        if found is not answer and not _is_equal(found, answer):
            return False
    return True


def _is_equal(found: Any, answer: Any) -> bool:
    return isinstance(found, PLAIN) and type(found) is type(answer) and bool(found == answer)


def _cell(cell: Any) -> Any:
    return cell.cell_contents


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not _MISSING
    except ValueError:
        return False


def _codes(code: types.CodeType) -> list[types.CodeType]:
    """A function's code and that of the functions in it."""
    found = [code]
    for each in found:  # which grows
        found += [const for const in each.co_consts if isinstance(const, types.CodeType)]
    return found

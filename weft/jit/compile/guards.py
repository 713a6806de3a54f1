"""What a traced function may have read beside its arguments: closures, globals, attributes of modules and objects. In
comes the function, out go the tensors that it can reach, and guards: questions whose answers a plan holds for."""

from __future__ import annotations

import argparse
import functools
import sys
import types
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

import numpy as np

from ...eager.grad_scaler import GradScaler
from ...eager.tensor.tensor import Tensor
from ...nn.modules.module import Module
from ...optim.optimizer import Optimizer

Asked = tuple[str, Any, Any]  # an attribute, whose, and what it is
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic)
CONTAINERS = (list, tuple, dict, set, frozenset)
NAMESPACES = (types.SimpleNamespace, argparse.Namespace)  # Python's own that hold what users say
LIBRARIES = {__name__.split(".")[0], "numpy", "llvmlite", "ml_dtypes"}
MOST = 50_000  # objects that are looked at
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# What calls do not read, or only where there are hooks.
_UNREAD = (
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
    *("_is_full_backward_hook", "_non_persistent_buffers_set"),
)
_APART = frozenset((*_MODULE_TABLES, *_HOOKS, *_UNREAD))
_MISSING = object()


class Reached:
    """Tensors that can be reached from objects, and what is on the way: containers whose sizes count, lists whose
    items do, entries of tables, and attributes; all with what they are before the function runs."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.tensors: dict[int, Tensor] = {}
        self.sized: list[tuple[Any, int]] = []
        self.lists: list[tuple[list[Any], list[Any]]] = []
        self.entries: list[tuple[dict[Any, Any], Sequence[Any], list[Any]]] = []
        self.asked: list[Asked] = []
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
        if isinstance(value, GradScaler):
            self.asked += [(name, value, getattr(value, name)) for name in ("_scale", "_enabled")]
            return ()
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
                self.asked.append(("cell_contents", cell, cell.cell_contents))
                found.append(cell.cell_contents)
        names = [name for code in _codes(function.__code__) for name in code.co_names]
        found += self._entries(function.__globals__, [name for name in names if name in function.__globals__])
        return [*found, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]

    def _module(self, module: Module) -> list[Any]:
        own = module.__dict__
        found = self._entries(own, [name for name in own if name not in _APART])
        for name in _MODULE_TABLES:
            table = own.get(name) or {}
            self.sized.append((table, len(table)))
            found += self._entries(table, list(table))
        self.sized += [(own[name], len(own[name])) for name in _HOOKS if own.get(name) is not None]
        forward = type(module).forward
        return [*found, forward] if isinstance(forward, types.FunctionType) else found

    def _container(self, value: Any) -> list[Any]:
        if not isinstance(value, (tuple, frozenset)):  # which stay as they are
            self.sized.append((value, len(value)))
        if isinstance(value, dict):
            return self._entries(value, list(value))
        items = list(value)
        if isinstance(value, list):
            self.lists.append((value, items))
        return items

    def _entries(self, table: dict[Any, Any], names: Sequence[Any]) -> list[Any]:
        values = [table[name] for name in names]
        if names:
            self.entries.append((table, names, values))
        return [*values]


class Guards:
    """Questions, all of which are asked before each call of a plan, and the answers that it holds for. An answer is
    the same object, or an equal number or text."""

    def __init__(self, reached: Reached, asked: Sequence[Asked]) -> None:
        groups: dict[str, list[Asked]] = {}
        for question in (*reached.asked, *asked):
            groups.setdefault(question[0], []).append(question)
        self.attributes = [(attrgetter(name), [of for _, of, _ in rows]) for name, rows in groups.items()]
        self.entries = [(itemgetter(*names, names[0]), table) for table, names, _ in reached.entries]  # gives a tuple
        self.lists = [value for value, _ in reached.lists]
        self.empty = [container for container, size in reached.sized if not size]
        self.sized = [container for container, size in reached.sized if size]
        self.sizes = [size for _, size in reached.sized if size]
        self.answers = [
            *chain.from_iterable([(*values, values[0]) for _, _, values in reached.entries]),
            *chain.from_iterable([items for _, items in reached.lists]),
            *[answer for rows in groups.values() for _, _, answer in rows],
        ]
        self.are_none = not (self.answers or reached.sized)

    def hold(self) -> bool:
        """Whether all questions have the answers that they had. Nothing here runs Python for each of them, of which
        there are thousands in a large model."""
        if any(self.empty) or [*map(len, self.sized)] != self.sizes:
            return False
        try:
            found = [
                *chain.from_iterable([get(table) for get, table in self.entries]),
                *chain.from_iterable(self.lists),
                *chain.from_iterable([map(get, objects) for get, objects in self.attributes]),
            ]
        except (LookupError, ValueError, AttributeError):
            return False
        if all(map(is_, found, self.answers)):
            return True
        if not all([one is other or _is_equal(one, other) for one, other in zip(found, self.answers)]):
            return False
        self.answers = found
        return True


def _is_users(maker: Any) -> bool:
    """Whether a class or function is neither Python's nor a library's that has no state of users'."""
    package = str(getattr(maker, "__module__", "")).split(".")[0]
    return package not in LIBRARIES and (package == "__main__" or package not in sys.stdlib_module_names)


def _is_equal(found: Any, answer: Any) -> bool:
    if not isinstance(found, PLAIN) or type(found) is not type(answer) or found != answer:
        return False
    return bool(found) or repr(found) == repr(answer)  # which tells 0.0 from -0.0


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

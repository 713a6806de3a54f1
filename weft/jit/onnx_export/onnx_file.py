"""`weft.onnx.export`: a module or function with example inputs in, an ONNX model out."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, count
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...base.dtype import as_dtype
from ...base.errors import Error, InvalidType, InvalidValue, Unsupported
from ...base.shape import Dim
from ...core.symbol import Symbol
from ...eager.tensor.memory import array_of
from ...eager.tensor.tensor import Tensor, wrap
from ...frontend.onnx.exporter import to_onnx
from ...nn.modules.module import Module
from ..compile.compiled import Compiled
from ..compile.compiled_module import CompiledModule
from ..compile.frames import shown_line, user_frame
from ..compile.structure import built, flattened
from ..compile.tracing import OneGraph, symbol_of
from ..functions import Function, ScriptMethod
from .open_graph import Trace, open_graph
from .open_numbers import Point, corners_of

MOST_NAMES = 4  # of open dimensions: each doubles the traces
OPSET = 17


class _Exporting(OneGraph):
    """A recording that says where something cannot be exported."""

    def host(self, function: Any, tensors: Sequence[Tensor]) -> Any:
        try:
            return super().host(function, tensors)
        except Unsupported:
            self._refuse("numpy computes a part of it", "a file has operators alone", _PARTS)

    def draws(self, generator: Any) -> None:
        self.give_up("random numbers are drawn")

    def act(self, function: Any, optimizer: Any = None) -> Any:
        self._refuse("an optimiser steps in it", "a file has operators alone", _PARTS)

    def _break(self, why: str) -> None:
        hint = "use weft.where in place of if, or export a function for each way"
        self._refuse(why, "what comes next may depend on it, and a file has one graph", hint)

    def give_up(self, why: str) -> None:
        hint = "call eval() on modules that are random in training, or give such tensors as inputs"
        self._refuse(why, None, hint if "random" in why else _PARTS)

    def _refuse(self, what: str, why: str | None, hint: str) -> NoReturn:
        raise Unsupported(f"a function cannot be exported: {what}", where=shown_line(user_frame()), why=why, hint=hint)


_PARTS = "export the part of it that gives the tensors, and do the rest outside"


class _Call(NamedTuple):
    """What is exported: a function of tensors, their names, and the module whose parameters it reads."""

    function: Callable[..., Any]
    tensors: list[Tensor]
    names: list[str]
    module: Module | None


def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike[str] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Any:
    """Writes a module, or a function of tensors, as an ONNX model to the path `f`, and gives the model.

    `args` are the inputs to trace it with: a tensor, or a tuple, in which containers of tensors may be. Parameters keep
    the names that they have in the module, which is exported as it is after `eval()`. Inputs are named as `forward`
    names them, unless `input_names` says otherwise. `dynamic_axes` has the axes of inputs whose sizes are open, by the
    name of the input: {"x": {0: "batch"}}, or {"x": [0]}. Axes of the same name have the same size.
    `dynamic_shapes` says the same in the order of the inputs, or by name: ({0: "batch"}, None).
    A function with open sizes is traced at several of them; where it does other things at each, that is an error.

    >>> import weft
    >>> model = weft.onnx.export(weft.nn.Linear(3, 2), weft.ones(1, 3), dynamic_axes={"input": {0: "batch"}})
    >>> [tensor.name for tensor in model.graph.initializer], model.graph.input[0].name
    (['weight', 'bias'], 'input')
    """
    call = _call(model, args, kwargs or {}, input_names)
    axes = _open_axes(call, dynamic_axes, dynamic_shapes, output_names or ())
    with _in_eval(call.module):
        symbol, params, lines = _traced(call, axes)
    shapes = _shapes(call, axes)
    dtypes = _dtypes(call)
    read = set(symbol.list_input_names())
    try:
        return to_onnx(
            symbol,
            params,
            f,
            {name: shape for name, shape in shapes.items() if name in read},
            OPSET if opset_version is None else opset_version,
            {name: dtype for name, dtype in dtypes.items() if name in read},
            outputs=output_names or (),
        )
    except Unsupported as error:
        raise _with_lines(error, lines) from None


def _with_lines(error: Unsupported, lines: Mapping[str, str]) -> Unsupported:
    """The lines of the nodes that an error tells of."""
    words = (error.why or "").replace(",", " ").split()
    places = dict.fromkeys(lines[word] for word in words if word in lines)
    return error.at("; ".join(places)) if places else error  # type: ignore[return-value]


# What is called.


def _call(model: Any, args: Any, kwargs: Mapping[str, Any], input_names: Sequence[str] | None) -> _Call:
    if isinstance(model, (Compiled, CompiledModule)):
        model = model.function if isinstance(model, Compiled) else model._orig_mod
    if not callable(model):
        raise InvalidType(f"a module or a function is exported, not a {type(model).__name__}")
    positional = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    tensors: list[Tensor] = []
    structure = flattened((positional, dict(kwargs)), tensors)
    module = model if isinstance(model, Module) else None
    if len(tensors) != len({id(tensor) for tensor in tensors}):
        raise InvalidValue("an example input is given twice", hint="clone() it, so that both are inputs of the file")

    def function(*given: Tensor) -> Any:
        places, by_name = built(structure, given)
        return model(*places, **by_name)

    names = _input_names(model, positional, kwargs, len(tensors), input_names, module)
    return _Call(function, tensors, names, module)


def _input_names(
    model: Any, args: Any, kwargs: Mapping[str, Any], many: int, given: Sequence[str] | None, module: Module | None
) -> list[str]:
    names = list(given or ())
    if len(names) > many or len(set(names)) != len(names):
        raise InvalidValue(f"{len(names)} names for {many} inputs: {names}", why="each input has a name of its own")
    taken = set() if module is None else {name for name, _ in _tensors_of(module)}
    for name in names:
        if name in taken:
            raise InvalidValue(f"an input cannot be called {name!r}", why="a parameter of the module is")
    for name in _names_in_code(model, args, kwargs)[len(names) : many]:
        free = name not in taken and name not in names
        names.append(name if free else f"input{len(names)}")
    return [*names, *[f"input{number}" for number in range(len(names), many)]]


def _names_in_code(model: Any, args: Any, kwargs: Mapping[str, Any]) -> list[str]:
    """What the function calls its inputs; tensors in containers have numbers behind."""
    try:
        bound = _signature(model.forward if isinstance(model, Module) else model).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return []
    names: list[str] = []
    for name, value in bound.items():
        found: list[Tensor] = []
        flattened(value, found)
        names += [name] if isinstance(value, Tensor) else [f"{name}_{number}" for number in range(len(found))]
    return names


def _signature(called: Any) -> inspect.Signature:
    if not isinstance(called, (Function, ScriptMethod)):
        return inspect.signature(called)
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    given = called.schema.arguments[isinstance(called, ScriptMethod) :]  # without the object that a method is of
    return inspect.Signature(
        [inspect.Parameter(a.name, kind, default=None if a.has_default_value() else empty) for a in given]
    )


def _tensors_of(module: Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


@contextmanager
def _in_eval(module: Module | None) -> Iterator[None]:
    """The module as it is when it is not trained; afterwards each part is as it was."""
    parts = [] if module is None else [part for part in module.modules() if part.training]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part in parts:
            part.training = True


# Open dimensions.


def _open_axes(call: _Call, axes: Any, shapes: Any, output_names: Sequence[str]) -> list[dict[int, str]]:
    """The names of open axes, for each input."""
    if axes is not None and shapes is not None:
        raise InvalidValue("dynamic_axes and dynamic_shapes say the same", hint="give one of them")
    given = axes if shapes is None else shapes
    if given is None:
        return [{} for _ in call.names]
    if isinstance(given, (tuple, list)):
        if len(given) > len(call.names):
            raise InvalidValue(f"open dimensions of {len(given)} inputs, of which there are {len(call.names)}")
        given = dict(zip(call.names, given))
    if not isinstance(given, Mapping):
        raise InvalidType(f"open dimensions are given by the names of inputs, not as a {type(given).__name__}")
    unknown = [name for name in given if name not in call.names and name not in output_names]
    if unknown:
        raise InvalidValue(
            f"open dimensions of {unknown[0]!r}, which is no input", why=f"the inputs are {', '.join(call.names)}"
        )
    found = [_axes_of(name, tensor, given.get(name)) for name, tensor in zip(call.names, call.tensors)]
    many = len({name for axes in found for name in axes.values()})
    if many > MOST_NAMES:
        raise InvalidValue(f"{many} open dimensions", why=f"at most {MOST_NAMES} are told apart")
    return found


def _axes_of(input_name: str, tensor: Tensor, given: Any) -> dict[int, str]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        rows = list(given.items())
    elif all(isinstance(item, int) for item in given):
        rows = [(axis, f"{input_name}_dim_{axis}") for axis in given]
    else:
        rows = list(enumerate(given))
    found = {}
    for axis, name in rows:
        if not isinstance(axis, int) or not -tensor.ndim <= axis < tensor.ndim:
            raise InvalidValue(f"axis {axis!r} of {input_name!r} is none of its {tensor.ndim}")
        if name is not None:
            text = name if isinstance(name, str) else getattr(name, "__name__", None)
            if not isinstance(text, str) or not text.isidentifier():
                raise InvalidValue(f"{name!r} cannot be the name of a dimension of {input_name!r}", hint='"batch"')
            found[axis % tensor.ndim] = text
    return found


def _shapes(call: _Call, axes: Sequence[Mapping[int, str]]) -> dict[str, tuple[Dim, ...]]:
    return {
        name: tuple(named.get(axis, size) for axis, size in enumerate(tensor.shape))
        for name, tensor, named in zip(call.names, call.tensors, axes)
    }


def _dtypes(call: _Call) -> dict[str, Any]:
    return {name: as_dtype(tensor._array.dtype) for name, tensor in zip(call.names, call.tensors)}


# Traces.


def _traced(call: _Call, axes: Sequence[Mapping[int, str]]) -> tuple[Symbol, dict[str, Any], Mapping[str, str]]:
    sizes: dict[str, int] = {}
    for tensor, named in zip(call.tensors, axes):
        for axis, name in named.items():
            if sizes.setdefault(name, tensor.shape[axis]) != tensor.shape[axis]:
                raise InvalidValue(
                    f"the dimension {name!r} is {sizes[name]} in one example and {tensor.shape[axis]} in another"
                )
    if not sizes:
        return _trace(call, call.tensors)
    fixed = {size for tensor, named in zip(call.tensors, axes) for size in _others(tensor.shape, named)}
    fixed |= {size for _, tensor in ([] if call.module is None else _tensors_of(call.module)) for size in tensor.shape}
    first: Error | None = None
    for choice in (_larger, _smaller):  # a table of positions may end soon after the example
        threes = choice(sizes, fixed)
        points = [*corners_of({name: three[:2] for name, three in threes.items()})]
        points.append({name: three[2] for name, three in threes.items()})
        try:
            traces = [_trace(call, _at(call, axes, point)) for point in points]
        except Unsupported:
            raise
        except Error as error:
            first = first or error
            continue
        _add_odd(call, axes, threes, points, traces)
        symbol, params = open_graph(traces, points, _shapes(call, axes), _dtypes(call))
        return symbol, params, traces[0].lines
    assert first is not None
    raise first


def _others(shape: Sequence[int], named: Mapping[int, str]) -> list[int]:
    return [size for axis, size in enumerate(shape) if axis not in named]


def _add_odd(call: _Call, axes: Any, threes: Mapping[str, Any], points: list[Point], traces: list[Trace]) -> None:
    """One more point for each name, at no multiple: a function may refuse that size, but must not do otherwise."""
    for name, three in threes.items():
        point = {**points[0], name: max(three) + 1}
        try:
            traces.append(_trace(call, _at(call, axes, point)))
        except Error:
            continue
        points.append(point)


def _larger(sizes: Mapping[str, int], fixed: set[int]) -> dict[str, tuple[int, int, int]]:
    """Multiples of each size, as what is divided stays so, that no other dimension has: nothing is equal by chance."""
    taken = {0, 1, *fixed}
    return {name: _three(_multiples(size), taken) for name, size in sizes.items()}


def _smaller(sizes: Mapping[str, int], fixed: set[int]) -> dict[str, tuple[int, int, int]]:
    """Sizes up to that of the example, and then multiples."""
    taken = {0, 1}
    return {name: _three(chain(range(size, 1, -1), _multiples(size)), taken) for name, size in sizes.items()}


def _multiples(size: int) -> Iterator[int]:
    return count(max(size, 1), max(size, 1))


def _three(sizes: Iterator[int], taken: set[int]) -> tuple[int, int, int]:
    found: list[int] = []
    while len(found) < 3:
        size = next(sizes)
        if size not in taken:
            found.append(size)
            taken.add(size)
    return found[0], found[1], found[2]


def _at(call: _Call, axes: Sequence[Mapping[int, str]], point: Mapping[str, int]) -> list[Tensor]:
    """The examples at other sizes: their values, over and over."""
    made = []
    for tensor, named in zip(call.tensors, axes):
        shape = [point[named[axis]] if axis in named else size for axis, size in enumerate(tensor.shape)]
        made.append(wrap(np.resize(array_of(tensor), shape)))
    return made


def _trace(call: _Call, tensors: Sequence[Tensor]) -> Trace:
    recorder = _Exporting()
    symbol, params = symbol_of(call.function, tensors, call.names, call.module, recorder)
    return Trace(symbol, params, recorder.lines)

"""The graph of a model, from the calls that it makes when it is run on an example."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from ...eager.functions.around import Args, Kwargs, Rest, around_calls
from ...eager.tensor.tensor import Tensor
from .events import Message

_PRODUCER = 22  # the version of TensorFlow's graphs that this is


class GraphRecorder:
    """Makes a node of each call of a function, named by the modules it is called in."""

    def __init__(self, model: Any) -> None:
        self.nodes: list[Message] = []
        self._scopes = [type(model).__name__]
        self._sources: dict[int, str] = {}  # names of nodes, by the id of what they gave
        self._kept: list[Tensor] = []  # so that no other tensor has the id of one of them
        self._names: dict[str, int] = {}
        self._thread = threading.get_ident()
        self._calling = False
        for place, module in model.named_modules():
            values = (module.named_parameters, module.named_buffers)
            for name, value in (pair for named in values for pair in named(recurse=False)):
                self._add("/".join([self._scopes[0], *_path(model, place), name]), "Parameter", (), value)

    def layer(self, name: str, rest: Rest, args: Args, kwargs: Kwargs) -> Any:
        """A call, which is a node, while what it calls itself is none."""
        if self._calling or threading.get_ident() != self._thread:
            return rest(args, kwargs)
        self._calling = True
        try:
            result = rest(args, kwargs)
        finally:
            self._calling = False
        given = list(tensors_in(result))
        if given:
            sources = [self._source(tensor) for tensor in tensors_in((args, kwargs))]
            settings = [repr(each) for each in args if not [*tensors_in(each)]]
            settings += [f"{key}={each!r}" for key, each in kwargs.items() if not [*tensors_in(each)]]
            self._add(
                "/".join([*self._scopes, name.rpartition(".")[2]]), name, sources, *given, text=", ".join(settings)
            )
        return result

    @contextmanager
    def inside(self, model: Any) -> Iterator[None]:
        """While the modules of a model are called, their names stand before those of nodes."""
        with ExitStack() as stack:
            for place, module in model.named_modules():
                if place:
                    enter = partial(self._enter, _path(model, place)[-1])
                    for hook in module.register_forward_pre_hook(enter), module.register_forward_hook(self._leave):
                        stack.callback(hook.remove)
            stack.enter_context(around_calls(self.layer))
            yield

    def _enter(self, scope: str, module: Any, args: Args) -> None:
        self._scopes.append(scope)

    def _leave(self, module: Any, args: Args, result: Any) -> None:
        """Where a module made something by no call of a function, it is a node itself."""
        made = [tensor for tensor in tensors_in(result) if id(tensor) not in self._sources]
        if made:
            kind = type(module).__name__
            self._add("/".join([*self._scopes, kind]), kind, [self._source(each) for each in tensors_in(args)], *made)
        self._scopes.pop()

    def inputs(self, values: Any) -> None:
        """Makes nodes of what the model is given."""
        for tensor in tensors_in(values):
            self._add("input/input", "IO Node", (), tensor)

    def outputs(self, values: Any) -> None:
        """Makes nodes of what the model gave."""
        for tensor in tensors_in(values):
            self._add("output/output", "IO Node", [self._source(tensor)], tensor, gives=False)

    def _source(self, tensor: Tensor) -> str:
        """The node that a tensor comes from. What no call made is a view of another, or a constant."""
        name = self._sources.get(id(tensor))
        if name is None:
            viewed = self._sources.get(id(tensor._base))
            kind, sources = ("Constant", []) if viewed is None else ("View", [viewed])
            name = self._add("/".join([*self._scopes, kind.lower()]), kind, sources, tensor)
        return name

    def _add(
        self, name: str, kind: str, sources: Any, *given: Tensor, text: str | None = None, gives: bool = True
    ) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        name = name if count == 1 else f"{name}_{count - 1}"
        shapes = [{"dim": [{"size": size} for size in tensor.shape]} for tensor in given]
        attributes = [{"key": "_output_shapes", "value": {"list": {"shape": shapes}}}]
        attributes += [{"key": "attr", "value": {"s": text}}] if text else []
        self.nodes.append({"name": name, "op": kind, "input": list(sources), "attr": attributes})
        if gives:
            self._kept += given
            self._sources |= dict.fromkeys(map(id, given), name)
        return name


def graph_of(model: Any, example: Any) -> Message:
    """The graph of a module, which is run once on an input, or on a tuple or list of them, as it is when it does not
    train."""
    recorder = GraphRecorder(model)
    training = [(module, module.training) for module in model.modules()]
    args = tuple(example) if isinstance(example, tuple | list) else (example,)
    recorder.inputs(args)
    try:
        model.eval()
        with recorder.inside(model):
            result = model(*args)
    finally:
        for module, mode in training:
            module.training = mode
    recorder.outputs(result)
    return {"node": recorder.nodes, "versions": {"producer": _PRODUCER}}


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of an argument or a result, also those in lists, tuples and dicts."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, list | tuple):
            left += reversed(each)
        elif isinstance(each, dict):
            left += reversed(each.values())


def _path(model: Any, place: str) -> list[str]:
    """What stands for a module of a model: a class and a name for it and each that it is in."""
    parts = place.split(".") if place else []
    inner = [model.get_submodule(".".join(parts[: at + 1])) for at in range(len(parts))]
    return [f"{type(module).__name__}[{part}]" for module, part in zip(inner, parts)]

"""A compiled graph with inputs that stay: `create`, then set_input, run, get_output.

Variables that the graph writes to keep what was written from one run to the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..base.device import Device, cpu
from ..base.errors import Error, InvalidType, InvalidValue, NotFound, OutOfRange, RunError, Unsupported
from ..base.forks import renewed_lock
from ..base.ndarray import NDArray, array, empty
from ..base.param_dict import load_param_dict
from .artifact import load_program, save_program
from .graph_text import DescribedGraph, check_belongs, description
from .loading import load_executor
from .program import Program, described, listed


class CompiledLibrary:
    """The machine code of a graph, which `create` loads; it can be kept in a file.

    `params` are values that the inputs of a new module start with.
    """

    def __init__(self, program: Program, params: Mapping[str, NDArray] | None = None) -> None:
        self.program = program
        self.params = dict(params or {})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the code as one file. Parameters are not in it: `save_param_dict` writes those."""
        save_program(self.program, path)

    export_library = save  # the name that TVM gave it

    def __repr__(self) -> str:
        return f"CompiledLibrary({described(self.program)})"


def load_library(path: str | os.PathLike[str]) -> CompiledLibrary:
    """A library that `CompiledLibrary.save` wrote; it holds machine code, so it must be trusted."""
    return CompiledLibrary(load_program(path))


def create(
    graph: DescribedGraph | str | bytes, lib: CompiledLibrary, ctx: Device | None = None, threads: int | None = None
) -> GraphModule:
    """A module that runs what `weft.compiler.build` made; the graph may come as its JSON.

    Its inputs start with the parameters that the build was given. A library from a file has none.
    """
    if not isinstance(lib, CompiledLibrary):
        raise InvalidType(f"lib is a {type(lib).__name__}", hint="pass what weft.compiler.build gave")
    if ctx is not None and not isinstance(ctx, Device):
        raise InvalidType(f"ctx is a {type(ctx).__name__}", hint="weft.cpu(0)")
    check_belongs(description(graph), lib.program)
    return GraphModule(lib.program, ctx or cpu(), threads, lib.params)


class GraphModule:
    """Inputs are set one by one and stay; a run makes new outputs."""

    def __init__(
        self, program: Program, device: Device, threads: int | None = None, params: Mapping[str, Any] | None = None
    ) -> None:
        if program.open_sizes:
            raise Unsupported(
                "a program whose sizes are open makes no graph module",
                why=f"a module has memory for its inputs from the beginning, and they are {listed(program.inputs)}",
                hint="weft.runtime.load(path).run({...}) runs it at any sizes; weft.compiler.build(shape={...}) makes "
                "a library for one",
            )
        self.program = program
        self.device = device
        self._executor = load_executor(program, threads)
        self._inputs = {spec.name: _zeros(spec.extents, spec.dtype) for spec in program.inputs}
        self._unset = dict.fromkeys(self._inputs)
        self._outputs: list[NDArray] = []
        self._lock = renewed_lock()  # held while functions of the user run
        for name, value in (params or {}).items():
            self._set(name, value)

    def __repr__(self) -> str:
        return f"GraphModule({described(self.program)}; on {self.device})"

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Copies a value into an input, by name or position; and others by keyword."""
        if key is not None:
            self._set(self._name(key), value)
        for name, given in params.items():
            self._set(self._name(name), given)

    def _set(self, name: str, value: Any) -> None:
        try:
            with self._lock:
                self._inputs[name].copyfrom(value)
                self._unset.pop(name, None)
        except Error as error:
            spec = next(spec for spec in self.program.inputs if spec.name == name)
            error.at(f"input {name!r}, expected {spec}")
            raise

    def _name(self, key: str | int) -> str:
        names = list(self._inputs)
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            if not 0 <= key < len(names):
                raise OutOfRange(f"input {key} of {len(names)}")
            return names[key]
        if key not in self._inputs:
            raise NotFound(
                f"the graph has no input {key!r}", why="its inputs: " + ", ".join(map(str, self.program.inputs))
            )
        return key

    def run(self, **inputs: Any) -> None:
        """Sets inputs by name, then runs; each input must have been set once."""
        self.set_input(**inputs)
        if self._unset:
            raise self._missing()
        outputs = [empty(spec.extents, spec.dtype) for spec in self.program.outputs]
        with self._lock:
            given = [self._inputs[spec.name].numpy() for spec in self.program.inputs]
            self._executor.run_into(given, [output.numpy() for output in outputs])
            self._outputs = outputs

    def _missing(self) -> RunError:
        names = list(self._unset)
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        return RunError(
            f"{len(names)} inputs have no value: {shown}",
            why="a graph runs when each of its inputs has been set once",
            hint="set_input(**params), with the parameters that build gave, and set the others",
        )

    def get_input(self, key: str | int, out: NDArray | None = None) -> NDArray:
        """A copy of what an input holds, in `out` if it is given."""
        with self._lock:
            return _handed_out(self._inputs[self._name(key)], out)

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """An output of the last run, copied into `out` if it is given."""
        if not self._outputs and self.program.outputs:
            raise InvalidValue("there are no outputs yet", hint="run() first")
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise InvalidType(f"outputs are numbered, so {index!r} finds none")
        if not 0 <= index < len(self._outputs):
            raise OutOfRange(f"output {index} of {len(self._outputs)}")
        found = self._outputs[index]
        return found if out is None else _handed_out(found, out)

    def get_num_outputs(self) -> int:
        return len(self.program.outputs)

    def get_num_inputs(self) -> int:
        return len(self.program.inputs)

    def load_params(self, data: bytes | bytearray) -> None:
        """Sets inputs from bytes of `save_param_dict`; names that are no inputs are passed over."""
        for name, value in load_param_dict(data).items():
            if name in self._inputs:
                self._set(name, value)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """A method by name, as TVM's modules give them: m["set_input"]("x", value)."""
        if name not in _METHODS:
            raise NotFound(f"no function {name!r}", why="there are " + ", ".join(_METHODS))
        method: Callable[..., Any] = getattr(self, name)
        return method


_METHODS = "set_input run get_input get_output get_num_outputs get_num_inputs load_params".split()


def _zeros(shape: tuple[int, ...], dtype: Any) -> NDArray:
    made = empty(shape, dtype)
    made.numpy().fill(0)
    return made


def _handed_out(value: NDArray, out: NDArray | None) -> NDArray:
    return array(value) if out is None else value.copyto(out)

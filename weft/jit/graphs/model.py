"""Functions and modules of programs as models: a symbol, and the parameters that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base.errors import InvalidType, InvalidValue
from ...core.symbol import Symbol
from ...eager.tensor.tensor import Tensor
from ...nn.modules.module import Module
from ..compile.plan import Array
from ..compile.structure import built, flattened
from ..compile.tracing import symbol_of


def model_of(
    program: Callable[..., Any], example_inputs: Any, names: Sequence[str], module: Module | None = None
) -> tuple[Symbol, dict[str, Array]]:
    """A program as a symbol, for inputs of the shapes and dtypes of examples; what is no tensor there is part of it."""
    if not isinstance(example_inputs, (Tensor, tuple, list)):
        raise InvalidType(f"example inputs are a tensor or a tuple, not {type(example_inputs).__name__}")
    given = (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    tensors: list[Tensor] = []
    structure = flattened(given, tensors)
    if len({id(tensor) for tensor in tensors}) != len(tensors):
        raise InvalidValue("an example input is given twice", hint="clone() it, so that both are inputs")

    def function(*inputs: Tensor) -> Any:
        return program(*built(structure, inputs))

    return symbol_of(function, tensors, names, module)

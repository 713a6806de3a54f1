"""Archives of TorchScript: programs that are run on tensors as they are, or that become a graph of weft's for inputs of
certain shapes and dtypes. An archive tells no shapes, so arrays or shapes are given for all that is a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import as_dtype
from ..base.errors import Error, NotFound, OpenShapes
from ..base.shape import Dim, is_static
from ..compiler.model import InputSpec
from ..core.symbol import Symbol
from ..eager.autograd.modes import no_grad
from ..eager.functions.create.data import from_numpy
from ..jit.archive.load import load
from ..jit.modules import ScriptModule
from ..runtime.program import Array
from .inputs import ALONE, Picture, not_alone, random_array

Shapes = Mapping[str, Sequence[Dim]]
LIKELY_SIDES = (224, 299, 256, 128, 96, 64, 48, 32, 28, 16, 8)  # of pictures


def load_script(path: Path) -> ScriptModule:
    """The module of an archive, for inference."""
    module: ScriptModule = load(path)
    module.eval()
    return module


def argument_names(module: ScriptModule) -> list[str]:
    """What its forward takes."""
    return [argument.name for argument in module.forward.schema.arguments[1:]]


def script_arrays(names: Sequence[str], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays by name, pictures as they are; without those that are to be drawn."""
    if ALONE in inputs:
        if len(names) != 1:
            raise not_alone(names)
        inputs = {names[0]: inputs[ALONE]}
    _check_names(names, inputs)
    picture = InputSpec("", ("n", "c", "h", "w"), None)
    return {
        name: value.fitted(picture) if isinstance(value, Picture) else np.asarray(value)
        for name, value in inputs.items()
        if not isinstance(value, str)  # the word random
    }


def complete_arrays(names: Sequence[str], arrays: Mapping[str, Array], shape: Shapes, seed: int) -> dict[str, Array]:
    """An array for each name in order, random ones of the shapes that are given where there is none."""
    _check_names(names, shape)
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name in names:
        dims = tuple(shape.get(name, (None,)))
        if name in arrays:
            made[name] = arrays[name]
        elif is_static(dims):
            made[name] = random_array(rng, InputSpec(name, dims, as_dtype("float32")))
        else:
            raise OpenShapes(
                f"the shape of {name!r} is not known",
                why="a TorchScript archive tells none",
                hint=f"--input {name}=FILE, or --shape {name}=1,3,224,224 for random numbers",
            )
    return made


def likely_script_shapes(path: Path, arrays: Mapping[str, Array], shape: Shapes) -> dict[str, tuple[int, ...]]:
    """A shape for the only input of a program, where nobody says one: its first weights tell channels or features, and
    the program itself which size of pictures it takes."""
    module = load_script(path)
    names = argument_names(module)
    weights = [value for value in module.parameters() if value.ndim > 1]
    if len(names) != 1 or names[0] in arrays or names[0] in shape or not weights:
        return {}
    features, axes = weights[0].shape[1], weights[0].ndim - 2
    for side in LIKELY_SIDES if axes else (0,):
        dims = (1, features, *[side] * axes)
        try:
            with no_grad():
                module(from_numpy(np.zeros(dims, "float32")))
        except (Error, RuntimeError):
            continue
        return {names[0]: dims}
    return {}


def _check_names(names: Sequence[str], given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in names:
            raise NotFound(f"the program has no input {name!r}", why="its inputs: " + ", ".join(names))


class ReadScript(NamedTuple):
    """A program as a graph with its parameters, and arrays like those that it was read for."""

    model: tuple[Symbol, dict[str, Array]]
    examples: dict[str, Array]


def read_script(path: Path, arrays: Mapping[str, Array], shape: Shapes) -> ReadScript:
    """The program as a graph, for inputs like these arrays, or of these shapes."""
    module = load_script(path)
    names = argument_names(module)
    examples = complete_arrays(names, script_arrays(names, arrays), shape, 0)
    with no_grad():
        model = module.model(tuple(from_numpy(example) for example in examples.values()), names)
    return ReadScript(model, examples)

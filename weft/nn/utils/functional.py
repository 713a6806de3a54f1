"""Modules as functions of their parameters: calls with parameters in several dictionaries, and those of many modules
in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...base.errors import InvalidValue, RunError
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.tensor import Tensor
from ..modules.module import Module
from . import stateless

__all__ = ["functional_call", "stack_module_state"]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a module with the tensors of one dictionary, or of several with different keys, in the places of its own.

    >>> import weft
    >>> from weft import nn
    >>> layer = nn.Sequential()
    >>> functional_call(layer, ({}, {}), weft.ones(2))
    tensor([1., 1.])
    """
    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        given = _merged(given)
    return stateless.functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def _merged(given: Any) -> dict[str, Tensor]:
    if not isinstance(given, (list, tuple)):
        raise InvalidValue(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}"
        )
    if not all(isinstance(part, dict) for part in given):
        raise InvalidValue("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    repeated = [key for key, count in Counter(key for part in given for key in part).items() if count > 1]
    if repeated:
        raise InvalidValue(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
    return {key: value for part in given for key, value in part.items()}


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of modules that are alike, each stacked along a new first dimension."""
    if not models:
        raise RunError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RunError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise RunError("stack_module_state: Expected all models to be of the same class.")
    parameters = _stacked([dict(model.named_parameters()) for model in models])
    buffers = _stacked([dict(model.named_buffers()) for model in models])
    return parameters, buffers


def _stacked(states: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """Leaves, which require gradients where all do that they are made of."""
    made = {}
    for key in states[0]:
        tensors = [state[key] for state in states]
        if len({tensor.requires_grad for tensor in tensors}) > 1:
            raise RunError(
                f"Expected {key} from each model to have the same .requires_grad",
                hint="set it alike with requires_grad_",
            )
        stacked: Tensor = FUNCTIONS["weft"]["stack"]([tensor.detach() for tensor in tensors])
        made[key] = stacked.requires_grad_(tensors[0].requires_grad)
    return made

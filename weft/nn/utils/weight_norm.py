"""A weight as a length and a direction, by a hook before each forward pass: w = g v / |v|."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from ...base.errors import InvalidValue, RunError
from ...eager.functions.reduce.norms import norm_except_dim
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from ..modules.module import Module

__all__ = ["remove_weight_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


class WeightNorm:
    """The hook: makes the weight of its length `name_g` and its direction `name_v`."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        length: Tensor = getattr(module, f"{self.name}_g")
        direction: Tensor = getattr(module, f"{self.name}_v")
        result: Tensor = direction * (length / norm_except_dim(direction, 2, self.dim))
        return result

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def _hook_of(module: Module, name: str) -> tuple[Any, WeightNorm | None]:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            return key, hook
    return None, None


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Trains the lengths of the slices of a parameter along `dim`, or its length (None), apart from its direction:
    the parameter `name` becomes `name_g` and `name_v`. Gives the module.

    >>> import warnings, weft
    >>> with warnings.catch_warnings(action="ignore"):
    ...     layer = weight_norm(weft.nn.Linear(3, 2))
    >>> {name: tuple(value.shape) for name, value in layer.named_parameters()}
    {'bias': (2,), 'weight_g': (2, 1), 'weight_v': (2, 3)}
    """
    message = "`nn.utils.weight_norm` is deprecated in favor of `nn.utils.parametrizations.weight_norm`."
    warnings.warn(message, FutureWarning, stacklevel=2)
    if _hook_of(module, name)[1] is not None:
        raise RunError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook, weight = WeightNorm(name, dim), getattr(module, name)
    length = norm_except_dim(weight, 2, hook.dim)
    del module._parameters[name]
    module.register_parameter(f"{name}_g", Parameter(length.detach()))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    hook(module, ())
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Makes the weight one parameter again."""
    key, hook = _hook_of(module, name)
    if hook is None:
        raise InvalidValue(f"weight_norm of {name!r} not found in {module}")
    weight = hook.compute_weight(module)
    delattr(module, name)
    del module._parameters[f"{name}_g"], module._parameters[f"{name}_v"], module._forward_pre_hooks[key]
    setattr(module, name, Parameter(weight.detach()))
    return module

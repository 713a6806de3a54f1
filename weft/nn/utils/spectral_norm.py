"""A weight divided by its greatest singular value, by a hook before each forward pass."""

from __future__ import annotations

from typing import Any, TypeVar

from ...base.errors import InvalidValue, NotFound, RunError
from ...eager.autograd.modes import no_grad
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from .. import functional as F
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module

__all__ = ["remove_spectral_norm", "spectral_norm"]

M = TypeVar("M", bound=Module)
_normalised: Any = F.normalize


class SpectralNorm:
    """The hook: w = w_orig / (u' W v), where power iterations bring u and v near the first singular vectors of W."""

    _version = 1  # of what it keeps in a state

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise InvalidValue(f"Expected n_power_iterations to be positive, but got {n_power_iterations=}")
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def matrix_of(self, weight: Tensor) -> Tensor:
        """A row for each slice along `dim`."""
        rows: Tensor = weight.movedim(self.dim, 0)
        result: Tensor = rows.reshape(rows.shape[0], -1)
        return result

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = self.matrix_of(weight)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(_normalised(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(_normalised(matrix.mv(v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()  # the next pass changes the buffers, and this one's gradient needs these
        result: Tensor = weight / u.dot(matrix.mv(v))
        return result

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))


class SpectralNormStateDictHook:
    """Writes the version of a hook to a state."""

    def __init__(self, hook: SpectralNorm) -> None:
        self.hook = hook

    def __call__(self, module: Module, state: Any, prefix: str, metadata: dict[str, Any]) -> None:
        metadata.setdefault("spectral_norm", {})[f"{self.hook.name}.version"] = self.hook._version


def _hook_of(hooks: Any, name: str) -> tuple[Any, Any]:
    for key, hook in hooks.items():
        inner = getattr(hook, "hook", hook)
        if isinstance(inner, SpectralNorm) and inner.name == name:
            return key, hook
    return None, None


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divides a parameter by the greatest singular value of the matrix whose rows are its slices along `dim` (the
    outputs of a layer, if it is None): the parameter becomes `name_orig`, with buffers `name_u` and `name_v`. Each
    forward pass in training brings them nearer the singular vectors. Gives the module.

    >>> import weft
    >>> layer = spectral_norm(weft.nn.Linear(3, 2), n_power_iterations=50)
    >>> _ = layer(weft.ones(3))
    >>> bool((weft.linalg.svdvals(layer.weight)[0] - 1).abs() < 1e-4)
    True
    """
    if _hook_of(module._forward_pre_hooks, name)[1] is not None:
        raise RunError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    weight = module._parameters.get(name)
    if weight is None:
        raise NotFound(f"{module} has no parameter {name!r}")
    if dim is None:
        dim = int(isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    with no_grad():
        sizes = hook.matrix_of(weight).shape
        u, v = (_normalised(weight.new_empty(size).normal_(0, 1), dim=0, eps=eps) for size in sizes)
    del module._parameters[name]
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    module.register_forward_pre_hook(hook)
    module._register_state_dict_hook(SpectralNormStateDictHook(hook))
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Makes the divided weight a parameter again."""
    key, hook = _hook_of(module._forward_pre_hooks, name)
    if hook is None:
        raise InvalidValue(f"spectral_norm of {name!r} not found in {module}")
    with no_grad():
        weight = hook.compute_weight(module, do_power_iteration=False)
    delattr(module, name)
    del module._parameters[f"{name}_orig"], module._buffers[f"{name}_u"], module._buffers[f"{name}_v"]
    module.register_parameter(name, Parameter(weight.detach()))
    del module._forward_pre_hooks[key]
    del module._state_dict_hooks[_hook_of(module._state_dict_hooks, name)[0]]
    return module

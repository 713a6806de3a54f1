"""Modules that learn the sizes of their parameters from the first input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...base.errors import RunError, Unsupported
from ...eager.autograd.hooks import RemovableHandle
from ...eager.autograd.modes import no_grad
from ...eager.tensor.parameter import is_lazy
from ...eager.tensor.tensor import Tensor
from .module import Module
from .state import own_tensors

__all__ = ["LazyModuleMixin"]

if TYPE_CHECKING:
    _Base = Module  # what it stands before is one
else:
    _Base = object


class LazyModuleMixin(_Base):
    """Stands before a class of modules: `class LazyScale(LazyModuleMixin, Scale)`. Such a class makes
    UninitializedParameters in `__init__` and gives them sizes in `initialize_parameters(*args)`, which is called with
    the first inputs. From then on the module is of the class `cls_to_become`.

    >>> import weft
    >>> from weft import nn
    >>> class Scale(nn.Module):
    ...     def __init__(self, size):
    ...         super().__init__()
    ...         self.weight = nn.Parameter(weft.ones(size))
    ...
    ...     def forward(self, x):
    ...         return x * self.weight
    >>> class LazyScale(LazyModuleMixin, Scale):
    ...     cls_to_become = Scale
    ...
    ...     def __init__(self):
    ...         super().__init__(0)
    ...         self.weight = nn.UninitializedParameter()
    ...
    ...     def initialize_parameters(self, x):
    ...         self.weight.materialize(x.shape[-1:])
    ...         nn.Module.apply(self, lambda m: m.weight.data.fill_(2.0))
    >>> scale = LazyScale()
    >>> scale(weft.ones(3)).tolist(), scale
    ([2.0, 2.0, 2.0], Scale())
    """

    cls_to_become: type[Module] | None = None
    _load_hook: RemovableHandle
    _initialize_hook: RemovableHandle

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives parameters their sizes, which follow from the arguments of the first call."""
        raise Unsupported(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer has no size yet."""
        return any(is_lazy(tensor) for _, tensor in self._own_lazily())

    def _own_lazily(self) -> Iterator[tuple[str, Any]]:
        yield from self._parameters.items()
        yield from self._buffers.items()

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """What has no size yet is saved as it is."""
        for name, tensor in own_tensors(self).items():
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()

    def _lazy_load_hook(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Gives parameters the sizes that a state has for them."""
        for name, tensor in self._own_lazily():
            source = state_dict.get(prefix + name)
            if is_lazy(tensor) and isinstance(source, Tensor) and not is_lazy(source):
                with no_grad():
                    tensor.materialize(source.shape)

    def _infer_parameters(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """Runs before the first forward, and never again."""
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RunError(f"module {module._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> Any:
        raise RunError(
            "Modules with uninitialized parameters can't be used with `DataParallel`.",
            hint="run it once on an input first",
        )

"""Parametrisations: a parameter or buffer of a module that is computed from others whenever it is read."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ...base.errors import InvalidValue, RunError
from ...eager.autograd.modes import no_grad
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


class _Cache(threading.local):
    """What parametrised tensors are inside `with cached():`, by module and name."""

    depth = 0

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], Tensor] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Inside the block, a parametrised tensor is computed once, or once after it was set."""
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values.clear()


def _set_part(module: Module, name: str, tensor: Tensor) -> None:
    """Makes a tensor a parameter or a buffer, as it is one."""
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _replace(target: Tensor, value: Tensor) -> None:
    """Gives a tensor, which stays the object that it is, another's elements; its size may change."""
    if target is not value:
        target.data = value.detach()


class ParametrizationList(ModuleList):
    """The modules that compute one tensor, one after another, and what the first is called with: `original`, or
    `original0`, `original1`, ... where its `right_inverse` gives several tensors."""

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise InvalidValue("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, kind = original.shape, original.dtype
        with no_grad():
            inverse: Any = original
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):  # what cannot be assigned to starts at the tensor as it is
                        inverse = module.right_inverse(inverse)
        self.is_tensor = isinstance(inverse, Tensor)
        if isinstance(inverse, Tensor):
            self.ntensors = 1
            self._take_one(original, inverse)
        elif isinstance(inverse, Sequence):
            self.ntensors = len(inverse)
            self._take_several(original, inverse)
        else:
            raise InvalidValue(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(inverse).__name__}"
            )
        if not unsafe:
            _check_result(self(), shape, kind, "Registering a parametrization may not change the")

    def _take_one(self, original: Tensor, inverse: Tensor) -> None:
        if original.dtype != inverse.dtype:
            raise InvalidValue(
                "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {inverse.dtype}"
            )
        _replace(original, inverse)
        _set_part(self, "original", original)

    def _take_several(self, original: Tensor, inverse: Sequence[Any]) -> None:
        for number, tensor in enumerate(inverse):
            if not isinstance(tensor, Tensor):
                raise InvalidValue(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                    f"Got element {number} of the sequence with type {type(tensor).__name__}."
                )
            part = Parameter(tensor, original.requires_grad) if isinstance(original, Parameter) else tensor
            _set_part(self, f"original{number}", part.requires_grad_(original.requires_grad))

    def _originals(self) -> list[Tensor]:
        names = ["original"] if self.is_tensor else [f"original{number}" for number in range(self.ntensors)]
        return [getattr(self, name) for name in names]

    def right_inverse(self, value: Any) -> None:
        """Sets the originals so that the tensor becomes a value, by the right inverses of the modules."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RunError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            originals = self._originals()
            if self.is_tensor:
                value = [value]
            elif not isinstance(value, Sequence) or isinstance(value, Tensor):
                raise InvalidValue(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
            if len(value) != len(originals):
                raise InvalidValue(
                    f"'right_inverse' must return a sequence of tensors of length {len(originals)}. "
                    f"Got a sequence of length {len(value)}."
                )
            for tensor, original in zip(value, originals):
                if not isinstance(tensor, Tensor):
                    raise InvalidValue(f"`right_inverse` should return a tensor. Got {type(tensor).__name__}")
                if tensor.dtype != original.dtype:
                    raise InvalidValue(
                        f"The tensor returned by `right_inverse` has dtype {tensor.dtype} while `original` has dtype "
                        f"{original.dtype}"
                    )
            for tensor, original in zip(value, originals):
                _replace(original, tensor)

    def forward(self) -> Any:
        modules = iter(self)
        value = next(modules)(*self._originals())
        for module in modules:
            value = module(value)
        return value


def _check_result(value: Any, shape: Any, kind: Any, what: str) -> None:
    """A parametrised tensor has the shape and dtype that the tensor had."""
    if not isinstance(value, Tensor):
        raise InvalidValue(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    for name, before, after in (("dtype", kind, value.dtype), ("shape", shape, value.shape)):
        if before != after:
            raise InvalidValue(
                f"{what} {name} of the tensor, unless `unsafe` flag is enabled.\n"
                f"unparametrized {name}: {before}\nparametrized {name}: {after}"
            )


# The class of a module some of whose tensors are computed.


def _computed(name: str) -> property:
    """An attribute that is computed by the parametrisations of a name."""

    def value(self: Module) -> Tensor:
        made: Tensor
        if not _cache.depth:
            made = self.parametrizations[name]()
            return made
        key = id(self), name
        if key not in _cache.values:
            _cache.values[key] = self.parametrizations[name]()
        return _cache.values[key]

    def set_value(self: Module, value: Any) -> None:
        _cache.values.pop((id(self), name), None)
        self.parametrizations[name].right_inverse(value)

    return property(value, set_value)


def _parametrized_class(base: type[Module], names: Sequence[str]) -> type[Module]:
    """A class of modules that compute the tensors of some names."""
    methods = {"__deepcopy__": _deepcopied, "__reduce_ex__": _reduced, "__module__": __name__}
    return type(f"Parametrized{base.__name__}", (base,), methods | {name: _computed(name) for name in names})


def _deepcopied(self: Module, memo: dict[int, Any]) -> Module:
    twin = memo[id(self)] = type(self).__new__(type(self))
    twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return twin


def _reduced(self: Module, protocol: Any) -> tuple[Any, ...]:
    return _again, (type_before_parametrizations(self), tuple(self.parametrizations)), self.__dict__.copy()


def _again(base: type[Module], names: Sequence[str]) -> Module:
    """A module that pickle fills with what `_reduced` took out of it."""
    made = _parametrized_class(base, names)
    return made.__new__(made)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Has a tensor of a module computed by another module from now on, from what the tensor was.

    If the parametrisation has a method `right_inverse`, the tensor can be assigned to, and keeps its value. `unsafe`
    allows it to change shape and dtype.

    >>> import weft
    >>> from weft import nn
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).mT
    >>> layer = register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    >>> weft.equal(layer.weight, layer.weight.mT)
    True
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'parametrizations.weight.original']
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        parametrizations = module.parametrizations[tensor_name]
        if not unsafe:
            _check_fits(parametrization, getattr(module, tensor_name))
        parametrizations.append(parametrization)
        parametrizations.unsafe |= unsafe
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            module.__class__ = _parametrized_class(type(module), [])
            module.parametrizations = ModuleDict()
        setattr(type(module), tensor_name, _computed(tensor_name))
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise InvalidValue(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def _check_fits(parametrization: Any, tensor: Tensor) -> None:
    """One more parametrisation, and its inverse, keep shape and dtype."""
    value = parametrization(tensor)
    _check_result(value, tensor.shape, tensor.dtype, "Registering a parametrization may not change the")
    with suppress(NotImplementedError):
        inverse = parametrization.right_inverse(value) if hasattr(parametrization, "right_inverse") else tensor
        if not isinstance(inverse, Tensor):
            raise InvalidValue(f"parametrization.right_inverse must return a tensor. Got: {type(inverse).__name__}")
        _check_result(inverse, tensor.shape, tensor.dtype, "parametrization.right_inverse may not change the")


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether tensors of a module are computed, or the one of a name."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes a computed tensor one of the module's own again: with the value that it has, or that of the original."""
    if not is_parametrized(module, tensor_name):
        raise InvalidValue(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    with no_grad():
        value = getattr(module, tensor_name)
    if parametrizations.is_tensor:
        tensor = parametrizations.original
        if leave_parametrized:
            _replace(tensor, value)
    elif leave_parametrized:
        trained = any(original.requires_grad for original in parametrizations._originals())
        tensor = Parameter(value) if trained else value
    else:
        raise InvalidValue(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _set_part(module, tensor_name, tensor)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type[Module]:
    """The class that a module had before tensors of it were computed."""
    found: type[Module] = type(module).__bases__[0] if is_parametrized(module) else type(module)
    return found


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Gives a module the parametrisations of another, and the tensors that those compute from."""
    if not is_parametrized(from_module):
        return to_module
    for name in from_module.parametrizations if tensor_name is None else [tensor_name]:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        for part in [part for part in (*source._parameters, *source._buffers) if part.startswith("original")]:
            setattr(target, part, getattr(source, part))
    return to_module

"""The state of modules: parameters and persistent buffers by path, out of a module and into one."""

from __future__ import annotations

import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...base.errors import InvalidType, RunError
from ...eager.autograd.modes import no_grad
from ...eager.tensor.parameter import Parameter, is_lazy
from ...eager.tensor.tensor import Tensor

if TYPE_CHECKING:
    from .module import Module

EXTRA = "_extra_state"  # the last part of the key of what get_extra_state gives


class _IncompatibleKeys(namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The keys that a state lacks, and those that the module has no place for."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class WithModule:
    """A hook that gets its module first; it does not keep the module alive."""

    def __init__(self, hook: Callable[..., Any], module: Module) -> None:
        self.hook, self.module = hook, weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self.module()
        if module is None:
            raise RunError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {"hook": self.hook, "module": self.module()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.hook, self.module = state["hook"], weakref.ref(state["module"])


def visits(root: Module, method: str | None, prefix: str = "", once: bool = False) -> Iterator[tuple[Module, str, str]]:
    """A module and all below it with their paths: each when it is "entered" and, after all below it, when it is
    "left"; or "closed", if its class has a method of its own, which then stands for all below it as well. Where
    `once`, a module has each child once."""
    inside: set[int] = set()
    left: list[tuple[Module, str, bool]] = [(root, prefix, False)]
    while left:
        module, path, is_done = left.pop()
        if is_done:
            inside.discard(id(module))
            yield module, path, "left"
        elif method is not None and module is not root and module._overrides(method):
            yield module, path, "closed"
        elif id(module) in inside:
            raise RunError("a module is below itself", where=path.removesuffix("."), hint="keep it in a list or tuple")
        else:
            inside.add(id(module))
            yield module, path, "entered"
            left.append((module, path, True))
            below = module.named_children() if once else module._modules.items()
            left += [(child, f"{path}{name}.", False) for name, child in reversed(list(below)) if child is not None]


def children_first(root: Module, method: str) -> Iterator[tuple[Module, bool]]:
    """A module and all below it, each after its children, and whether its own method stands for all below it."""
    for module, _, step in visits(root, method, once=True):
        if step != "entered":
            yield module, step == "closed"


# Out.


def collected(root: Module, destination: Any, prefix: str, keep_vars: bool) -> Any:
    """The state of a module and all below it."""
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    result, metadata = destination, dict[str, dict[str, Any]]()
    for module, path, step in visits(root, "state_dict", prefix):
        if step == "closed":
            module.state_dict(destination=destination, prefix=path, keep_vars=keep_vars)
        elif step == "left":
            result = _after_saving(module, destination, path, metadata[path])
        else:
            metadata[path] = {"version": module._version}
            if hasattr(destination, "_metadata"):
                destination._metadata[path[:-1]] = metadata[path]
            for hook in module._state_dict_pre_hooks.values():
                hook(module, path, keep_vars)
            module._save_to_state_dict(destination, path, keep_vars)
    return result


def _after_saving(module: Module, destination: Any, prefix: str, metadata: dict[str, Any]) -> Any:
    """Runs the hooks of one module; the state, or what a hook of the private kind made of it."""
    result = destination
    for hook in module._state_dict_hooks.values():
        changed = hook(module, result, prefix, metadata)
        if changed is None:
            continue
        if getattr(hook, "_from_public_api", False):
            raise RunError("state_dict post-hook must return None")
        result = changed
    return result


def save_own(module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """A module's own parameters, persistent buffers and extra state."""
    for name, tensor in own_tensors(module).items():
        if tensor is not None:
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
    if module._overrides("get_extra_state"):
        destination[prefix + EXTRA] = module.get_extra_state()


def own_tensors(module: Module) -> dict[str, Tensor | None]:
    """A module's own parameters and persistent buffers, by name."""
    buffers = {
        name: buffer for name, buffer in module._buffers.items() if name not in module._non_persistent_buffers_set
    }
    return {**module._parameters, **buffers}


# In.


def loaded(root: Module, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> _IncompatibleKeys:
    """Takes a state; what does not fit is told at once, in one error."""
    if not isinstance(state_dict, Mapping):
        raise InvalidType(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    keys = _IncompatibleKeys([], [])
    errors: list[str] = []
    metadata = getattr(state_dict, "_metadata", None) or {}
    _load_all(root, OrderedDict(state_dict), metadata, assign, keys, errors)
    if strict and keys.unexpected_keys:
        errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(keys.unexpected_keys)}. ")
    if strict and keys.missing_keys:
        errors.insert(0, f"Missing key(s) in state_dict: {_quoted(keys.missing_keys)}. ")
    if errors:
        joined = "\n\t".join(errors)
        raise RunError(f"Error(s) in loading state_dict for {type(root).__name__}:\n\t{joined}")
    return keys


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def _load_all(
    root: Module, state: Any, metadata: Mapping[str, Any], assign: bool, keys: _IncompatibleKeys, errors: list[str]
) -> None:
    parts = {"": state}  # what a module takes its state from: hooks of the one above it may have changed it
    for module, path, step in visits(root, None):
        if step == "left":
            _after_loading(module, keys)
            continue
        local = dict(metadata.get(path[:-1], {}))
        if assign:
            local["assign_to_params_buffers"] = assign
        own = parts.pop(path)
        module._load_from_state_dict(own, path, local, True, keys.missing_keys, keys.unexpected_keys, errors)
        for below in [f"{path}{name}." for name, child in module._modules.items() if child is not None]:
            parts[below] = OrderedDict((key, value) for key, value in own.items() if key.startswith(below))


def _after_loading(module: Module, keys: _IncompatibleKeys) -> None:
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, keys) is not None:
            raise RunError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                "values, if incompatible_keys need to be modified, it should be done inplace."
            )


def load_own(
    module: Module,
    state_dict: dict[str, Any],
    prefix: str,
    local_metadata: dict[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """Takes a module's own parameters, persistent buffers and extra state."""
    for hook in module._load_state_dict_pre_hooks.values():
        hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
    own = {name: tensor for name, tensor in own_tensors(module).items() if tensor is not None}
    assign = local_metadata.get("assign_to_params_buffers", False)
    for name, tensor in own.items():
        key = prefix + name
        if key in state_dict:
            error = _taken(module, name, tensor, key, state_dict[key], assign)
            error_msgs += [error] if error else []
        elif strict:
            missing_keys.append(key)
    has_extra = module._overrides("set_extra_state")
    if has_extra and prefix + EXTRA in state_dict:
        module.set_extra_state(state_dict[prefix + EXTRA])
    elif has_extra and strict:
        missing_keys.append(prefix + EXTRA)
    if strict:
        unexpected_keys += _unexpected(module, state_dict, prefix, own, has_extra)


def _unexpected(module: Module, state: Any, prefix: str, own: Any, has_extra: bool) -> list[str]:
    """Keys under a prefix that neither the module's own tensors nor its modules have."""
    found = []
    for key in state:
        if not key.startswith(prefix):
            continue
        first, dot, _ = key[len(prefix) :].partition(".")
        known = first in module._modules if dot else first in own or (first == EXTRA and has_extra)
        found += [] if known else [key]
    return found


def _taken(module: Module, name: str, tensor: Tensor, key: str, source: Any, assign: bool) -> str | None:
    """Copies or assigns one tensor of a state; what is wrong with it, if something is."""
    if not isinstance(source, Tensor):
        return (
            f'While copying the parameter named "{key}", expected weft.Tensor or Tensor-like object from checkpoint '
            f"but received {type(source)}"
        )
    lazy = is_lazy(tensor)
    if lazy and is_lazy(source):
        return None
    if not lazy and tensor.dim() == 0 and source.dim() == 1 and source.numel() == 1:
        source = source[0]
    if not lazy and source.shape != tensor.shape:
        return (
            f"size mismatch for {key}: copying a param with shape {source.shape} from checkpoint, "
            f"the shape in current model is {tensor.shape}."
        )
    try:
        with no_grad():
            if assign:
                setattr(module, name, _assigned(tensor, source))
            else:
                tensor.copy_(source)
    except Exception as error:
        return f'While copying the parameter named "{key}", an exception occurred : {error.args}.'
    return None


def _assigned(tensor: Tensor, source: Tensor) -> Tensor:
    """A tensor of a state as what stands in a module."""
    if isinstance(tensor, Parameter) and not isinstance(source, Parameter):
        made: Tensor = Parameter(source, requires_grad=tensor.requires_grad)
        return made
    return source.requires_grad_(tensor.requires_grad) if isinstance(tensor, Parameter) else source

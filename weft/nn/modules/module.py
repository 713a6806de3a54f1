"""What every layer is: parameters, buffers and other modules by name, a forward that computes, and hooks around it."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self, overload

from ...base.errors import InvalidType, InvalidValue, NameTaken, NoAttribute, RunError, Unsupported
from ...eager.autograd.hooks import RemovableHandle
from ...eager.autograd.modes import no_grad
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.device import device as Device
from ...eager.tensor.device import located, require_cpu
from ...eager.tensor.parameter import Buffer, Parameter
from ...eager.tensor.tensor import Tensor
from ...eager.tensor.types import dtype as DType
from ...eager.tensor.types import memory_format as MemoryFormat
from . import hooking, state
from .hooking import (
    call_with_hooks,
    everywhere,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from .state import _IncompatibleKeys

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

_empty_like = FUNCTIONS["weft"]["empty_like"]


def _fresh() -> dict[str, Any]:
    """The attributes of a module that holds nothing."""
    return {
        "training": True,
        "_parameters": {},
        "_buffers": {},
        "_non_persistent_buffers_set": set(),
        "_backward_pre_hooks": OrderedDict(),
        "_backward_hooks": OrderedDict(),
        "_is_full_backward_hook": None,
        "_forward_hooks": OrderedDict(),
        "_forward_hooks_with_kwargs": OrderedDict(),
        "_forward_hooks_always_called": OrderedDict(),
        "_forward_pre_hooks": OrderedDict(),
        "_forward_pre_hooks_with_kwargs": OrderedDict(),
        "_state_dict_hooks": OrderedDict(),
        "_state_dict_pre_hooks": OrderedDict(),
        "_load_state_dict_pre_hooks": OrderedDict(),
        "_load_state_dict_post_hooks": OrderedDict(),
        "_modules": {},
    }


class Module:
    """A layer, or a network of layers. Subclasses set parameters and modules as attributes and define `forward`.

    >>> import weft
    >>> from weft import nn
    >>> class Scale(nn.Module):
    ...     def __init__(self, size):
    ...         super().__init__()
    ...         self.weight = nn.Parameter(weft.full((size,), 2.0))
    ...         self.register_buffer("calls", weft.tensor(0))
    ...
    ...     def forward(self, x):
    ...         self.calls += 1
    ...         return x * self.weight
    >>> scale = Scale(3)
    >>> scale(weft.ones(3))
    tensor([2., 2., 2.], grad_fn=<MulBackward0>)
    >>> dict(scale.state_dict())
    {'weight': tensor([2., 2., 2.]), 'calls': tensor(1)}
    >>> nn.Sequential(scale, Scale(3))
    Sequential(
      (0): Scale()
      (1): Scale()
    )
    """

    dump_patches: bool = False
    call_super_init: bool = False
    _version: int = 1
    _own_names: ClassVar[tuple[str, ...]] = ("_parameters", "_buffers", "_modules")

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    _is_full_backward_hook: bool | None
    _forward_hooks: hooking.Hooks
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _forward_pre_hooks: hooking.Hooks
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _backward_hooks: hooking.Hooks
    _backward_pre_hooks: hooking.Hooks
    _state_dict_hooks: hooking.Hooks
    _state_dict_pre_hooks: hooking.Hooks
    _load_state_dict_pre_hooks: hooking.Hooks
    _load_state_dict_post_hooks: hooking.Hooks

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            what = f"got an unexpected keyword argument {next(iter(kwargs))!r}" if kwargs else ""
            what = what or f"takes 1 positional argument but {len(args) + 1} were given"
            raise InvalidType(f"{type(self).__name__}.__init__() {what}")
        self.__dict__.update(_fresh())
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass says."""
        raise Unsupported(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or everywhere.on_calls()
        ):
            return call_with_hooks(self, args, kwargs)
        return self.forward(*args, **kwargs)

    _call_impl = __call__

    # Names

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for kind in self._own_names:
            held = own.get(kind)
            if held is not None and name in held:
                return held[name]
        raise NoAttribute(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        parameters, modules = own.get("_parameters"), own.get("_modules")
        if isinstance(value, Parameter):
            if parameters is None:
                raise NoAttribute("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            _must_be(value, None, name, "parameter", "weft.nn.Parameter or None")
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            if modules is None:
                raise NoAttribute("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            modules[name] = everywhere.registered(everywhere.module_registration, self, name, value)
        elif modules is not None and name in modules:
            _must_be(value, None, name, "child module", "weft.nn.Module or None")
            modules[name] = everywhere.registered(everywhere.module_registration, self, name, value)
        else:
            self._set_buffer_or_value(name, value)

    def _set_buffer_or_value(self, name: str, value: Any) -> None:
        buffers = self.__dict__.get("_buffers")
        is_declared = isinstance(value, Tensor) and isinstance(value, Buffer)
        if buffers is None and is_declared:
            raise NoAttribute("cannot assign buffer before Module.__init__() call")
        if buffers is None or not (is_declared or name in buffers):
            object.__setattr__(self, name, value)
            return
        _must_be(value, Tensor, name, "buffer", "weft.nn.Buffer, weft.Tensor or None")
        if is_declared:
            self._forget(name, "_parameters", "_modules", "_buffers")
            self.register_buffer(name, value, value.persistent)
        else:
            buffers[name] = everywhere.registered(everywhere.buffer_registration, self, name, value)

    def _forget(self, name: str, *kinds: str) -> None:
        """Makes a name free for another kind of value."""
        own = self.__dict__
        own.pop(name, None)
        for kind in kinds:
            own[kind].pop(name, None)
        own["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name: str) -> None:
        for kind in self._own_names:
            if name in self.__dict__.get(kind, ()):
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        held = [name for kind in self._own_names for name in self.__dict__.get(kind, ())]
        names = {*dir(type(self)), *self.__dict__, *held}
        return sorted(name for name in names if not name[:1].isdigit())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**_fresh(), **state})

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter, or the place for one, which is an attribute of that name."""
        if "_parameters" not in self.__dict__:
            raise NoAttribute("cannot assign parameter before Module.__init__() call")
        self._check_name(name, "parameter", "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise InvalidType(
                f"cannot assign '{_type_name(param)}' object to parameter '{name}' (weft.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise InvalidValue(
                f"Cannot assign non-leaf Tensor to parameter '{name}'",
                why="parameters are made, not computed",
                hint="compute the value in forward from a Parameter",
            )
        self._parameters[name] = everywhere.registered(everywhere.parameter_registration, self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that belongs to the module's state and is not trained; one that is not persistent stays out
        of `state_dict`."""
        if "_buffers" not in self.__dict__:
            raise NoAttribute("cannot assign buffer before Module.__init__() call")
        self._check_name(name, "buffer", "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise InvalidType(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (weft Tensor or None required)"
            )
        self._buffers[name] = everywhere.registered(everywhere.buffer_registration, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a module, or the place for one, which is an attribute of that name."""
        if module is not None and not isinstance(module, Module):
            raise InvalidType(f"{_type_name(module)} is not a Module subclass")
        self._check_name(name, "module", "_modules")
        self._modules[name] = everywhere.registered(everywhere.module_registration, self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as `add_module`."""
        self.add_module(name, module)

    def _check_name(self, name: str, what: str, kind: str) -> None:
        if not isinstance(name, str):
            raise InvalidType(f"{what} name should be a string. Got {_type_name(name)}")
        if hasattr(self, name) and name not in self.__dict__[kind]:
            raise NameTaken(f"attribute '{name}' already exists")
        if "." in name:
            raise NameTaken(f'{what} name can\'t contain "."', why=f"got: {name}")
        if not name:
            raise NameTaken(f'{what} name can\'t be empty string ""')

    # Parts by their paths

    def get_submodule(self, target: str) -> Module:
        """The module at a path such as "layers.0.norm"; the empty path is the module itself."""
        module: Module = self
        for name in target.split(".") if target else []:
            if not hasattr(module, name):
                raise NoAttribute(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise NoAttribute(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts a module at a path; with `strict` there must be one already."""
        if target == "":
            raise InvalidValue("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise InvalidValue(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise NoAttribute(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise NoAttribute(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as "layers.0.weight"."""
        found: Parameter = self._part(target, "_parameters", "an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path."""
        found: Tensor = self._part(target, "_buffers", "a buffer")
        return found

    def _part(self, target: str, kind: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise NoAttribute(f"{module._get_name()} has no attribute `{name}`")
        found = getattr(module, name)
        is_part = isinstance(found, Parameter) if kind == "_parameters" else name in module._buffers
        if not is_part:
            raise NoAttribute(f"`{name}` is not {what}")
        return found

    def get_extra_state(self) -> Any:
        """What the module adds to `state_dict` beside tensors; such a module defines `set_extra_state` as well."""
        raise RunError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Takes what `get_extra_state` gave."""
        raise RunError("Reached a code path in Module.set_extra_state() that should never be called.")

    # All parts

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it with their paths; each once, if duplicates are removed."""
        memo = set() if memo is None else memo
        left = [(prefix, self)]
        while left:
            path, module = left.pop()
            if module in memo:
                continue
            if remove_duplicate:
                memo.add(module)
            yield path, module
            below = [(f"{path}.{name}" if path else name, child) for name, child in module._modules.items()]
            left += [(name, child) for name, child in reversed(below) if child is not None]

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules right below this one with their names, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules right below this one, each once."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield f"{path}.{name}" if path else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their paths, of this module alone or of all below it."""
        return self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters, of this module alone or of all below it; what optimisers take."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their paths, of this module alone or of all below it."""
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers, of this module alone or of all below it."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # Changes to all parts

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Calls a function with every module, children first."""
        for module, is_closed in state.children_first(self, "apply"):
            if is_closed:
                module.apply(fn)
            else:
                fn(module)
        return self

    def _overrides(self, method: str) -> bool:
        """Whether the class has a method of its own."""
        return getattr(type(self), method) is not getattr(Module, method)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replaces the elements of parameters and their gradients, and the buffers, by what a function gives."""
        for module, is_closed in state.children_first(self, "_apply") if recurse else [(self, False)]:
            if is_closed:
                module._apply(fn)
            else:
                module._apply_to_own(fn)
        return self

    def _apply_to_own(self, fn: Callable[[Tensor], Tensor]) -> None:
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            with no_grad():
                grad, changed = parameter.grad, fn(parameter)
            parameter.data = changed
            if grad is not None:
                with no_grad():
                    grad.data = fn(grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)

    @overload
    def to(self, device: Any = ..., dtype: DType | None = ..., non_blocking: bool = ...) -> Self: ...
    @overload
    def to(self, dtype: DType, non_blocking: bool = ...) -> Self: ...
    @overload
    def to(self, tensor: Tensor, non_blocking: bool = ...) -> Self: ...
    @overload
    def to(self, *, memory_format: Any) -> Self: ...
    def to(self, *args: Any, **kwargs: Any) -> Self:
        """In another floating dtype, in which integers stay, in another memory format, or on another device.

        >>> from weft import nn
        >>> import weft
        >>> nn.ParameterList([weft.ones(2)]).to(weft.float64)[0].dtype
        weft.float64
        """
        kind, layout, where = _asked_of_to(args, kwargs)
        if kind is not None and not (kind.is_floating_point or kind.is_complex):
            raise InvalidType(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={kind}"
            )
        if kind is not None and kind.is_complex:
            warnings.warn(
                "Complex modules are a new feature under active development whose design may change, and some modules "
                "might not work as expected when using complex tensors as parameters or buffers.",
                stacklevel=2,
            )

        def converted(tensor: Tensor) -> Tensor:
            target = kind if tensor.is_floating_point() or tensor.is_complex() else None
            fits = layout is not None and tensor.dim() in (4, 5)
            made: Tensor = tensor.to(device=where, dtype=target, memory_format=layout if fits else None)
            return made

        return self._apply(converted)

    def _floating_to(self, kind: str) -> Self:
        return self._apply(lambda tensor: getattr(tensor, kind)() if tensor.is_floating_point() else tensor)

    def float(self) -> Self:
        """Floating parameters and buffers in float32."""
        return self._floating_to("float")

    def double(self) -> Self:
        """Floating parameters and buffers in float64."""
        return self._floating_to("double")

    def half(self) -> Self:
        """Floating parameters and buffers in float16."""
        return self._floating_to("half")

    def bfloat16(self) -> Self:
        """Floating parameters and buffers in bfloat16."""
        return self._floating_to("bfloat16")

    def type(self, dst_type: Any) -> Self:
        """All parameters and buffers in one dtype."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def cpu(self) -> Self:
        """Parameters and buffers in the memory of the processor."""
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self, device: Any = None) -> Self:
        """Parameters and buffers in the memory of a GPU."""
        return self._apply(lambda tensor: tensor.cuda(device))

    def xpu(self, device: Any = None) -> Self:
        """Raises: weft computes on processors and GPUs of CUDA."""
        require_cpu(Device("xpu"))
        return self

    ipu = mtia = xpu

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Gives parameters and buffers new memory, whose content is anything."""
        where = located(device)
        return self._apply(lambda tensor: _empty_like(tensor).to(where), recurse)

    def share_memory(self) -> Self:
        """Moves parameters and buffers to memory that processes may share."""
        return self._apply(lambda tensor: tensor.share_memory_())

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of this module and all below it; dropout and batch normalisation, say, differ in training."""
        if not isinstance(mode, bool):
            raise InvalidValue("training mode is expected to be boolean")
        for module, is_closed in state.children_first(self, "train"):
            if is_closed:
                module.train(mode)
            else:
                module.training = mode
        return self

    def eval(self) -> Self:
        """Sets the mode in which networks are used: the same as `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Says whether parameters get gradients."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or makes them zeros."""
        for parameter in self.parameters():
            if parameter.grad is not None and set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                if parameter.grad.grad_fn is not None:
                    parameter.grad.detach_()
                else:
                    parameter.grad.requires_grad_(False)
                parameter.grad.zero_()

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Raises: a module does not change what its calls are."""
        raise Unsupported(
            "Module.compile is not there: a module's calls run eagerly, each operator with compiled code",
            hint="weft.compile(module) gives a compiled one to call",
        )

    # State

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by path. They share memory with the module's; `keep_vars` gives the
        parameters themselves."""
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead.", FutureWarning, stacklevel=2)
            named = dict(zip(("destination", "prefix", "keep_vars"), args))
            destination = named.get("destination", destination)
            prefix, keep_vars = named.get("prefix", prefix), named.get("keep_vars", keep_vars)
        made: dict[str, Any] = state.collected(self, destination, prefix, keep_vars)
        return made

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Adds this module's own part of the state."""
        state.save_own(self, destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies a state into parameters and buffers; `assign` makes the tensors of the state the module's own.

        >>> from weft import nn
        >>> import weft
        >>> saved = nn.ParameterDict({"weight": weft.ones(2)}).state_dict()
        >>> nn.ParameterDict({"weight": weft.zeros(2)}).load_state_dict(saved)
        <All keys matched successfully>
        """
        return state.loaded(self, state_dict, strict, assign)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Takes this module's own part of a state."""
        state.load_own(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    # Hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args)` before forward; what it gives, if not None, replaces the arguments."""
        return hooking.add_to(
            self._forward_pre_hooks, hook, prepend, (self._forward_pre_hooks_with_kwargs, with_kwargs)
        )

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args, output)` after forward; what it gives, if not None, replaces the output.
        With `always_call` it is called after an error too."""
        kwargs, always = (
            (self._forward_hooks_with_kwargs, with_kwargs),
            (self._forward_hooks_always_called, always_call),
        )
        return hooking.add_to(self._forward_hooks, hook, prepend, kwargs, always)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_output)` when the gradients of outputs are known; what it gives replaces them."""
        return hooking.add_to(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` when the gradients of inputs are known; what it gives
        replaces those of the inputs."""
        return hooking.add_backward(self, hook, prepend, True)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The older kind of hook on gradients, which sees the last operator of the module alone."""
        return hooking.add_backward(self, hook, False, False)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, prefix, keep_vars)` before the state is collected."""
        return hooking.add_to(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, local_metadata)` after it; it may change the state in place."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return hooking.add_to(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As the one above; what the hook gives replaces the state."""
        if getattr(hook, "_from_public_api", False):
            raise RunError(
                "Cannot register the same function as the state dict post hook that was previously registered"
            )
        return hooking.add_to(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`
        before a state is taken."""
        return hooking.add_to(self._load_state_dict_pre_hooks, state.WithModule(hook, self))

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        """As the one above; the hook gets the module only if asked."""
        return hooking.add_to(self._load_state_dict_pre_hooks, state.WithModule(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, incompatible_keys)` after a state was taken; it may change the lists of keys."""
        return hooking.add_to(self._load_state_dict_post_hooks, hook)

    # Text

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """What stands between the parentheses beside the modules below."""
        return ""

    def _texts_joined(self, children: list[tuple[str, str]]) -> str:
        """The text of a module whose children have these texts."""
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        lines = [f"({name}): {indented(text)}" for name, text in children]
        if not lines and len(extra_lines) <= 1:
            return f"{self._get_name()}({extra})"
        return "\n  ".join([f"{self._get_name()}(", *extra_lines, *lines]) + "\n)"

    def __repr__(self) -> str:
        texts: dict[int, str] = {id(None): "None"}
        for module, is_closed in state.children_first(self, "__repr__"):
            children = [] if is_closed else [(name, texts[id(child)]) for name, child in module._modules.items()]
            texts[id(module)] = repr(module) if is_closed else module._texts_joined(children)
        return texts[id(self)]

    def _replicate_for_data_parallel(self) -> Self:
        """A shallow copy with tables of its own."""
        replica = self.__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica._parameters = {}
        replica._buffers = replica._buffers.copy()
        replica._modules = replica._modules.copy()
        return replica


def indented(text: str, spaces: int = 2) -> str:
    """Text whose lines after the first stand further to the right."""
    return text.replace("\n", "\n" + " " * spaces)


def _must_be(value: Any, kind: type | None, name: str, what: str, expected: str) -> None:
    """Refuses a value for a name that holds parameters, modules or buffers; None always fits."""
    if value is not None and not (kind is not None and isinstance(value, kind)):
        raise InvalidType(f"cannot assign '{_type_name(value)}' as {what} '{name}' ({expected} expected)")


def _type_name(value: Any) -> str:
    """The name of a value's type; of a tensor, that of its elements."""
    if isinstance(value, Tensor):
        name: str = value.type()
        return name
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _asked_of_to(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[DType | None, MemoryFormat | None, Device | None]:
    """The dtype, the memory format and the device that the arguments of `to` ask for."""
    unknown = kwargs.keys() - {"device", "dtype", "tensor", "non_blocking", "memory_format"}
    if unknown or len(args) > 3 or not (args or kwargs):
        raise InvalidType("to() received an invalid combination of arguments", why=f"got {args} and {sorted(kwargs)}")
    kind: DType | None = None
    where: Device | None = None
    for value in (*args, kwargs.get("device"), kwargs.get("dtype"), kwargs.get("tensor")):
        if isinstance(value, DType):
            kind = value
        elif isinstance(value, Tensor):
            kind, where = value.dtype, value.device
        elif isinstance(value, (str, int, Device)) and not isinstance(value, bool):
            where = located(value)
        elif value is not None and not isinstance(value, bool):
            raise InvalidType(f"to() received an invalid argument: {value!r}")
    return kind, kwargs.get("memory_format"), where

"""Calls of modules that have hooks: what runs before and after forward, and when gradients pass through."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...base.errors import RunError
from ...eager.autograd.function import Function
from ...eager.autograd.hooks import RemovableHandle
from ...eager.tensor.tensor import Tensor, wrap

Hooks = OrderedDict[int, Callable[..., Any]]
MIXED = (
    "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of them."
)


class EverywhereHooks:
    """Hooks on the calls of all modules, and on what is registered in any of them."""

    def __init__(self) -> None:
        self.forward_pre: Hooks = OrderedDict()
        self.forward: Hooks = OrderedDict()
        self.forward_with_kwargs: OrderedDict[int, bool] = OrderedDict()
        self.forward_always: OrderedDict[int, bool] = OrderedDict()
        self.backward_pre: Hooks = OrderedDict()
        self.backward: Hooks = OrderedDict()
        self.is_full: bool | None = None
        self.buffer_registration: Hooks = OrderedDict()
        self.module_registration: Hooks = OrderedDict()
        self.parameter_registration: Hooks = OrderedDict()

    def on_calls(self) -> bool:
        return bool(self.forward_pre or self.forward or self.backward_pre or self.backward)

    def registered(self, hooks: Hooks, module: Any, name: str, value: Any) -> Any:
        """What the hooks put in the place of a value that is registered."""
        for hook in hooks.values():
            changed = hook(module, name, value)
            value = value if changed is None else changed
        return value


everywhere = EverywhereHooks()


def add_to(
    hooks: Hooks, hook: Callable[..., Any], prepend: bool = False, *flags: tuple[OrderedDict[int, bool], bool]
) -> RemovableHandle:
    """Adds a hook, first or last, and its number to the dictionaries of those flags that are set."""
    handle = RemovableHandle(hooks, extra_dict=[place for place, _ in flags])
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    for place, is_set in flags:
        if is_set:
            place[handle.id] = True
    return handle


def add_backward(module: Any, hook: Callable[..., Any], prepend: bool, is_full: bool) -> RemovableHandle:
    """Adds a hook on gradients to a module, whose hooks are all of one kind."""
    if module._is_full_backward_hook is (not is_full):
        raise RunError(MIXED)
    module._is_full_backward_hook = is_full
    return add_to(module._backward_hooks, hook, prepend)


# Hooks on all modules.


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, args)` before the forward of every module; what it gives replaces the arguments."""
    return add_to(everywhere.forward_pre, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Calls `hook(module, args, output)` after the forward of every module; what it gives replaces the output."""
    kwargs, always = (everywhere.forward_with_kwargs, with_kwargs), (everywhere.forward_always, always_call)
    return add_to(everywhere.forward, hook, False, kwargs, always)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, grad_output)` when the gradients of any module's outputs are known."""
    return add_to(everywhere.backward_pre, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, grad_input, grad_output)` when the gradients of any module's inputs are known."""
    return _everywhere_backward(hook, True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """The older kind of hook on gradients, which sees the last operator of a module alone."""
    return _everywhere_backward(hook, False)


def _everywhere_backward(hook: Callable[..., Any], is_full: bool) -> RemovableHandle:
    if everywhere.is_full is (not is_full):
        raise RunError(MIXED.replace("on a single Module", "as global Module hooks"))
    everywhere.is_full = is_full
    return add_to(everywhere.backward, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, name, buffer)` when a buffer is registered; what it gives takes the buffer's place."""
    return add_to(everywhere.buffer_registration, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, name, submodule)` when a module is registered; what it gives takes its place."""
    return add_to(everywhere.module_registration, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(module, name, parameter)` when a parameter is registered; what it gives takes its place."""
    return add_to(everywhere.parameter_registration, hook)


# Calls.


def call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """forward, with everything that is registered around it."""
    left = {**everywhere.forward_always, **module._forward_hooks_always_called}
    result = None
    try:
        args, kwargs = _before(module, args, kwargs)
        watch = _watch_of(module)
        if watch is not None:
            args = watch.inputs(args)
        result = module.forward(*args, **kwargs)
        for number, call in _forward_hooks(module):
            left.pop(number, None)
            changed = call(args, kwargs, result)
            result = result if changed is None else changed
        if watch is not None:
            result = watch.outputs(result)
        _hook_last_operator(module, result)
        return result
    except Exception:
        for number, call in _forward_hooks(module) if left else []:
            if number in left:
                _silently(call, args, kwargs, result)
        raise


def _before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for number, hook in [*everywhere.forward_pre.items(), *module._forward_pre_hooks.items()]:
        if number in module._forward_pre_hooks_with_kwargs:
            changed = hook(module, args, kwargs)
            if changed is None:
                continue
            if not isinstance(changed, tuple) or len(changed) != 2:
                raise RunError(
                    f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                )
            args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


def _forward_hooks(module: Any) -> list[tuple[int, Callable[..., Any]]]:
    """What runs after forward, by number: functions of arguments, keywords and the result."""
    with_kwargs = {**everywhere.forward_with_kwargs, **module._forward_hooks_with_kwargs}
    hooks = [*everywhere.forward.items(), *module._forward_hooks.items()]
    return [(number, partial(_after, module, hook, number in with_kwargs)) for number, hook in hooks]


def _after(module: Any, hook: Callable[..., Any], with_kwargs: bool, args: Any, kwargs: Any, result: Any) -> Any:
    return hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)


def _silently(call: Callable[..., Any], *args: Any) -> None:
    """Calls a hook after an error, which is told and not that of the hook."""
    try:
        call(*args)
    except Exception as error:
        warnings.warn(
            "module forward hook with ``always_call=True`` raised an exception that was silenced as another error "
            f"was raised in forward: {error}",
            stacklevel=4,
        )


# Gradients.


class BackwardHookFunction(Function):
    """The same tensors; their gradients pass through a function of a module's."""

    @staticmethod
    def forward(ctx: Any, on_gradients: Callable[[Sequence[Any]], Sequence[Any]], fill: bool, *tensors: Tensor) -> Any:
        ctx.on_gradients, ctx.fill = on_gradients, fill
        ctx.set_materialize_grads(False)
        same = tuple(tensor.detach() for tensor in tensors)
        ctx.mark_non_differentiable(*(mine for mine, tensor in zip(same, tensors) if not tensor.requires_grad))
        return same

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        known = _filled(grads, ctx.outputs) if ctx.fill else grads
        return None, None, *_filled(ctx.on_gradients(known), ctx.outputs)


def _filled(grads: Sequence[Any], metas: Sequence[Any]) -> list[Any]:
    """Gradients, with zeros where there are none."""
    return [wrap(np.zeros(*meta)) if grad is None else grad for grad, meta in zip(grads, metas)]


def _watch_of(module: Any) -> _GradientWatch | None:
    full = [] if everywhere.is_full is False else list(everywhere.backward.values())
    full += [] if module._is_full_backward_hook is False else module._backward_hooks.values()
    before = [*everywhere.backward_pre.values(), *module._backward_pre_hooks.values()]
    return _GradientWatch(module, full, before) if full or before else None


class _GradientWatch:
    """One call of a module: the gradients of its outputs, then those of its inputs, are shown to hooks."""

    def __init__(self, module: Any, hooks: list[Callable[..., Any]], before: list[Callable[..., Any]]) -> None:
        self.module, self.hooks, self.before = module, hooks, before
        self.grad_outputs: Any = None
        self.count = 0  # of inputs
        self.sees_inputs = False

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.count = len(args)
        watched = _through(args, self._on_inputs, fill=True)
        self.sees_inputs = watched is not args
        return watched

    def outputs(self, result: Any) -> Any:
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                f"but received {type(result)}",
                stacklevel=4,
            )
            return result
        results = _through(result if isinstance(result, tuple) else (result,), self._on_outputs)
        return results if isinstance(result, tuple) else results[0]

    def _on_outputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.before:
            changed = hook(self.module, grads)
            if changed is not None:
                grads = _checked(changed, grads, "Backward pre hook", "grad_output")
        self.grad_outputs = grads
        if self.hooks and not self.sees_inputs:  # no gradient reaches the inputs: this is the end
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module outputs since no "
                "inputs require gradients.",
                stacklevel=2,
            )
            nothing = (None,) * self.count
            for hook in self.hooks:
                if hook(self.module, nothing, grads) is not None:
                    raise RunError(
                        "Backward hook for Modules where no input requires gradient should "
                        "always return None or None for all gradients."
                    )
            self.grad_outputs = None
        return grads

    def _on_inputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.grad_outputs is None:
            return grads
        for hook in self.hooks:
            changed = hook(self.module, grads, self.grad_outputs)
            if changed is not None:
                grads = _checked(changed, grads, "Backward hook", "grad_input")
        self.grad_outputs = None
        return grads


def _checked(changed: Any, grads: tuple[Any, ...], who: str, what: str) -> tuple[Any, ...]:
    """Gradients that a hook gave: as many as there were."""
    made = changed if isinstance(changed, tuple) else (changed,)
    if len(made) != len(grads):
        raise RunError(f"{who} returned an invalid number of {what}, got {len(made)}, but expected {len(grads)}")
    return made


def _through(
    values: tuple[Any, ...], on_gradients: Callable[..., tuple[Any, ...]], fill: bool = False
) -> tuple[Any, ...]:
    """The values, with the gradients of the tensors among them seen by a function, which gets None for the rest;
    it sees zeros for tensors that get no gradient, if those are to `fill` their places."""
    count, places = len(values), [place for place, value in enumerate(values) if isinstance(value, Tensor)]
    if not any(values[place]._recorded() for place in places):
        return values

    def seen(grads: Sequence[Any]) -> Sequence[Any]:
        spread: list[Any] = [None] * count
        for place, grad in zip(places, grads):
            spread[place] = grad
        changed = on_gradients(tuple(spread))
        return [changed[place] for place in places]

    same = BackwardHookFunction.apply(seen, fill, *(values[place] for place in places))
    made = list(values)
    for place, tensor in zip(places, same):
        made[place] = tensor
    return _like(values, made)


def _like(values: tuple[Any, ...], made: list[Any]) -> tuple[Any, ...]:
    """A tuple of the same kind: named ones stay named."""
    return type(values)(*made) if hasattr(values, "_fields") else tuple(made)


def _hook_last_operator(module: Any, result: Any) -> None:
    """Puts hooks of the older kind on the operator that made the (first) output."""
    old = list(everywhere.backward.values()) if everywhere.is_full is False else []
    old += module._backward_hooks.values() if module._is_full_backward_hook is False else []
    if not old:
        return
    warnings.warn(
        "Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated: it sees the "
        "gradients of the last one alone. Please use register_full_backward_hook.",
        FutureWarning,
        stacklevel=4,
    )
    node: Any = getattr(_first_tensor(result), "grad_fn", None)
    for hook in old if node is not None else []:
        node.register_hook(partial(hook, module))


def _first_tensor(value: Any) -> Any:
    """The tensor that stands first in a nest of tuples and lists, or among the values of a dictionary."""
    while not isinstance(value, Tensor):
        if isinstance(value, dict):
            value = [part for part in value.values() if isinstance(part, Tensor)]
        if not value:
            return None
        value = value[0]
    return value

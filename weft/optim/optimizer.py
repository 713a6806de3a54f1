"""What every optimiser is: groups of parameters with their options, a state for each parameter, and hooks around steps
and around the dicts that states are saved as."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from itertools import chain
from types import SimpleNamespace
from typing import Any

from ..base.dtype import is_complex
from ..base.errors import Error, InvalidType, InvalidValue, RunError, Unsupported
from ..eager.autograd.hooks import Hooks, RemovableHandle
from ..eager.autograd.modes import enable_grad, modes, no_grad
from ..eager.functions.all import FUNCTIONS
from ..eager.tensor.tensor import Tensor

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

Group = dict[str, Any]
ParamsT = Iterable[Tensor] | Iterable[Group] | Iterable[tuple[str, Tensor]]
Closure = Callable[[], Any]
F: Any = SimpleNamespace(**FUNCTIONS["weft"])  # the functions of tensors


class _Required:
    """Stands for an option without a default."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()
_pre_hooks, _post_hooks = Hooks(), Hooks()  # of all optimisers


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Has `hook(optimizer, args, kwargs)` called before each step of every optimiser."""
    return _pre_hooks.add(hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Has `hook(optimizer, args, kwargs)` called after each step of every optimiser."""
    return _post_hooks.add(hook)


def _hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step with the hooks around it; where a class calls the step of its base, they run once."""

    @functools.wraps(step)
    def inside(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if type(self).step is not inside:
            return step(self, *args, **kwargs)
        if modes.trace is not None:
            function = functools.partial(inside, self, *args, **kwargs)
            return modes.trace.act(function, None if args or kwargs else self)
        self._opt_called = True
        for hook in (*_pre_hooks, *self._step_pre_hooks):
            changed = hook(self, args, kwargs)
            if changed is None:
                continue
            if not isinstance(changed, tuple) or len(changed) != 2:
                raise _BadHook(
                    f"a hook before a step gave {changed!r}",
                    why="it must return None or a tuple of (new_args, new_kwargs)",
                )
            args, kwargs = changed
        result = step(self, *args, **kwargs)
        for hook in (*self._step_post_hooks, *_post_hooks):
            hook(self, args, kwargs)
        return result

    return inside


def has_step_hooks(optimizer: Optimizer) -> bool:
    """Whether something is called before or after steps of an optimiser."""
    return any([_pre_hooks, _post_hooks, optimizer._step_pre_hooks, optimizer._step_post_hooks])


class _BadHook(InvalidValue, RuntimeError):
    """A hook returned what it must not."""


class Optimizer:
    """Base of all optimisers. A class of your own defines `step`, and may keep anything in `self.state[parameter]`.

    >>> import weft
    >>> class Descent(Optimizer):
    ...     def __init__(self, params, lr=0.1):
    ...         super().__init__(params, {"lr": lr})
    ...     @weft.no_grad()
    ...     def step(self):
    ...         for group in self.param_groups:
    ...             for p in group["params"]:
    ...                 p.sub_(group["lr"] * p.grad)
    >>> w = weft.tensor([2.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Descent([w]).step()
    >>> w
    tensor([1.6000], requires_grad=True)
    """

    state: defaultdict[Tensor, Any]
    param_groups: list[Group]
    _opt_called = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = _hooked(cls.step)  # type: ignore[method-assign]

    def __init__(self, params: ParamsT, defaults: Group) -> None:
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise InvalidType(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                + params.type(),
                hint="put the tensor in a list",
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups: list[Any] = list(params)
        if not groups:
            raise InvalidValue("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        self._step_pre_hooks, self._step_post_hooks = Hooks(), Hooks()
        self._state_pre_hooks, self._state_post_hooks = Hooks(), Hooks()
        self._load_pre_hooks, self._load_post_hooks = Hooks(), Hooks()

    # Pickling and copying: hooks stay with the one they were put on.

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_step_pre_hooks" not in self.__dict__:
            self._make_hooks()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for number, group in enumerate(self.param_groups):
            text += f"\nParameter Group {number}\n"
            text += "".join([f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params"])
        return text + ")"

    # Groups

    def add_param_group(self, param_group: Group) -> None:
        """Adds parameters with options of their own; those that are not given are the defaults.

        >>> import weft
        >>> a, b = (weft.zeros(2, requires_grad=True) for _ in range(2))
        >>> optimizer = weft.optim.SGD([a], lr=0.1)
        >>> optimizer.add_param_group({"params": [b], "lr": 0.5})
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.1, 0.5]
        """
        if not isinstance(param_group, dict):
            raise InvalidType(f"param_group must be a dict, but got {type(param_group)}")
        given = param_group["params"]
        if isinstance(given, set):
            raise InvalidType(
                "optimizer parameters need to be organized in ordered collections",
                why="the order of a set changes between runs",
                hint="use a list",
            )
        members = [given] if isinstance(given, Tensor) else list(given)
        names = [member[0] for member in members if isinstance(member, tuple)]
        if names and len(names) != len(members):
            raise InvalidValue("all optimizer params should be with/without names. Some param names are missing")
        if names:
            members = [member[1] for member in members]
            param_group["param_names"] = names
        param_group["params"] = members
        self._check_members(members)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise InvalidValue(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if self.param_groups:
            self._check_beside(param_group)
        self.param_groups.append(param_group)

    def _check_members(self, members: list[Any]) -> None:
        for member in members:
            if not isinstance(member, Tensor):
                raise InvalidType(
                    f"optimizer can only optimize Tensors, but one of the params is {type(member).__name__}"
                )
            if not self.defaults.get("differentiable") and not (member.is_leaf or member._retains):
                raise InvalidValue("can't optimize a non-leaf Tensor")
        if len(set(members)) != len(members):
            warnings.warn("optimizer contains a parameter group with duplicate parameters", stacklevel=4)

    def _check_beside(self, group: Group) -> None:
        if ("param_names" in group) != ("param_names" in self.param_groups[0]):
            which = "with" if "param_names" in group else "without"
            raise InvalidValue(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group {which} names to the optimizer"
            )
        if not set(self._parameters()).isdisjoint(group["params"]):
            raise InvalidValue("some parameters appear in more than one parameter group")

    def _parameters(self) -> Iterator[Tensor]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    # Steps

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or fills them with zeros."""
        for p in self._parameters():
            if set_to_none and modes.trace is not None:
                modes.trace.sets_grad(p)
            grad = p._grad
            if grad is None:
                continue
            if set_to_none:
                p._grad = None
                continue
            if grad.grad_fn is None:
                grad.requires_grad_(False)
            else:
                grad = p._grad = grad.detach()
            grad.zero_()

    def step(self, closure: Closure | None = None) -> Any:
        """Changes the parameters once by their gradients. A closure that is given computes the loss, and its gradients,
        anew; the step returns what it does."""
        raise Unsupported(f"{type(self).__name__} has no step", hint="define a method step(closure=None)")

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Has `hook(optimizer, args, kwargs)` called before each step; it may return other arguments for it."""
        return self._step_pre_hooks.add(hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Has `hook(optimizer, args, kwargs)` called after each step."""
        return self._step_post_hooks.add(hook)

    # States as dicts

    def state_dict(self) -> dict[str, Any]:
        """The state and the options as a dict in which numbers stand for parameters; PyTorch's optimisers load it.

        >>> import weft
        >>> optimizer = weft.optim.SGD([weft.zeros(2, requires_grad=True)], lr=0.1, momentum=0.9)
        >>> sorted(optimizer.state_dict()), optimizer.state_dict()["param_groups"][0]["params"]
        (['param_groups', 'state'], [0])
        """
        self._state_pre_hooks.call(self)
        numbers: dict[Tensor, int] = {}
        for p in self._parameters():
            numbers.setdefault(p, len(numbers))
        packed: dict[str, Any] = {
            "state": {numbers.get(key, key): value for key, value in self.state.items()},
            "param_groups": [
                {**_but_params(group), "params": [numbers[p] for p in group["params"]]} for group in self.param_groups
            ],
        }
        for hook in self._state_post_hooks:
            changed = hook(self, packed)
            packed = packed if changed is None else changed
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up a state that `state_dict` gave, weft's or PyTorch's. Tensors get the dtypes of their parameters."""
        state_dict = dict(state_dict)
        for hook in self._load_pre_hooks:
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = [dict(group) for group in state_dict["param_groups"]]
        if len(saved) != len(self.param_groups):
            raise InvalidValue(
                "loaded state dict has a different number of parameter groups",
                why=f"it has {len(saved)}, this optimiser {len(self.param_groups)}",
            )
        if any([len(a["params"]) != len(b["params"]) for a, b in zip(saved, self.param_groups)]):
            raise InvalidValue(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        owners = dict(zip(chain.from_iterable(group["params"] for group in saved), self._parameters()))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            owner = owners.get(key)
            state[key if owner is None else owner] = deepcopy(value) if owner is None else _as_state(owner, value)
        groups = [_loaded_group(group, new) for group, new in zip(self.param_groups, saved)]
        self.__setstate__({"state": state, "param_groups": groups})
        self._load_post_hooks.call(self)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Has `hook(optimizer)` called before `state_dict` does its work."""
        return _add(self._state_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Has `hook(optimizer, state_dict)` called on what `state_dict` made; it may return another."""
        return _add(self._state_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Has `hook(optimizer, state_dict)` called on what is about to be loaded; it may return another."""
        return _add(self._load_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Has `hook(optimizer)` called after a state was loaded."""
        return _add(self._load_post_hooks, hook, prepend)


class OneByOne(Optimizer):
    """Base of optimisers that look at a whole parameter at a time, of real numbers."""

    def _change(self, group: Group, p: Tensor, grad: Tensor) -> None:
        """Changes one parameter."""
        raise NotImplementedError

    def step(self, closure: Closure | None = None) -> Any:
        """Changes the parameters once by their gradients; a closure computes them first, and its loss is returned."""
        loss = evaluated(closure)
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    if is_complex(p._dtype):
                        raise RunError(f"{type(self).__name__} does not support complex parameters")
                    self._change(group, p, p.grad)
        return loss


def _add(hooks: Hooks, hook: Callable[..., Any], prepend: bool) -> RemovableHandle:
    handle = hooks.add(hook)
    if prepend:
        hooks._functions = {handle.id: hook, **hooks._functions}
    return handle


def _but_params(group: Group) -> Group:
    return {key: value for key, value in group.items() if key != "params"}


def _loaded_group(group: Group, saved: Group) -> Group:
    """The options that were saved, with the parameters that are here; names, too, unless others were saved."""
    names = {key: group[key] for key in ("param_names",) if key in group and key not in saved}
    return {**deepcopy(_but_params(saved)), **names, "params": group["params"]}


def _as_state(p: Tensor, value: Any, key: str = "") -> Any:
    """A state of a parameter, in its dtype if that is one of floats; numbers of steps stay as they are."""
    if isinstance(value, Tensor):
        floats = p.is_floating_point() or p.is_complex()
        return value.clone() if key == "step" or not floats else value.to(dtype=p.dtype, copy=True)
    if isinstance(value, dict):
        return {name: _as_state(p, part, name) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_as_state(p, part) for part in value)
    return deepcopy(value)


def evaluated(closure: Closure | None) -> Any:
    """What a closure gives, with gradients on; None of none."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


def check(what: str, value: Any, holds: bool) -> None:
    """Refuses an option that makes no sense."""
    if not holds:
        raise InvalidValue(f"{what}: {value}")


def check_lr(lr: Any) -> None:
    """Refuses a rate below zero, and a tensor of many rates."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise InvalidValue("Tensor lr must be 1-element")
    check("Invalid learning rate", lr, bool(lr >= 0.0))


class NotCapturable(Error, AssertionError):
    """Steps that are to be captured in a graph of a device, where there is none."""

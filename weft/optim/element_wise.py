"""Optimisers that change each element by its own gradient and state: a rule says how, once, and runs as one native
update of all parameters, or on tensors where that does not serve.

A rule is a function `rule(m, on, n, p, g, *states)` that gives the new parameter and the new states. `m` has what it
may call beside arithmetic (sqrt, abs, sign, maximum, where, clamp), of tensors or of elements; `on` are the options
that are on, `n` the numbers of this step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from ..base.dtype import FLOAT64, is_complex
from ..base.errors import InvalidValue, RunError
from ..eager.autograd.modes import set_grad_enabled
from ..eager.tensor.tensor import Tensor
from ..eager.tensor.types import bfloat16, dtype, float16, float32, float64, get_default_dtype
from .fused import Plan, check_gradient, gradients, update_of
from .on_device import stepped_there
from .optimizer import Closure, F, Group, NotCapturable, Optimizer, check, evaluated

Numbers = dict[str, Any]  # floats; in a step that is differentiated tensors, too
Rule = Callable[..., tuple[Any, ...]]
OFF = {"maximize": False, "amsgrad": False, "foreach": None, "fused": None, "capturable": False}
SHORT = (bfloat16, float16)  # dtypes whose steps are computed in float32


def directed(on: frozenset[str], n: Any, p: Any, g: Any) -> tuple[Any, Any]:
    """The parameter and its gradient, the latter downhill and with weight decay: as a part of the gradient,
    g + weight_decay * p, or apart from it, p * (1 - lr * weight_decay)."""
    g = -g if "maximize" in on else g
    if "decoupled" in on:
        return p * n.shrink, g
    return p, g + n.weight_decay * p if "decay" in on else g


class ElementWise(Optimizer):
    """Base of the optimisers that have a rule."""

    rule: ClassVar[Rule]

    # What one is: its states, which options are on, and the numbers of a step.

    def _slots(self, group: Group) -> tuple[str, ...]:
        """The states that have an element for each of the parameter's, in the order the rule takes them."""
        raise NotImplementedError

    def _first(self, group: Group) -> dict[str, float]:
        """The states that are one number, as they begin; and elements of others that do not begin as zeros."""
        return {"step": 0.0}

    scalars: ClassVar[tuple[str, ...]] = ("step",)

    def _on(self, group: Group) -> frozenset[str]:
        """The options that decide what the rule does."""
        on = {name for name in ("maximize", "amsgrad", "momentum", "nesterov", "centered") if group.get(name)}
        if group.get("weight_decay"):
            on.add("decoupled" if group.get("decoupled_weight_decay") else "decay")
        return frozenset(on)

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        """The numbers of a step, and the states that are numbers as they are after it. `fresh` is the first step of a
        parameter, `rounded` gives a number as the state keeps it."""
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # files of long ago lack options, and have numbers where there are tensors now
            for name in self.defaults:
                group.setdefault(name, OFF.get(name, self.defaults[name]))
        for own in self.state.values():
            for name in self.scalars:
                if isinstance(own.get(name), (int, float)):
                    own[name] = _number(own[name])

    # Steps

    def step(self, closure: Closure | None = None) -> Any:
        """Changes the parameters once by their gradients; a closure computes them first, and its loss is returned."""
        loss = evaluated(closure)
        for number, group in enumerate(self.param_groups):
            with set_grad_enabled(bool(group.get("differentiable"))):
                self._step_group(number, group)
        return loss

    def _step_group(self, number: int, group: Group) -> None:
        if group.get("capturable"):
            raise NotCapturable(
                "If capturable=True, params must be on a device that captures steps", hint="leave capturable=False"
            )
        params = [p for p in group["params"] if p._grad is not None]
        slots, on, values = self._slots(group), self._on(group), option_values(group)
        if group.get("differentiable") or (group.get("foreach") is False and not group.get("fused")):
            for p in params:
                self._step_tensor(values, slots, on, p, *self._state_of(group, slots, p))
        elif params:
            self._step_native(number, values, slots, on, params)

    def _state_of(self, group: Group, slots: Sequence[str], p: Tensor) -> tuple[dict[str, Any], bool]:
        """The state of a parameter, and whether it has just begun."""
        if not slots and not self.scalars:
            return {}, True
        state = self.state[p]
        missing = [name for name in (*self.scalars, *slots) if state.get(name) is None]
        if missing:
            first = self._first(group)
            for name in missing:
                state[name] = _number(first[name]) if name in self.scalars else _filled(p, first.get(name, 0.0))
        return state, bool(missing)

    def _step_tensor(
        self, group: Group, slots: Sequence[str], on: frozenset[str], p: Tensor, state: dict[str, Any], fresh: bool
    ) -> None:
        """One parameter by operators on tensors."""
        assert p.grad is not None
        check_gradient(p, p.grad)
        counts = [state[name] for name in self.scalars]
        numbers, after = self._advance(group, fresh, rounding(counts), *[count.item() for count in counts])
        for count, value in zip(counts, after):
            count.fill_(value)
        written = [real(t) for t in (p, *[state[name] for name in slots])]
        read = [real(p.grad), *written]
        if group.get("differentiable"):
            read = [t.clone() for t in read]
        if p.dtype in SHORT:
            read = [t.float() for t in read]
        g, q, *before = read
        there = not p.is_cpu and not group.get("differentiable")
        values: Any = stepped_there(type(self).rule, on, numbers, read) if there else None
        if values is None:
            values = type(self).rule(F, on, SimpleNamespace(**numbers), q, g, *before)
        for target, value in zip(written, values):
            target.copy_(value)

    def _step_native(
        self, number: int, group: Group, slots: Sequence[str], on: frozenset[str], params: Sequence[Tensor]
    ) -> None:
        """Parameters in batches, each in one native call, and those whose memory is not plain by tensors."""
        states, fresh = self._states_of(group, slots, params)
        columns = [[p._array for p in params], *[[state[name]._array for state in states] for name in slots]]
        plans = self.__dict__.setdefault("_plans", {})
        plan = plans.get(number)
        if plan is None or not plan.serves(params, columns):
            plan = plans[number] = Plan(params, columns)
        for place in plan.alone:
            self._step_tensor(group, slots, on, params[place], states[place], place in fresh)
        for batch in plan.batches:
            members = batch.members
            whole = len(members) == len(params)
            own = params if whole else [params[place] for place in members]
            own_states = states if whole else [states[place] for place in members]
            grads = gradients(own)
            began = [place in fresh for place in members] if fresh else None
            names, numbers, kinds = self._numbers(group, began, own_states)
            update = update_of(type(self).rule, on, batch.dtype, len(columns) + 1, names)
            batch.run(update, grads, kinds, numbers)
            for p in own:
                p._counter[0] += 1
            for name in slots:
                for state in own_states:
                    state[name]._counter[0] += 1

    def _states_of(
        self, group: Group, slots: Sequence[str], params: Sequence[Tensor]
    ) -> tuple[list[dict[str, Any]], set[int]]:
        """The states of parameters, and which of them have just begun."""
        names = (*self.scalars, *slots)
        if not names:
            return [{}] * len(params), set()
        states = [self.state[p] for p in params]
        if all([state.get(name) is not None for name in names for state in states]):
            return states, set()
        return states, {n for n, p in enumerate(params) if self._state_of(group, slots, p)[1]}

    def _numbers(
        self, group: Group, fresh: Sequence[bool] | None, states: Sequence[dict[str, Any]]
    ) -> tuple[tuple[str, ...], Any, list[int] | None]:
        """The names of the numbers of a step, rows of them, and which row is whose; all have the first if that is not
        said. Counts of steps and the like go on."""
        counts = [[state[name] for state in states] for name in self.scalars]
        now = [[count._array.item() for count in column] for column in counts]
        keys = list(zip([False] * len(states) if fresh is None else fresh, *now))
        rows: dict[Any, Any] = dict.fromkeys(keys)
        rounded = rounding([column[0] for column in counts])
        for number, key in enumerate(rows):
            rows[key] = number, *self._advance(group, key[0], rounded, *key[1:])
        for place, column in enumerate(counts):
            for key, count in zip(keys, column):
                count._array.fill(rows[key][2][place])
                count._counter[0] += 1
        numbers = np.array([list(row[1].values()) for row in rows.values()], np.float64)
        return tuple(rows[keys[0]][1]), numbers, None if len(rows) == 1 else [rows[key][0] for key in keys]


def rounding(counts: Sequence[Tensor]) -> Callable[[float], float]:
    """What gives a number as the last of the states keeps it."""
    kind = counts[-1]._dtype.type if counts else float
    return lambda value: float(kind(value))


def option_values(group: Group) -> Group:
    """Options as numbers; a step that is differentiated keeps those that are tensors, of no dimension."""
    return {name: _value(value, group) for name, value in group.items() if name != "params"}


def _value(value: Any, group: Group) -> Any:
    if isinstance(value, Tensor):
        return value.reshape(()) if group.get("differentiable") else value.item()
    if isinstance(value, tuple):
        return tuple([_value(part, group) for part in value])
    return value


def _number(value: Any) -> Tensor:
    """A state of one number, which is float64 only where all else is by default."""
    made: Tensor = F.tensor(float(value), dtype=scalar_dtype())
    return made


def scalar_dtype() -> dtype:
    return float64 if get_default_dtype().numpy == FLOAT64 else float32


def _filled(p: Tensor, value: float) -> Tensor:
    """A state like a parameter, whose elements, real and imaginary parts alike, begin with a value."""
    made: Tensor = F.zeros_like(p.detach())
    if value:
        real(made).fill_(value)
    return made


def real(x: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones, which optimisers take each for itself."""
    made: Tensor = F.view_as_real(x) if is_complex(x._dtype) else x
    return made


# Checks of options that many have.


def check_betas(betas: Any) -> None:
    for number, beta in enumerate(betas):
        check(f"Invalid beta parameter at index {number}", beta, 0.0 <= beta < 1.0)


def check_ways(foreach: bool | None, fused: bool | None, differentiable: bool) -> None:
    """Refuses ways of stepping that exclude each other."""
    if fused and differentiable:
        raise RunError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RunError("`fused` and `foreach` cannot be `True` together.")


def check_scalar_options(foreach: bool | None, capturable: bool, **options: Any) -> None:
    """Refuses options that are tensors where many parameters are to be changed in one go."""
    for name, value in options.items():
        if isinstance(value, Tensor) and foreach and not capturable:
            raise InvalidValue(f"{name} as a Tensor is not supported for capturable=False and foreach=True")

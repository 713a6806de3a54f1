"""`weft.compile` of functions and modules: calls look up a plan by what they are given and run it; the first of a kind
is traced."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import InvalidType, RunError
from ...base.forks import renewed_lock
from ...base.kept import Kept
from ...base.stages import recording
from ...eager.autograd.modes import modes
from ...eager.devices.calls import host_of
from ...eager.functions.around import LAYERS, is_watched
from ...eager.recording import StandIn
from ...eager.tensor.tensor import Tensor
from ...eager.tensor.types import get_default_dtype
from .guards import CONTAINERS, PLAIN, Guards, Reached
from .memories import is_real
from .plan import Act, Again, Finish, Host, Path, Result, SetGrads, Table, Touch, straight
from .recorder import Break, GivenUp, Recorder, seen_of
from .sizes import Programs
from .structure import built, flattened, leaves

KEPT_PLANS = 64  # of a function, by what it is given
MOST_PLANS = 8  # of calls that are alike, where what the function reads changes
MOST_DECISIONS = 8  # of one kind of call that values decided anew, before the function runs as it is


class Plan:
    """What calls of one kind do."""

    def __init__(self, path: Path, recorder: Recorder, guards: Guards) -> None:
        self.path, self.guards = path, guards
        self.tracings = 0
        self.template: Table = []
        self.refresh(recorder)

    def refresh(self, recorder: Recorder) -> None:
        """Takes over what a recording found."""
        self.tracings += 1
        arguments = [o for o in recorder.outsiders.values() if o.argument is not None]
        self.rows = [(o.memory.storage.number, o.argument) for o in arguments]
        self.template = [None] * max(recorder.storages, len(self.template))  # as other ways may need
        for number, array in recorder.fixed.items():
            self.template[number] = array
        self.leaves = [o.tensor for o in recorder.outsiders.values() if o.argument is None]
        self.breaks: list[Break] = recorder.breaks
        self.straight = straight(self.path, self.rows)  # type: ignore[arg-type]


class Explanation(NamedTuple):
    """What became of a function: how many plans there are, where it asks for values, why it is not compiled, how many
    programs were made, and which of them are open, in which names, or why they are not."""

    plans: int
    graphs: int
    breaks: list[Break]
    eager: str | None
    programs: int = 0
    sizes: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [f"{self.plans} plans of {self.graphs} graphs"]
        lines += self.sizes
        lines += [f"broken at {where}: {why}" for why, where in self.breaks]
        if self.eager is not None:
            lines.append(f"runs as it is: {self.eager}")
        return "\n".join(lines)


class Compiled:
    """A function as native programs. Calls with other shapes, dtypes or numbers are traced anew; where sizes alone are
    others, they run the same programs."""

    def __init__(
        self,
        function: Callable[..., Any],
        fullgraph: bool = False,
        dynamic: bool | None = None,
        precision: str = "fp32",
    ) -> None:
        functools.update_wrapper(self, function)
        self.programs = Programs(dynamic, precision)
        self.function, self.fullgraph = function, fullgraph
        self.plans: Kept[list[Plan]] = Kept(KEPT_PLANS)
        self.eager: str | None = None
        self._tracing = renewed_lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if modes.trace is not None or self.eager is not None or (LAYERS and is_watched()):
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        owners: list[Any] = []
        parts: list[Any] = [modes.grad, modes.inference, get_default_dtype()]
        for value in args:
            if type(value) is Tensor:  # as _key does it, for calls whose cost is that of Python
                array: Any = value._array
                tensors.append(value)
                owners.append(_owner(array))
                needs = value._requires_grad if value._base is None else value.requires_grad
                parts += (array.shape, array.dtype, array.strides, needs)
                if type(array) is not np.ndarray:
                    parts.append(value.device)
            else:
                parts.append(_key(value, tensors))
        if kwargs:
            parts += (None, _key(kwargs, tensors))
        if len(tensors) > 2 or (len(tensors) == 2 and (len(owners) != 2 or owners[0] is owners[1])):
            parts.append(_sharing(tensors))
        key = tuple(parts)
        try:
            plans = self.plans.get(key)
        except TypeError as error:
            raise InvalidType(f"an argument of a compiled function has no hash: {error}") from None
        for plan in plans or ():
            guards = plan.guards
            if guards.are_none or guards.hold():
                if plan.straight is not None:
                    return plan.straight(tensors)
                return self._run(plan, args, kwargs, tensors)
        return self._traced(None, args, kwargs, tensors, key)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        """A function is itself, as everywhere in Python."""
        return self

    def __reduce__(self) -> Any:
        """Plans stay behind. A function that is decorated is found by its name."""
        name = getattr(self, "__qualname__", "")
        home = sys.modules.get(getattr(self, "__module__", ""))
        if getattr(home, name, None) is self:
            return name
        return type(self), (self.function, self.fullgraph, self.programs.dynamic, self.programs.precision)

    def explain(self) -> Explanation:
        """What became of the calls so far.

        >>> import weft
        >>> double = weft.compile(lambda x: x * 2)
        >>> double(weft.tensor([1.0, 2.0]))
        tensor([2., 4.])
        >>> print(double.explain())
        1 plans of 1 graphs
        """
        plans = [plan for kind in self.plans.values() for plan in kind]
        graphs = sum(_graphs(plan.path) for plan in plans)
        breaks = list(dict.fromkeys(found for plan in plans for found in plan.breaks))
        return Explanation(len(plans), graphs, breaks, self.eager, self.programs.count, self.programs.notes())

    # Calls.

    def _run(self, plan: Plan, args: Any, kwargs: Any, tensors: Sequence[Tensor]) -> Any:
        table = plan.template.copy()
        for number, argument in plan.rows:
            table[number] = tensors[argument]._array  # type: ignore[index]
        path = plan.path
        if path.decides is not None:
            return self._run_deciding(plan, args, kwargs, tensors, table)
        for step in path.steps:
            step.run(table)
        assert path.finish is not None
        return path.finish.run(table, tensors)

    def _run_deciding(self, plan: Plan, args: Any, kwargs: Any, tensors: Sequence[Tensor], table: Table) -> Any:
        """A call in which values decide; one that nobody has seen is traced, and goes on from there."""
        grads = [(leaf, leaf._grad) for leaf in plan.leaves]
        path: Path | None = plan.path
        done: list[Any] = []
        while path is not None:
            for step in path.steps:
                step.run(table)
            done += path.steps
            if path.decides is None:
                assert path.finish is not None
                return path.finish.run(table, tensors)
            key = host_of(table[path.decides]).tobytes()
            done.append(key)
            path = path.branches.get(key)
        for leaf, grad in grads:
            leaf._grad = grad
        return self._traced(plan, args, kwargs, tensors, None, done, table)

    def _traced(
        self,
        plan: Plan | None,
        args: Any,
        kwargs: Any,
        tensors: Sequence[Tensor],
        key: Any,
        done: Sequence[Any] = (),
        table: Table | None = None,
    ) -> Any:
        with self._tracing:
            path = Path() if plan is None else plan.path
            recorder = Recorder(self.fullgraph, path, done, table, self.programs)
            reached = Reached([self.function, *_objects([args, kwargs])])
            try:
                finish = self._recorded(recorder, reached, args, kwargs, tensors)
            except GivenUp as why:
                return self._as_it_is(why, recorder, args, kwargs)
            recorder.path.finish = finish
            if plan is None:
                if recorder.dropped:  # first of all, so that new ones may have their memory
                    path.steps.insert(0, SetGrads([(tensor, None) for tensor in recorder.dropped]))
                plan = Plan(path, recorder, Guards(reached, recorder.guards))
                kind = self.plans.find(key, list)
                kind.append(plan)
                if len(kind) > MOST_PLANS:
                    self._give_up(f"what it reads changed {len(kind)} times between calls that are alike")
            else:
                plan.refresh(recorder)
                if plan.tracings > MOST_DECISIONS:
                    self._give_up(f"values decided {plan.tracings} times anew: {recorder.breaks[-1].where}")
        result = finish.run(recorder.table, tensors)
        recorder.release()
        return result

    def _recorded(
        self, recorder: Recorder, reached: Reached, args: Any, kwargs: Any, tensors: Sequence[Tensor]
    ) -> Finish:
        before = modes.trace
        try:
            for number, tensor in enumerate(tensors):
                recorder.adopt(tensor, number)
            for tensor in reached.tensors.values():
                if tensor._base is not None:
                    recorder.adopt_view(tensor)
                    continue
                is_whole = tensor._base is None and tensor._grad_fn is None and is_real(tensor._array)
                if is_whole and id(tensor) not in recorder.outsiders:
                    recorder.guards.append(("_array", tensor, tensor._array))
                    recorder.guards.append(("_requires_grad", tensor, tensor._requires_grad))
                    recorder.adopt(tensor)
            modes.trace = recorder
            outputs: list[Tensor] = []
            with recording():
                structure = flattened(self.function(*args, **kwargs), outputs)
            recorder.check_memory()
            _check_objects(recorder, structure)
            results, backward = _results(recorder, outputs)
            recorder.close()
            recorder.flush_grads()
            return Finish(structure, results, backward, self._again(recorder, results, args, kwargs))
        except BaseException:
            recorder.undo()
            raise
        finally:
            modes.trace = before
            recorder.restore()

    def _again(self, recorder: Recorder, results: Sequence[Result], args: Any, kwargs: Any) -> Again | None:
        """The function as it is, where running it once more changes nothing."""
        steps = recorder.path.steps
        if recorder.breaks or any(isinstance(step, (Act, SetGrads, Touch)) or _draws(step) for step in steps):
            return None
        structure, function = flattened((args, kwargs), []), self.function
        moving = [place for place, result in enumerate(results) if result.output is not None]

        def again(tensors: Sequence[Tensor]) -> list[Tensor]:
            outputs: list[Tensor] = []
            positional, named = built(structure, tensors)
            flattened(function(*positional, **named), outputs)
            return [outputs[place] for place in moving]

        return again

    def _as_it_is(self, why: GivenUp, recorder: Recorder, args: Any, kwargs: Any) -> Any:
        """Runs the function without a plan, now and from now on."""
        self._give_up(str(why))
        if recorder.acted:
            raise RunError(
                f"{getattr(self.function, '__name__', 'a function')} cannot be recorded: {why}",
                why="a part of it has run already, and would run twice",
                hint="call it again, which runs it as it is, or compile a part of it",
            )
        recorder.rewind()
        return self.function(*args, **kwargs)

    def _give_up(self, why: str) -> None:
        self.eager = why
        warnings.warn(
            f"weft.compile runs {getattr(self.function, '__name__', 'a function')} as it is: {why}", stacklevel=5
        )


def _results(recorder: Recorder, outputs: Sequence[Tensor]) -> tuple[list[Result], Any]:
    """What the results are made of, and their gradients."""
    results: list[Result] = []
    moving: list[Tensor] = []
    for tensor in outputs:
        outside = recorder.outsiders.get(id(tensor))
        if outside is not None:
            results.append(Result(tensor if outside.argument is None else outside.argument))
            continue
        memory: Any = tensor._array
        if not isinstance(memory, StandIn):
            if not recorder.is_fresh(memory):
                results.append(Result(tensor))
                continue
            memory = recorder.value(memory.shape, memory.dtype, recorder.entry_of(tensor))
            recorder.held.append(memory)
        seen = seen_of(memory)
        recorder.held.append(memory)
        if tensor.requires_grad:
            moving.append(tensor)
        whole = seen.number if seen.view is seen.whole else None
        results.append(Result(None, seen, len(moving) - 1 if tensor.requires_grad else None, whole))
    backward = recorder.backward(moving) if moving and modes.grad else None
    for tensor in outputs:
        if id(tensor) not in recorder.outsiders:
            tensor._grad_fn = None
    if isinstance(backward, RunError):
        results = [r if r.output is None else r._replace(output=None, end=backward) for r in results]
        return results, None
    return results, backward


def _check_objects(recorder: Recorder, structure: Any) -> None:
    """Refuses results that are made anew in every call, and that no plan makes: what gives items one after the other,
    and objects that hold tensors."""
    for leaf in leaves(structure):
        if isinstance(leaf, PLAIN):
            continue
        if hasattr(leaf, "__next__"):
            recorder.give_up(f"it returns a {type(leaf).__name__}, which gives its items once")
        if any(isinstance(tensor._array, StandIn) for tensor in _new_tensors(recorder, leaf)):
            recorder.give_up(f"it returns a {type(leaf).__name__} that holds tensors")


def _new_tensors(recorder: Recorder, value: Any) -> list[Tensor]:
    return [tensor for key, tensor in Reached([value]).tensors.items() if key not in recorder.outsiders]


def _draws(step: Any) -> bool:
    """Whether a step is numpy's that reads no tensor: it draws random numbers."""
    return isinstance(step, Host) and not step.inputs


def _key(value: Any, tensors: list[Tensor]) -> Any:
    """What of an argument decides what a function does."""
    kind = type(value)
    if kind is tuple or kind is list:
        return (kind, *[_key(item, tensors) for item in value])
    if isinstance(value, Tensor):
        tensors.append(value)
        array = value._array
        return array.shape, array.dtype, array.strides, value.requires_grad, kind, value.device
    if kind is dict:
        return (kind, *value, *[_key(item, tensors) for item in value.values()])
    if isinstance(value, PLAIN):
        return (kind, value) if value or kind is not float else repr(value)  # which tells 0.0 from -0.0
    if isinstance(value, (tuple, list)):
        return (kind, *[_key(item, tensors) for item in value])
    return kind, id(value), _Held(value)


def _objects(values: Sequence[Any]) -> list[Any]:
    """What of arguments the key does not tell: objects, of which a function may read attributes."""
    found, stack = [], [*values]
    while stack:
        value = stack.pop()
        if isinstance(value, CONTAINERS) and not isinstance(value, (set, frozenset)):
            stack += value.values() if isinstance(value, dict) else value
        elif not isinstance(value, (Tensor, *PLAIN)):
            found.append(value)
    return found


class _Held:
    """Keeps an object, so that its identity stays its own; all are equal."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


def _sharing(tensors: Sequence[Tensor]) -> Any:
    """Which arguments are one tensor, or of one memory."""
    owners = [id(_owner(tensor._array)) for tensor in tensors]
    if len(set(owners)) == len(owners):
        return None
    same = [*map(id, tensors)]
    return tuple([owners.index(owner) for owner in owners]), tuple([same.index(one) for one in same])


def _owner(memory: Any) -> Any:
    """What of memory is one object for all that share it."""
    base = memory.base
    if base is None:
        return getattr(memory, "owner", memory)
    return getattr(base, "owner", base)


def _graphs(path: Path) -> int:
    """How many graphs a plan has."""
    count, stack = 0, [path]
    while stack:
        at = stack.pop()
        count += sum(hasattr(step, "executor") for step in at.steps)
        stack += at.branches.values()
    return count

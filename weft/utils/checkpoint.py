"""Checkpoints: a part of a network that keeps its inputs, and not what it computes on the way; the backward pass
computes that again. It costs one more forward pass and saves the memory of all that lies between."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..base.errors import InvalidValue, RunError
from ..eager.autocast import autocast, get_autocast_dtype, is_autocast_cache_enabled, is_autocast_enabled
from ..eager.autograd.backward import backward
from ..eager.autograd.engine import current_run
from ..eager.autograd.function import Function
from ..eager.autograd.gradient_graph import saved_tensors_hooks
from ..eager.autograd.modes import enable_grad, modes
from ..eager.autograd.node import Node, Saved, saved_class
from ..eager.random.generator import fork_rng, get_rng_state, set_rng_state
from ..eager.tensor.memory import Memory
from ..eager.tensor.tensor import Tensor, tensor_of

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "checkpoint",
    "checkpoint_sequential",
    "noop_context_fn",
    "set_checkpoint_early_stop",
]

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


class CheckpointError(RunError):
    """A function did not compute the second time what it did the first time."""


def noop_context_fn() -> Contexts:
    """Contexts that do nothing, around the first and the second computation."""
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which the backward pass computes what it needs once more.

    With `use_reentrant=False`, which is recommended, each tensor that would be saved is left out, and the second
    computation ends when all are there (`early_stop`); shapes and dtypes must be the same as in the first, unless
    `determinism_check` is "none". With True the function runs unrecorded, and its gradients come from a backward pass
    inside the backward pass: only tensors among `args` get gradients, and `autograd.grad` cannot be used. Random
    numbers are the same both times where `preserve_rng_state` is. Errors are as detailed with `debug` as without.

    >>> from weft import tensor
    >>> x = tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * x).sin() * 2, x, use_reentrant=False).sum().backward()
    >>> x.grad
    tensor([ 2.1612, -5.2291])
    """
    if use_reentrant is None:
        warnings.warn(
            "weft.utils.checkpoint: the use_reentrant parameter should be passed explicitly; use_reentrant=False is "
            "recommended, use_reentrant=True is what holds without it",
            stacklevel=2,
        )
        use_reentrant = True
    if determinism_check not in ("default", "none"):
        raise InvalidValue(f"determinism_check is 'default' or 'none', not {determinism_check!r:.60}")
    if not use_reentrant:
        return _recomputed(
            function, args, kwargs, context_fn(), determinism_check == "default", early_stop, preserve_rng_state
        )
    if context_fn is not noop_context_fn or debug:
        raise InvalidValue("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if kwargs:
        raise InvalidValue(
            f"Unexpected keyword arguments: {','.join(kwargs)}",
            why="with use_reentrant=True a function gets no keyword arguments",
            hint="pass use_reentrant=False",
        )
    return CheckpointFunction.apply(function, preserve_rng_state, *args)


class _Surroundings:
    """What a computation depends on besides its arguments: random numbers and autocast."""

    def __init__(self, preserve_rng_state: bool) -> None:
        self.state = get_rng_state() if preserve_rng_state else None
        self.cast = is_autocast_enabled("cpu"), get_autocast_dtype("cpu"), is_autocast_cache_enabled()

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Inside, all is as it was."""
        enabled, dtype, caching = self.cast
        with fork_rng(enabled=self.state is not None), autocast("cpu", dtype, enabled, caching), enable_grad():
            if self.state is not None:
                set_rng_state(self.state)
            yield


# With a backward pass inside the backward pass.


class CheckpointFunction(Function):
    """Computes unrecorded; its gradient computes once more, recorded, and runs that backward."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        if not any(isinstance(arg, Tensor) and arg.requires_grad for arg in args):
            warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=4)
        ctx.computes, ctx.surroundings = function, _Surroundings(preserve_rng_state)
        ctx.args = [None if isinstance(arg, Tensor) else arg for arg in args]
        ctx.places = [place for place, arg in enumerate(args) if isinstance(arg, Tensor)]
        ctx.save_for_backward(*(args[place] for place in ctx.places))
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        run = current_run()
        if run is not None and run.captures:
            raise RunError(
                "When use_reentrant=True, weft.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward()",
                hint="pass use_reentrant=False",
            )
        args = list(ctx.args)
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            args[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with ctx.surroundings.again():
            returned = ctx.computes(*args)
        outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
        tensors = [output for output in outputs if isinstance(output, Tensor)]
        pairs = [(output, grad) for output, grad in zip(tensors, grads) if output.requires_grad]
        if not pairs:
            raise RunError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([output for output, _ in pairs], [grad for _, grad in pairs])
        return None, None, *(arg.grad if isinstance(arg, Tensor) else None for arg in args)


# With tensors that are computed again when they are asked for.

_early_stop = [True]


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Inside, whether second computations end as soon as they can, whatever their checkpoints say."""
    _early_stop.append(enable)
    try:
        yield
    finally:
        _early_stop.pop()


def _recomputed(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], contexts: Contexts, *options: bool
) -> Any:
    first, second = contexts
    if not modes.grad:
        with first:
            return function(*args, **kwargs)
    frame = _Frame(function, args, kwargs, second, *options)
    with saved_tensors_hooks(frame.leave_out, frame.find), first:
        return function(*args, **kwargs)


class _Place:
    """Stands for the tensor that is saved as the n-th."""

    __slots__ = ("__weakref__", "meta", "number")

    def __init__(self, number: int, tensor: Tensor) -> None:
        self.number, self.meta = number, (tensor._shape, tensor.dtype)


class _Again:
    """A tensor of the second computation. If it is about to be overwritten there, the graph has it take a copy."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property
    def _array(self) -> Memory:
        return self.tensor._array

    def _like(self, memory: Memory) -> _Again:
        self.tensor = self.tensor._like(memory)
        return self


class _Enough(BaseException):
    """Ends a second computation, whichever exceptions the function handles itself."""

    def __init__(self, frame: _Frame) -> None:
        self.frame = frame


class _Frame:
    """One call of a function: how to compute it again, and which tensors it saved."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        context: AbstractContextManager[Any],
        checked: bool,
        early_stop: bool,
        preserve_rng_state: bool,
    ) -> None:
        self.function, self.context, self.checked = function, context, checked
        self.early_stop = early_stop and _early_stop[-1]
        self.surroundings = _Surroundings(preserve_rng_state)
        self.args = [_kept(arg) for arg in args]
        self.kwargs = {name: _kept(arg) for name, arg in kwargs.items()}
        self.places: list[weakref.ref[_Place]] = []
        self.found: weakref.WeakKeyDictionary[Any, dict[int, _Again]] = weakref.WeakKeyDictionary()

    def leave_out(self, tensor: Tensor) -> _Place:
        """What is kept of a tensor that the first computation saves."""
        place = _Place(len(self.places), tensor)
        self.places.append(weakref.ref(place))
        return place

    def find(self, place: _Place) -> Tensor:
        """The tensor, from the second computation of this backward pass; each is handed out once, so that memory is
        free as soon as it can be."""
        run = current_run()
        found = self.found.get(run) if run is not None else None
        if found is None or place.number not in found:
            found = self._compute()
            if run is not None:
                self.found[run] = found
        return found.pop(place.number).tensor

    def _compute(self) -> dict[int, _Again]:
        found: dict[int, _Again] = {}
        count = 0
        alive = {number for number, place in enumerate(self.places) if place() is not None}
        last = max(alive)

        def take(tensor: Tensor) -> _Again:
            nonlocal count
            again = _Again(tensor_of(tensor._array, tensor._counter, None, 0))  # a view would hold its own graph
            if count in alive:
                found[count] = again
            count += 1
            if self.early_stop and count > last:
                raise _Enough(self)
            return again

        args = [_again(arg) for arg in self.args]
        kwargs = {name: _again(arg) for name, arg in self.kwargs.items()}
        try:
            with self.surroundings.again(), self.context, saved_tensors_hooks(take, lambda again: again.tensor):
                self.function(*args, **kwargs)
        except _Enough as end:
            if end.frame is not self:
                raise
        else:
            if len(self.places) != count:
                raise self._differs(f"the first saved {len(self.places)} tensors, the second {count}")
        self._check(found)
        return found

    def _check(self, found: dict[int, _Again]) -> None:
        """Whether what was found looks as what was left out."""
        for number, again in found.items():
            place = self.places[number]()
            meta = (again.tensor._shape, again.tensor.dtype)
            if self.checked and place is not None and place.meta != meta:
                raise self._differs(f"saved tensor {number} was {place.meta} at first and {meta} then")

    def _differs(self, why: str) -> CheckpointError:
        return CheckpointError(
            "weft.utils.checkpoint: a function did not compute the second time what it did the first time",
            why=why,
            hint="a checkpointed function may depend on nothing but its arguments and weft's random numbers",
        )


def _kept(arg: Any) -> Any:
    """An argument for later: a tensor goes the way of tensors that are saved here, so that a checkpoint around this one
    leaves it out, too."""
    if modes.saving is None or not isinstance(arg, Tensor):
        return arg
    return saved_class()(arg, False)


def _again(arg: Any) -> Any:
    return arg.unpack(Node((), ()), tensor_of) if isinstance(arg, Saved) else arg


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Functions, or the modules of a Sequential, one after the other in so many segments; all but the last segment are
    checkpoints.

    >>> from weft import tensor
    >>> x = tensor([0.5], requires_grad=True)
    >>> checkpoint_sequential([lambda x: x * 3, lambda x: x * x], 2, x, use_reentrant=False)
    tensor([2.2500], grad_fn=<MulBackward0>)
    """
    if use_reentrant is None:
        warnings.warn(
            "weft.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly; "
            "use_reentrant=False is recommended, use_reentrant=True is what holds without it",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise InvalidValue(f"Unexpected keyword arguments: {','.join(kwargs)}")
    steps = list(functions.children() if hasattr(functions, "children") else functions)
    size = len(steps) // segments
    for segment in range(segments - 1):
        part = _in_turn(steps[segment * size : (segment + 1) * size])
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _in_turn(steps[(segments - 1) * size :])(input)


def _in_turn(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return run

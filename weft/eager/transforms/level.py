"""A level of `vmap`: what operators do while it is the innermost one. An operator on batched tensors becomes one on
whole batches, by its batching rule; what has none runs for each element of the batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn

from ...base.counters import add_stat_value
from ...base.dtype import is_complex, is_float
from ...base.errors import RunError, Unsupported
from ...core.op import Op
from .. import native
from ..autograd.modes import modes
from ..autograd.node import Grad, Node, Saved
from ..dispatch import apply, end, kernel_of, record
from ..functions.around import Args, Kwargs, Rest
from ..functions.shape.join import stack
from ..random.generator import default_generator
from ..tensor.memory import array_of, checked_elements, memory_of
from ..tensor.tensor import Tensor, tensor_of, wrap
from ..tensor.viewing import place_of, stretched
from .batched import WRITTEN, Batched, ElementsAsked
from .rows import whole_call
from .trees import Tree, flattened

Slices = Sequence[Tensor]


class Call(NamedTuple):
    """An operator applied to a batch, as its batching rule sees it."""

    op: Op
    params: Any
    inputs: Sequence[Tensor]
    batched: Sequence[bool]
    size: int

    def ranks(self) -> list[int]:
        """How many axes each input has besides the batch."""
        return [tensor.ndim - held for tensor, held in zip(self.inputs, self.batched)]

    def whole(self, number: int) -> Tensor:
        """An input with the batch as its first axis, which it may be stretched along."""
        tensor = self.inputs[number]
        return tensor if self.batched[number] else stretched(tensor, (self.size, *tensor._shape))

    def wholes(self) -> list[Tensor]:
        return [self.whole(number) for number in range(len(self.inputs))]


class RandomAsked(Exception):
    """Random numbers are about to be drawn inside a level."""


class Level:
    """One `vmap` that runs: the size of its batch, and what was in its place before."""

    def __init__(self, size: int, randomness: str) -> None:
        self.size, self.randomness = size, randomness
        self.below: Any = None
        self.drawing: Any = None

    def __enter__(self) -> Level:
        self.below, self.drawing = modes.trace, modes.drawing
        modes.trace, modes.drawing = self, self.draw
        return self

    def __exit__(self, *exc: object) -> None:
        modes.trace, modes.drawing = self.below, self.drawing

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Where whole batches are plain tensors, or batches of the level around this one."""
        before = modes.trace, modes.drawing
        modes.trace, modes.drawing = self.below, self.drawing
        try:
            yield
        finally:
            modes.trace, modes.drawing = before

    # Tensors.

    def holds(self, value: object) -> bool:
        """Whether a value is a tensor that is batched at this level."""
        return isinstance(value, Tensor) and isinstance(memory_of(value), Batched) and memory_of(value).level is self

    def whole(self, tensor: Tensor) -> Tensor:
        """All elements of the batch, which one that is not batched is for each of them."""
        if self.holds(tensor):
            return memory_of(tensor).value  # type: ignore[no-any-return]
        return stretched(tensor, (self.size, *tensor._shape))

    def spread(self, value: Tensor, held: bool) -> Tensor:
        """A batch, or what is not batched stretched to one."""
        return value if held else stretched(value, (self.size, *value._shape))

    def lifted(self, tensor: Tensor) -> Tensor:
        """A tensor that is batched at this level."""
        if self.holds(tensor):
            return tensor
        with self.outside():
            return wrap(Batched(self.whole(tensor), self))

    def _one(self, tensor: Tensor, index: int) -> Tensor:
        return place_of(self.whole(tensor), 0, index)

    # Operators.

    def add(self, op: Op, params: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Applies an operator, as dispatch does."""
        batched = [self.holds(tensor) for tensor in inputs]
        with self.outside():
            if True not in batched:
                return apply(op, params, inputs)
            values = [self.whole(tensor) if held else tensor for tensor, held in zip(inputs, batched)]
            call = Call(op, params, values, batched, self.size)
            rule = Op.batching.get(op)
            made = self._each_by_operator(call) if rule is None else rule(call)
            outputs = [wrap(Batched(value, self)) for value in made]
        if modes.grad and any([held and tensor.requires_grad for tensor, held in zip(inputs, batched)]):
            kernel = kernel_of(op)
            ours = [self.lifted(tensor) if tensor.requires_grad else tensor for tensor in inputs]
            (record if kernel.differentiable else end)(kernel, params, ours, outputs)
        return outputs

    # What recordings are asked, too.

    records = True

    def made(self, tensor: Tensor) -> None:
        """Told of every tensor that is made meanwhile, which a recording below wants to know."""
        if self.below is not None:
            self.below.made(tensor)

    def viewed(self, view: Tensor, source: Tensor) -> None:
        """Told of every view that is made meanwhile."""
        if self.below is not None:
            self.below.viewed(view, source)

    def asks_grad(self, tensor: Tensor) -> None:
        """Told when the gradient of a leaf is added to."""
        if self.below is not None:
            self.below.asks_grad(tensor)

    def draws(self, generator: Any) -> None:
        """Told before a generator draws, or is seeded."""
        if self.below is not None:
            self.below.draws(generator)

    def put(self, target: Tensor, result: Tensor) -> None:
        """Writes values to a tensor."""
        for memory in (memory_of(target), memory_of(result)):
            if isinstance(memory, Batched):
                memory.overwrite(target, result)
                return
        with self.outside():
            if self.below is not None:
                self.below.put(target, result)
            elif array_of(result) is not array_of(target):
                native.copy_into(array_of(target), array_of(result))

    def mapped(self, kind: Any, tensor: Tensor, region: Any) -> Any:
        """A map between a base and a part of it, as `view_writes` names them."""
        if self.holds(tensor):
            return memory_of(tensor).each(lambda part: kind.of(part, region))
        with self.outside():
            return memory_of(kind.of(tensor.detach(), region))

    def host(self, function: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        """Memory with what numpy computes of tensors."""
        if self.below is None or any([isinstance(memory_of(tensor), Batched) for tensor in tensors]):
            return function(*[array_of(tensor) for tensor in tensors])
        with self.outside():
            return self.below.host(function, tensors)

    def check(self, check: Callable[..., None], tensor: Tensor) -> None:
        """Has a function look at values, of which each is looked at by itself."""
        if self.below is None:
            check(checked_elements(tensor))
            return
        with self.outside():
            self.below.check(check, memory_of(tensor).value if self.holds(tensor) else tensor)

    def decline(self, why: str) -> None:
        """Said by a function that looks at values, which it then asks for."""
        if self.below is not None:
            self.below.decline(why)

    def _each_by_operator(self, call: Call) -> list[Tensor]:
        tell_loop(call.op.name)
        rows = []
        for index in range(self.size):
            one = [place_of(value, 0, index) if held else value for value, held in zip(call.inputs, call.batched)]
            rows.append(apply(call.op, call.params, one))
        return [_stacked(call.op.name, column) for column in zip(*rows)]

    # Functions that read elements, or draw some.

    def looped(self, name: str, rest: Rest, args: Args, kwargs: Kwargs, draws: bool) -> Any:
        """A call of a function for each element of the batch. One that draws random numbers has for each element its
        own, or for all the same."""
        leaves, tree = flattened((args, kwargs))
        places = [place for place, leaf in enumerate(leaves) if self.holds(leaf)]
        same = draws and self.randomness == "same"
        if same and not places:
            with self.outside():
                return over_batch(name, rest, args, kwargs)
        writes = name.endswith("_")
        if writes:
            _check_written(name, leaves, places)
        generator = kwargs.get("generator") or default_generator
        state = generator.get_state() if same else None

        def one(slices: Slices) -> Any:
            if state is not None:
                generator.set_state(state)
            elif not draws:
                modes.drawing = self.draw
            given = list(leaves)
            for place, tensor in zip(places, slices):
                given[place] = tensor
            positional, named = tree.built(given)
            return over_batch(name, rest, positional, named)

        whole = None if draws or writes else whole_call(name, self, partial(over_batch, name, rest), args, kwargs)
        tensors = [leaves[place] for place in places]
        if whole is not None:
            return self.batch_of(name, whole, tensors, at_once=True)
        made = self.batch_of(name, one, tensors)
        if not draws:
            tell_loop(name)
        if writes:
            leaves[0]._counter[0] += 1
            return leaves[0]
        return made

    def each(self, name: str, function: Callable[..., Any], args: Args) -> Any:
        """A call for each element of the batch of a function whose own gradient is to be kept."""
        level = _holding(self, args, {})
        if level is None:
            raise RunError(f"vmap: {name} got a tensor of a batch outside of the vmap that it is of")
        return level.looped(name, lambda args, kwargs: function(*args), args, {}, draws=False)

    def batch_of(
        self, name: str, function: Callable[[Slices], Any], tensors: Sequence[Tensor], at_once: bool = False
    ) -> Any:
        """What a function of tensors gives for each element of the batch, or for the whole batch at once, as batched
        tensors. It is differentiated by doing the same with its derivative."""
        with self.outside():
            made, tree = self._at_once(function, tensors) if at_once else self._each(name, function, tensors)
        outputs = [value for value in made if self.holds(value)]
        if modes.grad and any([tensor.requires_grad for tensor in tensors]):
            MappedNode.place(self, name, function, at_once, tensors, outputs)
        return tree.built(made)

    def _at_once(self, function: Callable[[Slices], Any], tensors: Sequence[Tensor]) -> tuple[list[Any], Tree]:
        leaves, tree = flattened(function([self.whole(tensor) for tensor in tensors]))
        return [wrap(Batched(leaf, self)) if isinstance(leaf, Tensor) else leaf for leaf in leaves], tree

    def _each(self, name: str, function: Callable[[Slices], Any], tensors: Sequence[Tensor]) -> tuple[list[Any], Tree]:
        rows = [flattened(function([self._one(tensor, i) for tensor in tensors])) for i in range(self.size)]
        if not rows:
            raise Unsupported(f"vmap: {name} over a batch of 0", why="it runs for each element of the batch")
        return [self._together(name, column) for column in zip(*[leaves for leaves, _ in rows])], rows[0][1]

    def _together(self, name: str, column: Sequence[Any]) -> Any:
        first = column[0]
        if isinstance(first, Tensor):
            return wrap(Batched(_stacked(name, column), self))
        if any([value != first for value in column[1:]]):
            raise RunError(
                f"vmap: {name} gives {first!r:.40} for one element of the batch, and another value for the next",
                why="only tensors can differ over a batch",
            )
        return first

    # Random numbers.

    def draw(self) -> NoReturn:
        if self.randomness == "error":
            raise RunError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )
        raise RandomAsked("vmap: random numbers are drawn by something else than a function of tensors")


class MappedNode(Node):
    """The backward call of a function that ran for each element of the batch, or for all at once."""

    level: Level
    function: Callable[[Slices], Any]
    what: str
    at_once: bool
    saved: list[Saved]

    @classmethod
    def place(
        cls,
        level: Level,
        name: str,
        function: Callable[[Slices], Any],
        at_once: bool,
        tensors: Slices,
        outputs: Sequence[Tensor],
    ) -> None:
        """Gives outputs their place in the graph."""
        flowing = [tensor for tensor in outputs if is_float(tensor._dtype) or is_complex(tensor._dtype)]
        if not flowing:
            return
        node = cls(tuple([tensor._edge() for tensor in tensors]), tuple([(out._shape, out._dtype) for out in flowing]))
        node.level, node.function, node.what, node.at_once = level, function, name, at_once
        node.saved = [Saved(tensor, False) for tensor in tensors]
        for index, output in enumerate(flowing):
            output._requires_grad, output._grad_fn, output._output_nr = True, node, index

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        tensors = [saved.unpack(self, tensor_of) for saved in self.saved]
        wanted = [target is not None for target, _ in self.next_functions]
        count, known = len(tensors), [place for place, grad in enumerate(grads) if grad is not None]

        def pulled(slices: Slices) -> Any:
            return DERIVED[0](self.function, slices[:count], wanted, dict(zip(known, slices[count:])))

        given = [*tensors, *[grads[place] for place in known]]
        found = iter(self.level.batch_of(self.what, pulled, given, self.at_once))
        return [next(found) if want else None for want in wanted]


DERIVED: list[
    Callable[..., Any]
] = []  # of derivatives.py: gradients of a function at slices, given those of its results


def _stacked(name: str, column: Sequence[Tensor]) -> Tensor:
    shapes = {tensor._shape for tensor in column}
    if len(shapes) > 1:
        raise RunError(
            f"vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over {name}",
            why=f"elements of the batch give {', '.join(sorted(str(list(shape)) for shape in shapes))}",
        )
    made: Tensor = stack(list(column))
    return made


def _check_written(name: str, leaves: Sequence[Any], places: Sequence[int]) -> None:
    """Refuses writes to what is not batched, and those that gradients would have to know of."""
    if 0 not in places:
        raise RunError(WRITTEN)
    if modes.grad and any([leaves[place].requires_grad for place in places]):
        raise Unsupported(
            f"{name} of a batched tensor that is differentiated", hint="use the function that gives a copy"
        )


_told: set[str] = set()


def tell_loop(name: str) -> None:
    """Counts a loop over the batch, and warns of the first one of an operator."""
    add_stat_value("weft.vmap_loops", 1)
    if name not in _told:
        _told.add(name)
        warnings.warn(
            f"There is a performance drop because vmap has no batching rule for {name}: it runs for each element of "
            "the batch.",
            stacklevel=2,
        )


def current_level() -> Level | None:
    """The innermost `vmap` of this thread."""
    return modes.trace if isinstance(modes.trace, Level) else None


def over_batch(name: str, rest: Rest, args: Args, kwargs: Kwargs) -> Any:
    """The layer around calls of functions while a `vmap` runs."""
    level = current_level()
    if level is None:
        return rest(args, kwargs)
    try:
        return rest(args, kwargs)
    except ElementsAsked:
        holding = _holding(level, args, kwargs)
        if holding is None or name.endswith("Backward0"):
            raise
    except RandomAsked:
        return level.looped(name, rest, args, kwargs, draws=True)
    try:
        return holding.looped(name, rest, args, kwargs, draws=False)
    except RandomAsked:
        return holding.looped(name, rest, args, kwargs, draws=True)


def _holding(level: Level | None, args: Args, kwargs: Kwargs) -> Level | None:
    """The innermost level at which an argument is batched."""
    leaves, _ = flattened((args, kwargs))
    while level is not None and not any([level.holds(leaf) for leaf in leaves]):
        level = level.below if isinstance(level.below, Level) else None
    return level

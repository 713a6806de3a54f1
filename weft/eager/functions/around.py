"""What goes on around calls of the function table while someone asked for it: autocast changes arguments, a profiler
takes times. Outside of that a call pays for one look at an empty list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Rest = Callable[[Args, Kwargs], Any]  # what is left of a call
Layer = Callable[[str, Rest, Args, Kwargs], Any]  # of the function's name; `weft` is not said, other spaces are

LAYERS: list[Layer] = []  # the innermost first; one stands there as often as it was asked for
ALWAYS: list[Layer] = []  # those of them that stay from when they are first needed
# Who is told when Python asks a tensor for its sizes or values, and gives the answer: functions of what is asked
# ("shape", "item", "bool" ...), the tensor, and what it is.
LISTENERS: list[Callable[[str, Any, Any], Any]] = []


def is_watched() -> bool:
    """Whether someone asked for layers that go again."""
    return len(LAYERS) > len(ALWAYS)


@contextmanager
def around_calls(layer: Layer) -> Iterator[None]:
    """Puts a layer around the calls of a block, and of other threads meanwhile, which a layer may let pass."""
    LAYERS.append(layer)
    try:
        yield
    finally:
        LAYERS.remove(layer)


def through(name: str, rest: Rest, args: Args, kwargs: Kwargs) -> Any:
    """A call through every layer, each once."""
    if len(LAYERS) == 1:
        return LAYERS[0](name, rest, args, kwargs)
    for layer in dict.fromkeys(LAYERS):
        rest = partial(layer, name, rest)
    return rest(args, kwargs)


def answered(what: str, tensor: Any, answer: Any) -> Any:
    """An answer, as those have it that listen."""
    for listener in LISTENERS:
        answer = listener(what, tensor, answer)
    return answer


def layered(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that goes through the layers; what is called often asks first whether there are some."""

    def rest(args: Args, kwargs: Kwargs) -> Any:
        return function(*args, **kwargs)

    return lambda *args: through(name, rest, args, {})

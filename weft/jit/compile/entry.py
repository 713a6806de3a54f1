"""`weft.compile`: models by `weft.compiler`, Python functions and modules by tracing."""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module
from typing import Any

from ...base.errors import InvalidValue
from ...compiler.model import compile as compile_model

_MISSING: Any = object()


def compile(model: Any = _MISSING, *, fullgraph: bool = False, dynamic: bool | None = None, **options: Any) -> Any:
    """Compiles a Python function of tensors, a module, or a model: a file, bytes, a Symbol, a pair.

    A function is run once on stand-ins for its tensors, and what it does becomes native programs: operators, gradients
    that `backward()` computes inside, what it writes to tensors, and steps of optimisers. Later calls of the same kind
    (shapes, dtypes, numbers, attributes that it may read) run those. Where it asks for a value, as `if x.sum() > 0`
    does, the program is split, and goes on by the value; with `fullgraph=True` that is an error. `explain()` tells
    where. What a function does to Python objects, as printing, happens while it is traced only.

    The first sizes have programs of their own; with the second, sizes that differ get names, and one program serves
    those and all that come. `dynamic=False` makes a program for each size, `dynamic=True` one for many from the first
    call on.

    Functions of tensors on a GPU become programs of that, one for each size; `precision` is what those compute in, as
    for models. For models, all other options are those of `weft.compiler.compile`.

    >>> import weft
    >>> @weft.compile
    ... def scaled(x, factor):
    ...     return (x * factor).relu()
    >>> scaled(weft.tensor([-1.0, 2.0]), 3)
    tensor([0., 6.])
    """
    if model is _MISSING:
        return partial(compile, fullgraph=fullgraph, dynamic=dynamic, **options)
    if isinstance(model, (str, os.PathLike)):  # which may be compiled already: nothing else is loaded for it
        return compile_model(model, **options)
    precision = options.get("precision", "fp32")
    made = import_module(".functions", __package__).compiled(model, fullgraph, dynamic, precision)
    return compile_model(model, **options) if made is None else _checked(model, made, options)


PYTORCH_OPTIONS = {"backend", "mode", "options", "disable"}
KNOWN = PYTORCH_OPTIONS | {"precision"}


def _checked(given: Any, made: Any, options: dict[str, Any]) -> Any:
    """PyTorch's options choose among its backends, of which there is one here."""
    unknown = options.keys() - KNOWN
    if unknown:
        raise InvalidValue(f"a function is compiled without {', '.join(sorted(unknown))}", why="that is for models")
    return given if options.get("disable") else made

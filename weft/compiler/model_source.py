"""What a compiled model is made from, and the same as plain data that pickle can keep: nothing in
it names code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..base.cpu_target import host
from ..base.dtype import DType, as_dtype, dtype_name
from ..base.errors import Error, FormatError, InvalidValue
from ..base.param_dict import load_param_dict, save_param_dict
from ..base.shape import Shape, given_shapes
from ..base.target import Target
from ..core.graph import Graph
from ..core.json_load import graph_from_json
from ..core.json_save import graph_to_json
from ..core.symbol import Symbol
from ..runtime.program import Array
from .backends import backend_of

HOST = "cpu"  # whatever machine the model is loaded on
SPECIALISE = ("never", "auto", "always")


class ModelSource(NamedTuple):
    """A model and how it is to be compiled."""

    symbol: Symbol
    params: dict[str, Array]
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, DType]
    target: Target
    threads: int | None
    opt_level: int
    specialise: str = "never"
    precision: str = "fp32"

    @property
    def passes(self) -> tuple[str, ...]:
        """Those that run for its precision, whatever the level."""
        return passes_for(self.precision, self.target)

    def __repr__(self) -> str:
        return f"ModelSource({self.symbol!r} with {len(self.params)} parameters for {self.target.isa})"


def checked_specialise(when: object) -> str:
    """When code is made for the sizes of a call alone."""
    if when not in SPECIALISE:
        raise InvalidValue(f"specialise {when!r}", why="it is one of " + ", ".join(map(repr, SPECIALISE)))
    return str(when)


def checked_precision(precision: object, target: Target) -> str:
    """What a model is computed in: one of those that the target's backend has."""
    known = backend_of(target).precisions
    if precision not in known:
        names = ", ".join(map(repr, known))
        raise InvalidValue(f"precision {precision!r}", why=f"on a target of kind {target.kind!r} it is one of {names}")
    return str(precision)


def passes_for(precision: str, target: Target) -> tuple[str, ...]:
    """The passes that see to a precision on a target."""
    chosen = backend_of(target).precisions[precision]
    return (*chosen.passes, *(name for name, holds in chosen.further.items() if holds(target)))


def computing_in(precision: str, target: Target) -> Target:
    """The target with the options of a precision."""
    options = backend_of(target).precisions[precision].options
    return target.changed(**options) if options else target


def packed(source: ModelSource) -> tuple[str, bytes]:
    """The source as JSON text and the bytes of its parameters."""
    fields = {
        "graph": graph_to_json(Graph(source.symbol.outputs)),
        "shapes": source.shapes,
        "dtypes": {name: dtype_name(dtype) for name, dtype in source.dtypes.items()},
        "target": HOST if source.target == host() else str(source.target),
        "threads": source.threads,
        "opt_level": source.opt_level,
        "specialise": source.specialise,
        "precision": source.precision,
    }
    return json.dumps(fields), bytes(save_param_dict(source.params))


def unpacked(state: Any) -> ModelSource:
    """The source that `packed` was given; every part is checked."""
    try:
        text, data = state
        fields = json.loads(text)
        target = host() if fields["target"] == HOST else Target.create(fields["target"])
        return ModelSource(
            Symbol(graph_from_json(fields["graph"]).outputs),
            {name: value.numpy() for name, value in load_param_dict(data).items()},
            given_shapes(fields["shapes"]),
            {name: as_dtype(dtype) for name, dtype in fields["dtypes"].items()},
            target,
            fields["threads"],
            fields["opt_level"],
            checked_specialise(fields["specialise"]),
            checked_precision(fields.get("precision", "fp32"), target),
        )
    except Error as error:
        error.at("pickled model")
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FormatError("this is no pickled model of weft", why=str(error)) from None

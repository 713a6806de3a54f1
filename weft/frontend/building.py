"""Building: what a converter of any importer makes its answer with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ..base.dtype import DTYPES, FLOAT32, DType
from ..base.errors import OpenShapes, Unsupported
from ..base.shape import StaticShape, is_static, numel, open_shapes, show
from .emitter import Emitter, Value

NARROW = (DTYPES["float16"], DTYPES["bfloat16"])
LARGEST_TABLE = 1 << 24  # elements of an array that follows from shapes, not from stored data


class Building:
    """Makes values for one node of the model, and names them after it."""

    def __init__(self, emitter: Emitter, op_type: str, name: str) -> None:
        self.emitter = emitter
        self.op_type = op_type
        self.name = emitter.fresh_name(name)
        self._count = 0
        self._made: list[Value] = []
        self.inputs: list[Any] = []

    # What is known of a value.

    def shape(self, value: Value, what: str = "the input") -> StaticShape:
        """A shape in which every dimension is a number."""
        if not is_static(value.shape):
            raise self.undetermined(
                f"the shape {show(value.shape)} of {what} is not known", f"{self.op_type} is converted by it"
            )
        return value.shape

    def rank(self, value: Value, what: str = "the input") -> int:
        if value.rank is None:
            raise self.undetermined(f"the rank of {what} is not known")
        return value.rank

    def undetermined(self, what: str, why: str | None = None) -> OpenShapes:
        """The error for what may follow from the shapes of inputs, once they are given."""
        return open_shapes(what, self.emitter.model_inputs, why=why)

    def dtype(self, value: Value) -> DType:
        if value.dtype is None:
            raise self.undetermined(f"the dtype of {value.name!r} is not known")
        return value.dtype

    # What is made.

    def op(self, op_name: str, *inputs: Value, **attrs: Any) -> Any:
        """A weft operator on values: one value, or a list of its outputs."""
        self._count += 1
        name = f"{self.name}_{op_name.strip('_')}{self._count}"
        made = self.emitter.apply(op_name, name, list(inputs), attrs)
        self._made += made if isinstance(made, list) else [made]
        return made

    def make(self, data: Any, dtype: DType | None = None) -> Value:
        """A constant."""
        self._count += 1
        made = self.emitter.constant(f"{self.name}_const{self._count}", np.asarray(data, dtype))
        self._made.append(made)
        return made

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """A static reshape, or nothing where the shape is already that."""
        shape = tuple(int(dim) for dim in shape)
        if value.shape == shape:
            return value
        if value.constant is not None:
            return self.make(value.constant.reshape(shape))
        if 0 in shape and is_static(value.shape):  # 0 means "keep" to the operator
            return self.op("zeros", shape=shape, dtype=self.dtype(value))
        return self.op("reshape", value, shape=shape)

    def positions(self, extent: int, axis: int, rank: int, dtype: DType) -> Value:
        """0, 1, 2... along one of several axes."""
        made = self.op("arange", start=0, stop=extent, step=1, dtype=dtype)
        return self.reshape(made, [extent if a == axis % rank else 1 for a in range(rank)])

    def check_table(self, *extents: int) -> None:
        """Raises before an array is made whose size only a shape has said."""
        if numel([dim for dim in extents if dim]) > LARGEST_TABLE:
            raise Unsupported(f"{self.op_type} needs a table of {show(tuple(extents))} elements")

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.dtype == dtype else self.op("cast", value, dtype=dtype)

    def widened(self, value: Value) -> Value:
        """The value in float32 where its dtype is a narrower float, as steps between are computed;
        the result is cast to what it should be."""
        return self.cast(value, FLOAT32) if value.dtype in NARROW else value

    def broadcast_to(self, value: Value, shape: StaticShape) -> Value:
        """The value stretched to a shape of equal or larger rank."""
        known = value.constant
        if known is not None and known.size == 1 and value.shape != shape:
            fill = known.reshape(()).item()
            if not isinstance(fill, int) or float(fill) == fill:  # an attribute is a float
                fill = int(fill) if isinstance(fill, bool) else fill
                return self.op("full", shape=shape, dtype=self.dtype(value), fill_value=fill)
        missing = len(shape) - self.rank(value)
        if missing:
            value = self.op("expand_dims", value, axis=0, num_newaxis=missing)
        if value.shape == shape:
            return value
        if 0 in shape:  # 0 means "keep" to the operator
            return self.op("zeros", shape=shape, dtype=self.dtype(value))
        return self.op("broadcast_to", value, shape=shape)

    def sliced(self, value: Value, parts: dict[int, tuple[int, int, int]]) -> Value:
        """A slice along some axes, each as Python's slice.indices gives it."""
        shape = value.shape
        extents = {axis: len(range(*part)) for axis, part in parts.items()}
        if all(shape[axis] == extents[axis] and part[2] == 1 for axis, part in parts.items()):
            return value
        if value.constant is not None:
            return self.make(value.constant[_indices(parts)])
        if 0 in extents.values():
            full = tuple(extents.get(axis, dim) for axis, dim in enumerate(self.shape(value)))
            return self.op("zeros", shape=full, dtype=self.dtype(value))
        last = max(parts) + 1
        bounds = [parts.get(axis) or (0, 2**31 - 1, 1) for axis in range(last)]
        # An end of -1 that slice.indices gives for a negative step means "past the front".
        ends = tuple(-shape[a] - 1 if stop < 0 else stop for a, (_, stop, _) in enumerate(bounds))
        return self.op(
            "strided_slice",
            value,
            begin=tuple(start for start, _, _ in bounds),
            end=ends,
            stride=tuple(step for _, _, step in bounds),
        )


def in_float32(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A converter that composes operators: of float16 and bfloat16 they compute in float32, so
    that nothing between overflows, and only the result is rounded."""

    @wraps(convert)
    def widened(call: Building) -> Any:
        dtype = call.inputs[0].dtype if call.inputs and call.inputs[0] is not None else None
        if dtype not in NARROW:
            return convert(call)
        call.inputs = [value and call.widened(value) for value in call.inputs]
        made = convert(call)
        if isinstance(made, list):
            return [value and call.cast(value, dtype) for value in made]
        return call.cast(made, dtype)

    return widened


def _indices(parts: dict[int, tuple[int, int, int]]) -> tuple[slice, ...]:
    rows = [parts.get(axis) for axis in range(max(parts) + 1)]
    return tuple(slice(None) if row is None else slice(row[0], row[1] if row[1] >= 0 else None, row[2]) for row in rows)

"""Building: what a converter of any importer makes its answer with."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ..base.bits import MersenneTwister
from ..base.dtype import BOOL, DTYPES, FLOAT32, INT64, DType
from ..base.errors import FormatError, OpenShapes, RegistryError, Unsupported
from ..base.extents import Extent
from ..base.shape import Dim, StaticShape, broadcast, is_static, normalize_axis, numel, open_shapes, show
from .emitter import Emitter, Value

if TYPE_CHECKING:
    from .nodes import ImportedNode

NARROW = (DTYPES["float16"], DTYPES["bfloat16"])
LARGEST_TABLE = 1 << 24  # elements of an array that follows from shapes, not from stored data

AnyCall = TypeVar("AnyCall", bound="Building")
Answer = TypeVar("Answer", "Value", "list[Value]")


class Alike(NamedTuple):
    """An operator that is the same but for the names of attributes."""

    op: str
    attrs: Mapping[str, str] = MappingProxyType({})  # the name here -> the name there


def _renamed(words: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in words.split())
    return {here: there or here for here, _, there in pairs}


def alike_rows(text: str) -> dict[str, Alike]:
    """A table of operators that are alike, a line each: both names, then the attributes of both.

    >>> alike_rows("LRN lrn alpha nsize=size")
    {'LRN': Alike(op='lrn', attrs={'alpha': 'alpha', 'nsize': 'size'})}
    """
    rows = ((*line.split(maxsplit=2), "") for line in text.splitlines() if line.strip())
    return {name: Alike(op, _renamed(words)) for name, op, words, *_ in rows}


class Building:
    """A node of the model as its converter sees it: its attributes and inputs, and what makes values that are named
    after it."""

    def __init__(self, emitter: Emitter, node: ImportedNode, inputs: Sequence[Value | None]) -> None:
        self.emitter = emitter
        self.node = node
        self.op_type = node.op_type
        self.name = self.constant_name = emitter.fresh_name(node.name)  # of the first result; and if it is known
        self.inputs = list(inputs)
        self.wanted = frozenset(node.wanted)  # the outputs that the graph uses
        self._read: set[str | int] = set()
        self._count = 0
        self._results: list[Value] = []

    # What the node has.

    def attr(self, name: str) -> Any:
        """An attribute as given, else by default, of formats that have defaults."""
        self._read.add(name)
        if name not in self.node.attributes:
            raise FormatError(f"attribute {name!r} is missing")
        return self.node.attributes[name]

    def is_default(self, name: str) -> bool:
        """Whether an attribute that is given says nothing that matters."""
        return False

    def attrs(self, words: str) -> dict[str, Any]:
        """Attributes as those of a weft operator: "alpha nsize=size" are alpha, and nsize in place of its size."""
        return {there: self.attr(here) for here, there in _renamed(words).items()}

    def __getitem__(self, index: int) -> Value:
        """An input that must be there."""
        value = self.get(index)
        if value is None:
            raise FormatError(f"input {index} is missing")
        return value

    def get(self, index: int) -> Value | None:
        """An input, or None if it is left out."""
        self._read.add(index)
        return self.inputs[index] if index < len(self.inputs) else None

    def all(self) -> list[Value]:
        """Every input, of which there must be one at least."""
        return [self[i] for i in range(max(len(self.inputs), 1))]

    def ignore(self, *parts: str | int) -> None:
        """Says that attributes, or inputs by number, make no difference at inference."""
        self._read.update(parts)

    def only_first_output(self) -> None:
        if self.wanted - {0}:
            raise Unsupported(
                f"{self.op_type} with more than its first output is not supported",
                why="the others belong to training, or have no counterpart",
            )

    def check_all_read(self) -> None:
        """What the converter has not looked at must not be there: nothing is dropped in silence."""
        for name, value in self.node.attributes.items():
            if name not in self._read and not self.is_default(name):
                raise Unsupported(f"{self.op_type} with attribute {name!r} = {value!r:.80}")
        for index, value in enumerate(self.inputs):
            if index not in self._read and value is not None:
                raise Unsupported(f"{self.op_type} with input {index} ({value.name!r})")

    # Values of inputs that decide what the node becomes.

    def constant(self, index: int, what: str) -> np.ndarray:
        """The value of an input that must be known at import."""
        value = self[index]
        if index not in self.node.rule.decides:
            raise RegistryError(
                f"the converter of {self.op_type} asks for the value of input {index}",
                hint=f"register it as @converter({self.op_type!r}, decides=(..., {index}))",
            )
        known = self.emitter.computed(value)
        if known is None:
            raise self.undetermined(
                f"{what} is only known when the model runs",
                f"it comes from {value.name!r}, which does not follow from constants",
            )
        return known

    def ints(self, index: int, what: str) -> list[int]:
        """A constant input as a flat list of ints."""
        return [int(item) for item in np.ravel(self.constant(index, what))]

    def extents(self, index: int, what: str) -> list[int | Extent]:
        """An input as a flat list of ints, and of extents where they follow from the shapes of inputs."""
        symbolic = self[index].extents
        return list(symbolic.flat) if symbolic is not None else list(self.ints(index, what))

    def optional_ints(self, index: int, what: str) -> list[int] | None:
        """The same; None if it is left out."""
        return None if self.get(index) is None else self.ints(index, what)

    def number(self, index: int, what: str, default: float | None = None) -> float:
        """A constant input as one number."""
        if default is not None and self.get(index) is None:
            return default
        value = self.constant(index, what)
        if value.size != 1:
            raise FormatError(f"{what} must be one number, not {value.size}")
        number: float = value.reshape(()).item()
        return number

    # What is known of a value.

    def shape(self, value: Value, what: str = "the input") -> StaticShape:
        """A shape in which every dimension is a number."""
        if not is_static(value.shape):
            raise self.undetermined(
                f"the shape {show(value.shape)} of {what} is not known", f"{self.op_type} is converted by it"
            )
        return value.shape

    def told(self, dims: Iterable[int | Extent | Dim]) -> tuple[int | str, ...]:
        """Dimensions that are numbers or expressions."""
        made = tuple(dim.dim if isinstance(dim, Extent) else dim for dim in dims)
        if None in made:
            raise self.undetermined(f"the shape {show(made)} is not known")
        return tuple(dim if isinstance(dim, str) else int(dim) for dim in made if dim is not None)

    def dims(self, value: Value, what: str = "the input") -> tuple[Dim, ...]:
        """A shape of which at least the rank is known."""
        if value.shape is None:
            raise self.undetermined(f"the rank of {what} is not known")
        return value.shape

    def trailing(self, value: Value, axis: int) -> StaticShape:
        """The dimensions from an axis on, which must be numbers."""
        dims = self.dims(value)[axis:]
        return dims if is_static(dims) else self.shape(value)[axis:]

    def rank(self, value: Value, what: str = "the input") -> int:
        return len(self.dims(value, what))

    def extent(self, value: Value, axis: int) -> int:
        """One dimension, which must be a number."""
        dim = self.dims(value)[axis]
        return dim if isinstance(dim, int) else self.shape(value)[axis]

    def axis(self, axis: int, value: Value) -> int:
        """An axis of a value, counted from the front."""
        return normalize_axis(axis, self.rank(value))

    def axes(self, axes: Iterable[int] | None, value: Value) -> tuple[int, ...]:
        """Some axes of a value in their order, or all of them."""
        every = range(self.rank(value))
        return tuple(every) if axes is None else tuple(sorted({self.axis(axis, value) for axis in axes}))

    def undetermined(self, what: str, why: str | None = None) -> OpenShapes:
        """The error for what may follow from the shapes of inputs, once they are given."""
        return open_shapes(what, self.emitter.model_inputs, why=why)

    def dtype(self, value: Value) -> DType:
        if value.dtype is None:
            raise self.undetermined(f"the dtype of {value.name!r} is not known")
        return value.dtype

    # What is made.

    def op(self, op_name: str, *inputs: Value, **attrs: Any) -> Value:
        """A weft operator on values: its one output."""
        (output,) = self.ops(op_name, *inputs, **attrs)
        return output

    def ops(self, op_name: str, *inputs: Value, **attrs: Any) -> list[Value]:
        """A weft operator on values: all its outputs."""
        self._count += 1
        name = f"{self.name}_{op_name.strip('_')}{self._count}"
        outputs = self.emitter.apply(op_name, name, list(inputs), attrs)
        self._results += outputs
        return outputs

    def make(self, data: Any, dtype: DType | None = None) -> Value:
        """A constant."""
        self._count += 1
        constant = self.emitter.constant(f"{self.name}_const{self._count}", np.asarray(data, dtype))
        self._results.append(constant)
        return constant

    def alike(self, how: Alike) -> list[Value]:
        """The operator that is the same, on all inputs."""
        return self.ops(how.op, *self.all(), **{there: self.attr(here) for here, there in how.attrs.items()})

    def name_first(self, results: Sequence[Value | None]) -> None:
        """Gives the operator that makes the first result the name that the node has."""
        first = results[0] if results else None
        if first is not None and any(first is value for value in self._results):
            self.emitter.rename(first, self.name if first.constant is None else self.constant_name)

    def random_state(self, seed: int | None = None) -> Value:
        """The state that a seed begins with; without one it begins anywhere."""
        words = MersenneTwister(secrets.randbits(32) if seed is None else seed).state()
        return self.emitter.constant(f"{self.name}_random_state", words)

    def make_extents(self, values: Any, dtype: DType = INT64) -> Value:
        """Integers, of which some follow from names of extents."""
        self._count += 1
        made = self.emitter.extents(f"{self.name}_extents{self._count}", values, dtype)
        self._results.append(made)
        return made

    def reshape(self, value: Value, shape: Sequence[int | Extent | Dim]) -> Value:
        """A reshape to extents, or nothing where the shape is already that."""
        shape = self.told(shape)
        if value.shape == shape:
            return value
        if value.constant is not None and is_static(shape):
            return self.make(value.constant.reshape(shape))
        if 0 in shape and (is_static(value.shape) or not is_static(shape)):  # 0 means "keep" to the operator
            return self.zeros(shape, self.dtype(value))
        return self.op("reshape", value, shape=_texts(shape))

    def zeros(self, shape: Sequence[int | str], dtype: DType) -> Value:
        return self.op("zeros", shape=_texts(shape), dtype=dtype)

    def flat(self, value: Value) -> Value:
        """All elements along one axis."""
        return self.reshape(value, (numel(self.shape(value)),))

    def transposed(self, value: Value, axes: Iterable[int]) -> Value:
        """The axes in another order, or nothing where it is the same."""
        order = tuple(self.axis(axis, value) for axis in axes)
        return value if order == tuple(range(self.rank(value))) else self.op("transpose", value, axes=order)

    def joined(self, values: Sequence[Value], axis: int) -> Value:
        """Values one after the other along an axis."""
        return values[0] if len(values) == 1 else self.op("concatenate", *values, axis=axis)

    def scaled(self, value: Value, factor: float) -> Value:
        return self.op("__mul_scalar__", value, scalar=factor)

    def shifted(self, value: Value, number: float) -> Value:
        return self.op("__add_scalar__", value, scalar=number)

    def square(self, value: Value) -> Value:
        return self.op("elemwise_mul", value, value)

    def centred(self, value: Value, axes: Sequence[int]) -> tuple[Value, Value]:
        """The mean over some axes, which stay, and the value without it."""
        mean = self.op("mean", value, axis=tuple(axes), keepdims=True)
        return mean, self.op("broadcast_sub", value, mean)

    def reduced(self, op_name: str, value: Value, axes: Sequence[int], keep: bool) -> Value:
        """A reduction over some axes as numpy has it: over all of them it leaves no axis, over none nothing changes."""
        if not axes:
            return value
        outcome = self.op(op_name, value, axis=tuple(axes), keepdims=keep)
        whole = not keep and len(axes) == self.rank(value)  # NNVM's form of which has shape (1,)
        return self.reshape(outcome, ()) if whole else outcome

    def is_true(self, value: Value) -> Value:
        """0 and 1 in the dtype of the value, which is true where it is not 0."""
        return self.op("broadcast_not_equal", value, self.make(0, self.dtype(value)))

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        """The first where the condition is not 0, else the second; all three broadcast together."""
        parts = [self.cast(condition, BOOL), x, y]
        if not condition.shape == x.shape == y.shape:
            shape = broadcast(*(self.dims(part) for part in parts))
            parts = [self.broadcast_to(part, shape or ()) for part in parts]
        return self.op("where", *parts)

    def positions(self, extent: int | str, axis: int, rank: int, dtype: DType) -> Value:
        """0, 1, 2... along one of several axes."""
        line = self.op("arange", start=0, stop=Extent.of(extent), step=1, dtype=dtype)
        return self.reshape(line, [extent if a == axis % rank else 1 for a in range(rank)])

    def counted(self, extent: int | str, dtype: DType) -> Value:
        """An extent as a tensor of one number."""
        if isinstance(extent, int):
            return self.make([extent], dtype)
        return self.op("full", shape=(1,), dtype=dtype, fill_value=Extent.of(extent))

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

    def broadcast_to(self, value: Value, shape: Sequence[Dim]) -> Value:
        """The value stretched to a shape of equal or larger rank."""
        shape, known = self.told(shape), value.constant
        if known is not None and known.size == 1 and value.shape != shape:
            fill = known.reshape(()).item()
            if not isinstance(fill, int) or float(fill) == fill:  # an attribute is a float
                fill = int(fill) if isinstance(fill, bool) else fill
                return self.op("full", shape=_texts(shape), dtype=self.dtype(value), fill_value=fill)
        missing = len(shape) - self.rank(value)
        if missing:
            value = self.op("expand_dims", value, axis=0, num_newaxis=missing)
        if value.shape == shape:
            return value
        if 0 in shape:  # 0 means "keep" to the operator
            return self.zeros(shape, self.dtype(value))
        return self.op("broadcast_to", value, shape=_texts(shape))

    def sliced(self, value: Value, parts: dict[int, tuple[int, int, int]]) -> Value:
        """A slice along some axes, each as Python's slice.indices gives it."""
        shape = self.dims(value)
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
        ends = tuple(-self.extent(value, a) - 1 if stop < 0 else stop for a, (_, stop, _) in enumerate(bounds))
        return self.op(
            "strided_slice",
            value,
            begin=tuple(start for start, _, _ in bounds),
            end=ends,
            stride=tuple(step for _, _, step in bounds),
        )


def in_float32(convert: Callable[[AnyCall], Answer]) -> Callable[[AnyCall], Answer]:
    """A converter that composes operators: of float16 and bfloat16 they compute in float32, so
    that nothing between overflows, and only the result is rounded."""

    @wraps(convert)
    def widened(call: AnyCall) -> Answer:
        first = call.inputs[0] if call.inputs else None
        if first is None or first.dtype is None or first.dtype not in NARROW:
            return convert(call)
        dtype = first.dtype
        call.inputs = [value and call.widened(value) for value in call.inputs]
        answer = convert(call)
        if isinstance(answer, list):
            return [call.cast(value, dtype) for value in answer]
        return call.cast(answer, dtype)

    return widened


def _texts(dims: Sequence[int | str]) -> tuple[int | Extent, ...]:
    """Dimensions as attributes hold them."""
    return tuple(dim if isinstance(dim, int) else Extent.of(dim) for dim in dims)


def _indices(parts: dict[int, tuple[int, int, int]]) -> tuple[slice, ...]:
    rows = [parts.get(axis) for axis in range(max(parts) + 1)]
    return tuple(slice(None) if row is None else slice(row[0], row[1] if row[1] >= 0 else None, row[2]) for row in rows)

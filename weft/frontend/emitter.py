"""What importers build graphs with: values with facts come in, operators go out as symbols.

Every value knows its shape and dtype as soon as it is made, and a small value that follows from
constants alone is computed at once. So the arithmetic on shapes that exporters write disappears.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import ops  # noqa: F401  registers the operators
from ..base.dtype import DType, as_dtype, dtype_name
from ..base.errors import OutOfMemory
from ..base.extents import Extent, names_of
from ..base.ndarray import NDArray, array
from ..base.shape import Shape, StaticShape, is_static, numel, show
from ..core.infer import infer_node
from ..core.interpret import evaluate, run_reference
from ..core.ir import UNKNOWN, Fact, topo_order
from ..core.op import Op
from ..core.pattern import OpPattern
from ..core.schema import text_of
from ..core.symbol import Symbol, Variable, apply_op
from ..core.symbolic import names_in, symbolic_names
from ..ops.control_flow import control
from . import symbolic

FOLDED_ELEMENTS = 1 << 16  # what is larger stays an operator; the compiler folds it
_LARGEST = 1 << 48

# What a value is; all but tensors of numbers is read by host steps only.
TENSOR, TEXT, SEQUENCE, TEXTS = "tensor", "tensor of text", "sequence", "sequence of text"


class Value:
    """A tensor during import: a symbol, a constant, or a constant that has become a parameter; or a few integers, of
    which some follow from the names of extents (`extents`: an array of ints and Extents)."""

    __slots__ = ("_symbol", "constant", "extents", "fact", "is_fixed", "kind", "name")

    def __init__(
        self,
        name: str,
        fact: Fact,
        symbol: Symbol | None = None,
        constant: np.ndarray | None = None,
        kind: str = TENSOR,
    ) -> None:
        self.name = name
        self.fact = fact
        self.constant = constant
        self.kind = kind
        self.extents: np.ndarray | None = None
        self.is_fixed = constant is not None  # whether it follows from constants alone
        self._symbol = symbol

    @property
    def shape(self) -> Shape:
        return self.fact.shape

    @property
    def rank(self) -> int | None:
        return None if self.fact.shape is None else len(self.fact.shape)

    @property
    def dtype(self) -> DType | None:
        return self.fact.dtype

    def __repr__(self) -> str:
        kind = "constant" if self.constant is not None else "value"
        return f"<{kind} {self.name!r} {self.shape} {self.dtype}>"


class FreshNames:
    """Names that are taken, and new ones made from them."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def take(self, name: str) -> None:
        self._next.setdefault(name, 1)

    def fresh(self, name: str) -> str:
        """The name itself if it is free, else with a number behind; then it is taken."""
        free = name
        while free in self._next:
            free = f"{name}_{self._next[name]}"
            self._next[name] += 1
        self.take(free)
        return free


class Emitter:
    """Makes values of operators, and gathers the parameters that they turn out to need. One for a
    subgraph knows the `outer` one, whose inputs are the model's."""

    def __init__(self, outer: Emitter | None = None) -> None:
        self.params: dict[str, NDArray] = {}
        self._names = FreshNames()
        self._stored: set[Value] = set()
        self._owned: set[Value] = set()
        self.inputs: dict[str, Shape] = {}  # in order
        self._variables: dict[str, Symbol] = {}  # the same
        self.model_inputs: dict[str, Shape] = self.inputs if outer is None else outer.model_inputs

    def input(self, name: str, shape: Shape, dtype: DType | None, kind: str = TENSOR) -> Value:
        """A value that is given at run time."""
        hints: dict[str, Any] = {"__position__": str(len(self.inputs))}
        self.inputs[name] = shape
        if shape is not None:
            hints["shape"] = tuple(0 if dim is None else Extent.of(dim) for dim in shape)
        if dtype is not None:
            hints["dtype"] = dtype_name(dtype)
        if kind != TENSOR:
            hints["__kind__"] = kind
        self._names.take(name)
        self._variables[name] = Variable(name, **hints)
        return Value(name, Fact(shape, dtype), self._variables[name], kind=kind)

    def constant(self, name: str, value: Any, owned: bool = False) -> Value:
        """A known value; it becomes a parameter only if an operator reads it. `owned` if nobody else changes its
        memory, so that it may become the parameter, where it is such as parameters have."""
        data = np.asarray(value)
        constant = Value(name, Fact(data.shape, as_dtype(data.dtype)), constant=data)
        if owned and data.flags.carray:
            self._owned.add(constant)
        return constant

    def stored(self, name: str, value: Any, owned: bool = False) -> Value:
        """A constant that the model itself has under this name, which nothing else may take."""
        self._names.take(name)
        constant = self.constant(name, value, owned)
        self._stored.add(constant)
        return constant

    def extents(self, name: str, values: Any, dtype: DType) -> Value:
        """Integers that may follow from names of extents; a constant where none does."""
        elements = symbolic.plain(np.asarray(values, object))
        if symbolic.is_number(elements):
            return self.constant(name, elements.astype(dtype))
        value = Value(name, Fact(elements.shape, dtype))
        value.extents = elements
        return value

    def _written_out(self, value: Value, elements: np.ndarray) -> Symbol:
        """Extents as a tensor, once something computes with them."""
        attrs = {"shape": (1,), "dtype": value.dtype}
        parts = [self.apply("full", value.name, [], {**attrs, "fill_value": item})[0] for item in elements.flat]
        whole = parts[0] if len(parts) == 1 else self.apply("concatenate", value.name, parts, {"axis": 0})[0]
        return self.symbol(self.apply("reshape", value.name, [whole], {"shape": elements.shape})[0])

    def symbol(self, value: Value) -> Symbol:
        """The value as a symbol; a constant becomes a variable with a parameter."""
        if value._symbol is None and value.extents is not None:
            value._symbol = self._written_out(value, value.extents)
        if value._symbol is None and value.constant is not None:
            if value not in self._stored:
                value.name = self.fresh_name(value.name)
            param = NDArray(value.constant) if value in self._owned else array(value.constant)
            value._symbol = Variable(value.name, shape=value.shape, dtype=param.dtype)
            self.params[value.name] = param
            value.constant = param.numpy()  # the other copy can go
        assert value._symbol is not None  # what is no constant was made by an operator
        return value._symbol

    def rename(self, value: Value, name: str) -> None:
        """Another name for a value that an operator, or folding, has just made."""
        value.name = name
        if value._symbol is not None and value._symbol.outputs[0].node.op is not None:
            value._symbol.outputs[0].node.name = name

    def output(self, value: Value, name: str) -> Symbol:
        """The value as an output of the model, called as the model calls it."""
        symbol = self.symbol(value)
        entry = symbol.outputs[0]
        key = f"__output{entry.index}__"
        if entry.node.op is None or key in entry.node.attrs:  # an input, or an output already
            symbol = apply_op(Symbol, Op.get("copy"), "copy", (symbol,), {"name": name})
            entry, key = symbol.outputs[0], "__output0__"
        entry.node.attrs[key] = name
        return symbol

    def used_params(self, symbol: Symbol) -> dict[str, NDArray]:
        """The parameters that a symbol reads, as converters may have begun what they could not finish."""
        read = set(symbol.list_input_names())
        return {name: value for name, value in self.params.items() if name in read}

    def keep_named(self, symbol: Symbol) -> None:
        """Inputs of which only the shape is read stay inputs, where attributes hold names of their extents."""
        missing = set(names_in(topo_order(symbol.outputs)))
        read = set(symbol.list_input_names())
        for name in read & self.inputs.keys():
            missing -= _names_of(self.inputs[name])
        for name, value in self._variables.items():
            if missing & _names_of(self.inputs[name]):
                missing -= _names_of(self.inputs[name])
                symbol.outputs[0].node.control_deps.append(value.outputs[0].node)

    def fresh_name(self, name: str) -> str:
        """The name itself if nothing has it yet, else with a number behind."""
        return self._names.fresh(name)

    def apply(self, op_name: str, name: str, inputs: list[Value], attrs: dict[str, Any]) -> list[Value]:
        """An operator on values: all its outputs."""
        op = Op.get(op_name)
        params = op.parse({key: text_of(value) for key, value in attrs.items()})
        facts = infer_node(op, params, [value.fact for value in inputs], name)
        _check_sizes(facts)
        is_open = bool(symbolic_names(params))  # so it has no value yet
        constants = None if is_open else self._folded(op, params, inputs, facts)
        extents = None if is_open or constants is not None else self._folded_extents(op, params, inputs, facts)
        if constants is not None:
            outputs = [self.constant(name, constant) for constant in constants]
        elif extents is not None:
            outputs = extents
        else:
            arguments = tuple(self.symbol(value) for value in inputs)
            symbol = apply_op(Symbol, op, op_name, arguments, {**attrs, "name": name})
            outputs = [Value(name, fact, part) for fact, part in zip(facts, symbol)]
            fixed = not is_open and all(value.is_fixed for value in inputs)
            if fixed and op.effect_of(params) == "pure" and op in Op.reference:
                for value in outputs:
                    value.is_fixed = True
        return outputs[: op.visible_of(params)]

    def deferred(
        self,
        op: Op,
        name: str,
        inputs: Sequence[Value],
        attrs: Mapping[str, Any],
        kinds: Sequence[str],
        subgraphs: Sequence[Symbol] = (),
    ) -> list[Value]:
        """Outputs, of these kinds, that nothing is known of before the model runs."""
        symbol = control(op.name, [self.symbol(value) for value in inputs], subgraphs, name, **attrs)
        return [Value(name, UNKNOWN, part, kind=kind) for part, kind in zip(symbol, kinds)]

    def computed(self, value: Value) -> np.ndarray | None:
        """The value of what follows from constants alone, however large; None of others."""
        if value.constant is None and value.is_fixed and value._symbol is not None:
            names = value._symbol.list_input_names()
            (value.constant,) = evaluate(value._symbol, {name: self.params[name].numpy() for name in names})
        return value.constant

    def control(
        self, op_name: str, name: str, inputs: list[Value], subgraphs: list[Symbol], attrs: dict[str, Any]
    ) -> list[Value]:
        """An operator with subgraphs on values: all its outputs."""
        op = Op.get(op_name)
        params = op.parse({key: text_of(value) for key, value in attrs.items()})
        facts = infer_node(op, params, [value.fact for value in inputs], name, subgraphs)
        _check_sizes(facts)
        symbol = control(op_name, [self.symbol(value) for value in inputs], subgraphs, name, **attrs)
        return [Value(name, fact, part) for fact, part in zip(facts, symbol)]

    def _folded(self, op: Op, params: Any, inputs: list[Value], facts: tuple[Fact, ...]) -> list[np.ndarray] | None:
        """The outputs as arrays, if they follow from constants and are small."""
        constants = [value.constant for value in inputs if value.constant is not None]
        if len(constants) < len(inputs):
            return None
        shapes = [*(fact.shape for fact in facts), *(value.shape for value in inputs)]
        if not all(is_static(shape) and _extent(shape) <= FOLDED_ELEMENTS for shape in shapes):
            return None
        if op.effect_of(params) != "pure" or not Op.reference.contains(op):
            return None
        if inputs and Op.pattern.get(op) == OpPattern.OUT_ELEMWISE_FUSABLE:
            return None  # windows may reach far beyond what goes in and comes out
        with np.errstate(all="ignore"):
            return run_reference(op, params, constants)

    def _folded_extents(self, op: Op, params: Any, inputs: list[Value], facts: tuple[Fact, ...]) -> list[Value] | None:
        """The outputs, if they follow from constants and extents."""
        if not any(value.extents is not None for value in inputs) or symbolic_names(params):
            return None
        arrays = [value.constant if value.extents is None else value.extents for value in inputs]
        known = [array for array in arrays if array is not None]
        if len(known) < len(inputs):
            return None
        results = symbolic.folded(op, params, known, [fact.dtype for fact in facts])
        if results is None:
            return None
        return [self.extents(op.name, made, fact.dtype) for made, fact in zip(results, facts) if fact.dtype is not None]


def _names_of(shape: Shape) -> frozenset[str]:
    return frozenset().union(*(names_of(dim) for dim in shape or ()))


def _extent(shape: StaticShape) -> int:
    """The number of elements, as if empty dimensions were not: what work on a shape may cost."""
    return numel([dim for dim in shape if dim])


def _check_sizes(facts: tuple[Fact, ...]) -> None:
    for fact in facts:
        if is_static(fact.shape) and _extent(fact.shape) > _LARGEST:
            raise OutOfMemory(f"a tensor of shape {show(fact.shape)} is more than any machine holds")

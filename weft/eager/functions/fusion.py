"""Functions that compose element-wise operators, as one operator: a function is run once on
stand-ins, and the graph it composed is one native pass, and one node of autograd's."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextvars import Context
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, ParamSpec

import numpy as np

from ...base import config
from ...base.counters import add_stat_value
from ...base.dtype import DType
from ...base.errors import Error
from ...base.kept import Kept
from ...core.ir import Node, NodeEntry
from ...core.op import Op
from ...core.pattern import OpPattern
from ...core.plan import Plan, planned
from .. import native
from ..autograd.derivative import KEPT_PROGRAMS, Complexity, GradientProgram
from ..autograd.modes import modes
from ..dispatch import OpNode, kernel_of, record
from ..native.thresholds import FROM
from ..recording import Recording, StandIn, Storage
from ..tensor.memory import array_of
from ..tensor.tensor import Tensor, wrap

if TYPE_CHECKING:
    from ...lower.cpu.nests.element import Element

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Arguments = ParamSpec("Arguments")


class _Declined(Exception):
    """A function does something else than to compose element-wise operators; says what."""


class _Elements(Recording):
    """A recording of element-wise operators. Its variables are what stands for tensors, and after those the numbers
    that the function made tensors of."""

    inside = True  # where its tensors are means nothing

    def __init__(self) -> None:
        super().__init__()
        self.leaves: dict[NodeEntry, Tensor] = {}
        self._met: dict[int, StandIn] = {}
        self._numbers: dict[int, NodeEntry] = {}  # by the identity of a tensor, which `leaves` keeps

    def stand_in(self, value: Any) -> Any:
        """What stands for a tensor: of its shape and dtype, with values that mean nothing."""
        if not isinstance(value, Tensor):
            return value
        if value._wrapped:
            raise _Declined("a number that is a tensor decides no dtype")
        entry = self._leaf()
        self.leaves[entry] = made = wrap(self.value(value._array.shape, value._array.dtype, entry))
        return made

    def add(self, op: Op, params: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
        if not _is_element_wise(op):
            raise _Declined(f"{op.name} is not element-wise")
        try:
            for tensor in inputs:
                self.entry_of(tensor)
            made = super().add(op, params, inputs)
        except Error as error:
            raise _Declined(f"{op.name} is not for its inputs") from error
        if not native.are_native(tuple([tensor._array.dtype for tensor in (*inputs, *made)])):
            raise _Declined(f"{op.name} is not native for its inputs")
        return made

    def made(self, tensor: Tensor) -> None:
        memory = tensor._array
        if isinstance(memory, StandIn):
            if id(memory) in self._met:
                raise _Declined("a tensor is detached, which the gradient of a graph does not know")
            self._met[id(memory)] = memory

    def viewed(self, view: Tensor, source: Tensor) -> None:
        self.made(view)

    def decline(self, why: str) -> NoReturn:
        raise _Declined(why)

    def entry(self, result: Any) -> NodeEntry:
        """What the function gave."""
        memory = result._array
        if not isinstance(memory, StandIn) or memory.entry() in self.leaves:
            raise _Declined("the result is not one of operators")
        return memory.entry()

    def node(self, op: Op, params: Any, inputs: Sequence[NodeEntry]) -> NodeEntry:
        if not _is_element_wise(op):
            raise _Declined("a tensor was made by other means than operators")
        return super().node(op, params, inputs)

    def outside(self, tensor: Tensor) -> NodeEntry:
        if id(tensor) not in self._numbers:
            if tensor._array.size != 1 or tensor._base is not None or tensor._root is not None:
                raise _Declined("a tensor was made by other means than operators")
            entry = self._numbers[id(tensor)] = self._leaf()
            self.leaves[entry] = tensor
        return self._numbers[id(tensor)]

    def values(self, storage: Storage) -> NoReturn:
        raise _Declined("values are read")

    def put(self, target: Tensor, result: Tensor) -> NoReturn:
        raise _Declined("a tensor is written to")

    def host(self, function: Any, tensors: Sequence[Tensor]) -> NoReturn:
        raise _Declined("numpy computes a result")

    def _leaf(self) -> NodeEntry:
        return NodeEntry(Node(None, f"input{len(self.leaves)}"))


def _is_element_wise(op: Op) -> bool:
    if Op.mutates.contains(op) or Op.alias.contains(op):
        return False
    if not Op.compute.contains(op) or not Op.gradient.contains(op):
        return False
    return Op.pattern.get(op) in (OpPattern.ELEM_WISE, OpPattern.BROADCAST)


class Composite:
    """A graph of element-wise operators as one operator; what `record` knows of an operator."""

    crosses = False  # between real and complex numbers
    differentiable = True

    def __init__(self, plan: Plan, inputs: Sequence[NodeEntry], result: NodeEntry) -> None:
        self.plan, self.inputs, self.result = plan, inputs, result
        self.key = ("composed", plan.keyed(native.op_key))
        self.elements: dict[Any, Element | None] = {}
        self.wanted: dict[Any, Any] = {}
        self.node_class = type("FusedBackward0", (OpNode,), {"op": result.node.op})

    def element(self, dtypes: tuple[DType, ...]) -> Element | None:
        if dtypes not in self.elements:
            self.elements[dtypes] = native.element_of(self.plan.compute, dtypes)
        return self.elements[dtypes]

    def program(self, params: Any, inputs: int, outputs: int, complexity: Complexity | None) -> GradientProgram:
        """The gradient of the graph. What was computed on the way is computed again, the result is
        that of the call."""
        output, grad = Node(None, "output0"), Node(None, "grad0")
        mirrors = {self.result.node: output}
        rule = import_module(
            "...passes.gradient", __package__
        ).entry_gradients  # with all passes: a large call alone needs it
        results = Context().run(rule, [self.result], self.inputs, [NodeEntry(grad)], mirrors)
        return GradientProgram([entry.node for entry in self.inputs], [output], [grad], results)


_composites: Kept[Composite] = Kept(KEPT_PROGRAMS)


class Call(NamedTuple):
    """A function of tensors of certain shapes and dtypes, and of certain numbers: an element-wise
    computation of the tensors and constants."""

    key: Any
    body: Element
    constants: tuple[Tensor, ...]
    shape: Shape
    maker: Any  # what `record` takes: a Composite, or the kernel of a single operator
    params: Any

    @property
    def dtype(self) -> DType:
        return self.body.value.dtype

    def run(self, tensors: Sequence[Tensor], out: Array | None = None) -> Array:
        return native.run_pointwise(
            self.key, self.body, [array_of(tensor) for tensor in (*tensors, *self.constants)], out
        )

    def record(self, tensors: Sequence[Tensor], output: Tensor) -> None:
        record(self.maker, self.params, (*tensors, *self.constants), (output,))


class Fused:
    """A function that composes element-wise operators. It reads no value of a tensor: what it does
    depends on shapes, dtypes and its other arguments alone."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls: dict[Any, Call | None] = {}

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Call | None, list[Tensor]]:
        """The call as one computation, if it is one, and the tensors it takes."""
        tensors, parts = [], []
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, Tensor):
                array = value._array
                tensors.append(value)
                parts.append((array.shape, array.dtype, value._wrapped))
            elif type(value) is float and not value:
                parts.append(repr(value))  # type: ignore[arg-type]  # which tells 0.0 from -0.0
            else:
                parts.append((type(value), value))  # type: ignore[arg-type]
        key = (*parts, *kwargs)
        try:
            return self.calls[key], tensors
        except TypeError:
            self._decline("an argument has no hash")
            return None, tensors
        except KeyError:
            pass
        if len(self.calls) >= KEPT_PROGRAMS:
            self.calls.clear()
        recorded = self.calls[key] = self._recorded(args, kwargs)
        return recorded, tensors

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
        """The result of a call as one pass and one node, unless it is that as it is."""
        call, tensors = self.call(args, kwargs)
        if call is None or not isinstance(call.maker, Composite):
            return None
        output = wrap(call.run(tensors))
        if modes.grad and any([tensor.requires_grad for tensor in tensors]):
            call.record(tensors, output)
        return output

    def run_elsewhere(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
        """The same by a program of the device that the tensors are on."""
        call, tensors = self.call(args, kwargs)
        if call is None or not isinstance(call.maker, Composite):
            return None
        made: list[Tensor] | None = modes.trace.fused(call.maker.plan, (*tensors, *call.constants))
        if made is None:
            return None
        if modes.grad and any([tensor.requires_grad for tensor in tensors]):
            call.record(tensors, made[0])
        return made[0]

    def _recorded(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Call | None:
        recording, before = _Elements(), modes.trace
        modes.trace = recording
        try:
            result = self.function(
                *[recording.stand_in(value) for value in args],
                **{name: recording.stand_in(value) for name, value in kwargs.items()},
            )
            tensors = sum([isinstance(value, Tensor) for value in (*args, *kwargs.values())])
            return _call(recording, tensors, result)
        except _Declined as why:
            self._decline(why)
            return None
        finally:
            modes.trace = before

    def _decline(self, why: object) -> None:
        add_stat_value("weft.fusion_declined", 1)
        if "dispatch" in config.get("debug"):
            print(f"weft: {self.function.__name__} is not fused: {why}", file=sys.stderr)


def _call(recording: _Elements, tensors: int, result: Any) -> Call:
    entry, leaves = recording.entry(result), list(recording.leaves)
    arrays = [leaf._array for leaf in recording.leaves.values()]
    dtypes = tuple([array.dtype for array in arrays])
    plan = planned(leaves, [entry])
    maker: Any
    if len(plan.steps) == 1 and plan.steps[0].arguments == tuple(range(len(leaves))):
        op, params, *_ = plan.steps[0]
        maker, key, body = kernel_of(op), native.op_key(op, params), native.element(op, params, dtypes)
    else:
        maker, params = _composite(plan, leaves, entry), None
        key, body = maker.key, maker.element(dtypes)
    if body is None or body.value.dtype != result._array.dtype:
        raise _Declined("what it does to an element is not known")
    shape = np.broadcast_shapes(*[arrays[place].shape for place in body.places])
    if shape != result._array.shape:
        raise _Declined("the result has a shape that no element read has")
    return Call(key, body, tuple(recording.leaves.values())[tensors:], shape, maker, params)


def _composite(plan: Plan, inputs: Sequence[NodeEntry], result: NodeEntry) -> Composite:
    """The composite of a plan; there is one for all graphs that are alike."""
    try:
        hash(plan)
    except TypeError:
        raise _Declined("an attribute has no hash") from None
    return _composites.find(plan, lambda: Composite(plan, inputs, result))


def plan_of(function: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor]) -> tuple[Plan, list[Tensor]] | None:
    """The element-wise operators that a function of tensors composes, as a plan of its results, and the numbers that it
    made tensors of, which are leaves behind those; None where it does something else."""
    recording, before = _Elements(), modes.trace
    modes.trace = recording
    try:
        entries = [recording.entry(result) for result in function(*map(recording.stand_in, tensors))]
    except _Declined:
        return None
    finally:
        modes.trace = before
    return planned(list(recording.leaves), entries), list(recording.leaves.values())[len(tensors) :]


def fused(function: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """The function, which is one native pass where tensors are large."""
    as_one = Fused(function)

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        if modes.trace is None:
            for value in args:
                if isinstance(value, Tensor) and value._array.size >= FROM.fused:
                    output = as_one.run(args, kwargs)
                    return function(*args, **kwargs) if output is None else output
        elif hasattr(modes.trace, "fused"):
            output = as_one.run_elsewhere(args, kwargs)
            return function(*args, **kwargs) if output is None else output
        return function(*args, **kwargs)

    return call

"""Functions that compose element-wise operators, as one operator: a function is run once on
stand-ins, and what it composed is one native pass, and one node of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from ...base.dtype import DType
from ...base.errors import Error
from ...core.infer import same_dtype
from ...core.op import Op
from ...core.pattern import OpPattern
from ...lower.cpu.open.pointwise import Element, element_of
from ..autograd.derivative import INPUT, KEPT_PROGRAMS, STEP, Complexity, GradientProgram, Ref, Step, composed_gradient
from ..autograd.modes import modes
from ..autograd.node import OpNode
from ..dispatch import kernel_of, record
from ..native.calls import Declined, count_declined
from ..native.pointwise import are_native, element, op_key, run_pointwise
from ..native.thresholds import FROM
from ..tensor.tensor import Tensor, wrap

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Arguments = ParamSpec("Arguments")


class Trace:
    """Takes down which element-wise operators are applied to stand-ins, and to numbers as tensors; declines others."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.refs: dict[int, Ref] = {}  # by the identity of a tensor
        self.kept: list[Tensor] = []  # so that identities stay theirs
        self.inputs = 0
        self.constants: list[Tensor] = []

    def stand_in(self, array: Array) -> Tensor:
        """What stands for a tensor: of its shape and dtype, with values that mean nothing."""
        return self._known(Ref(INPUT, self.inputs), array.shape, array.dtype)

    def _known(self, ref: Ref, shape: Shape, dtype: DType) -> Tensor:
        made = wrap(np.broadcast_to(np.zeros((), dtype), shape))
        self._refer(made, ref)
        return made

    def _refer(self, tensor: Tensor, ref: Ref) -> None:
        self.kept.append(tensor)
        self.refs[id(tensor)] = ref
        self.inputs += ref.kind == INPUT

    def add(self, op: Op, params: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
        arguments = tuple([self._ref(tensor) for tensor in inputs])
        if not _is_element_wise(op):
            raise Declined("operator")
        shapes = [tensor._array.shape for tensor in inputs]
        dtypes = [tensor._array.dtype for tensor in inputs]
        shape = Op.shape[op](params, shapes, [None])[1][0]
        dtype = (Op.dtype.get(op) or same_dtype)(params, dtypes, [None])[1][0]
        if shape is None or dtype is None or not are_native((*dtypes, dtype)):
            raise Declined("dtype")
        self.steps.append(Step(op, params, arguments))
        return [self._known(Ref(STEP, len(self.steps) - 1), shape, dtype)]

    def _ref(self, tensor: Tensor) -> Ref:
        ref = self.refs.get(id(tensor))
        if ref is None:
            if tensor._array.size != 1 or tensor._base is not None or tensor._root is not None:
                raise Declined("compute")
            ref = Ref(INPUT, self.inputs)
            self._refer(tensor, ref)
            self.constants.append(tensor)
        return ref


def _is_element_wise(op: Op) -> bool:
    if Op.mutates.contains(op) or Op.alias.contains(op):
        return False
    if not Op.compute.contains(op) or not Op.gradient.contains(op):
        return False
    return Op.pattern.get(op) in (OpPattern.ELEM_WISE, OpPattern.BROADCAST)


class Composite:
    """Steps as one operator; what `record` knows of an operator."""

    crosses = False  # between real and complex numbers
    differentiable = True

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.key = ("composed", tuple([(op_key(s.op, s.params), s.arguments) for s in steps]))
        self.elements: dict[Any, Element | None] = {}
        self.wanted: dict[Any, Any] = {}
        self.node_class = type("FusedBackward0", (OpNode,), {"op": steps[-1].op})

    def compute(self, *tensors: Any) -> Any:
        values: dict[Ref, Any] = {Ref(INPUT, n): tensor for n, tensor in enumerate(tensors)}
        for number, step in enumerate(self.steps):
            inputs = [values[ref] for ref in step.arguments]
            made = step.op.call_with(Op.compute[step.op], step.params, *inputs)
            values[Ref(STEP, number)] = made
        return made

    def element(self, dtypes: tuple[DType, ...]) -> Element | None:
        if dtypes not in self.elements:
            self.elements[dtypes] = element_of(self.compute, dtypes)
        return self.elements[dtypes]

    def program(self, params: Any, inputs: int, outputs: int, complexity: Complexity | None) -> GradientProgram:
        rule = functools.partial(composed_gradient, self.steps)
        return GradientProgram(None, None, inputs, outputs, complexity, rule)


_composites: dict[Any, Composite] = {}


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
        arrays = [tensor._array for tensor in (*tensors, *self.constants)]
        return run_pointwise(self.key, self.body, arrays, out)

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
        except TypeError:  # an argument without a hash
            return None, tensors
        except KeyError:
            pass
        if len(self.calls) >= KEPT_PROGRAMS:
            self.calls.clear()
        found = self.calls[key] = self._traced(args, kwargs)
        return found, tensors

    def _traced(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Call | None:
        trace, before = Trace(), modes.trace
        stand = lambda v: trace.stand_in(v._array) if isinstance(v, Tensor) else v
        given = [stand(value) for value in args]
        named = {name: stand(value) for name, value in kwargs.items()}
        if any([t._wrapped for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]):
            return None
        modes.trace = trace
        try:
            made = self.function(*given, **named)
        except Declined as declined:
            count_declined(self.function.__name__, declined.reason)
            return None
        except (Error, TypeError, ValueError, LookupError, ArithmeticError):  # the function itself will tell
            return None
        finally:
            modes.trace = before
        ref = trace.refs.get(id(made))
        if ref != Ref(STEP, len(trace.steps) - 1):
            return None
        return _call(trace, made)


def _call(trace: Trace, made: Tensor) -> Call | None:
    inputs = [t._array for t in trace.kept if trace.refs[id(t)].kind == INPUT]
    dtypes = tuple([array.dtype for array in inputs])
    steps = tuple(trace.steps)
    maker: Any
    if len(steps) == 1 and steps[0].arguments == tuple(Ref(INPUT, n) for n in range(len(inputs))):
        op, params, _ = steps[0]
        maker, key, body = kernel_of(op), op_key(op, params), element(op, params, dtypes)
    else:
        try:
            maker, params = _composites.get(steps) or Composite(steps), None
        except TypeError:  # params without a hash
            return None
        if len(_composites) >= KEPT_PROGRAMS:
            _composites.clear()
        _composites[steps] = maker
        key, body = maker.key, maker.element(dtypes)
    if body is None or body.value.dtype != made._array.dtype:
        return None
    read = np.broadcast_shapes(*[inputs[place].shape for place in body.places])
    if read != made._array.shape:
        return None
    return Call(key, body, tuple(trace.constants), read, maker, params)


def fused(function: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """The function, which is one native pass where tensors are large."""
    own = Fused(function)

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        if modes.trace is None:
            for value in args:
                if isinstance(value, Tensor) and value._array.size >= FROM.fused:
                    made = _run(own, args, kwargs)
                    return function(*args, **kwargs) if made is None else made
        return function(*args, **kwargs)

    return call


def _run(own: Fused, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    call, tensors = own.call(args, kwargs)
    if call is None or not isinstance(call.maker, Composite):
        return None
    output = wrap(call.run(tensors))
    if modes.grad and any([tensor.requires_grad for tensor in tensors]):
        call.record(tensors, output)
    return output

"""Gradient rules as programs: a rule is run once on placeholders, and what it composed is kept as
steps. From them follow which inputs and outputs of the forward call must be saved, and which steps
the gradients that are wanted need."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...base.errors import InvalidType, RunError, Unsupported
from ...core.op import Op, role
from ...core.schema import text_of

INPUT, OUTPUT, GRAD, STEP = "input", "output", "grad", "step"
KEPT_PROGRAMS = 4096
UNKNOWN = object()


class Ref(NamedTuple):
    """A value in a program: an input, output or output gradient of the forward call by its number,
    or an output of a step."""

    kind: str
    number: int
    index: int = 0


class Step(NamedTuple):
    """One operator of a gradient rule, applied to values."""

    op: Op
    params: Any
    arguments: tuple[Ref, ...]


def params_of(op: Op, attrs: dict[str, Any]) -> Any:
    """Attributes given as Python values, as the operator reads them.

    >>> params_of(Op.get("softmax"), {"axis": 1})
    AxisAttrs(axis=1)
    """
    if op.parser is None and not attrs:
        return None
    key = tuple(attrs.items())
    known = _params.setdefault(op, {})
    try:
        return known[key]
    except (KeyError, TypeError):
        pass
    params = op.parse({name: text_of(value) for name, value in attrs.items()})
    try:
        if len(known) >= KEPT_PROGRAMS:
            known.clear()
        known[key] = params
    except TypeError:  # an attribute that cannot be hashed, as a list
        pass
    return params


_params: dict[Op, dict[Any, Any]] = {}


def split_arguments(op: Op, args: Sequence[Any], kwargs: dict[str, Any], kind: type) -> tuple[list[Any], Any]:
    """The inputs of a call, in order, and its params. Inputs are of a class, also by name."""
    inputs = list(args)
    for position, value in enumerate(inputs):
        if not isinstance(value, kind):
            raise InvalidType(
                f"argument {position} of {op.name} must be a {kind.__name__}, not {type(value).__name__}",
                hint="attributes go by keyword",
            )
    named = {key: value for key, value in kwargs.items() if isinstance(value, kind)}
    attrs = {key: value for key, value in kwargs.items() if key not in named and key != "name"}
    params = params_of(op, {key: value for key, value in attrs.items() if value is not None})
    if named:
        order = op.input_names_of(params)
        inputs += [named[key] for key in order if key in named]
    return inputs, params


class Placeholder:
    """Stands for a tensor while a gradient rule is recorded."""

    __slots__ = ("is_complex", "recorder", "ref")

    def __init__(self, recorder: _Recorder, ref: Ref, is_complex: bool = False) -> None:
        self.recorder = recorder
        self.ref = ref
        self.is_complex = is_complex  # of inputs and outputs of the forward call alone

    @staticmethod
    def __weft_op__(op: Op, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        inputs, params = split_arguments(op, args, kwargs, Placeholder)
        return inputs[0].recorder.add(op, params, [value.ref for value in inputs])

    def _with(self, tensor_role: str, scalar_role: str, other: Any) -> Any:
        if isinstance(other, numbers.Number):
            return Op.get(role(scalar_role))(self, scalar=other)
        return Op.get(role(tensor_role))(self, other)

    def __add__(self, other: Any) -> Any:
        return self._with("add", "add_scalar", other)

    def __sub__(self, other: Any) -> Any:
        return self._with("sub", "sub_scalar", other)

    def __mul__(self, other: Any) -> Any:
        return self._with("mul", "mul_scalar", other)

    def __truediv__(self, other: Any) -> Any:
        return self._with("div", "div_scalar", other)

    def __pow__(self, other: Any) -> Any:
        return self._with("pow", "pow_scalar", other)

    def __rsub__(self, other: Any) -> Any:
        return Op.get(role("rsub_scalar"))(self, scalar=other)

    def __rtruediv__(self, other: Any) -> Any:
        return Op.get(role("rdiv_scalar"))(self, scalar=other)

    def __rpow__(self, other: Any) -> Any:
        return Op.get(role("rpow_scalar"))(self, scalar=other)

    def __neg__(self) -> Any:
        return Op.get(role("mul_scalar"))(self, scalar=-1.0)

    __radd__, __rmul__ = __add__, __mul__


class _Context(NamedTuple):
    """What a gradient rule sees of the call it differentiates."""

    inputs: list[Placeholder]
    outputs: list[Placeholder]
    params: Any
    rule: Any  # of real numbers


class _Recorder:
    def __init__(self) -> None:
        self.steps: list[Step] = []

    def add(self, op: Op, params: Any, arguments: Sequence[Ref]) -> Any:
        number = len(self.steps)
        ignored = op.ignored_of(params)
        if ignored:
            arguments = [self._shaped(r) if i in ignored else r for i, r in enumerate(arguments)]
        self.steps.append(Step(op, params, tuple(arguments)))
        made = [Placeholder(self, Ref(STEP, number, i)) for i in range(op.visible_of(params))]
        return made[0] if len(made) == 1 else made

    def _shaped(self, ref: Ref) -> Ref:
        """What has the shape of a value: that of which it is the conjugate."""
        if ref.kind == STEP and self.steps[ref.number].op.name == "conj":
            return self.steps[ref.number].arguments[0]
        return ref


# Which inputs of a call are complex, and which outputs.
Complexity = tuple[tuple[bool, ...], tuple[bool, ...]]


class GradientProgram:
    """The gradient of an operator with certain params, as steps; it is another one where some
    tensors are complex. Without an operator, a rule of real numbers is given."""

    def __init__(
        self,
        op: Op | None,
        params: Any,
        inputs: int,
        outputs: int,
        complexity: Complexity | None = None,
        rule: Any = None,
    ) -> None:
        recorder = _Recorder()
        rule = rule or Op.gradient[op]
        own, made = complexity or ((False,) * inputs, (False,) * outputs)
        context = _Context(
            [Placeholder(recorder, Ref(INPUT, i), kind) for i, kind in enumerate(own)],
            [Placeholder(recorder, Ref(OUTPUT, i), kind) for i, kind in enumerate(made)],
            params,
            rule,
        )
        grads = [Placeholder(recorder, Ref(GRAD, i)) for i in range(outputs)]
        if complexity is not None:
            rule = Op.complex_gradient.get(op)
            if rule is None:
                name = "" if op is None else op.name
                raise Unsupported(f"the gradient of {name} is not defined for complex numbers")
        results = list(rule(context, *grads))
        if len(results) != inputs:
            raise RunError(
                f"the gradient of {op and op.name} gave {len(results)} values", why=f"it has {inputs} inputs"
            )
        self.steps = recorder.steps
        self.results = [None if result is None else result.ref for result in results]

    def wanted(self, needs: tuple[bool, ...]) -> Wanted:
        """What the gradients of some inputs take."""
        return Wanted(self, needs)


def composed_gradient(steps: Sequence[Step], context: _Context, grad: Any) -> list[Any]:
    """The rule of what the last of some steps gives, from those of their operators. What the steps
    gave on the way is computed again."""
    recorder = context.inputs[0].recorder
    values: dict[Ref, Any] = {Ref(INPUT, n): value for n, value in enumerate(context.inputs)}
    for number, step in enumerate(steps[:-1]):
        refs = [values[ref].ref for ref in step.arguments]
        values[Ref(STEP, number)] = recorder.add(step.op, step.params, refs)
    last = Ref(STEP, len(steps) - 1)
    values[last] = context.outputs[0]
    grads: dict[Ref, Any] = {last: grad}
    for number in range(len(steps) - 1, -1, -1):
        found = grads.get(Ref(STEP, number))
        if found is None:
            continue
        step, made = steps[number], values[Ref(STEP, number)]
        rule = Op.gradient[step.op]
        own = _Context([values[ref] for ref in step.arguments], [made], step.params, rule)
        for ref, part in zip(step.arguments, rule(own, found)):
            if part is not None:
                grads[ref] = part if ref not in grads else grads[ref] + part
    return [grads.get(Ref(INPUT, number)) for number in range(len(context.inputs))]


class PlannedStep(NamedTuple):
    """A step whose arguments are places in a list of values, which its outputs are added to."""

    op: Op
    params: Any
    arguments: tuple[int, ...]
    outputs: int


class Wanted:
    """The part of a program that some gradients need: its steps, and the inputs and outputs of the
    forward call it reads, those apart of which only the shape counts."""

    def __init__(self, program: GradientProgram, needs: tuple[bool, ...]) -> None:
        self.results = [r if need else None for r, need in zip(program.results, needs)]
        reached = {result.number for result in self.results if result and result.kind == STEP}
        values = {result for result in self.results if result and result.kind != STEP}
        shapes: set[Ref] = set()
        for number in range(len(program.steps) - 1, -1, -1):
            if number not in reached:
                continue
            step = program.steps[number]
            ignored = step.op.ignored_of(step.params)
            for position, ref in enumerate(step.arguments):
                if ref.kind == STEP:
                    reached.add(ref.number)
                elif position in ignored:
                    shapes.add(ref)
                else:
                    values.add(ref)
        self.steps = [(n, step) for n, step in enumerate(program.steps) if n in reached]
        self.values = tuple(sorted(ref for ref in values if ref.kind != GRAD))
        self.shapes = tuple(sorted(ref for ref in shapes - values if ref.kind != GRAD))
        self.grads = tuple(sorted(ref for ref in {*values, *shapes} if ref.kind == GRAD))
        self.leaves = (*self.values, *self.shapes, *self.grads)
        places = {ref: place for place, ref in enumerate(self.leaves)}
        self.plan: list[PlannedStep] = []
        for number, step in self.steps:
            arguments = tuple([places[ref] for ref in step.arguments])
            count = step.op.visible_of(step.params)
            self.plan.append(PlannedStep(step.op, step.params, arguments, count))
            for index in range(count):
                places[Ref(STEP, number, index)] = len(places)
        self.found_at = [None if ref is None else places[ref] for ref in self.results]
        self.fused: Any = UNKNOWN  # its steps as one native computation, where they are one

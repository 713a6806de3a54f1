"""Gradient rules as programs: a rule is run once on variables, and what it composed is a graph. From
it follow which inputs and outputs of the forward call must be saved, and which steps the gradients
that are wanted need."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from typing import Any, NamedTuple

import numpy as np

from ...base.dtype import dtype_code
from ...base.errors import InvalidType, RunError, Unsupported
from ...core.gradient import GradientContext
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry, topo_order
from ...core.naming import NameManager
from ...core.op import Op, Rule
from ...core.plan import planned
from ...core.schema import text_of
from ...core.symbol import Symbol
from ...core.walk import Walker, rewrite

COMPLEX = str(dtype_code(np.dtype("complex128")))  # as variables say it of themselves
KEPT_PROGRAMS = 4096
UNKNOWN = object()


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


# Which inputs of a call are complex, and which outputs.
Complexity = tuple[tuple[bool, ...], tuple[bool, ...]]


class GradientProgram(NamedTuple):
    """The gradients of a call's inputs as entries of a graph, whose variables stand for the inputs and
    outputs of the call and for the gradients of its outputs."""

    inputs: Sequence[Node]
    outputs: Sequence[Node]
    grads: Sequence[Node]
    results: Sequence[NodeEntry | None] = ()  # one an input; None is zero


def gradient_program(
    op: Op, params: Any, inputs: int, outputs: int, complexity: Complexity | None = None
) -> GradientProgram:
    """The gradient of an operator with certain params; it is another one where some tensors are
    complex."""
    complex_inputs, complex_outputs = complexity or ((False,) * inputs, (False,) * outputs)
    program = GradientProgram(
        [_variable(f"input{number}", is_complex) for number, is_complex in enumerate(complex_inputs)],
        [_variable(f"output{number}", is_complex) for number, is_complex in enumerate(complex_outputs)],
        [_variable(f"grad{number}") for number in range(outputs)],
    )
    rule = Op.gradient[op] if complexity is None else Op.complex_gradient.get(op)
    if rule is None:
        raise Unsupported(f"the gradient of {op.name} is not defined for complex numbers")
    results = Context().run(_composed, program, op, params, rule)
    if len(results) != inputs:
        raise RunError(f"the gradient of {op.name} gave {len(results)} values", why=f"it has {inputs} inputs")
    entries = [None if result is None else result.outputs[0] for result in results]
    return program._replace(results=entries if complexity is None else _unconjugated(entries))


def _variable(name: str, is_complex: bool = False) -> Node:
    return Node(None, name, {"dtype": COMPLEX} if is_complex else None)


def _composed(program: GradientProgram, op: Op, params: Any, rule: Rule) -> list[Symbol | None]:
    """What a rule gives for the variables of a program. Scopes of the user are not for its nodes: this
    runs in a context of its own."""
    inputs, outputs, grads = ([Symbol([NodeEntry(node)]) for node in nodes] for nodes in program[:3])
    with NameManager():
        return list(rule(GradientContext(inputs, outputs, params, Op.gradient[op]), *grads))


def _unconjugated(results: Sequence[NodeEntry | None]) -> list[NodeEntry | None]:
    """The same gradients, for which shapes are read of values themselves and not of conjugates."""

    def rule(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        ignored = () if node.op is None else node.op.ignored_of(node.params)
        conjugates = [position for position in ignored if inputs[position].node.op_name == "conj"]
        if not conjugates:
            return None
        for position in conjugates:
            inputs[position] = inputs[position].node.inputs[0]
        changed = walker.copy(node, inputs, node.control_deps)
        return [NodeEntry(changed, index) for index in range(changed.num_outputs)]

    rewritten = iter(rewrite(Graph([entry for entry in results if entry is not None]), rule).outputs)
    return [None if entry is None else next(rewritten) for entry in results]


class Wanted:
    """The part of a program that some gradients need, as a plan. Its leaves are, in this order, what
    it reads of the forward call, that of which only the shape counts, and gradients of outputs."""

    def __init__(self, program: GradientProgram, needs: tuple[bool, ...]) -> None:
        results = [entry if need else None for entry, need in zip(program.results, needs)]
        entries = [entry for entry in results if entry is not None]
        read = {entry.node for entry in entries}
        shaped: set[Node] = set()
        for node in topo_order(entries):
            ignored = () if node.op is None else node.op.ignored_of(node.params)
            for position, entry in enumerate(node.inputs):
                (shaped if position in ignored else read).add(entry.node)
        call = {
            **{node: (False, number) for number, node in enumerate(program.inputs)},
            **{node: (True, number) for number, node in enumerate(program.outputs)},
        }
        values = [node for node in call if node in read]
        shapes = [node for node in call if node in shaped - read]
        grads = [number for number, node in enumerate(program.grads) if node in read | shaped]
        self.values = tuple([call[node] for node in values])  # (whether it is an output, its number)
        self.shapes = tuple([call[node] for node in shapes])
        self.unconnected = tuple([n for is_output, n in self.shapes if not is_output and not needs[n]])
        self.grads = tuple(grads)
        leaves = [*values, *shapes, *[program.grads[number] for number in grads]]
        self.plan = planned([NodeEntry(node) for node in leaves], results)
        self.fused: Any = UNKNOWN  # its steps as one native computation, where they are one

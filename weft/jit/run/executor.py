"""Executors: a graph that is improved for the kinds of arguments that it is called with. There is a plan for each kind,
made when such a call comes first."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...base.counters import add_stat_value
from ...base.errors import InvalidType, RunError
from ...eager.autograd.modes import modes
from ..graph import Graph
from ..nodes import inside
from ..passes.autograd_zero import specialize_autograd_zero
from ..passes.batched_products import batch_mm
from ..passes.common_subexpressions import eliminate_common_subexpressions
from ..passes.constants import pool_constants, propagate_constants
from ..passes.dead_code import eliminate_dead_code
from ..passes.fuser_form import canonicalize_ops
from ..passes.grouping import create_autodiff_subgraphs, fuse
from ..passes.inlining import callee_of, inline
from ..passes.peephole import peephole
from ..passes.shapes import propagate_shapes
from ..passes.types_of_values import erase_shape_information, remove_expands
from ..passes.unrolling import unroll_loops
from .code import Code
from .gradient import differentiate
from .interpreter import run
from .specs import ArgumentSpec, refined

Pass = Callable[[Graph], Any]
MOST_INLINED = 1000  # calls in a plan

# What every plan has: without it, some nodes mean nothing to an interpreter.
REQUIRED: list[Pass] = [specialize_autograd_zero, remove_expands, canonicalize_ops, eliminate_dead_code]


def inline_calls(graph: Graph) -> None:
    """Puts what is called in the place of calls, unless there are too many: functions that call themselves, or others
    that call others again and again, run as they are."""
    if 0 < calls_in(graph) <= MOST_INLINED:
        inline(graph)


def calls_in(graph: Graph) -> float:
    """How many calls a graph makes, with those of what it calls; infinity if something calls itself."""
    known: dict[Graph, float] = {}
    path: dict[Graph, list[Graph]] = {}  # graphs that are being counted, with what they call
    stack = [graph]
    while stack:
        current = stack[-1]
        if current not in path:
            path[current] = [called for node in inside(current.block()) if (called := callee_of(node)) is not None]
        waiting = [called for called in path[current] if called not in known]
        if any(called in path for called in waiting):
            return math.inf
        if waiting:
            stack.append(waiting[0])
            continue
        known[current] = sum([1 + known[called] for called in path.pop(current)])
        stack.pop()
    return known[graph]


# What makes a plan better, in order.
IMPROVING: list[Pass] = [
    inline_calls,  # so that the others see what is called
    propagate_constants,
    propagate_shapes,  # of which peepholes learn
    eliminate_dead_code,
    eliminate_common_subexpressions,
    pool_constants,
    peephole,
    unroll_loops,
    eliminate_common_subexpressions,  # turns of a loop have much in common
    batch_mm,
]


class ExecutionPlanState:
    """A plan: the improved graph, its instructions, how often it was used and how long that took."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.code = graph, Code(graph, name)
        self.hits = self.nanoseconds = 0
        self._gradients: list[GraphExecutor] | None = None
        self.code.gradient_executors = self._gradient_executors

    def run(self, values: Sequence[Any]) -> list[Any]:
        start = time.perf_counter_ns()
        results = run(self.code, values)
        self.nanoseconds += time.perf_counter_ns() - start
        self.hits += 1
        return results

    def _gradient_executors(self) -> list[GraphExecutor]:
        """Executors of the gradients of differentiable graphs, made when somebody asks: eager tensors find theirs by
        what they record."""
        if self._gradients is None:
            inner = [node._get("g", "Subgraph") for node in self.graph.findAllNodes("prim::DifferentiableGraph")]
            self._gradients = [GraphExecutor(differentiate(graph).df) for graph in inner]
        return self._gradients

    def __repr__(self) -> str:
        return f"<plan of {len(self.code.instructions)} instructions, run {self.hits} times in {self.nanoseconds} ns>"


class GraphExecutorState:
    """What an executor has by now: its graph, the plan without improvements, and the plans by kinds of arguments."""

    def __init__(
        self, graph: Graph, fallback: ExecutionPlanState | None, plans: dict[ArgumentSpec, ExecutionPlanState]
    ) -> None:
        self.graph, self.execution_plans, self._fallback = graph, plans, fallback

    @property
    def fallback(self) -> ExecutionPlanState:
        if self._fallback is None:
            raise RunError("the executor has no plan without improvements", why="it has not needed one")
        return self._fallback


class GraphExecutor:
    """Runs a graph. Tensors of other dtypes, ranks or devices get plans of their own, and so do tensors that need
    gradients; sizes do not matter.

    >>> from weft import ones
    >>> from weft.jit.parse import parse_ir
    >>> executor = GraphExecutor(parse_ir('''
    ... graph(%x : Tensor, %y : Tensor):
    ...   %z : Tensor = aten::mul(%x, %y)
    ...   return (%z)
    ... '''))
    >>> executor(ones(2), ones(2)), executor(ones(3), ones(3))
    (tensor([1., 1.]), tensor([1., 1., 1.]))
    >>> executor.get_debug_state().execution_plans
    {ArgumentSpec(grad, Float(*, cpu), Float(*, cpu)): <plan of 2 instructions, run 2 times in ... ns>}
    """

    def __init__(self, graph: Graph, optimize: bool = True, name: str = "<graph>") -> None:
        if not isinstance(graph, Graph):
            raise InvalidType(
                f"GraphExecutor takes a graph, not {type(graph).__name__}", hint="weft.jit.script(function).graph"
            )
        add_stat_value("pytorch_runtime.graph_executors_constructed", 1)
        self._graph, self._optimize, self._name = graph.copy(), optimize, name
        erase_shape_information(self._graph)
        self._inputs = len(list(self._graph.inputs()))
        self._plans: dict[ArgumentSpec, ExecutionPlanState] = {}
        self._fallback: ExecutionPlanState | None = None

    @property
    def graph(self) -> Graph:
        return self._graph

    def __call__(self, *args: Any) -> Any:
        """What the graph gives: a value, or a tuple of several."""
        results = self._plan(args).run(args)
        return results[0] if len(results) == 1 else tuple(results)

    def graph_for(self, *args: Any) -> Graph:
        """The graph of the plan for such arguments."""
        return self._plan(args).graph

    def get_debug_state(self) -> GraphExecutorState:
        return GraphExecutorState(self._graph, self._fallback, dict(self._plans))

    def _plan(self, values: Sequence[Any]) -> ExecutionPlanState:
        add_stat_value("pytorch_runtime.graph_executor_invocations", 1)
        if len(values) != self._inputs:
            raise RunError(f"expected {self._inputs} inputs, but got {len(values)}")
        if not self._optimize:
            if self._fallback is None:
                self._fallback = self._made(REQUIRED, self._graph.copy())
            return self._fallback
        spec = ArgumentSpec(modes.grad, values)
        plan = self._plans.get(spec)
        add_stat_value(f"pytorch_runtime.execution_plan_cache_{'miss' if plan is None else 'hit'}", 1)
        if plan is None:
            plan = self._plans[spec] = self._improved(spec, values)
        return plan

    def _improved(self, spec: ArgumentSpec, values: Sequence[Any]) -> ExecutionPlanState:
        graph = self._graph.copy()
        for value, given in zip(graph.inputs(), values):
            value.setType(refined(value.type(), given, spec.with_grad))
        grouping = create_autodiff_subgraphs if spec.needs_grad() else fuse
        before, modes.trace = modes.trace, None  # what passes compute is no part of a recording
        try:
            return self._made([*REQUIRED, *IMPROVING, grouping, eliminate_dead_code], graph)
        finally:
            modes.trace = before

    def _made(self, passes: Sequence[Pass], graph: Graph) -> ExecutionPlanState:
        for improve in passes:
            improve(graph)
        return ExecutionPlanState(graph, self._name)

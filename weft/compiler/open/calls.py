"""One call of an operator or a computation, whose sizes are arguments: kernels that serve all calls that answer like it
what they ask about sizes. Extents of 1 stay as they are. Eager calls run them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ... import te
from ...base.cpu_target import CpuTarget
from ...core.fused import FusedGroup
from ...core.infer import infer_node
from ...core.ir import Fact, Node, NodeEntry
from ...core.op import Op
from ...core.schema import Params
from ...lower.cpu.row_wise.row_kernel import compute_kernels
from ...lower.group import LoweredKernel, Spec, Temporary, Written, own_tensor
from ...te.extents import Trace
from ...te.tensor import Tensor
from ..backends import backend_of
from .binding import OpenSizes


class LoweredCall(NamedTuple):
    """What goes in and out, and kernels whose arguments are positions among that, or temporaries. `sizes` tells of each
    argument of the trace which axis it is of which input, or which number of those given, whose place is after all
    that goes in and out."""

    trace: Trace
    sizes: tuple[tuple[int, int], ...]
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    kernels: tuple[LoweredKernel, ...]


def lowered_operator(op: Op, params: Params, inputs: Sequence[Spec], target: CpuTarget) -> LoweredCall:
    """An operator, by the template or the body that a compiled model takes for it."""
    sizes, named = _opened(inputs)
    variables = [NodeEntry(Node(None, f"in{number}")) for number in range(len(inputs))]
    node = Node(op, op.name, inputs=variables, params=params)
    results = [NodeEntry(node, index) for index in range(node.num_outputs)]
    facts = [sizes.fact(fact) for fact in (*named, *infer_node(op, params, named, op.name))]
    known: dict[Any, Fact] = dict(zip((*variables, *results), facts))
    group = FusedGroup((node,), tuple(variables), tuple(results), node)
    kernels = backend_of(target).lowering.lower(group, known.__getitem__, target)
    specs: Any = [(fact.shape, fact.dtype) for fact in facts]
    return _call(sizes.trace, named, specs, list(known), kernels)


def lower_compute(name: str, compute: Callable[..., Any], inputs: Sequence[Spec], target: CpuTarget) -> LoweredCall:
    """A computation that takes te tensors and gives one or several."""
    sizes, named = _opened(inputs)
    facts: Any = map(sizes.fact, named)
    given = [te.placeholder(fact.shape, fact.dtype, f"in{number}") for number, fact in enumerate(facts)]
    computed = compute(*given)
    results = list[Tensor]()
    for tensor in computed if isinstance(computed, (tuple, list)) else (computed,):
        results.append(own_tensor(tensor, (*given, *results)))
    ends = [*given, *results]
    places: dict[Tensor, Hashable] = {tensor: tensor for tensor in ends}
    kernels = compute_kernels(name, given, results, places, target, sizes.trace)
    return _call(sizes.trace, named, [(tensor.shape, tensor.dtype) for tensor in ends], ends, kernels)


def lower_numbers(numbers: Sequence[int], write: Callable[[list[Any]], Written]) -> LoweredCall:
    """What is written for numbers all of which are arguments, those that are 1 as well."""
    trace = Trace(passes=True)
    inputs, outputs, kernels = write([trace.extent(f"n{place}", number) for place, number in enumerate(numbers)])
    ends = range(len(inputs) + len(outputs))
    sizes = [(len(ends), place) for place in range(len(numbers))]
    return LoweredCall(trace, tuple(sizes), inputs, outputs, _placed(trace, ends, kernels))


def _opened(inputs: Sequence[Spec]) -> tuple[OpenSizes, list[Fact]]:
    """Sizes that are arguments, with the values of this call, and inputs in their names."""
    names: dict[str, int] = {}
    facts = []
    for number, (shape, dtype) in enumerate(inputs):
        own = {f"n{number}_{axis}": extent for axis, extent in enumerate(shape)}
        facts.append(Fact(tuple(1 if extent == 1 else name for name, extent in own.items()), dtype))
        names |= {name: extent for name, extent in own.items() if extent != 1}
    return OpenSizes(names, stays_open=False), facts


def _call(
    trace: Trace, named: Sequence[Fact], specs: Sequence[Spec], ends: Sequence[Any], kernels: Iterable[LoweredKernel]
) -> LoweredCall:
    """The call of kernels whose arguments are `ends`: inputs, whose shapes have names, then outputs."""
    sizes = [(number, axis) for number, fact in enumerate(named) for axis, n in enumerate(fact.shape or ()) if n != 1]
    placed = _placed(trace, ends, kernels)
    return LoweredCall(trace, tuple(sizes), tuple(specs[: len(named)]), tuple(specs[len(named) :]), placed)


def _placed(trace: Trace, ends: Sequence[Any], kernels: Iterable[LoweredKernel]) -> tuple[LoweredKernel, ...]:
    position = {end: number for number, end in enumerate(ends)}
    placed = [
        made._replace(
            kernel=replace(made.kernel, scalars=tuple(trace.scalars)),
            arguments=tuple([a if isinstance(a, Temporary) else position[a] for a in made.arguments]),
        )
        for made in kernels
    ]
    return tuple(placed)

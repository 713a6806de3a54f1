"""A group of one operator whose body is written as loop IR becomes those kernels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

from ..base.errors import ShapeError
from ..base.shape import show
from ..core.fused import FusedGroup
from ..core.ir import NodeEntry
from ..core.op import Op
from ..te.expr import Const, Expr
from ..te.extents import Trace, is_open
from ..te.loops import Kernel
from ..te.transform import legalise
from .group import Facts, LoweredKernel, Spec, Temporary, by_rule, known_spec

OPERATIONS = 16  # of kernels at their best, which take as long as a unit of the work that loops state


def loop_body_kernels(group: FusedGroup, fact: Facts) -> list[LoweredKernel]:
    """The kernels of the FKernels column, their buffers bound to entries and temporaries.

    New values of variables, which a group may have after the outputs of its node, are the first
    temporaries of the body.
    """
    (node,) = group.nodes
    results = [NodeEntry(node, index) for index in range(node.num_outputs)]
    news = [entry for entry in group.outputs if entry.node is node and entry not in results]
    inputs = [known_spec(fact(entry), entry) for entry in node.inputs]
    outputs = [known_spec(fact(entry), entry) for entry in results]
    made = by_rule(node, "kernels", Op.kernels, inputs, outputs)
    specs = [*inputs, *outputs, *(known_spec(fact(entry), entry) for entry in news)]
    places: dict[int, Hashable] = dict(enumerate([*node.inputs, *results, *news]))
    for position, entry in enumerate(results, len(inputs)):
        if entry not in group.outputs:  # nobody reads it
            places[position] = Temporary(position, *specs[position])
    lowered = []
    for kernel, positions, work in made:
        _bind(kernel, positions, specs, places)
        arguments = tuple(places[position] for position in positions)
        lowered.append(LoweredKernel(legalise(kernel), arguments, work * OPERATIONS))
    return lowered


def _bind(kernel: Kernel, positions: Sequence[int], specs: Sequence[Spec], places: dict[int, Hashable]) -> None:
    """Checks buffers against what is at their positions; what nobody knows yet is a temporary."""
    sizes: list[Any] = [extent for shape, _ in specs for extent in shape]
    trace = next((size.trace for size in sizes if is_open(size)), None)
    for buffer, position in zip(kernel.buffers, positions, strict=True):
        shape = tuple(_size(extent, trace) for extent in buffer.shape)
        if position >= len(specs):
            places.setdefault(position, Temporary(position, shape, buffer.dtype))
            continue
        wanted, dtype = specs[position]
        if prod(shape) != prod(wanted) or buffer.dtype != dtype:
            raise ShapeError(
                f"buffer {buffer.name} of kernel {kernel.name} is {buffer.dtype} {show(shape)}",
                why=f"what it stands for is {dtype} {show(wanted)}",
            )


def _size(extent: Expr, trace: Trace | None) -> Any:
    """An extent of a buffer as a number, or as a size of the trace."""
    if trace is not None:
        return trace.extent_of(extent)
    assert isinstance(extent, Const)
    return int(extent.value)

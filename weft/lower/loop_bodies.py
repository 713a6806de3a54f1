"""A group of one operator whose body is written as loop IR becomes those kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

from ..base.dtype import DType
from ..base.errors import Error, GraphError, ShapeError
from ..base.shape import is_static, show
from ..core.fused import FusedGroup
from ..core.ir import Fact, NodeEntry
from ..core.op import Op
from ..te.expr import Const, Expr
from ..te.extents import Trace, is_open
from ..te.loops import Kernel
from ..te.transform import legalise
from .group import LoweredKernel, Temporary

Spec = tuple[tuple[int, ...], DType]


def loop_body_kernels(group: FusedGroup, fact: Callable[[NodeEntry], Fact]) -> list[LoweredKernel]:
    """The kernels of the FKernels column, their buffers bound to entries and temporaries.

    New values of variables, which a group may have after the outputs of its node, are the first
    temporaries of the body.
    """
    (node,) = group.nodes
    assert node.op is not None
    results = [NodeEntry(node, index) for index in range(node.num_outputs)]
    news = [entry for entry in group.outputs if entry.node is node and entry not in results]
    inputs = [_static(fact(entry), entry) for entry in node.inputs]
    outputs = [_static(fact(entry), entry) for entry in results]
    try:
        made = node.op.call_with(Op.kernels[node.op], node.params, inputs, outputs)
    except Error as error:
        error.at(f"kernels of operator {node.op.name}, node {node.name!r}")
        raise
    except MemoryError:
        raise
    except Exception as error:
        raise GraphError(
            f"the kernels of operator {node.op.name} failed",
            where=f"node {node.name!r}",
            why=f"{type(error).__name__}: {error}",
        ) from error
    specs = [*inputs, *outputs, *(_static(fact(entry), entry) for entry in news)]
    places: dict[int, Hashable] = dict(enumerate([*node.inputs, *results, *news]))
    for position, entry in enumerate(results, len(inputs)):
        if entry not in group.outputs:  # nobody reads it
            places[position] = Temporary(position, *specs[position])
    lowered = []
    for kernel, positions, work in made:
        _bind(kernel, positions, specs, places)
        arguments = tuple(places[position] for position in positions)
        lowered.append(LoweredKernel(legalise(kernel), arguments, work))
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


def _static(fact: Fact, entry: NodeEntry) -> Spec:
    if not is_static(fact.shape) or fact.dtype is None:
        raise ShapeError(
            f"the shape of {entry.node.name!r} is {show(fact.shape)} of {fact.dtype}",
            why="code is generated for shapes and dtypes that are all known",
            hint="give the shapes of all inputs",
        )
    return fact.shape, fact.dtype

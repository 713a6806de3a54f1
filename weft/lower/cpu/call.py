"""One call of a computation, whose sizes are arguments: kernels that serve all calls that answer like it what they ask
about sizes. Eager calls run them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ... import te
from ...base.cpu_facts import COSTS
from ...base.cpu_target import CpuTarget
from ...base.dtype import DType
from ...core.op import Op
from ...core.schema import Params
from ...te.expr import Expr
from ...te.extents import Trace
from ...te.tensor import Tensor
from ...te.transform import legalise
from ..group import LoweredKernel, Temporary
from ..stages import stages
from .open_stages import open_kernels

Spec = tuple[tuple[int, ...], DType]  # extents may be open


class LoweredCall(NamedTuple):
    """What goes in and out, and kernels whose arguments are positions among that, or temporaries. `sizes` tells of each
    argument of the trace which axis it is of which of those."""

    trace: Trace
    sizes: tuple[tuple[int, int], ...]
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    kernels: tuple[LoweredKernel, ...]


def lower_compute(name: str, compute: Callable[..., Any], inputs: Sequence[Spec], target: CpuTarget) -> LoweredCall:
    """A computation that takes te tensors and gives one or several. Extents of 1 stay as they are."""
    trace = Trace()
    specs, sizes = _opened(trace, inputs)
    given = [te.placeholder(*spec, f"in{number}") for number, spec in enumerate(specs)]
    computed = compute(*given)
    results = _distinct(computed if isinstance(computed, (tuple, list)) else (computed,), given)
    order = stages(given, results)
    places: dict[Tensor, Hashable] = {tensor: number for number, tensor in enumerate([*given, *results])}
    kernels = open_kernels(name, order, places, target, trace)
    outputs = tuple((tensor.shape, tensor.dtype) for tensor in results)
    return LoweredCall(trace, sizes, specs, outputs, tuple(kernels))


def lower_loop_body(
    op: Op, params: Params, inputs: Sequence[Spec], outputs: Sequence[Spec], target: CpuTarget
) -> LoweredCall:
    """An operator whose body is written as loops: the rule that writes them runs on sizes that are arguments, those of
    the inputs, then those of the outputs."""
    trace = Trace()
    specs, sizes = _opened(trace, [*inputs, *outputs])
    count, each = len(inputs), round(COSTS.counted / target.facts.nanoseconds_per_operation)
    kernels = []
    for kernel, positions, work in op.call_with(Op.kernels[op], params, specs[:count], specs[count:]):
        places = [
            position if position < len(specs) else Temporary(position, _extents(buffer.shape, trace), buffer.dtype)
            for buffer, position in zip(kernel.buffers, positions, strict=True)
        ]
        whole = replace(legalise(kernel), scalars=tuple(trace.arguments))
        kernels.append(LoweredKernel(whole, tuple(places), work * each))
    return LoweredCall(trace, sizes, specs[:count], specs[count:], tuple(kernels))


def _opened(trace: Trace, specs: Sequence[Spec]) -> tuple[tuple[Spec, ...], tuple[tuple[int, int], ...]]:
    """Tensors whose extents are arguments, but for those of 1; and where each argument stands."""
    made: list[Spec] = []
    sizes: list[tuple[int, int]] = []
    for number, (shape, dtype) in enumerate(specs):
        extents: list[Any] = []
        for axis, extent in enumerate(shape):
            if extent != 1:
                sizes.append((number, axis))
            extents.append(extent if extent == 1 else trace.extent(f"n{number}_{axis}", extent))
        made.append((tuple(extents), dtype))
    return tuple(made), tuple(sizes)


def _extents(shape: Sequence[Expr], trace: Trace) -> tuple[int, ...]:
    """The shape of memory that a body names, as sizes."""
    return tuple(trace.extent_of(extent) for extent in shape)  # type: ignore[misc]


def _distinct(tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The results, each in memory of its own."""
    distinct: list[Tensor] = []
    for tensor in tensors:
        if tensor in inputs or tensor in distinct:
            tensor = te.compute(tensor.shape, lambda *i, t=tensor: t[i], name=tensor.name)
        distinct.append(tensor)
    return distinct

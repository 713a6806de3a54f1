"""Schedules that users register for an operator: they get the plain loops of each kernel of its groups and give them
back as they want them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from math import prod
from typing import Any

from ..base.errors import InvalidValue
from ..base.target import Target
from ..core.ir import Node
from ..te.expr import Const
from ..te.loops import For, Kernel
from ..te.schedule import loop_nest
from ..te.simplify_loops import statements
from ..te.tensor import Tensor
from ..te.transform import legalise
from .group import LoweredKernel, Schedule, Strides, stage_buffers


def registered_schedule(rule: Callable[..., Any], node: Node) -> Schedule[Target]:
    """The schedule that a rule of the node's operator makes: f(attrs, kernel, target) -> kernel."""

    def schedule(
        name: str, output: Tensor, places: Mapping[Tensor, Hashable], target: Target, strides: Strides | None = None
    ) -> LoweredKernel:
        buffers = stage_buffers(output, places, strides)
        plain = Kernel(name, tuple(buffers.values()), loop_nest([output], buffers))
        kernel = rule(node.params, plain, target)
        if not isinstance(kernel, Kernel) or kernel.buffers != plain.buffers:
            raise InvalidValue(
                f"the schedule of operator {node.op_name} gives {kernel if kernel is None else type(kernel).__name__}",
                where=f"node {node.name!r}",
                why="it gives a te.Kernel of the buffers that the kernel it got has",
                hint="change the loops of the kernel by the functions of weft.te.transform",
            )
        extents = [loop.extent for loop in statements(plain.body) if isinstance(loop, For)]
        work = prod([int(extent.value) or 1 for extent in extents if isinstance(extent, Const)])
        return LoweredKernel(legalise(kernel), tuple(places[tensor] for tensor in buffers), work)

    return schedule

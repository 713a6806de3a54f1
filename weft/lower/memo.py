"""Equal groups are lowered once. A signature says what a group computes, on what shapes, for what
target; the kernels of one are kept with their arguments by position."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.ir import Fact, NodeEntry
from .group import LoweredKernel, lower_group

MAX_GROUPS = 1024

_known: OrderedDict[Hashable, list[LoweredKernel]] = OrderedDict()
_lock = threading.Lock()


def lowered(
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: Target
) -> list[LoweredKernel]:
    """What `lower_group` gives; for a group like an earlier one, the very same kernels."""
    key = signature(group, fact, target)
    places: list[Hashable] = [*group.inputs, *group.outputs]
    with _lock:
        found = _known.get(key)
        if found is not None:
            _known.move_to_end(key)
            return [_with_arguments(kernel, lambda i: places[i]) for kernel in found]
    made = lower_group(group, fact, target)
    position = {place: number for number, place in enumerate(places)}
    kept = [_with_arguments(kernel, lambda a: position.get(a, a)) for kernel in made]
    with _lock:
        _known[key] = kept
        if len(_known) > MAX_GROUPS:
            _known.popitem(last=False)
    return made


def _with_arguments(kernel: LoweredKernel, place: Callable[[Any], Hashable]) -> LoweredKernel:
    """The kernel with graph entries and positions exchanged; temporaries stay what they are."""
    arguments = tuple(place(a) if isinstance(a, (int, NodeEntry)) else a for a in kernel.arguments)
    return kernel._replace(arguments=arguments)


def signature(group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: Target) -> Hashable:
    """Operators, attributes, how they are wired, and the facts about what goes in."""
    number: dict[Hashable, int] = {entry: i for i, entry in enumerate(group.inputs)}
    rows = []
    for node in group.nodes:
        assert node.op is not None
        attrs = tuple(sorted(node.op.attributes(node.params).items()))
        rows.append((node.op.name, attrs, tuple(number[entry] for entry in node.inputs)))
        for index in range(node.num_outputs):
            number[NodeEntry(node, index)] = len(number)
    facts = tuple(fact(entry)[:2] for entry in group.inputs)
    outputs = tuple(number.get(entry, -1) for entry in group.outputs)
    return (str(target), tuple(rows), facts, outputs, tuple(fact(e)[:2] for e in group.outputs))

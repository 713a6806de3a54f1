"""How a group becomes kernels: by the template of its master, by the kernels that its operator was written with, or
stage by stage, by the schedule of a backend."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from .. import te
from ..base.dtype import DType
from ..base.target import Target
from ..core.bulk import collector_paused
from ..core.fused import FusedGroup
from ..core.ir import Node
from ..core.op import Op
from ..te.loops import Kernel
from .chunks import PLAIN_CHUNKS, Chunks
from .group import Facts, LoweredKernel, Schedule, Strides, lower_stages, need_numbers
from .loop_bodies import loop_body_kernels
from .registered import registered_schedule

T = TypeVar("T", bound=Target)


class Template(NamedTuple):
    """Kernels for groups of one master, which no generic schedule serves, or not as well."""

    make: Callable[..., list[LoweredKernel]]  # (group, fact, target), and strides if it takes them
    takes_strides: bool = False
    takes_open_sizes: bool = False
    unit: Callable[..., str] | None = None  # (node, fact, target): what it multiplies by, if by more than its isa


@dataclass(frozen=True)
class Lowering(Generic[T]):
    """What a backend lowers by: a schedule for any stage, and templates by the names of operators. `bind` makes kernels
    that were written as plain and parallel loops the backend's own. Values that stand inside larger ones begin there at
    multiples of `alignment` bytes. `chunks` says when long reductions are two stages."""

    schedule: Schedule[T]
    templates: Mapping[str, Template] = field(default_factory=dict)
    bind: Callable[[Kernel, T], Kernel] = lambda kernel, target: kernel
    alignment: int = 1
    chunks: Chunks = PLAIN_CHUNKS

    @collector_paused
    def lower(self, group: FusedGroup, fact: Facts, target: T, strides: Strides | None = None) -> list[LoweredKernel]:
        """The kernels that compute the outputs of a group, in order. Only a group that takes strides
        may have inputs or outputs that are not dense."""
        made = self._lowered(group, fact, target, strides)
        return [lowered._replace(kernel=self.bind(lowered.kernel, target)) for lowered in made]

    def _lowered(self, group: FusedGroup, fact: Facts, target: T, strides: Strides | None) -> list[LoweredKernel]:
        template, rule = self._template(group), group.schedule
        if template is not None:
            if not template.takes_open_sizes:
                need_numbers(group, fact)
            return template.make(group, fact, target, strides) if strides else template.make(group, fact, target)
        first = group.nodes[0].op
        assert first is not None
        written = Op.kernels.contains(first)
        if rule is not None or (written and not first.open_body):
            need_numbers(group, fact)
        if written:
            return loop_body_kernels(group, fact)
        node = group.master or group.nodes[-1]
        schedule = self.schedule if rule is None else registered_schedule(rule, node)
        return lower_stages(group, fact, target, schedule, strides, self.chunks)

    def copy(
        self,
        source: Hashable,
        fact: tuple[tuple[int, ...], DType],
        result: Hashable,
        target: T,
        strides: Strides | None = None,
    ) -> list[LoweredKernel]:
        """A kernel that copies an entry to another place."""
        original = te.placeholder(*fact, "in0")
        copied = te.compute(original.shape, lambda *i: original[i], name="copy")
        return [self.schedule("copy", copied, {original: source, copied: result}, target, strides)]

    def takes_strides(self, group: FusedGroup) -> bool:
        """Whether kernels can read and write tensors that are parts of larger ones, with strides."""
        template = self._template(group)
        if template is not None:
            return template.takes_strides
        return all(Op.compute.contains(n.op) and not Op.kernels.contains(n.op) for n in group.nodes)

    def has_body(self, node: Node) -> bool:
        """Whether kernels can be made for a node: it has them, a compute, or a template."""
        written = Op.compute.contains(node.op) or Op.kernels.contains(node.op)
        return written or node.op_name in self.templates

    def unit(self, nodes: Sequence[Node], fact: Facts, target: T) -> str:
        """By which instructions the kernels of a group compute."""
        for node in nodes:
            template = self.templates.get(node.op_name)
            if template is not None and template.unit is not None:
                return template.unit(node, fact, target)
        return target.isa

    @property
    def dense(self) -> frozenset[str]:
        """Masters whose kernels write their result in one piece only."""
        return frozenset(name for name, template in self.templates.items() if not template.takes_strides)

    def _template(self, group: FusedGroup) -> Template | None:
        """That of the master, or of the only node. A registered schedule goes before it."""
        node = group.nodes[0] if len(group.nodes) == 1 else group.master
        if node is None or group.schedule is not None:
            return None
        return self.templates.get(node.op_name)


def bodies_of(node: Node) -> list[Callable[..., Any]]:
    """The functions that write the code of a node; none for a template."""
    rules = (Op.compute.get(node.op), Op.kernels.get(node.op), Op.schedule.get(node.op))
    return [rule for rule in rules if rule is not None]

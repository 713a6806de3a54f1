"""Kernels of a program whose sizes are open: each is lowered with the sizes of one call, and takes them as scalars.
What was asked about sizes belongs to the program, so nothing but code is shared with other programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from ...base.plan import At, Launch, Number
from ...base.target import Target
from ...core.fused import FusedGroup
from ...core.ir import Fact, Node, NodeEntry
from ...lower.group import LoweredKernel, Strides
from ...lower.signature import wiring
from ...te.expr import Expr
from ...te.grid import AXES, constant, grid_of
from ...te.loops import For, Kernel, WholeKernel
from ..backends import backend_of
from ..disk_cache import CompiledKernel
from ..groups import GroupCall, KernelMaker, compiled_kernels, places_of, with_arguments
from ..locations import as_number
from .binding import OpenSizes


class OpenKernelMaker(KernelMaker):
    """Compiles groups whose facts hold open sizes."""

    def __init__(self, target: Target, sizes: OpenSizes) -> None:
        super().__init__(target)
        self.sizes = sizes
        self._known: dict[Hashable, list[CompiledKernel]] = {}

    def call_of(self, group: FusedGroup, fact: Callable[[NodeEntry], Fact], strides: Strides) -> GroupCall:
        """The group with a signature that holds in this program."""
        texts = lambda node: {key: value for key, value in node.attrs.items() if not key.startswith("__")}
        rows, outputs = wiring(group, texts)
        places = places_of(group)
        facts = tuple((self._rows(fact(entry).shape), fact(entry).dtype) for entry in places)  # type: ignore[arg-type]
        steps = tuple(self._rows(strides[entry]) if entry in strides else None for entry in places)
        return GroupCall(group, strides, (rows, facts, outputs, steps))

    def _rows(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(self.sizes.trace.row_of, shape))

    def is_known(self, call: GroupCall) -> bool:
        return call.signature in self._known

    def lowered(self, call: GroupCall, fact: Callable[[NodeEntry], Fact]) -> list[LoweredKernel]:
        """The kernels of a group as loops that take the sizes."""
        kernels = super().lowered(call, fact)
        return [made._replace(kernel=self._with_scalars(made.kernel)) for made in kernels]

    def _with_scalars(self, kernel: Kernel) -> Kernel:
        """The kernel with the sizes as arguments; the same object if it has them, for its code may be in the making."""
        if kernel.scalars:
            return kernel
        return replace(kernel, scalars=tuple(self.sizes.trace.arguments))

    def compiled_once(
        self,
        key: Hashable,
        places: Sequence[Hashable],
        make: Callable[[], Sequence[LoweredKernel]],
        nodes: Iterable[Node] = (),
    ) -> list[CompiledKernel]:
        """Kernels whose arguments are among `places`: of an equal group of this program, or compiled now."""
        if key not in self._known:
            position = {place: number for number, place in enumerate(places)}
            made = self.compiled_kernels(make())
            self._known[key] = [with_arguments(kernel, lambda entry: position[entry]) for kernel in made]
        return [with_arguments(kernel, lambda i: places[i]) for kernel in self._known[key]]

    def compiled_kernels(self, kernels: Sequence[LoweredKernel]) -> list[CompiledKernel]:
        """The code of kernels that are lowered already, launched over turns that follow from the sizes."""
        ready = [made._replace(kernel=self._with_scalars(made.kernel)) for made in kernels]
        made = compiled_kernels(ready, self.target)
        return [self._launched(lowered.kernel, kernel) for lowered, kernel in zip(ready, made)]

    def _launched(self, kernel: Kernel, made: CompiledKernel) -> CompiledKernel:
        grid = grid_of(kernel)
        if isinstance(kernel.body, WholeKernel):
            assert made.code.launch is not None
            x, y, z = map(as_number, made.code.launch.blocks)
            return made._replace(code=replace(made.code, launch=made.code.launch._replace(blocks=(x, y, z))))
        if kernel.parallel is None and grid is None:
            return made
        if kernel.parallel is not None:
            launch = Launch((self._turns(kernel.parallel.extent), 1, 1))
        else:
            assert grid is not None
            early = backend_of(self.target).codegen.begins_early(made.code.code)
            blocks, threads = (self._along(loops) for loops in (grid.blocks, grid.threads))
            launch = Launch(blocks, threads, dependent=early)  # type: ignore[arg-type]
        return made._replace(code=replace(made.code, launch=launch))

    def _along(self, loops: Sequence[For]) -> tuple[Number, Number, Number]:
        extents = {loop.kind[-1]: self._turns(loop.extent) for loop in loops}
        x, y, z = (extents.get(axis, 1) for axis in AXES)
        return x, y, z

    def _turns(self, extent: Expr) -> Number:
        known = constant(extent)
        return At(self.sizes.trace.row_of_expression(extent)) if known is None else known

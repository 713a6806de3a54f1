"""The grid of a kernel: the loops that are its blocks and threads, what a block shares, and what it
is launched with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..base.errors import InvalidValue
from ..base.plan import Extents, Launch
from .expr import Const, Expr
from .loops import Alloc, Buffer, For, Kernel, Let, span
from .simplify import simplify
from .steps import Frame, evaluate

# What every GPU that runs CUDA allows a launch, along x, y and z.
MAX_BLOCKS = (2**31 - 1, 65535, 65535)
MAX_THREADS = (1024, 1024, 64)
MAX_THREADS_IN_ALL = 1024
MAX_SHARED_BYTES = 227 << 10  # the most that any gives a block; how much it is, a target knows
AXES = "xyz"


class Grid(NamedTuple):
    """The loops bound to each kind of axis, from the outermost in, and what a block allocates."""

    blocks: tuple[For, ...]
    threads: tuple[For, ...]
    shared: tuple[Buffer, ...]

    @property
    def shared_bytes(self) -> int:
        """The bytes of shared memory that a block takes."""
        return sum(buffer_bytes(buffer) for buffer in self.shared)

    def launch(self, frame: Frame) -> Launch:
        """The extents of the axes, for the arguments that a frame holds."""
        blocks = _along_axes(self.blocks, frame)
        for axis, count, most in zip(AXES, blocks, MAX_BLOCKS):
            if count > most:
                raise InvalidValue(
                    f"a grid of {count} blocks along {axis}",
                    where=frame.where,
                    why=f"a GPU takes at most {most}",
                    hint="bind the longest loop to block.x, or give a block more to do",
                )
        return Launch(blocks, _along_axes(self.threads, frame))


def grid_of(kernel: Kernel) -> Grid | None:
    """The grid of a well-formed kernel, or None if none of its loops is bound to one."""
    nest = outer_nest(kernel)
    loops = [node for node in nest if isinstance(node, For)]
    if not loops:
        return None
    shared = [s.buffer for s in nest if isinstance(s, Alloc) and s.buffer.scope == "shared"]
    return Grid(
        tuple(loop for loop in loops if is_block(loop)),
        tuple(loop for loop in loops if not is_block(loop)),
        tuple(shared),
    )


def launch_extents(kernel: Kernel, scalars: Sequence[int] = ()) -> Launch:
    """The blocks and threads that a kernel is launched with for some scalar arguments.

    >>> from .build import KernelBuilder
    >>> b = KernelBuilder("count")
    >>> n = b.scalar("n")
    >>> y = b.arg("y", "int64", (n,))
    >>> with b.block("i", (n + 127) // 128) as i, b.thread("j", 128) as j:
    ...     with b.when(i * 128 + j < n):
    ...         b.store(y, i * 128 + j, i)
    >>> launch_extents(b.finish(), [1000])
    Launch(blocks=(8, 1, 1), threads=(128, 1, 1), shared=0, cluster=1, dependent=False)
    """
    grid = grid_of(kernel)
    if grid is None:
        raise InvalidValue(f"kernel {kernel.name} has no grid", why="none of its loops is bound to blocks")
    if len(scalars) != len(kernel.scalars):
        raise InvalidValue(f"kernel {kernel.name} takes {len(kernel.scalars)} scalars, not {len(scalars)}")
    values = {var: var.dtype.type(number) for var, number in zip(kernel.scalars, scalars)}
    with np.errstate(all="ignore"):
        return grid.launch(Frame(kernel.name, values))


def outer_nest(kernel: Kernel) -> list[For | Let | Alloc]:
    """The outermost loops of the grid, lets and allocs, each with nothing but the next inside."""
    nest: list[For | Let | Alloc] = []
    node = kernel.body
    while isinstance(node, (Let, Alloc)) or (isinstance(node, For) and node.is_bound):
        nest.append(node)
        node = node.body
    return nest


def is_block(loop: For) -> bool:
    """Whether a loop of the grid counts blocks; else it counts threads."""
    return loop.kind.startswith("block")


def constant(extent: Expr) -> int | None:
    """The number that an expression is, if it is one."""
    made = simplify(extent)
    return int(made.value) if isinstance(made, Const) else None


def buffer_bytes(buffer: Buffer) -> int:
    """The bytes from the first to the last element of a buffer of constant extents and strides."""
    extents = [constant(extent) or 0 for extent in buffer.shape]
    steps = [constant(stride) or 0 for stride in buffer.strides]
    return span(extents, steps) * buffer.dtype.itemsize


def _along_axes(loops: Sequence[For], frame: Frame) -> Extents:
    extents = {loop.kind[-1]: max(int(evaluate(loop.extent, frame)), 0) for loop in loops}
    x, y, z = (extents.get(axis, 1) for axis in AXES)
    return x, y, z

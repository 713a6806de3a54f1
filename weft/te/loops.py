"""Loop IR: what a kernel does, as loops over buffers.

    s ::= For | While | Store | Let | Alloc | If | Seq | Prefetch | Barrier | Exchange | TileStep | WholeKernel

A Kernel has buffers and scalar arguments. Extents and strides are expressions, so one kernel can
serve many sizes; constants where that pays. A name bound by For, Let or Alloc holds in its body
only; the same Var may be bound in several places that do not enclose each other (unrolled copies).

On a CPU a kernel has at most one parallel loop, its outermost one: the caller gives each thread a
range of it. On a GPU its outermost loops are bound to the axes of a grid: blocks, and inside them
the threads of a block. What stands inside those loops is what one thread does; all threads of all
blocks do it at once, in no order but that of barriers. `verify.py` has the rules of such kernels,
`grid.py` the grid that follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ..base.dtype import BOOL, DType, as_dtype
from ..base.errors import DTypeError, InvalidValue
from ..base.plan import Launch, TensorMap
from .expr import Const, Expr, ExprLike, Load, Var, access_lanes, as_expr

GridAxis = Literal["block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z"]
LoopKind = Literal["serial", "vector", "unroll"] | GridAxis
Scope = Literal["arg", "scratch", "register", "shared"]
GRID_AXES: frozenset[str] = frozenset(get_args(GridAxis))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Buffer:
    """Memory as a kernel sees it: element (i, j, ...) is at i*strides[0] + j*strides[1] + ...

    Scope `arg`: passed in. `scratch`: allocated inside the kernel, per thread, on its stack.
    `register`: a small scratch whose every index is constant after unrolling, so that it lives in
    registers; its elements may be vectors of `lanes`. `shared`: one for all threads of a block.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    scope: Scope = "arg"
    lanes: int = 1
    alignment: int = 0  # bytes the base is known to be aligned to; 0: that of an element

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Expr:
        return Load(self, as_indices(self, indices))


def span(extents: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements there are from the first to the last, those between rows included."""
    return 0 if 0 in extents else 1 + sum((extent - 1) * stride for extent, stride in zip(extents, strides))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class For:
    """var = 0 .. extent - 1. `vector` loops have a constant extent: the lanes.

    A loop whose kind is an axis of the grid has no turns of its own: each block or thread along
    that axis is one of them.
    """

    var: Var
    extent: Expr
    body: Stmt
    kind: LoopKind = "serial"

    @property
    def is_bound(self) -> bool:
        """Whether its turns are blocks or threads of a grid."""
        return self.kind in GRID_AXES


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class While:
    """The body again and again while the condition, evaluated anew before each turn, holds.

    The condition is a scalar bool that reads buffers: nothing else can change between turns.
    """

    condition: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Store:
    """With a mask, only the lanes it names touch memory; of lanes at one place the last wins."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None

    def __post_init__(self) -> None:
        lanes = access_lanes(self.buffer, self.indices)
        if self.value.dtype != self.buffer.dtype or self.value.lanes != lanes:
            raise DTypeError(
                f"store of {self.value.dtype} x{self.value.lanes} into {self.buffer.name}, "
                f"which takes {self.buffer.dtype} x{lanes}"
            )
        if self.mask is not None and (self.mask.dtype != BOOL or self.mask.lanes != lanes):
            raise DTypeError(f"the mask of a store into {self.buffer.name} is not bool x{lanes}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let:
    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Alloc:
    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If:
    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Seq:
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prefetch:
    """A hint that an element will be read soon; `level` is the nearest cache it should reach."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    level: int = 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Barrier:
    """No thread of a block goes on before all of them are here; then each sees what the others
    have written."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WholeKernel:
    """All that a kernel does, as one statement, for which the code generator of its target has a writer: what it is
    launched over and the tensor maps it takes are decided. Its parts are what it stores."""

    launch: Launch
    maps: tuple[TensorMap, ...]

    def loops(self) -> Stmt:
        """What it means, as plain loops: what the interpreter runs."""
        raise NotImplementedError

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Exchange:
    """`buffer[indices]`, a register of this thread, becomes the `value` of another thread of its warp: of the one whose
    number differs in the bits of `distance`. All threads of the block are here at once, as at a barrier.

    A warp is 32 threads of a block whose numbers follow each other, x first.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    distance: int

    def __post_init__(self) -> None:
        if self.buffer.scope != "register" or self.buffer.lanes > 1 or self.value.lanes > 1:
            raise InvalidValue(f"an exchange into {self.buffer.name}", why="registers of one lane are exchanged")
        if self.value.dtype != self.buffer.dtype:
            raise DTypeError(f"exchange of {self.value.dtype} into {self.buffer.name} of {self.buffer.dtype}")
        if not 0 < self.distance < WARP:
            raise InvalidValue(f"an exchange over a distance of {self.distance}", why=f"a warp has {WARP} threads")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TileStep:
    """What a unit does that multiplies tiles: a thread has eight of them, of at most 16 rows of 16 words each, a word
    being four bytes or two bfloat16, or a sum of 32 bits.

    `shape`: all tiles are zero, and those of these numbers have so many rows. `release`: there are no tiles any more.
    `zero`, `load`, `store`: one tile, from or to a buffer of words, whose rows are `stride` elements apart.
    `dot_bytes`, `dot_pairs`: tile c += a b for numbers (c, a, b): of each row of a and each column of b, whose rows are
    words of products that follow each other.
    """

    action: Literal["shape", "release", "zero", "load", "store", "dot_bytes", "dot_pairs"]
    tiles: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    buffer: Buffer | None = None
    indices: tuple[Expr, ...] = ()
    stride: int = 0


WARP = 32  # threads that exchange values
TILES, TILE_ROWS, TILE_WORDS = 8, 16, 16
Stmt = For | While | Store | Let | Alloc | If | Seq | Prefetch | Barrier | Exchange | TileStep | WholeKernel


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parallel:
    """The outermost loop of a kernel, split over threads; the iterations are independent."""

    var: Var
    extent: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kernel:
    """A function over buffers.

    Its native form is `void name(void** buffers, int64_t* scalars, int64_t begin, int64_t end)`: it
    runs iterations begin..end-1 of `parallel` (0..1 when there is none). Bound to a grid, it has no
    parallel loop and is launched with the extents that `grid.launch_extents` gives. `resident`: how
    many blocks of threads a multiprocessor shall have registers for; 0: whoever assembles it decides.
    """

    name: str
    buffers: tuple[Buffer, ...]
    body: Stmt
    parallel: Parallel | None = None
    scalars: tuple[Var, ...] = ()
    resident: int = 0


def buffer(
    name: str,
    dtype: DType | str,
    shape: Sequence[ExprLike],
    *,
    strides: Sequence[ExprLike] | None = None,
    scope: Scope = "arg",
    lanes: int = 1,
    alignment: int = 0,
) -> Buffer:
    """A buffer, dense and row-major unless strides are given.

    >>> [stride.value for stride in buffer("x", "float32", (2, 3, 4)).strides]
    [12, 4, 1]
    """
    dims = tuple(as_expr(dim) for dim in shape)
    steps = dense_strides(dims) if strides is None else tuple(as_expr(step) for step in strides)
    if len(steps) != len(dims):
        raise InvalidValue(f"buffer {name} has {len(dims)} dimensions and {len(steps)} strides")
    return Buffer(name, as_dtype(dtype), dims, steps, scope, lanes, alignment)


def dense_strides(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Row-major strides, in elements; constant wherever the extents are."""
    strides: list[Expr] = []
    step: Expr = as_expr(1)
    for extent in reversed(shape):
        strides.append(step)
        if isinstance(step, Const) and isinstance(extent, Const):
            step = as_expr(int(step.value) * max(int(extent.value), 1))
        else:
            step = step * extent
    return tuple(reversed(strides))


def as_indices(source: Buffer, indices: ExprLike | Sequence[ExprLike]) -> tuple[Expr, ...]:
    """Indices as a tuple of expressions, one per dimension of the buffer."""
    places = indices if isinstance(indices, (tuple, list)) else (indices,)
    if len(places) != source.rank:
        raise InvalidValue(f"{len(places)} indices into buffer {source.name} of {source.rank} dimensions")
    return tuple(as_expr(index) for index in places)

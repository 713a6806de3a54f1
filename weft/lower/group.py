"""A fused group of nodes becomes kernels, and the memory they pass values through."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar

from .. import te
from ..base.dtype import DType
from ..base.errors import Error, GraphError, ShapeError, Unsupported
from ..base.shape import is_static, show
from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import Op, OpMap
from ..ops.shape.views import reindexed
from ..te.extents import is_open
from ..te.loops import Buffer, Kernel, buffer
from ..te.tensor import Tensor
from .chunks import PLAIN_CHUNKS, Chunks, in_chunks
from .joined_axes import with_joined_axes
from .stages import stages

Spec = tuple[tuple[int, ...], DType]
Facts = Callable[[NodeEntry], Fact]  # what is known of each entry
Strides = Mapping[Hashable, tuple[int, ...]]  # of what is not dense in memory, in elements

MAX_SYMBOL = 80


class Temporary(NamedTuple):
    """A value between two kernels of one group."""

    number: int
    shape: tuple[int, ...]
    dtype: DType

    def __hash__(self) -> int:
        return self.number


class LoweredKernel(NamedTuple):
    """A kernel and what its buffers are: entries of the graph or temporaries of the group."""

    kernel: Kernel
    arguments: tuple[Hashable, ...]
    work: int  # element operations, for deciding about threads


class Written(NamedTuple):
    """What goes in and out, and kernels whose arguments are positions among that, or temporaries."""

    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    kernels: tuple[LoweredKernel, ...]

    @classmethod
    def by_one(cls, kernel: LoweredKernel, dtype: DType, *shapes: tuple[Any, ...]) -> Written:
        """By one kernel, of tensors of one dtype, the last of which it makes."""
        specs = tuple((shape, dtype) for shape in shapes)
        return cls(specs[:-1], specs[-1:], (kernel,))


T = TypeVar("T", bound=Target, contravariant=True)


class Schedule(Protocol[T]):
    """The kernel that computes one tensor into memory from others that are there: what a backend has to know."""

    def __call__(
        self, name: str, output: Tensor, places: Mapping[Tensor, Hashable], target: T, strides: Strides | None = None, /
    ) -> LoweredKernel: ...


def lower_stages(
    group: FusedGroup,
    fact: Facts,
    target: T,
    schedule: Schedule[T],
    strides: Strides | None = None,
    chunks: Chunks = PLAIN_CHUNKS,
) -> list[LoweredKernel]:
    """The kernels that compute the outputs of a group, in order. Inputs and outputs that are parts
    of something larger have strides."""
    tensors = tensors_of(group, fact)
    if not strides:
        tensors = joined_tensors(group, tensors)
    inputs, outputs = [tensors[entry] for entry in group.inputs], list[Tensor]()
    for entry in group.outputs:
        outputs.append(own_tensor(tensors[entry], (*inputs, *outputs)))
    outputs = in_chunks(inputs, outputs, chunks)
    places: dict[Tensor, Hashable] = dict(zip((*inputs, *outputs), (*group.inputs, *group.outputs)))
    order = stages(inputs, outputs)
    for tensor in order:
        if tensor not in places:
            places[tensor] = Temporary(len(places), tensor.shape, tensor.dtype)
    name = kernel_name(group)
    return [
        schedule(name if tensor in outputs else f"{name}_{tensor.name}", tensor, places, target, strides)
        for tensor in order
    ]


def joined_tensors(group: FusedGroup, tensors: Mapping[NodeEntry, Tensor]) -> dict[NodeEntry, Tensor]:
    """What goes in and out, with leading axes that are arguments joined where that can be."""
    ends = (*group.inputs, *group.outputs)
    if not any(is_open(extent) for entry in ends for extent in tensors[entry].shape):
        return dict(tensors)
    inputs, outputs = ([tensors[entry] for entry in side] for side in (group.inputs, group.outputs))
    stands = with_joined_axes(inputs, outputs)
    return {entry: stands[tensors[entry]] for entry in ends}


def kernel_name(group: FusedGroup) -> str:
    """fuse_conv2d_add_relu: what is in it, for people."""
    names = [node.op_name.strip("_") for node in group.nodes]
    return ("fuse_" + "_".join(names))[:MAX_SYMBOL]


def own_tensor(tensor: Tensor, taken: Container[Tensor]) -> Tensor:
    """A tensor that may be written: a copy where it is an input or another output."""
    if tensor.body is not None and tensor not in taken:
        return tensor
    return te.compute(tensor.shape, lambda *i: tensor[i], name=tensor.name)


def tensors_of(
    group: FusedGroup, fact: Facts, given: Mapping[NodeEntry, Tensor] | None = None
) -> dict[NodeEntry, Tensor]:
    """What every entry of a group is as a te tensor; those `given` are taken as they are."""
    tensors: dict[NodeEntry, Tensor] = dict(given or {})
    for number, entry in enumerate(group.inputs):
        tensors[entry] = te.placeholder(*known_spec(fact(entry), entry), f"in{number}")
    for node in group.nodes:
        assert node.op is not None
        if NodeEntry(node) in tensors:
            continue
        shape = fact(NodeEntry(node)).shape
        if node.op.alias_of(node.params).get(0) == 0 and is_static(shape) and any(map(is_open, shape)):
            tensors[NodeEntry(node)] = _reindexed(tensors[node.inputs[0]], shape, node)
            continue
        if not Op.compute.contains(node.op):
            raise Unsupported(f"operator {node.op.name} has no compute", where=f"node {node.name!r}")
        made = by_rule(node, "compute", Op.compute, *(tensors[e] for e in node.inputs))
        for index, tensor in enumerate(made if isinstance(made, (tuple, list)) else (made,)):
            entry = NodeEntry(node, index)
            _check(tensor, fact(entry), entry)
            renamed = tensor.body is not None and any(map(is_open, tensor.shape))
            tensors[entry] = replace(tensor, shape=fact(entry).shape) if renamed else tensor
    return tensors


def known_spec(fact: Fact, entry: NodeEntry) -> Spec:
    """A shape and a dtype that are all known."""
    if not is_static(fact.shape) or fact.dtype is None:
        raise ShapeError(
            f"the shape of {entry.node.name!r} is {show(fact.shape)} of {fact.dtype}",
            why="code is generated for shapes and dtypes that are all known",
            hint="give the shapes of all inputs",
        )
    return fact.shape, fact.dtype


def by_rule(node: Node, what: str, column: OpMap[Any], *given: Any) -> Any:
    """What a node's operator makes of something by its rule in a column; an error says where that failed."""
    assert node.op is not None
    try:
        return node.op.call_with(column[node.op], node.params, *given)
    except Error as error:
        error.at(f"{what} of operator {node.op.name}, node {node.name!r}")
        raise
    except MemoryError:
        raise
    except Exception as error:
        raise GraphError(
            f"the {what} of operator {node.op.name} failed",
            where=f"node {node.name!r}",
            why=f"{type(error).__name__}: {error}",
        ) from error


def _reindexed(x: Tensor, shape: Sequence[Any], node: Node) -> Tensor:
    if prod(x.shape) != prod(shape):
        raise ShapeError(f"{x.shape} holds other than {tuple(shape)}", where=f"node {node.name!r}")
    return reindexed(x, shape)


def _check(tensor: Tensor, known: Fact, entry: NodeEntry) -> None:
    if tensor.shape != known.shape or tensor.dtype != known.dtype:
        raise ShapeError(
            f"the compute of {entry.node.op_name} gives {tensor.shape} of {tensor.dtype}",
            where=f"node {entry.node.name!r}, output {entry.index}",
            why=f"inference says {known.shape} of {known.dtype}",
        )


def need_numbers(group: FusedGroup, fact: Facts) -> None:
    """Asks for the numbers of sizes, which must not be open where code is not written for that."""
    for entry in (*group.inputs, *group.outputs):
        for extent in fact(entry).shape or ():
            if is_open(extent):
                int(extent)  # type: ignore[arg-type]


def stage_buffers(
    output: Tensor, places: Mapping[Tensor, Hashable], strides: Strides | None = None
) -> dict[Tensor, Buffer]:
    """The memory of what a stage reads, then of what it computes."""
    tensors, steps = [*sources(output, places), output], strides or {}
    return {t: buffer(f"b{i}", t.dtype, t.shape, strides=steps.get(places[t])) for i, t in enumerate(tensors)}


def sources(output: Tensor, places: Mapping[Tensor, Hashable]) -> list[Tensor]:
    """The tensors in memory that a stage reads, through those that are not."""
    return [tensor for tensor in reached_tensors(output, places) if tensor in places]


def reached_tensors(output: Tensor, stop: Container[Tensor] = ()) -> list[Tensor]:
    """The tensors that one is computed from; what is behind those in `stop` is left out."""
    found: dict[Tensor, None] = {}
    todo = output.inputs()
    while todo:
        tensor = todo.pop()
        if tensor not in found:
            found[tensor] = None
            todo.extend([] if tensor in stop else tensor.inputs())
    return list(found)

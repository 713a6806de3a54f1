"""SimplifyInference: training-time operators become what they are at inference.

batch_norm becomes a scale and a shift, dropout the identity; nodes with training=True stay.
"""

from __future__ import annotations

from bisect import bisect_right

from ..base.errors import ShapeError
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite
from ..ops.nn.norm import channel_axes
from ._moves import Moves


@register_pass("SimplifyInference")
def simplify_inference(graph: Graph) -> Graph:
    """Expands batch_norm and drops dropout, where they are not training.

    Of the outputs that users do not see, the statistics of batch_norm become the moving ones, which
    it normalises by, and the mask of dropout becomes `__undef__`.
    """
    versions = _Versions(graph)
    moves = Moves()

    def simplify(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        read = [versions.settle(entry) for entry in inputs]
        if not _is_idle(node):
            return moves.keep(walker, node, read)
        if node.op_name == "batch_norm":
            moments = _in_blocks(walker, node, read)
            return moves.put(node, [_scale_and_shift(walker, node, [*read[:3], *moments]), *moments])
        return moves.put(node, [read[0], walker.make("__undef__", [], name="undef")])

    made = rewrite(graph.replace(attrs={}), simplify)
    return made.replace(outputs=[versions.settle(entry) for entry in made.outputs])


def _is_idle(node: Node) -> bool:
    """Whether a node does something only in training, and this is not."""
    return node.op_name in ("batch_norm", "dropout") and not node.params.training


class _Versions:
    """Versions of variables when the nodes that go, which write nothing, no longer count."""

    def __init__(self, graph: Graph) -> None:
        self._gone: dict[Node, list[int]] = {}
        for node in graph.indexed.nodes:
            if node.op is not None and _is_idle(node):
                for index in node.op.mutates_of(node.params):
                    variable, _, version = node.inputs[index]
                    self._gone.setdefault(variable, []).append(version)
        for versions in self._gone.values():
            versions.sort()

    def settle(self, entry: NodeEntry) -> NodeEntry:
        gone = self._gone.get(entry.node)
        if gone is None:
            return entry
        return entry._replace(version=entry.version - bisect_right(gone, entry.version))


def _in_blocks(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry]:
    """The moving mean and variance with the blocks of channels that gamma has."""
    wanted = walker.fact(inputs[1]).shape
    if wanted is None or len(wanted) == 1:
        return inputs[3:]
    return [
        walker.make("reshape", [entry], {"shape": wanted}, name=f"{node.name}_{entry.node.name}")
        if walker.fact(entry).shape != wanted
        else entry
        for entry in inputs[3:]
    ]


def _scale_and_shift(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry:
    """y = x a + b, with a = gamma / sqrt(var + epsilon) and b = beta - mean a."""
    data, gamma, beta, mean, var = inputs
    params = node.params

    def make(op_name: str, args: list[NodeEntry], suffix: str, **attrs: object) -> NodeEntry:
        return walker.make(op_name, args, attrs, name=f"{node.name}_{suffix}")

    shifted = make("__add_scalar__", [var], "add_eps", scalar=params.epsilon)
    scale = make("__rdiv_scalar__", [make("sqrt", [shifted], "sqrt")], "div", scalar=1)
    if params.scale:
        scale = make("elemwise_mul", [scale, gamma], "gamma_mul_div")
    shift = make("negative", [mean], "neg_mean")
    shift = make("elemwise_mul", [shift, scale], "neg_mean_mul_a")
    if params.center:
        shift = make("elemwise_add", [shift, beta], "add_beta")
    between = _axes_between(walker, node, data, gamma)
    if between:
        axes = {"axis": 1, "num_newaxis": between}
        scale = make("expand_dims", [scale], "scale_expanded", **axes)
        shift = make("expand_dims", [shift], "shift_expanded", **axes)
    return make("broadcast_add", [make("broadcast_mul", [data, scale], "a_mul_data"), shift], "out")


def _axes_between(walker: Walker, node: Node, data: NodeEntry, vector: NodeEntry) -> int:
    """How many axes of the data follow the channels, up to a last one of their blocks."""
    shape, own = walker.fact(data).shape, walker.fact(vector).shape
    if shape is None:
        raise ShapeError(
            f"the rank of the input of {node.op_name} is not known",
            where=f"node {node.name!r}, input {data.node.name!r}",
            hint="give the shapes of the inputs and apply InferShape first",
        )
    axis, *blocks = channel_axes(node.params.axis, len(shape), [len(own or (1,))])
    return len(shape) - axis - 1 - len(blocks)

"""The form in which element-wise work is put together: chunks as nodes with as many outputs as there are parts."""

from __future__ import annotations

from ..graph import Graph
from .dead_code import eliminate_dead_code


def canonicalize_ops(graph: Graph) -> None:
    """Has a `chunk` whose parts are taken out at once be one node, with the numbers as attributes.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %n : int = prim::Constant[value=2]()
    ...   %d : int = prim::Constant[value=0]()
    ...   %l : Tensor[] = aten::chunk(%x, %n, %d)
    ...   %a : Tensor, %b : Tensor = prim::ListUnpack(%l)
    ...   return (%a, %b)''')
    >>> canonicalize_ops(graph)
    >>> print(next(graph.nodes()), end="")
    %6 : Tensor, %7 : Tensor = prim::ConstantChunk[chunks=2, dim=0](%x)
    """
    for node in graph.findAllNodes("aten::chunk"):
        chunks, dim = (value.toIValue() for value in node._inputs[1:])
        uses = node.output().uses()
        unpack = uses[0].user if len(uses) == 1 else None
        if unpack is None or unpack.kind() != "prim::ListUnpack" or unpack.outputsSize() != chunks or dim is None:
            continue
        if unpack.owningBlock() is not node.owningBlock():
            continue
        made = graph.create("prim::ConstantChunk", [node._inputs[0]], chunks).insertBefore(unpack)
        made._set("i", "chunks", chunks)
        made._set("i", "dim", dim)
        for ours, theirs in zip(made._outputs, unpack._outputs):
            ours.setType(theirs.type())
        unpack.replaceAllUsesWith(made)
        unpack.destroy()
        node.destroy()
    eliminate_dead_code(graph)

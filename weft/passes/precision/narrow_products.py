"""UseBfloat16 and UseFloat16: products with constant weights take them as floats of 16 bits, and sum in float32.

    dense(x, w, b) = _narrow_dense(x, cast(w)) + b

Everything else stays float32: softmax, norms, reductions, products of values that are both computed. The pass runs when
a precision is asked for by name; which values beside the weights are rounded is the target's choice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from ...base.dtype import BFLOAT16, FLOAT16, FLOAT32, DType
from ...base.shape import is_static
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.passes import register_pass
from ...core.walk import Walker, rewrite
from ..fold_constants import constant_nodes

CONSTANT_NAMES = "constant_names"  # graph attribute: which variables are constants
FEWEST = 4096  # weights, from which on half of their bytes are worth another kernel's launch

Inputs = list[NodeEntry]


def _narrow_products(graph: Graph, dtype: DType) -> Graph:
    constants = constant_nodes(graph, graph.attr(CONSTANT_NAMES) or ())

    def narrow(walker: Walker, node: Node, inputs: Inputs) -> NodeEntry | None:
        rule = _RULES.get(node.op_name)
        if rule is None or node.control_deps or node.inputs[1].node not in constants:
            return None
        shape = walker.fact(inputs[1]).shape
        floats = all(walker.fact(entry).dtype == FLOAT32 for entry in inputs)
        if not floats or not is_static(shape) or prod(shape) < FEWEST:
            return None
        return rule(walker, node, inputs, dtype)

    return rewrite(graph, narrow)


def _dense(walker: Walker, node: Node, inputs: Inputs, dtype: DType) -> NodeEntry | None:
    data, weight, *bias = inputs
    if not walker.fact(data).shape:
        return None
    weight = walker.make("cast", [weight], {"dtype": dtype})
    name = f"{node.name}_product" if bias else node.name
    made = walker.make("_narrow_dense", [data, weight], {"units": node.params.units}, name)
    return walker.make("broadcast_add", [made, bias[0]], None, node.name) if bias else made


def _matmul(walker: Walker, node: Node, inputs: Inputs, dtype: DType) -> NodeEntry | None:
    data, weight = inputs
    shapes = [walker.fact(entry).shape for entry in inputs]
    if node.params.transpose_a or not shapes[0] or shapes[1] is None or len(shapes[1]) != 2:
        return None
    weight = walker.make("cast", [weight], {"dtype": dtype})
    if not node.params.transpose_b:
        weight = walker.make("transpose", [weight], {"axes": (1, 0)})
    units = shapes[1][0 if node.params.transpose_b else 1]
    return walker.make("_narrow_dense", [data, weight], {"units": units}, node.name)


_RULES: dict[str, Callable[[Walker, Node, Inputs, DType], NodeEntry | None]] = {"dense": _dense, "matmul": _matmul}

use_bfloat16 = register_pass("UseBfloat16", requires=("shape", "dtype"))(partial(_narrow_products, dtype=BFLOAT16))
use_float16 = register_pass("UseFloat16", requires=("shape", "dtype"))(partial(_narrow_products, dtype=FLOAT16))

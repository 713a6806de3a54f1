"""`quantize_weights`: a model goes in; out comes the same with the weights of its products as levels of a few bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...base.dtype import FLOAT32
from ...base.errors import InvalidValue
from ...core.graph import Graph
from ...core.ir import Fact, Node, NodeEntry
from ...core.symbol import Symbol
from ...core.walk import Walker, rewrite
from ...ops.nn.level_products import WEIGHT_DTYPES
from ...runtime.program import Array
from ..model import opened

BOUNDS = {8: 127, 4: 7}  # the largest level
SMALLEST_HALF = 2.0**-14  # float16 has smaller numbers with fewer digits only


class Levels(NamedTuple):
    """A matrix (units, k) as dense_levels takes it."""

    weight: Array
    scale: Array


def quantize_weights(model: Any, *, bits: int = 8, group: int = 32) -> tuple[Symbol, dict[str, Array]]:
    """The model as (Symbol, params) in which weights of products, that are parameters, are levels of 8 or 4 bits with a
    scale for each group of `group` products of a column. Rows, sums and all else stay float32. `model` is whatever
    `weft.compile` takes; what comes out is given to it, or quantised no further.

    >>> import numpy as np
    >>> import weft
    >>> y = weft.symbol.dense(weft.symbol.Variable("x", shape=(1, 64)), units=10, use_bias=False, name="y")
    >>> weight = np.random.default_rng(0).standard_normal((10, 64)).astype("float32")
    >>> symbol, params = weft.quantize_weights((y, {"y_weight": weight}), bits=4)
    >>> {name: (value.shape, str(value.dtype)) for name, value in params.items()}
    {'y_weight_levels': ((10, 32), 'uint8'), 'y_weight_scale': ((10, 2), 'float16')}
    >>> weft.compile((symbol, params))(np.ones((1, 64), "float32"))[0].shape
    (1, 10)
    """
    if bits not in WEIGHT_DTYPES:
        raise InvalidValue(f"weights of {bits} bits", why="there are levels of 8 and of 4 bits")
    if group not in (8, 16, 32, 64, 128):
        raise InvalidValue(f"groups of {group} products", why="a group has 8, 16, 32, 64 or 128")
    source = opened(model).source
    graph, params = Graph(source.symbol.outputs), dict(source.params)
    made: dict[str, Array] = {}
    variables: dict[str, NodeEntry] = {}

    def variable(walker: Walker, name: str, value: Array) -> NodeEntry:
        if name not in variables:
            made[name] = value
            variables[name] = walker.variable(name, Fact(value.shape, value.dtype))
        return variables[name]

    def quantise(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
        found = _weight(node, params)
        if found is None:
            return None
        name, is_turned = found
        matrix = params[name] if is_turned else params[name].T
        label = name if is_turned else f"{name}_turned"
        if f"{label}_levels" not in variables:
            for part, value in zip(("levels", "scale"), levels_of(matrix, bits, group)):
                variable(walker, f"{label}_{part}", value)
        read = [variables[f"{label}_{part}"] for part in ("levels", "scale")]
        attrs = {"units": len(matrix), "bits": bits, "group": group}
        product = walker.make("dense_levels", [inputs[0], *read], attrs, node.name)
        if node.op_name == "dense" and node.params.use_bias:
            return walker.make("broadcast_add", [product, inputs[2]], name=f"{node.name}_bias")
        return product

    symbol = Symbol(rewrite(graph, quantise).outputs)
    names = set(symbol.list_input_names())
    return symbol, {name: value for name, value in {**params, **made}.items() if name in names}


def _weight(node: Node, params: Mapping[str, Array]) -> tuple[str, bool] | None:
    """The parameter that a product multiplies rows with, and whether columns are its first axis."""
    if node.op_name not in ("dense", "matmul"):
        return None
    weight = node.inputs[1].node
    value = params.get(weight.name) if weight.op is None else None
    if value is None or value.ndim != 2 or value.dtype != FLOAT32 or not value.size:
        return None
    if node.op_name == "matmul":
        return None if node.params.transpose_a else (weight.name, node.params.transpose_b)
    return weight.name, True


def levels_of(matrix: Array, bits: int, group: int) -> Levels:
    """The nearest levels, with the scale of each group such that its largest number is the largest level.

    >>> weight, scale = levels_of(np.array([[1.0, -0.5, 0.25]], np.float32), 8, 8)
    >>> (weight * np.repeat(scale.astype(float), 8, 1)[:, :3]).round(3).tolist()
    [[1.0, -0.504, 0.252]]
    """
    units, depth = matrix.shape
    if not np.isfinite(matrix).all():
        raise InvalidValue("weights that are not finite have no levels", hint="look for NaN in the parameters")
    groups = -(-depth // group)
    wide = np.zeros((units, groups * group), np.float32)
    wide[:, :depth] = matrix
    parts = wide.reshape(units, groups, group)
    bound = BOUNDS[bits]
    exact = np.abs(parts).max(-1, initial=0) / np.float32(bound)
    used = exact[exact > 0]
    half = not used.size or (used.min() >= SMALLEST_HALF and used.max() < np.finfo(np.float16).max)
    scale = exact.astype(np.float16) if half else exact
    known = scale.astype(np.float32)
    inverse = np.divide(1, known, out=np.zeros_like(known), where=known > 0)
    rounded = np.clip(np.rint(parts * inverse[..., None]), -bound - (bits == 4), bound)
    levels = rounded.astype(np.int8).reshape(units, -1)[:, :depth]
    if bits == 8:
        return Levels(np.ascontiguousarray(levels), scale)
    stored = np.pad((levels + 8).astype(np.uint8), [(0, 0), (0, depth % 2)], constant_values=8)
    return Levels(stored[:, ::2] | stored[:, 1::2] << 4, scale)

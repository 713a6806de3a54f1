"""Products with constant weights take them in 16 bits when a precision is asked for: which do, and which do not."""

import numpy as np
import pytest

import weft
import weft.passes
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.passes import apply_passes
from weft.passes.precision.narrow_products import CONSTANT_NAMES

sym = weft.symbol
SHAPES = {"x": (3, 64), "w": (96, 64), "m": (64, 96), "b": (96,), "small": (4, 64), "given": (96, 64)}


def ops(symbol, name="UseBfloat16", dtypes=None):
    shapes = {read: SHAPES[read] for read in symbol.list_input_names()}
    graph = infer(Graph(symbol.outputs), shapes, {**dict.fromkeys(shapes, np.dtype("f")), **(dtypes or {})})
    graph = graph.replace(attrs={CONSTANT_NAMES: ("w", "m", "b", "small")})
    return [node.op_name for node in apply_passes(graph, (name,)).indexed.nodes if node.op is not None]


x, w, m, b = map(sym.Variable, ("x", "w", "m", "b"))
DENSE = sym.dense(x, w, b, units=96)


@pytest.mark.parametrize(
    ("symbol", "wanted"),
    [
        (DENSE, ["cast", "_narrow_dense", "broadcast_add"]),
        (sym.dense(x, sym.exp(w), units=96, use_bias=False), ["exp", "cast", "_narrow_dense"]),
        (sym.matmul(x, m), ["cast", "transpose", "_narrow_dense"]),
        (sym.matmul(x, w, transpose_b=True), ["cast", "_narrow_dense"]),
        (sym.dense(x, sym.Variable("given"), b, units=96), ["dense"]),
        (sym.dense(x, sym.Variable("small"), units=4, use_bias=False), ["dense"]),
        (sym.matmul(x, x, transpose_b=True), ["matmul"]),
        (sym.matmul(x, m, transpose_a=False) * 2, ["cast", "transpose", "_narrow_dense", "__mul_scalar__"]),
    ],
)
def test_which_products_are_narrow(symbol, wanted):
    for name in ("UseBfloat16", "UseFloat16"):
        assert ops(symbol, name) == wanted


def test_other_dtypes_stay():
    assert ops(DENSE, dtypes=dict.fromkeys(("x", "w", "b"), np.dtype("d"))) == ["dense"]


def test_a_precision_that_is_not_there():
    with pytest.raises(weft.Error, match="'bf16'"):
        weft.compile(sym.relu(sym.Variable("x", shape=(2,))), precision="fp8")


def test_images_are_rounded_where_they_are_computed():
    """Once for all that read them; what the graph gives, and what groups read, stays as it is."""
    image = sym.Variable("image")
    shapes = {"image": (1, 32, 8, 8), "f": (32, 32, 3, 3), "g": (32, 1, 3, 3)}
    conv = lambda x, w="f", groups=1: sym.conv2d(
        x, sym.Variable(w), channels=32, kernel_size=3, padding=1, use_bias=False, groups=groups
    )
    y = sym.relu(image)
    z = conv(y) + y
    out = sym.Group([conv(z, "g", 32), z * 2])
    graph = infer(Graph(out.outputs), shapes, dict.fromkeys(shapes, np.dtype("f")))
    made = apply_passes(graph.replace(attrs={CONSTANT_NAMES: ("f", "g")}), ("RoundImages", "CommonSubexpr"))
    names = [node.op_name for node in made.indexed.nodes if node.op is not None]
    assert names.count("cast") == 3  # the filters, the image, and the image as it is read by others
    outs = [node.params.out_dtype for node in made.indexed.nodes if node.op_name == "conv2d"]
    assert sorted(outs) == ["float32", "same"]

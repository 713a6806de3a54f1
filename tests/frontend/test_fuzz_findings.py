"""Inputs that fuzzing has found: each must be read, or refused with an error of weft, within a
second and without memory that only a shape in the file asks for."""

import contextlib
import resource

import mxnet_files
import numpy as np
import onnx
import pytest
from bounds import ends
from onnx import parser

from weft.base.errors import Error, FormatError, Unsupported
from weft.frontend import from_mxnet, from_onnx

LARGE = 10**9
MEGABYTES = 300


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.contextmanager
def bounded():
    before = peak()
    with ends():
        yield
    assert peak() - before < MEGABYTES


def graph_of(op, shapes, **attrs):
    """One operator on variables of these shapes."""
    inputs = [mxnet_files.node("null", f"v{i}", __shape__=str(shape)) for i, shape in enumerate(shapes)]
    last = mxnet_files.node(op, "y", [(i, 0) for i in range(len(shapes))], **attrs)
    return mxnet_files.text([*inputs, last], [[len(shapes), 0, 0]])


@pytest.mark.parametrize("inputs", [1, 1.5, True, {"0": 1}, "[[0, 0, 0]]"])
def test_inputs_that_are_no_list(inputs):
    nodes = [mxnet_files.node("null", "x"), mxnet_files.node("relu", "y")]
    nodes[1]["inputs"] = inputs
    with pytest.raises(FormatError, match="inputs must be a list"):
        from_mxnet(mxnet_files.text(nodes, [[1, 0, 0]]))


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("SequenceReverse", [(LARGE,), (3,)], {"use_sequence_length": "True"}),
        ("SequenceReverse", [(LARGE, 2), (2,)], {"use_sequence_length": "True"}),
        ("SequenceMask", [(LARGE, 2), (2,)], {"use_sequence_length": "True"}),
        ("SequenceLast", [(LARGE, 2), (2,)], {"use_sequence_length": "True"}),
        ("softmax", [(2, LARGE), (2,)], {"use_length": "True"}),
        ("_contrib_box_nms", [(LARGE, 6)], {}),
        ("_contrib_box_nms", [(1, LARGE, 6)], {}),
        ("_contrib_MultiBoxPrior", [(1, 3, 65536, 65536)], {}),
        ("diag", [(65536, 65536)], {}),
    ],
)
def test_tables_that_only_a_shape_asks_for(op, shapes, attrs):
    with bounded(), contextlib.suppress(Error):
        from_mxnet(graph_of(op, shapes, **attrs))


@pytest.mark.parametrize("op", ["diag", "_contrib_MultiBoxPrior"])
def test_a_table_that_is_too_large_is_named(op):
    shape = (65536, 65536) if op == "diag" else (1, 3, 65536, 65536)
    with pytest.raises(Unsupported, match=f"{op} needs a table"):
        from_mxnet(graph_of(op, [shape]))


def test_folding_makes_nothing_larger_than_it_reads_or_gives():
    """A stride takes a transposed convolution of constants through terabytes."""
    text = graph_of(
        "Deconvolution",
        [(2, 4, 7, 8), (4, 6, 4, 3)],
        kernel="(4, 3)",
        num_filter="6",
        stride="(65536,65536)",
        target_shape="(14, 15)",
    )
    params = {"v0": np.zeros((2, 4, 7, 8), "float32"), "v1": np.zeros((4, 6, 4, 3), "float32")}
    with bounded(), contextlib.suppress(Error):
        from_mxnet(text, params)


@pytest.mark.parametrize(
    ("shape", "node"),
    [
        (f"2, {LARGE}", "Hardmax<axis = 1>(x)"),
        ("65536, 65536", "ReverseSequence<time_axis = 0, batch_axis = 1>(x, lengths)"),
        (f"{LARGE}", "TopK(x, k)"),
    ],
)
def test_onnx_tables_that_only_a_shape_asks_for(shape, node):
    names = "y, places" if "TopK" in node else "y"
    text = f"m (float[{shape}] x) => (float[a] y) <int64[1] lengths = {{1}}, int64[1] k = {{2}}>"
    graph = parser.parse_graph(f"{text} {{ {names} = {node} }}")
    opset = [onnx.helper.make_opsetid("", 17)]
    with bounded(), contextlib.suppress(Error):
        from_onnx(onnx.helper.make_model(graph, opset_imports=opset))


def test_an_empty_expansion_and_a_known_truth():
    """What Expand and Where make of shapes with 0, and of one bool."""
    text = """m (float[1,2] x) => (float[0,2] y, bool[3] z)
      <int64[2] empty = {0, 2}, bool truth = {1}, int64[1] three = {3}>
      { y = Expand(x, empty)  z = Expand(truth, three) }"""
    symbol, _ = from_onnx(
        onnx.helper.make_model(parser.parse_graph(text), opset_imports=[onnx.helper.make_opsetid("", 17)])
    )
    assert symbol.list_output_names() == ["y", "z"]

"""Nodes that make no sense, for every operator that has a converter: inputs that are missing or too
many, attributes of any value and of the wrong type, no axes and too many. Whatever is not imported
is one typed error that names the node and its operator, at once."""

import random

import numpy as np
import onnx
import pytest
from bounds import ends
from onnx import AttributeProto, helper, numpy_helper
from onnx_runs import one_node

from weft.base.errors import Error, FormatError
from weft.frontend import from_onnx
from weft.frontend.onnx.registry import TABLE

DTYPES = [np.float32, np.float16, np.int32, np.int64, np.uint8, bool]
SHAPES = [(), (1,), (3,), (0,), (2, 3), (2, 0), (1, 3, 4), (1, 2, 4, 4), (1, 2, 3, 4, 4), (1,) * 64]
INTS = [-9, -2, -1, 0, 1, 2, 3, 70, 2**31, -(2**63), 2**63 - 1]
FLOATS = [0.0, -1.0, 0.5, 1.0, float("nan"), float("inf"), 1e30]
TEXTS = ["", "NOTSET", "SAME_UPPER", "constant", "linear", "nonsense", "ij,jk->ik", "->", "...,..."]
OPSETS = [7, 9, 11, 12, 13, 17, 18, 21, 23, 24, 27, 28]
OPERATORS = sorted(name for name in TABLE.supported() if onnx.defs.has(name))  # others have no schema to draw from
KINDS = {
    AttributeProto.INT: lambda draw: draw.choice(INTS),
    AttributeProto.FLOAT: lambda draw: draw.choice(FLOATS),
    AttributeProto.STRING: lambda draw: draw.choice(TEXTS),
    AttributeProto.INTS: lambda draw: draw.choices(INTS, k=draw.randint(0, 5)),
    AttributeProto.FLOATS: lambda draw: draw.choices(FLOATS, k=draw.randint(0, 4)),
    AttributeProto.TENSOR: lambda draw: numpy_helper.from_array(np.zeros(draw.choice(SHAPES[:4]), draw.choice(DTYPES))),
}


def attributes(draw, schema):
    for name, known in schema.attributes.items():
        kind = draw.choice(list(KINDS)) if draw.random() < 0.12 else known.type.value
        wanted = draw.random() < (0.9 if known.required else 0.5)
        if kind in KINDS and wanted:
            yield helper.make_attribute(name, KINDS[kind](draw), attr_type=kind)


def inputs(draw, schema):
    """(names, inputs of the graph, initialisers)"""
    most, least = min(schema.max_input, 5), schema.min_input
    count = draw.randint(0, most + 1) if draw.random() < 0.25 else draw.randint(least, max(least, most))
    names, given, constants = [], [], []
    for i in range(count):
        names.append("" if draw.random() < 0.12 else f"x{i}")
        shape, dtype = draw.choice(SHAPES), np.dtype(draw.choice(DTYPES))
        if names[i] and draw.random() < (0.6 if i else 0.15):
            data = np.asarray(np.random.default_rng(i).integers(-3, 5, shape)).astype(dtype)
            constants.append(numpy_helper.from_array(data, names[i]))
        elif names[i]:
            code = helper.np_dtype_to_tensor_dtype(dtype)
            given.append(helper.make_tensor_value_info(names[i], code, shape))
    return names, given, constants


def malformed(draw, op_type):
    opset = draw.choice(OPSETS)
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    names, given, constants = inputs(draw, schema)
    outs = [f"y{i}" for i in range(draw.randint(1, min(schema.max_output + 1, 4)))]
    node = helper.make_node(op_type, names, outs, name="the_node")
    node.attribute.extend(attributes(draw, schema))
    results = [onnx.ValueInfoProto(name=name) for name in outs]
    graph = helper.make_graph([node], "test", given, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def check(op_type, seed, count):
    draw = random.Random(f"{op_type} {seed}")
    imported = refused = 0
    for _ in range(count):
        model = malformed(draw, op_type)
        if model is None:
            continue
        with ends():
            said = refusal(model)
        imported, refused = imported + (said is None), refused + (said is not None)
        assert said is None or ("the_node" in said and op_type in said), said
    return imported, refused


def refusal(model):
    """The text of the error, if there is one."""
    try:
        from_onnx(model)
    except Error as error:
        return str(error)
    return None


@pytest.mark.parametrize("op_type", OPERATORS)
def test_every_failure_is_one_typed_error(op_type):
    imported, refused = check(op_type, 0, 25)
    assert imported + refused


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_more_of_the_same(seed):
    results = [check(op_type, seed, 60) for op_type in OPERATORS]
    imported, refused = (sum(column) for column in zip(*results))
    assert imported > 500 < refused


def test_an_input_that_is_missing_is_named():
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(FormatError, match=r"input 1 \(indices\) is missing"):
        from_onnx(one_node("ScatterElements", x, None, x)[0])


def test_an_input_of_more_axes_than_there_are():
    model, _ = one_node("Relu", np.zeros(1, np.float32))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x0", 1, [1] * 70))
    with pytest.raises(FormatError, match="graph input 'x0'"):
        from_onnx(model)


def test_a_split_into_more_parts_than_it_has_outputs():
    model, _ = one_node("Split", np.zeros(4, np.float32), num_outputs=2**40)
    with pytest.raises(FormatError, match="num_outputs"):
        from_onnx(model)

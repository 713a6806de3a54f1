"""Models of one node of ai.onnx.ml, and how they are run."""

import onnx
from onnx import helper

import weft


def ml_model(op_type, inputs, outputs=1, version=3, **attrs):
    """`inputs` are arrays, called x0, x1...; attributes that are None are left out."""
    names = [f"x{number}" for number in range(len(inputs))]
    given = {name: value for name, value in attrs.items() if value is not None}
    results = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(op_type, names, results, domain="ai.onnx.ml", **given)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs)
    ]
    made = [onnx.ValueInfoProto(name=name) for name in results]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(helper.make_graph([node], "g", infos, made), opset_imports=opsets, ir_version=9)
    return model, dict(zip(names, inputs))


def weft_run(model, inputs):
    return weft.compile(model).run(inputs)

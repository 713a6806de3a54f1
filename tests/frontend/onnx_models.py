"""Small ONNX models for the tests: nodes and arrays come in, a ModelProto goes out."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def make_model(nodes, inputs, outputs, initializers=None, opset=18, elem_type=FLOAT):
    """`inputs` maps names to shapes, `outputs` are names, `initializers` maps names to arrays."""
    return helper.make_model(
        helper.make_graph(
            nodes,
            "test",
            [helper.make_tensor_value_info(n, elem_type, shape) for n, shape in inputs.items()],
            [helper.make_tensor_value_info(n, elem_type, None) for n in outputs],
            [numpy_helper.from_array(np.asarray(v), n) for n, v in (initializers or {}).items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )


def node(op_type, inputs, outputs, **attrs):
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attrs)


def small_network(rng):
    """A convolution, a pool, arithmetic on the shape, and a classifier."""
    weight = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    bias = rng.standard_normal(4).astype(np.float32)
    dense = rng.standard_normal((5, 64)).astype(np.float32)
    return make_model(
        [
            node("Conv", "x w b", "c", pads=[1, 1, 1, 1], name="conv"),
            node("Relu", "c", "r", name="relu"),
            node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2], name="pool"),
            node("Shape", "p", "s"),
            node("Gather", "s zero", "n", axis=0),
            node("Unsqueeze", "n first", "n1"),
            node("Concat", "n1 rest", "to", axis=0),
            node("Reshape", "p to", "flat", name="flatten"),
            node("Gemm", "flat d", "y", transB=1, name="fc"),
        ],
        {"x": ["n", 3, 8, 8]},
        ["y"],
        {"w": weight, "b": bias, "d": dense, "zero": np.int64(0), "first": np.array([0]), "rest": np.array([-1])},
    )

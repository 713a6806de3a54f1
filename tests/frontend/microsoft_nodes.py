"""Models of one node of com.microsoft, which weft and ONNX Runtime run."""

import numpy as np
from onnx import helper
from onnx_runs import model_of, onnxruntime_run

import weft

rng = np.random.default_rng(7)


def floats(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def levels(*shape, dtype=np.uint8):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def one_node(op_type, *arrays, constants=(), outputs=1, domain="com.microsoft", **attrs):
    """A model of one node and its inputs; None is an input left out, `constants` are inputs by number that are stored,
    and an output that is None has no name."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(arrays)]
    given = {n: np.asarray(x) for i, (n, x) in enumerate(zip(names, arrays)) if n and i not in constants}
    stored = {n: np.asarray(x) for i, (n, x) in enumerate(zip(names, arrays)) if n and i in constants}
    outputs = [
        f"y{i}" if wanted else "" for i, wanted in enumerate([True] * outputs if isinstance(outputs, int) else outputs)
    ]
    node = helper.make_node(op_type, names, outputs, domain=domain, **attrs)
    model = model_of([node], given, [name for name in outputs if name], stored, opset=17)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model, given


def weft_run(model, inputs):
    with weft.compile(model, shape={name: x.shape for name, x in inputs.items()}) as compiled:
        results = compiled.run(inputs)
    return [np.asarray(result) for result in results]


def check(op_type, *arrays, expected=None, rtol=1e-4, atol=1e-5, **how):
    model, inputs = one_node(op_type, *arrays, **how)
    expected = onnxruntime_run(model, inputs) if expected is None else expected
    for ours, theirs in zip(weft_run(model, inputs), expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol)

"""Outputs written to arrays of the caller's. Expected values are numpy's."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from compiler.models import floats
from onnx import TensorProto, helper
from oracles import oracle

import weft
from weft import symbol as sym
from weft.base.errors import DTypeError, InvalidType, InvalidValue, NotFound, ShapeError
from weft.base.ndarray import NDArray
from weft.compiler.parts.part import Part

torch = oracle("torch")


@pytest.fixture
def rng():
    return np.random.default_rng(17)


def two_outputs(shape=(4, 6)):
    x, w = sym.Variable("x", shape=shape), sym.Variable("w", shape=shape)
    return sym.Group([sym.relu(x - w, name="first"), sym.sum(x * w, axis=1, name="second")])


def expected_of(x, w):
    return [np.maximum(x - w, 0), (x * w).sum(axis=1)]


@pytest.fixture(scope="module")
def model():
    return weft.compile(two_outputs())


@pytest.fixture(scope="module", params=["compiled", "loaded"])
def any_model(request, model, tmp_path_factory):
    if request.param == "compiled":
        return model
    path = tmp_path_factory.mktemp("given") / "model.weft"
    model.save(path)
    return weft.runtime.load(path)


def test_given_arrays_are_filled_and_returned(any_model, rng):
    x, w = floats(rng, (4, 6)), floats(rng, (4, 6))
    given = [np.full((4, 6), np.nan, "float32"), np.full(4, np.nan, "float32")]
    for out in (given, tuple(given), dict(zip(any_model.outputs, given))):
        for array in given:
            array.fill(np.nan)
        made = any_model.run({"x": x, "w": w}, out=out)
        for array, own, right in zip(made, given, expected_of(x, w)):
            assert array is own
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)


def test_what_is_not_given_is_made(any_model, rng):
    x, w = floats(rng, (4, 6)), floats(rng, (4, 6))
    second = np.zeros(4, "float32")
    for out in ([None, second], {any_model.outputs[1]: second}, {any_model.outputs[1]: second, "first_output": None}):
        made = any_model.run({"x": x, "w": w}, out=out)
        assert made[1] is second
        assert not np.shares_memory(made[0], x)
        for array, right in zip(made, expected_of(x, w)):
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)
    assert any_model.run({"x": x, "w": w}, out=[None, None])[0].shape == (4, 6)
    assert any_model.run({"x": x, "w": w}, out={})[0].shape == (4, 6)


class Interface:
    """An array that has nothing but numpy's protocol."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.kept = array


KINDS = {
    "NDArray": lambda a: NDArray(a),
    "torch": lambda a: torch.from_numpy(a),
    "weft": lambda a: weft.from_numpy(a),
    "interface": Interface,
    "dlpack": lambda a: weft.from_dlpack(a),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_other_libraries_are_written(any_model, kind, rng):
    x, w = floats(rng, (4, 6)), floats(rng, (4, 6))
    memory = [np.zeros((4, 6), "float32"), np.zeros(4, "float32")]
    out = [KINDS[kind](array) for array in memory]
    made = any_model.run({"x": KINDS[kind](x), "w": KINDS[kind](w)}, out=out)
    for array, own, written, right in zip(made, out, memory, expected_of(x, w)):
        assert array is own
        np.testing.assert_allclose(written, right, rtol=1e-5, atol=1e-6)


def unaligned(shape, dtype="float32"):
    raw = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 1, "uint8")
    return raw[1:].view(dtype).reshape(shape)


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (lambda: np.zeros((6, 4), "float32"), ShapeError, r"out for 'first_output' has shape \(6, 4\)"),
        (lambda: np.zeros((4, 6, 1), "float32"), ShapeError, r"first_output: float32\[4, 6\]"),
        (lambda: np.zeros((4, 6), "float64"), DTypeError, "is of float64"),
        (lambda: np.zeros((4, 6), ">f4"), DTypeError, "is of >f4"),
        (lambda: torch.zeros(4, 6, dtype=torch.bfloat16), DTypeError, "is of bfloat16"),
        (lambda: read_only(np.zeros((4, 6), "float32")), InvalidValue, "read-only"),
        (lambda: np.zeros((6, 4), "float32").T, InvalidValue, r"not dense.*\n.*strides"),
        (lambda: np.zeros((4, 12), "float32")[:, ::2], InvalidValue, "not dense"),
        (lambda: torch.zeros(6, 4).t(), InvalidValue, "not dense"),
        (lambda: unaligned((4, 6)), InvalidValue, "not aligned"),
        (lambda: [[0.0] * 6] * 4, InvalidType, "is a list"),
        (lambda: np.float32(3), InvalidType, "is a float32"),
        (lambda: torch.zeros(4, 6, requires_grad=True), InvalidValue, r"detach\(\)"),
        (lambda: weft.zeros(4, 6, requires_grad=True), InvalidValue, r"detach\(\)"),
        (lambda: torch.zeros(4, 6, device="meta"), InvalidValue, "on meta"),
        (lambda: torch.zeros(4, 6).to_sparse(), InvalidValue, "strided"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(any_model, bad, error, match, rng):
    x, w = floats(rng, (4, 6)), floats(rng, (4, 6))
    second = np.full(4, 7, "float32")
    with pytest.raises(error, match=match):
        any_model.run({"x": x, "w": w}, out=[bad(), second])
    np.testing.assert_array_equal(second, 7)


def test_out_that_names_nothing(any_model, rng):
    inputs = {"x": floats(rng, (4, 6)), "w": floats(rng, (4, 6))}
    y = np.zeros((4, 6), "float32")
    with pytest.raises(NotFound, match=r"no output 'third'.*\n.*first_output, second_output"):
        any_model.run(inputs, out={"third": y})
    with pytest.raises(InvalidValue, match="1 arrays for 2 outputs"):
        any_model.run(inputs, out=[y])
    for single in (y, torch.from_numpy(y), NDArray(y)):
        with pytest.raises(InvalidType, match=r"\n.*\n.*out=\[y\]"):
            any_model.run(inputs, out=single)


def test_outputs_of_one_name_are_given_in_order(rng):
    y = sym.relu(sym.Variable("x", shape=(3,)), name="y")
    model = weft.compile(sym.Group([y, y]))
    x, first, second = floats(rng, (3,)), np.zeros(3, "float32"), np.zeros(3, "float32")
    with pytest.raises(InvalidValue, match="several outputs are called 'y_output'"):
        model.run({"x": x}, out={"y_output": first})
    model.run({"x": x}, out=[first, second])
    for array in (first, second):
        np.testing.assert_array_equal(array, np.maximum(x, 0))


def test_outputs_that_no_kernel_makes_fresh(rng):
    """Inputs passed through, views of them, one value several times, a constant, scalars, nothing at all."""
    x, c, s = sym.Variable("x", shape=(2, 3)), sym.Variable("c", shape=(2,)), sym.Variable("s", shape=())
    y = sym.relu(x, name="y")
    empty = sym.strided_slice(x, begin=(0, 0), end=(0, 3))
    outputs = [x, sym.reshape(x, shape=(6,)), y, y, sym.reshape(y, shape=(3, 2)), c, sym.relu(s), empty, x]
    constant, values = floats(rng, (2,)), floats(rng, (2, 3))
    model = weft.compile((sym.Group(outputs), {"c": constant}))
    right = np.maximum(values, 0)
    expected = [
        values,
        values.reshape(6),
        right,
        right,
        right.reshape(3, 2),
        constant,
        np.float32(2.5),
        values[:0],
        values,
    ]
    out = [np.full(np.shape(value), 9, "float32") for value in expected]
    model.run({"x": values, "s": 2.5}, out=out)
    for array, wanted in zip(out, expected):
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "bfloat16", "float64", "complex64"])
def test_dtypes(dtype, rng):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x = rng.integers(0, 2, (3, 5)).astype(kind)
    model = weft.compile(
        sym.concatenate(sym.Variable("x", shape=(3, 5)), sym.Variable("z", shape=(1, 5)), axis=0),
        dtype={"x": dtype, "z": dtype},
    )
    y = np.zeros((4, 5), kind)
    model.run({"x": x, "z": x[:1]}, out=[y])
    np.testing.assert_array_equal(y, np.concatenate([x, x[:1]]))
    if dtype in ("bool", "bfloat16"):
        theirs = torch.zeros(4, 5, dtype=getattr(torch, dtype))
        mine = torch.from_numpy(x.astype("float32")).to(theirs.dtype)
        model.run({"x": mine, "z": mine[:1]}, out=[theirs])
        np.testing.assert_array_equal(theirs.float().numpy(), y.astype("float32"))


def chain(shape):
    """Kernels that still read the inputs after the first output is written."""
    x, w = sym.Variable("x", shape=shape), sym.Variable("w", shape=shape)
    first = sym.softmax(x, axis=1)
    second = sym.softmax(x * w + sym.expand_dims(sym.sum(first * w, axis=1), axis=1), axis=0)
    return sym.Group([first, second])


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def test_memory_that_inputs_and_outputs_share(rng):
    """Every way to lay two inputs and two outputs into one buffer gives what separate arrays give; of two outputs in
    one place the later one stays."""
    rows, columns = 8, 16
    size = rows * columns
    model = weft.compile(chain((rows, columns)))
    starts = (0, size // 2, size - 1, size, 2 * size)
    for places in itertools.product(starts, repeat=4):
        x, w = floats(rng, (rows, columns)), floats(rng, (rows, columns))
        memory = np.zeros(3 * size, "float32")
        views = [memory[at : at + size].reshape(rows, columns) for at in places]
        views[0][...], views[1][...] = x, w
        x, w = views[0].astype("float64"), views[1].astype("float64")  # the inputs may overlap each other
        first = softmax(x, 1)
        second = softmax(x * w + (first * w).sum(axis=1, keepdims=True), 0)
        expected = memory.astype("float64")
        for at, value in zip(places[2:], (first, second)):
            expected[at : at + size] = value.reshape(-1)
        model.run({"x": views[0], "w": views[1]}, out=views[2:])
        np.testing.assert_allclose(memory, expected, rtol=1e-4, atol=1e-6)


def test_outputs_anywhere_in_memory(rng):
    """Kernels ask for no more than that an output is aligned to its elements."""
    model = weft.compile(chain((5, 67)))
    x, w = floats(rng, (5, 67)), floats(rng, (5, 67))
    expected = model.run({"x": x, "w": w})
    for offset in range(1, 16):
        raw = np.full((2, 5 * 67 + 32), np.nan, "float32")
        out = [row[offset : offset + 5 * 67].reshape(5, 67) for row in raw]
        model.run({"x": x, "w": w}, out=out)
        for row, array, right in zip(raw, out, expected):
            np.testing.assert_array_equal(array, right)
            assert np.isnan(row[:offset]).all()
            assert np.isnan(row[offset + 5 * 67 :]).all()


def test_open_shapes(rng):
    model = weft.compile(sym.relu(sym.Variable("x"), name="y"), shape={"x": ("n", 3)})
    for extent in (2, 5, 0):
        x, y = floats(rng, (extent, 3)), np.zeros((extent, 3), "float32")
        assert model.run({"x": x}, out=[y])[0] is y
        np.testing.assert_array_equal(y, np.maximum(x, 0))
    with pytest.raises(ShapeError, match=r"y_output: float32\[4, 3\]"):
        model.run({"x": floats(rng, (4, 3))}, out=[y])


# Models in parts


def model_of(nodes, inputs, outputs):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def parted():
    """Rows of x that are positive somewhere are counted, and so many rows of w are taken; x itself goes out too."""
    nodes = [
        helper.make_node("NonZero", ["mask"], ["places"]),
        helper.make_node("Neg", ["x"], ["negative"]),
        helper.make_node("Transpose", ["places"], ["rows"]),
        helper.make_node("GatherND", ["x", "rows"], ["taken"]),
        helper.make_node("Exp", ["taken"], ["powers"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    inputs = [("x", TensorProto.FLOAT, (6, 4)), ("mask", TensorProto.BOOL, (6,))]
    outputs = [("powers", TensorProto.FLOAT), ("negative", TensorProto.FLOAT), ("same", TensorProto.FLOAT)]
    return weft.compile(model_of(nodes, inputs, outputs)), lambda x, mask: [np.exp(x[mask]), -x, x]


def test_models_in_parts(rng):
    model, right_values = parted()
    assert model._whole is None
    for _ in range(5):
        x, mask = floats(rng, (6, 4)), rng.integers(0, 2, 6).astype(bool)
        expected = right_values(x, mask)
        out = [np.zeros(value.shape, "float32") for value in expected]
        made = model.run({"x": x, "mask": mask}, out=out)
        for array, own, right in zip(made, out, expected):
            assert array is own
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)
        some = model.run({"x": x, "mask": mask}, out={"negative": out[1]})
        np.testing.assert_allclose(some[0], expected[0], rtol=1e-5, atol=1e-6)
        assert some[1] is out[1]


def test_the_last_part_writes_straight(rng, monkeypatch):
    model, right_values = parted()
    x, mask = floats(rng, (6, 4)), rng.integers(0, 2, 6).astype(bool)
    out = [np.zeros(value.shape, "float32") for value in right_values(x, mask)]
    seen, run = [], Part.run_arrays

    def watched(part, *args):
        seen.append(run(part, *args))
        return seen[-1]

    monkeypatch.setattr(Part, "run_arrays", watched)
    model.run({"x": x, "mask": mask}, out=out)
    assert any(result is out[0] for result in seen[-1])


def test_parts_check_before_they_write(rng):
    model, right_values = parted()
    x, mask = floats(rng, (6, 4)), np.array([1, 0, 1, 1, 0, 0], bool)
    for wrong in range(3):
        out = [np.full(value.shape, 5, "float32") for value in right_values(x, mask)]
        out[wrong] = np.full((1, 9), 5, "float32")
        with pytest.raises(ShapeError, match=f"out for '{model.outputs[wrong]}' has shape"):
            model.run({"x": x, "mask": mask}, out=out)
        for array in out:
            np.testing.assert_array_equal(array, 5)


def test_parts_whose_memory_overlaps(rng):
    model, right_values = parted()
    for start, first, second, third in itertools.product((0, 12, 24), repeat=4):
        memory = floats(rng, (48,))
        mask = np.array([1, 0, 1, 1, 0, 1], bool)
        x = memory[start : start + 24].reshape(6, 4)
        expected, values = memory.copy(), right_values(x.copy(), mask)
        out = []
        for at, value in zip((first, second, third), values):
            expected[at : at + value.size] = value.reshape(-1)
            out.append(memory[at : at + value.size].reshape(value.shape))
        model.run({"x": x, "mask": mask}, out=out)
        np.testing.assert_allclose(memory, expected, rtol=1e-5, atol=1e-6)


def through_a_sequence():
    """The last part computes one output; the others are inputs that a sequence passed on as they are."""
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b"], ["pair"]),
        helper.make_node("Constant", [], ["zero"], value_int=0),
        helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("SequenceAt", ["pair", "zero"], ["first"]),
        helper.make_node("SequenceAt", ["pair", "one"], ["second"]),
        helper.make_node("Neg", ["second"], ["negative"]),
    ]
    inputs = [("a", TensorProto.FLOAT, (5,)), ("b", TensorProto.FLOAT, (5,))]
    outputs = [("negative", TensorProto.FLOAT), ("first", TensorProto.FLOAT), ("second", TensorProto.FLOAT)]
    return weft.compile(model_of(nodes, inputs, outputs))


def test_inputs_that_are_passed_on_may_change_places(rng):
    model = through_a_sequence()
    for places in itertools.product((0, 2, 5), repeat=5):
        memory = floats(rng, (10,))
        a, b, *out = (memory[at : at + 5] for at in places)
        expected = memory.copy()
        for at, value in zip(places[2:], (-b, a.copy(), b.copy())):
            expected[at : at + 5] = value
        model.run({"a": a, "b": b}, out=out)
        np.testing.assert_array_equal(memory, expected)


def test_what_is_no_array_has_no_memory():
    nodes = [helper.make_node("StringConcat", ["a", "a"], ["b"])]
    model = model_of(nodes, [("a", TensorProto.STRING, (2,))], [("b", TensorProto.STRING)])
    model.opset_import[0].version = 20
    model = weft.compile(model)
    with pytest.raises(InvalidType, match="output 'b' is no array"):
        model.run({"a": ["x", "y"]}, out=[np.zeros(2, "float32")])
    assert model.run({"a": ["x", "y"]}, out=[None])[0].tolist() == ["xx", "yy"]


def test_values_that_decide(rng):
    """How many a TopK takes is an input: one part, which that value decides."""
    nodes = [helper.make_node("TopK", ["x", "k"], ["values", "places"])]
    inputs = [("x", TensorProto.FLOAT, (9,)), ("k", TensorProto.INT64, (1,))]
    model = weft.compile(model_of(nodes, inputs, [("values", TensorProto.FLOAT), ("places", TensorProto.INT64)]))
    for count in (3, 1, 9):
        x, values, places = floats(rng, (9,)), np.zeros(count, "float32"), np.zeros(count, "int64")
        model.run({"x": x, "k": np.array([count])}, out=[values, places])
        np.testing.assert_array_equal(values, np.sort(x)[::-1][:count])
        np.testing.assert_array_equal(x[places], values)


def test_random_models_go_on(rng):
    """Numbers drawn into given memory are those of one stream: no two draws agree."""
    nodes = [helper.make_node("RandomUniformLike", ["x"], ["y"], seed=3.0)]
    model = weft.compile(model_of(nodes, [("x", TensorProto.FLOAT, (4,))], [("y", TensorProto.FLOAT)]))
    x, y = floats(rng, (4,)), np.zeros(4, "float32")
    drawn = [model.run({"x": x}, out=[y])[0].tolist() for _ in range(3)]
    assert len({tuple(values) for values in drawn}) == 3

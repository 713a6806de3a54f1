"""Element types of ONNX that are stored and moved, and cast to be computed with: floats of 8, 6 and 4 bits, integers of
4 and 2, complex numbers. The oracles are ml_dtypes, numpy, and onnx's reference evaluator."""

import pickle

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import weft
import weft.tools.onnx_backend as backend
from weft.base.dtype import DTYPES, STORED_DTYPES
from weft.base.errors import FormatError
from weft.frontend.onnx.tensors import DTYPE_OF, to_numpy

rng = np.random.default_rng(0)

STORED = {helper.np_dtype_to_tensor_dtype(dtype): name for name, dtype in STORED_DTYPES.items()}
MOVED = [*STORED, TensorProto.COMPLEX64, TensorProto.COMPLEX128]
EIGHT_BITS = [name for name in STORED_DTYPES if name.startswith("float8") and "e8m0" not in name]


def values_of(code, shape):
    """Numbers that the type has: each byte pattern means one."""
    dtype = DTYPE_OF[code]
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    bits = 8 if STORED[code].startswith("float8") else int(STORED[code].partition("_")[0].lstrip("uintfloa"))
    return rng.integers(0, 1 << bits, shape, "uint8").view(dtype)


def same(left, right):
    assert left.dtype == right.dtype
    wide = [x if x.dtype.kind == "c" else x.astype("float32") for x in (left, right)]
    np.testing.assert_array_equal(*wide)


def model_of(text, *constants):
    graph = onnx.parser.parse_graph(text)
    graph.initializer.extend(constants)
    return helper.make_model(graph)


def in_type(model, code, names=None):
    """The model with another type in place of float, for all inputs and outputs or those of some names."""
    for item in (*model.graph.input, *model.graph.output):
        if item.type.tensor_type.elem_type == TensorProto.FLOAT and (names is None or item.name in names):
            item.type.tensor_type.elem_type = code
    return model


def constant_of(code, value, raw=True):
    return helper.make_tensor(
        "c", code, value.shape, numpy_helper.from_array(value).raw_data if raw else value.ravel(), raw=raw
    )


@pytest.mark.parametrize("code", MOVED)
@pytest.mark.parametrize("raw", [True, False])
def test_tensors_of_all_types_are_read(code, raw):
    for shape in [(), (1,), (3,), (3, 5), (2, 4), (0, 2)]:
        value = values_of(code, shape)
        same(to_numpy(constant_of(code, value, raw), "here"), value)


@pytest.mark.parametrize("code", MOVED)
def test_a_tensor_of_the_wrong_size_is_refused(code):
    tensor = constant_of(code, values_of(code, (3, 5)))
    for data in (tensor.raw_data[:-1], tensor.raw_data + b"\0"):
        wrong = TensorProto(dims=tensor.dims, data_type=code, raw_data=data)
        with pytest.raises(FormatError, match="its shape and type need"):
            to_numpy(wrong, "here")
    tensor = constant_of(code, values_of(code, (3, 5)), raw=False)
    field = next(getattr(tensor, name) for name in ("int32_data", "float_data", "double_data") if getattr(tensor, name))
    field.append(1)
    with pytest.raises(FormatError, match="its shape and type need"):
        to_numpy(tensor, "here")


MOVE = """m (float[2, 3, 4] x, int64[2] i, bool[2, 3, 4] mask) => (
    float[2, 3, 4] same, float[4, 2, 3] turned, float[2, 3, 8] beside, float[2, 2, 4] some, float[2, 3, 2] part,
    float[6, 4] flat, float[2, 3, 4] chosen, float[2, 3, 4] kept) {
    same = Identity(x)
    turned = Transpose<perm = [2, 0, 1]>(x)
    beside = Concat<axis = 2>(x, c)
    some = Gather<axis = 1>(x, i)
    starts = Constant<value_ints = [1]>()
    ends = Constant<value_ints = [3]>()
    axes = Constant<value_ints = [2]>()
    part = Slice(x, starts, ends, axes)
    shape = Constant<value_ints = [6, 4]>()
    flat = Reshape(x, shape)
    chosen = Where(mask, x, c)
    kept = Identity(c)
}"""


@pytest.mark.parametrize("code", MOVED)
def test_values_are_moved(code):
    x, c = values_of(code, (2, 3, 4)), values_of(code, (2, 3, 4))
    i, mask = np.array([2, 0]), rng.random((2, 3, 4)) < 0.5
    outputs = backend.run_model(in_type(model_of(MOVE, constant_of(code, c)), code), [x, i, mask])
    same(outputs["same"], x)
    same(outputs["turned"], x.transpose(2, 0, 1))
    same(outputs["beside"], np.concatenate([x, c], 2))
    same(outputs["some"], x[:, i])
    same(outputs["part"], x[..., 1:3])
    same(outputs["flat"], x.reshape(6, 4))
    same(outputs["chosen"], np.where(mask, x, c))
    same(outputs["kept"], c)


NUMBERS = np.array([0, -0.0, 0.3, -0.7, 1, -1, 1.5, 2.5, -3, 6.1, 7, 100, -447, 455, 470, 1e-9, 6e4, 1e6, -1e30])


def cast_node(to, **attrs):
    return helper.make_node("Cast", ["x"], ["y"], to=to, **attrs)


@pytest.mark.parametrize("source", ["float32", "float16", "float64", "bfloat16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("target", [code for code in STORED if "e8m0" not in STORED[code]])
def test_casts_to_narrow_types(source, target):
    """As ml_dtypes converts, after the number is held within the type's limits, where it saturates."""
    with np.errstate(all="ignore"):
        x = np.abs(NUMBERS) if source.startswith("u") else NUMBERS
        x = x.astype(DTYPES[source])
        if source.startswith(("float", "bfloat")) and STORED[target].startswith("float"):
            x = np.append(x, np.array([np.nan, np.inf, -np.inf], x.dtype))
        elif "int" in STORED[target]:
            x = x[np.abs(x.astype("float64")) < 1e4]
        eight = STORED[target] in EIGHT_BITS
        for saturate in (True, False) if eight else (True,):
            wide = x.astype("float32") if x.dtype.kind in "iub" else x
            held = x
            if eight and saturate:
                most = float(ml_dtypes.finfo(DTYPE_OF[target]).max)
                held = np.clip(wide.astype("float64"), -most, most).astype(wide.dtype)
            (y,) = backend.run_node(cast_node(target, saturate=int(saturate)), [x])
            same(y, held.astype(DTYPE_OF[target]))


@pytest.mark.parametrize("source", STORED)
def test_casts_from_narrow_types_to_all_others(source):
    """Every value of the type."""
    bits = 8 if STORED[source].startswith("float8") else int(STORED[source].partition("_")[0].lstrip("uintfloa"))
    x = np.arange(1 << bits, dtype="uint8").view(DTYPE_OF[source])
    numbers = x.astype("float32")
    for name in ("float32", "float16", "float64", "bfloat16"):
        (y,) = backend.run_node(cast_node(helper.np_dtype_to_tensor_dtype(DTYPES[name])), [x])
        with np.errstate(over="ignore"):
            same(y.astype("float32"), numbers.astype(DTYPES[name]).astype("float32"))
    small = x[np.isfinite(numbers) & (np.abs(numbers) < 100)]
    for name in ("int8", "int32", "int64"):
        (y,) = backend.run_node(cast_node(helper.np_dtype_to_tensor_dtype(DTYPES[name])), [small])
        same(y, np.trunc(small.astype("float32")).astype(name))
    (y,) = backend.run_node(cast_node(TensorProto.BOOL), [small])
    same(y, small.astype("float32") != 0)
    for code in STORED:
        if "e8m0" not in STORED[code] and "int" not in STORED[code]:
            (y,) = backend.run_node(cast_node(code, saturate=0), [x])
            same(y, numbers.astype(DTYPE_OF[code]))


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_powers_of_two_are_rounded_as_asked(mode, saturate):
    with np.errstate(all="ignore"):
        x = np.concatenate(
            [2.0 ** rng.uniform(-126, 127, 200), 2.0 ** np.arange(-126, 128), 1.5 * 2.0 ** np.arange(-126, 128)]
        )
        x = np.append(x, [0, 1e-40, 3.4e38, np.inf, np.nan]).astype("float32")
    (y,) = backend.run_node(cast_node(TensorProto.FLOAT8E8M0, round_mode=mode, saturate=saturate), [x])
    wanted = numpy_helper.to_float8e8m0(x, bool(saturate), mode)
    np.testing.assert_array_equal(y.view("uint8"), wanted.view("uint8"))


def test_bits_are_kept_by_a_cast_of_bits():
    x = rng.standard_normal((3, 4)).astype("float32")
    for code, dtype in ((TensorProto.INT32, "int32"), (TensorProto.UINT32, "uint32")):
        (y,) = backend.run_node(helper.make_node("BitCast", ["x"], ["y"], to=code), [x])
        same(y, x.view(dtype))
    (y,) = backend.run_node(
        helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.FLOAT8E5M2), [np.arange(256, dtype="uint8")]
    )
    np.testing.assert_array_equal(y.view("uint8"), np.arange(256))
    with pytest.raises(weft.Error, match="the bits of float32 are no float16"):
        backend.run_node(helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.FLOAT16), [x])


def test_what_is_computed_between_two_casts_of_bits():
    """|x| by its bits, with kernels before and after."""
    text = """m (float[5] x) => (float[5] y) {
        doubled = Add(x, x)
        bits = BitCast<to = 12>(doubled)
        mask = Constant<value = uint32[1] {2147483647}>()
        plain = BitwiseAnd(bits, mask)
        y = BitCast<to = 1>(plain)
    }"""
    x = rng.standard_normal(5).astype("float32")
    model = helper.make_model(onnx.parser.parse_graph(text))
    same(backend.run_model(model, [x])[0], np.abs(x + x))


def weights_model(code, value):
    """x @ the stored weights as float32, and the weights themselves."""
    text = """m (float[2, 4] x) => (float[2, 3] y, float[4, 3] kept) {
        w = Cast<to = 1>(c)
        y = MatMul(x, w)
        kept = Identity(c)
    }"""
    return in_type(model_of(text, constant_of(code, value)), code, ["kept"])


@pytest.mark.parametrize("code", STORED)
def test_models_with_stored_weights_are_saved_and_pickled(code, tmp_path):
    value = values_of(code, (4, 3))
    value = np.where(np.isfinite(value.astype("float32")), value.astype("float32"), 1).astype(value.dtype)
    x = rng.standard_normal((2, 4)).astype("float32")
    model = weft.compile(weights_model(code, value))
    model.save(tmp_path / "model.weft")
    for made in (model, pickle.loads(pickle.dumps(model)), weft.runtime.load(tmp_path / "model.weft")):
        y, kept = made.run({"x": x})
        np.testing.assert_allclose(y, x @ value.astype("float32"), rtol=1e-5, atol=1e-6)
        same(kept, value)


def test_an_input_of_another_type_says_what_is_expected():
    model = in_type(model_of("m (float[3] x) => (float[3] y) { y = Identity(x) }"), TensorProto.INT4)
    with pytest.raises(weft.Error, match="is of int8") as caught:
        backend.run_model(model, [np.zeros(3, "int8")])
    assert "int4" in str(caught.value)


def test_complex_numbers_go_through_as_onnx_has_them():
    text = "m (float[2, 3] x) => (float[2, 3] y) { y = Transpose<perm = [0, 1]>(x) }"
    x = (rng.standard_normal((2, 3)) + 1j * rng.standard_normal((2, 3))).astype("complex64")
    model = in_type(model_of(text), TensorProto.COMPLEX64)
    same(backend.run_model(model, [x])[0], ReferenceEvaluator(model).run(None, {"x": x})[0])


@pytest.mark.parametrize("name", STORED_DTYPES)
def test_tensors_do_not_take_what_is_only_stored(name):
    with pytest.raises(weft.Error):
        weft.tensor(np.zeros(2, STORED_DTYPES[name]))
    with pytest.raises(weft.Error):
        weft.tensor([1.0], dtype=name)

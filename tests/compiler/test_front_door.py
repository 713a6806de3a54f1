"""What `compile` takes and what it says: models in memory, open shapes, copies, mistakes."""

from __future__ import annotations

import copy
import io
import pickle
import pickletools
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from oracles import oracle

import weft
from weft import symbol as sym
from weft.base.errors import (
    DTypeError,
    FormatError,
    InvalidType,
    InvalidValue,
    NotFound,
    RunError,
    ShapeError,
    Unsupported,
)

DIGITS = Path(weft.__file__).parent / "data" / "digits.onnx"


@pytest.fixture(scope="module")
def digits():
    with np.load(DIGITS.parent / "digits.npz") as file:
        return (file["images"][:6] / 16).astype("float32"), file["labels"][:6]


def labels_of(model, images):
    return model(images)[0].argmax(axis=1).tolist()


def two_inputs():
    """max(x, y) of two inputs with a batch each."""
    x, y = sym.Variable("x"), sym.Variable("y")
    return sym.broadcast_max(x, y)


# Models in memory


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, onnx.ModelProto.FromString])
def test_models_in_memory(digits, form):
    images, labels = digits
    assert labels_of(weft.compile(form(DIGITS.read_bytes())), images) == labels.tolist()


def test_bytes_that_are_no_model():
    with pytest.raises(FormatError, match="not an ONNX model"):
        weft.compile(b"weft/data/digits.onnx")


# Open shapes


@pytest.mark.parametrize("batch", ["batch", "n", None])
@pytest.mark.parametrize("given", [str, Path.read_bytes])
def test_open_dimensions_stay_open(digits, batch, given):
    images, labels = digits
    model = weft.compile(given(DIGITS), shape={"input": (batch, 1, 8, 8)})
    assert model.inputs[0].shape == (batch or "batch", 1, 8, 8)  # as the file calls it
    for count in (1, 6):
        assert labels_of(model, images[:count]) == labels[:count].tolist()


@pytest.mark.parametrize("level", range(4))
def test_no_images_at_all(digits, level):
    images, labels = digits
    model = weft.compile(DIGITS, opt_level=level)
    (found,) = model(images[:0])
    assert found.shape == (0, 10)
    assert labels_of(model, images) == labels.tolist()


def test_a_name_is_one_number():
    model = weft.compile(two_inputs(), shape={"x": ("n", 3), "y": ("n", 3)})
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(model(x, 2 * x)[0], 2 * x)
    with pytest.raises(ShapeError, match=r"(?s)'y' has shape \(1, 3\).*n = 2"):
        model(x, x[:1])


def test_a_named_dimension_that_the_file_fixes():
    model = weft.compile(DIGITS, shape={"input": ("n", "channels", 8, 8)})
    assert model.inputs[0].shape == ("n", 1, 8, 8)
    with pytest.raises(InvalidValue, match="cannot be"):
        weft.compile(DIGITS, shape={"input": ("n", 3, 8, 8)})


def shape_dependent():
    """A model that computes with the shape of its input."""
    nodes = [
        helper.make_node("Shape", ["photo"], ["s"], "s"),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["photo", "f"], ["y"]),
    ]
    given = helper.make_tensor_value_info("photo", TensorProto.FLOAT, ["n", 1, None])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph(nodes, "g", [given], [made]))


def test_shapes_may_stay_open():
    model = weft.compile(shape_dependent())
    for batch, width in ((2, 3), (1, 3), (2, 3)):
        (tiled,) = model(np.zeros((batch, 1, width), "float32"))
        assert tiled.tolist() == [[[batch, 1, width]]] * batch
    assert model.compilations == 1
    fixed = weft.compile(shape_dependent(), shape={"photo": (2, 1, 3)})
    assert fixed(np.zeros((2, 1, 3), "float32"))[0].tolist() == [[[2, 1, 3]], [[2, 1, 3]]]


# What is said about inputs


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"shape": {"input": 3}}, InvalidType, "must be a tuple"),
        ({"shape": (1, 1, 8, 8)}, InvalidType, "by the names of inputs"),
        ({"shape": "input"}, InvalidType, "by the names of inputs"),
        ({"shape": {"input": (2.0, 1, 8, 8)}}, InvalidType, "cannot be 2.0"),
        ({"shape": {"input": (-1, 1, 8, 8)}}, ShapeError, "leaves a dimension open"),
        ({"shape": {"image": (1, 1, 8, 8)}}, NotFound, "its inputs: input$"),
        ({"dtype": {"image": "float32"}}, NotFound, "its inputs: input$"),
        ({"dtype": "float32"}, InvalidType, "by the names of inputs"),
        ({"params": "weights"}, InvalidType, "dict from name to array"),
        ({"params": {"layer0.bias": object()}}, DTypeError, "'layer0.bias' is of object"),
        ({"threads": "all"}, InvalidType, "'all'"),
        ({"threads": 2.5}, InvalidType, "2.5"),
    ],
)
def test_arguments_that_make_no_sense(arguments, error, text):
    with pytest.raises(error, match=text):
        weft.compile(DIGITS, **arguments)


def test_parameters_of_another_byte_order():
    x, w = sym.Variable("x", shape=(3,)), sym.Variable("w", shape=(3,))
    model = weft.compile((x + w, {"w": np.array([1, 2, 3], ">f4")}))
    assert model(np.zeros(3, "float32"))[0].tolist() == [1, 2, 3]


# Files


@pytest.mark.parametrize(
    ("name", "data", "error", "text"),
    [
        ("m.onnx", b"", FormatError, "empty"),
        ("m.onnx", b"some text", FormatError, "not an ONNX model"),
        ("m.onnx", DIGITS.read_bytes()[:5000], FormatError, "truncated"),
        ("m.txt", b"some text", Unsupported, r"\*\.onnx"),
        ("m.json", b"some text", FormatError, "not a symbol file"),
        ("m-0000.params", b"some", Unsupported, "PREFIX-symbol.json"),
        ("m.pt", b"some", Unsupported, "torch.onnx.export"),
    ],
)
def test_files_of_another_kind(tmp_path, name, data, error, text):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=text):
        weft.compile(tmp_path / name)


def test_programs_are_loaded_and_folders_are_no_models(tmp_path):
    with pytest.raises(InvalidValue, match="is a folder"):
        weft.compile(tmp_path)
    model = weft.compile(sym.exp(sym.Variable("x", shape=(2,))))
    model.save(tmp_path / "m.weft")
    assert weft.compile(tmp_path / "m.weft")(np.zeros(2, "float32"))[0].tolist() == [1, 1]
    with pytest.raises(InvalidValue, match="compiled already"):
        weft.compile(tmp_path / "m.weft", shape={"x": (3,)})
    for path in (tmp_path, tmp_path / "absent" / "m.weft"):
        with pytest.raises(InvalidValue, match="cannot write"):
            model.save(path)
    for call in (model.save, weft.runtime.load):
        with pytest.raises(InvalidType, match="int"):
            call(3)


# Inputs of other libraries


def test_tensors_are_inputs(digits):
    torch = oracle("torch")
    images, labels = digits
    model = weft.compile(DIGITS)
    for tensor in (torch.from_numpy(images), weft.from_numpy(images)):
        assert labels_of(model, tensor) == labels.tolist()
        with pytest.raises(InvalidValue, match=r"x\.detach\(\)"):
            model(tensor.clone().requires_grad_())


def test_bfloat16_of_pytorch():
    torch = oracle("torch")
    model = weft.compile(sym.relu(sym.Variable("x", shape=(3,), dtype="bfloat16")))
    (made,) = model(torch.tensor([-1, 0.5, 2], dtype=torch.bfloat16))
    assert made.astype("float32").tolist() == [0, 0.5, 2]


@pytest.mark.parametrize("value", ["text", None, object(), np.zeros((1, 1, 8, 8), [("a", "f4")])])
def test_what_is_no_array_of_numbers(value):
    with pytest.raises(DTypeError, match="give an array of numbers"):
        weft.compile(DIGITS)(value)


# Copies

CHILD = """
import pickle, sys, numpy as np
model = pickle.load(open(sys.argv[1], "rb"))
np.save(sys.argv[3], model(np.load(sys.argv[2]))[0])
print(model)
"""


class OnlyWeft(pickle.Unpickler):
    """Refuses every name but that of weft's classes."""

    def find_class(self, module, name):
        assert (module, name) in {("weft.compiler.model", "CompiledModel"), ("weft.runtime.artifact", "LoadedModel")}
        return super().find_class(module, name)


@pytest.fixture(params=["open", "closed", "loaded"])
def model(request, tmp_path):
    if request.param == "open":
        return weft.compile(DIGITS, shape={"input": ("n", 1, 8, 8)}, threads=1, opt_level=2)
    made = weft.compile(DIGITS, shape={"input": (6, 1, 8, 8)})
    if request.param == "closed":
        return made
    made.save(tmp_path / "m.weft")
    return weft.runtime.load(tmp_path / "m.weft")


def test_pickled_models(model, digits, tmp_path):
    images, labels = digits
    data = pickle.dumps(model)
    other = OnlyWeft(io.BytesIO(data)).load()
    assert labels_of(other, images) == labels.tolist()
    assert [str(spec) for spec in other.inputs] == [str(spec) for spec in model.inputs]
    assert other.outputs == model.outputs
    assert not {"REDUCE", "GLOBAL"} & {op.name for op, _, _ in pickletools.genops(data)}
    (tmp_path / "m").write_bytes(data)
    np.save(tmp_path / "x.npy", images)
    files = [str(tmp_path / name) for name in ("m", "x.npy", "y.npy")]
    done = subprocess.run([sys.executable, "-c", CHILD, *files], check=True, capture_output=True, text=True)
    assert "input: float32[" in done.stdout
    assert np.load(tmp_path / "y.npy").argmax(axis=1).tolist() == labels.tolist()


def test_pickled_settings():
    made = weft.compile(DIGITS, threads=1, opt_level=1, shape={"input": ("n", 1, 8, 8)})
    source = pickle.loads(pickle.dumps(made)).source
    assert (source.threads, source.opt_level, source.target) == (1, 1, made.source.target)
    assert source.shapes == {"input": ("n", 1, 8, 8)}


@pytest.mark.parametrize("state", [None, ("{}", b""), ("x", b""), ("[]", b""), (3, 4), b"ab"])
def test_pickles_of_something_else(state):
    with pytest.raises(FormatError):
        weft.CompiledModel.__new__(weft.CompiledModel).__setstate__(state)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_share_code_and_close_alone(digits, copied):
    images, labels = digits
    made = weft.compile(DIGITS)
    made(images)
    other = copied(made)
    assert other.program is made.program
    made.close()
    assert labels_of(other, images) == labels.tolist()
    assert labels_of(other, images[:1]) == labels[:1].tolist()
    assert made.specialisations == []
    with pytest.raises(RunError, match="closed"):
        made.report()


def test_copies_of_loaded_models(digits, tmp_path):
    images, labels = digits
    weft.compile(DIGITS, shape={"input": (6, 1, 8, 8)}).save(tmp_path / "m")
    loaded = weft.runtime.load(tmp_path / "m")
    assert labels_of(copy.deepcopy(loaded), images) == labels.tolist()


# How models show themselves


def test_representations_are_short(tmp_path):
    x = sym.Variable("x")
    made = weft.compile(sym.exp(x, name="y"), shape={"x": (None, 3)})
    start = "CompiledModel(x: float32[?, 3] -> y_output: float32[?, 3]; "
    assert repr(made) == start + "not compiled yet: shapes are open)"
    made(np.zeros((2, 3), "float32"))
    isa = made.report().kernels[0].isa
    assert repr(made) == f"{start}1 kernel for {isa})"
    text = f"(x: float32[2, 3] -> y_output: float32[2, 3]; 1 kernel for {isa})"
    assert repr(made.program) == "Program" + text
    made.save(tmp_path / "m")
    assert repr(weft.runtime.load(tmp_path / "m")) == "LoadedModel" + text.replace("2, 3", "x:0, 3")
    made.close()
    assert repr(made) == start + "closed)"


def test_many_inputs_are_not_all_shown():
    many = [sym.Variable(f"x{number}", shape=(2,)) for number in range(50)]
    made = weft.compile(sym.elemwise_sum(*many, num_args=50))
    assert "and 46 more" in repr(made)
    assert len(repr(made)) < 200

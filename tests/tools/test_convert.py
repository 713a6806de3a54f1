"""weft convert: what it writes gives the same in ONNX Runtime; otherwise it writes nothing."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from oracles import oracle

import weft
from weft import cli
from weft import symbol as sym
from weft.base.errors import InvalidValue, NotFound, RunError, Unsupported
from weft.base.param_dict import save_param_dict
from weft.frontend.building import Alike
from weft.frontend.onnx import saving
from weft.frontend.onnx.writing import ALIKE
from weft.tools import convert as tool
from weft.tools.convert import convert_model, difference

sys.path.insert(0, str(Path(__file__).parent.parent / "frontend"))
import mxnet_files

DIGITS = Path(weft.__file__).parent / "data" / "digits.onnx"
SHAPES = {"data": (2, 3, 9, 9)}
NODES = [
    mxnet_files.node("null", "data"),
    mxnet_files.node("null", "c_weight"),
    mxnet_files.node("null", "c_bias"),
    mxnet_files.node("Convolution", "c", [(0, 0), (1, 0), (2, 0)], kernel="(3, 3)", num_filter="4"),
    mxnet_files.node("Activation", "a", [(3, 0)], act_type="tanh"),
    mxnet_files.node(
        "Pooling", "p", [(4, 0)], kernel="(2, 2)", stride="(2, 2)", pool_type="avg", pooling_convention="full"
    ),
]


@pytest.fixture
def network(tmp_path):
    """The files of a small network of MXNet, with random parameters."""
    rng = np.random.default_rng(3)
    params = {"c_weight": rng.standard_normal((4, 3, 3, 3)), "c_bias": rng.standard_normal(4)}
    (tmp_path / "net-symbol.json").write_text(mxnet_files.text(NODES, [[5, 0, 0]]))
    arrays = {f"arg:{name}": value.astype("float32") for name, value in params.items()}
    (tmp_path / "net-0000.params").write_bytes(mxnet_files.named(**arrays))
    return tmp_path / "net-symbol.json", params


def run(path, inputs):
    session = oracle("onnxruntime").InferenceSession(str(path))
    return session.run(None, inputs)


def expected_of(params, data):
    """The network by PyTorch."""
    torch = oracle("torch")
    weight, bias = (torch.from_numpy(params[name]) for name in ("c_weight", "c_bias"))
    made = torch.conv2d(torch.from_numpy(data).double(), weight, bias).tanh()
    pool = torch.nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)
    return pool(made).numpy()


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_files_of_mxnet(network, tmp_path, rng):
    path, params = network
    out = tmp_path / "net.onnx"
    convert_model(path, out, None, SHAPES, 17)
    data = rng.standard_normal(SHAPES["data"]).astype("float32")
    np.testing.assert_allclose(run(out, {"data": data})[0], expected_of(params, data), atol=1e-5)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["net-0000.params", "net-symbol.json", "net.onnx"]


def test_graph_of_our_own(tmp_path, rng):
    x = sym.Variable("x", shape=(2, 4))
    net = sym.relu(sym.dense(x, units=3, name="fc"))
    params = {"fc_weight": rng.standard_normal((3, 4)), "fc_bias": rng.standard_normal(3)}
    params = {name: value.astype("float32") for name, value in params.items()}
    (tmp_path / "net.json").write_text(weft.graph.create(net).json())
    (tmp_path / "net.bin").write_bytes(save_param_dict(params))
    out = tmp_path / "net.onnx"
    convert_model(tmp_path / "net.json", out, tmp_path / "net.bin", {}, 20)
    data = rng.standard_normal((2, 4)).astype("float32")
    wanted = np.maximum(data @ params["fc_weight"].T + params["fc_bias"], 0)
    np.testing.assert_allclose(run(out, {"x": data})[0], wanted, atol=1e-5)
    assert onnx.load(out).opset_import[0].version == 20


def test_onnx_keeps_the_names_of_its_file(tmp_path):
    out = tmp_path / "d.onnx"
    convert_model(DIGITS, out, None, {"input": (2, 1, 8, 8)}, 17)
    before, after = onnx.load(DIGITS).graph, onnx.load(out).graph
    assert [item.name for item in after.output] == [item.name for item in before.output]
    assert [item.name for item in after.input] == [item.name for item in before.input]


def test_the_command_says_what_it_did(network, tmp_path):
    out = tmp_path / "net.onnx"
    done = CliRunner().invoke(cli.main, ["convert", str(network[0]), str(out), "--shape", "data=2,3,9,9"])
    assert done.exit_code == 0, done.output
    assert "3 operators, 2 parameters" in done.output
    assert "gives the same within" in done.output
    assert out.stat().st_size > 0


def wrong_writer(monkeypatch):
    """ONNX files in which tanh is a sigmoid."""
    monkeypatch.setitem(ALIKE, "tanh", Alike("Sigmoid"))


@pytest.mark.parametrize("installed", [True, False])
def test_a_file_that_disagrees_is_not_written(network, tmp_path, monkeypatch, installed):
    if installed:
        oracle("onnxruntime")
    else:
        monkeypatch.setattr(tool, "find_spec", lambda name: None)
    wrong_writer(monkeypatch)
    out = tmp_path / "net.onnx"
    out.write_bytes(b"what was there")
    with pytest.raises(RunError, match="other outputs"):
        convert_model(network[0], out, None, SHAPES, 17)
    assert out.read_bytes() == b"what was there"
    assert len(list(tmp_path.iterdir())) == 3


def test_without_onnxruntime_weft_reads_it_again(network, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "find_spec", lambda name: None)
    assert "weft, reading it again" in str(convert_model(network[0], tmp_path / "net.onnx", None, SHAPES, 17))


def test_an_existing_file_is_replaced(network, tmp_path):
    out = tmp_path / "net.onnx"
    out.write_bytes(b"what was there")
    convert_model(network[0], out, None, SHAPES, 17)
    onnx.checker.check_model(str(out))


@pytest.mark.parametrize("batch", [None, 4])
def test_a_compiled_program(batch, tmp_path):
    digits = Path(weft.__file__).parent / "data" / "digits.onnx"
    shapes = None if batch is None else {"input": (batch, 1, 8, 8)}
    found = convert_model(digits, tmp_path / "digits.weft", shapes=shapes)
    assert found.bytes == (tmp_path / "digits.weft").stat().st_size
    x = np.random.default_rng(0).standard_normal((4, 1, 8, 8)).astype("float32")
    wanted = weft.compile(digits, shape=shapes).run({"input": x})
    np.testing.assert_array_equal(weft.runtime.load(tmp_path / "digits.weft").run({"input": x}), wanted)


def test_what_is_asked_in_vain(network, tmp_path):
    path, _ = network
    for out, params, shapes, error, text in [
        ("net.txt", None, SHAPES, InvalidValue, "neither an ONNX file nor a program"),
        ("net.onnx", None, {}, InvalidValue, "shape of 'data' is not known"),
        ("net.onnx", None, {"dat": (1, 3, 9, 9)}, NotFound, "no input 'dat'"),
        ("net.onnx", "absent", SHAPES, NotFound, "there is no file"),
        ("no/net.onnx", None, SHAPES, InvalidValue, "cannot write"),
    ]:
        beside = None if params is None else tmp_path / params
        with pytest.raises(error, match=text):
            convert_model(path, tmp_path / out, beside, shapes, 17)
    assert len(list(tmp_path.iterdir())) == 2


def test_gaps_are_one_report(tmp_path):
    x = sym.Variable("x", shape=(2, 4))
    net = sym.Group([sym._max_mask(x, name="a"), sym._min_mask(x, name="b")])
    (tmp_path / "net.json").write_text(weft.graph.create(net).json())
    (tmp_path / "net.bin").write_bytes(save_param_dict({}))
    with pytest.raises(Unsupported, match="2 operators") as caught:
        convert_model(tmp_path / "net.json", tmp_path / "n.onnx", tmp_path / "net.bin", {}, 17)
    assert "_max_mask in 1 nodes: a; _min_mask in 1 nodes: b" in caught.value.why


def test_large_weights_go_into_a_file_beside(network, tmp_path, monkeypatch, rng):
    path, params = network
    monkeypatch.setattr(saving, "LARGEST_INSIDE", 100)
    monkeypatch.setattr(saving, "SMALLEST_BESIDE", 400)
    out = tmp_path / "net.onnx"
    convert_model(path, out, None, SHAPES, 17)
    beside = [item for item in tmp_path.iterdir() if item.suffix == ".data"]
    assert len(beside) == 1
    assert beside[0].stat().st_size >= 4 * 4 * 27
    data = rng.standard_normal(SHAPES["data"]).astype("float32")
    wanted = expected_of(params, data)
    np.testing.assert_allclose(run(out, {"data": data})[0], wanted, atol=1e-5)
    np.testing.assert_allclose(weft.compile(out)(data)[0], wanted, atol=1e-4)
    with pytest.raises(Unsupported, match="larger than 2 GiB"):
        weft.frontend.to_onnx(*weft.frontend.from_mxnet(path, shape=SHAPES))


def test_difference_sees_what_differs():
    one = np.float32([1, np.nan, np.inf])
    assert difference(one, one) == 0
    assert difference(one, np.float32([1, 2, np.inf])) == np.inf
    assert difference(one, one[:2]) == np.inf
    assert difference(np.int32([1, 2]), np.int32([1, 3])) == 1

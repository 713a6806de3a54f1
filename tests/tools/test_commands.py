"""The commands as people type them: results, JSON, exit codes, and what happens when something is not right."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from bounds import PATIENCE
from click.testing import CliRunner
from compiler.toy_backend import TOY
from oracles import oracle

import weft
from weft import cli
from weft import symbol as sym
from weft.base import config
from weft.base.errors import FormatError, Unsupported
from weft.base.shown import table
from weft.compiler.backends import register_backend
from weft.compiler.groups import forget_groups
from weft.compiler.parts import part
from weft.tools import progress
from weft.tools.flops import node_flops
from weft.tools.inputs import Picture, read_input
from weft.tools.pictures import png_pixels
from weft.tools.profile import profile_model
from weft.tools.run import read_labels, run_model

DIGITS = Path(weft.__file__).parent / "data" / "digits.onnx"


def run(*arguments, **environment):
    done = CliRunner().invoke(cli.main, [str(argument) for argument in arguments], env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def as_json(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def command(*arguments, **variables):
    environment = {**os.environ, **variables}
    return [sys.executable, "-m", "weft", *map(str, arguments)], environment


@pytest.fixture(scope="module")
def gaps_model(tmp_path_factory):
    """A model with operators that weft does not have, and one that it has."""
    nodes = [
        onnx.helper.make_node("Relu", ["x"], ["a"], name="first"),
        onnx.helper.make_node("Frobnicate", ["a"], ["b"], name="frob1", domain="com.example"),
        onnx.helper.make_node("Frobnicate", ["b"], ["c"], name="frob2", domain="com.example"),
        onnx.helper.make_node("Munge", ["c"], ["y"], name="munge", domain="com.example"),
    ]
    value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3])
    graph = onnx.helper.make_graph(nodes, "g", [value("x")], [value("y")])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.example", 1)]
    path = tmp_path_factory.mktemp("gaps") / "gaps.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), path)
    return path


def test_models_run_and_are_timed_on_another_target():
    register_backend(TOY)
    x = np.random.default_rng(2).standard_normal((3, 4)).astype("float32")
    y = sym.relu(sym.Variable("x", shape=(3, 4)), name="y")
    found = run_model(y, {"x": x}, repeat=1, target="toy -threads=3")
    np.testing.assert_array_equal(found.outputs[0].value, np.maximum(x, 0))
    assert "loops" in found.report
    with pytest.raises(Unsupported, match="cannot be profiled"):
        profile_model(y, {"x": x}, target="toy")
    done = run("run", DIGITS, "--target", "abacus")
    assert done.exit_code
    assert "unknown target 'abacus'" in done.output


def test_every_command_has_help_with_an_example():
    for name, does in cli.COMMANDS.items():
        done = run(name, "--help")
        assert done.exit_code == 0, done.output
        assert f"weft {name}" in done.stdout.partition("Examples:")[2], name
        assert does in run("--help").stdout


def test_what_takes_long_to_load_is_not_loaded():
    code = "import sys, weft.cli; print([m for m in ('rich', 'onnx', 'numpy.testing', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    code = "import sys, weft; weft.ones(2); print([m for m in ('rich', 'click', 'onnx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_file_in_place_of_a_command_is_run():
    done = run(DIGITS, "--repeat", 1)
    assert done.exit_code == 0
    assert "top of logits" in done.stdout
    assert as_json(DIGITS, "--repeat", 1)["taken"] == {"input": [1, 1, 8, 8]}
    told = {"rum": "Did you mean 'run'?", "no.onnx": "There is no file 'no.onnx'", "zzz": "No such command 'zzz'."}
    for word, text in told.items():
        done = run(word)
        assert done.exit_code == 2
        assert text in done.stderr


def test_a_reader_that_goes_away_is_no_failure():
    for arguments in (("ops",), ("--help",), ("run", DIGITS, "--repeat", 1)):
        words, environment = command(*arguments)
        child = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        child.stdout.close()
        assert (child.wait(PATIENCE), child.stderr.read()) == (0, b"")
        child.stderr.close()


def test_files_that_cannot_be_had(tmp_path):
    done = run("view", DIGITS, "-o", tmp_path / "no" / "page.html")
    assert done.exit_code == 1
    assert f"make the folder {tmp_path / 'no'} first" in done.stderr
    (tmp_path / "model.onnx").write_bytes(DIGITS.read_bytes())
    done = run("run", tmp_path / "modle.onnx")
    assert f"did you mean {tmp_path / 'model.onnx'}?" in done.stderr
    done = run("run", DIGITS, "--params", tmp_path / "model.onnx")
    assert "leave --params out" in done.stderr
    done = run("run", DIGITS, "--shape", "input=1,3,8,8")
    assert "weft info tells the shapes" in done.stderr


# info and check


def test_info_of_a_model():
    found = as_json("info", DIGITS, "--shape", "input=2,1,8,8")
    assert found["operators"]["conv2d"] == 3
    initialisers = [onnx.numpy_helper.to_array(item) for item in onnx.load(DIGITS).graph.initializer]
    assert found["parameters"] == sum(array.size for array in initialisers)
    assert found["inputs"] == ["input: float32[2, 1, 8, 8]"]
    assert found["metadata"]["opsets"] == {"ai.onnx": 17}
    layer = found["layers"][3]
    assert (layer["name"], layer["operator"]) == ("layer3", "conv2d")
    assert layer["flops"] == 2 * 32 * 64 * (2 * 16 * 9 + 1)  # two samples; a product and a sum a tap, and the bias
    told = run("info", DIGITS).stdout
    assert "layer12" in told
    assert "input: float32[batch, 1, 8, 8]" in told
    assert "input as (1, 1, 8, 8); --shape tells others" in told


def test_info_of_programs(tmp_path):
    weft.compile(sym.softmax(sym.Variable("x", shape=(4, 7)), name="s")).save(tmp_path / "m.weft")
    found = as_json("info", tmp_path / "m.weft")
    assert found["kind"] == "compiled program"
    assert found["operators"] == {"softmax": 1}
    script = weft.jit.script(weft.nn.Sequential(weft.nn.Linear(4, 8), weft.nn.ReLU()))
    weft.jit.save(script, str(tmp_path / "m.pt"))
    found = as_json("info", tmp_path / "m.pt")
    assert found["operators"] == {"dense": 1, "relu": 1}
    assert found["parameters"] == 4 * 8 + 8


def test_flops_of_products_are_twice_their_turns():
    x, y = sym.Variable("x", shape=(3, 5)), sym.Variable("y", shape=(5, 7))
    graph = weft.compile(sym.matmul(x, y)).graph
    assert node_flops(graph, graph.outputs[0].node) == 2 * 3 * 5 * 7


def test_check_tells_every_gap_at_once(gaps_model):
    done = run("check", gaps_model)
    assert done.exit_code == 1
    assert "2 gaps in 3 nodes" in done.stdout
    found = json.loads(run("check", gaps_model, "--json").stdout)
    assert not found["ok"]
    assert {gap["operator"]: gap["nodes"] for gap in found["gaps"]} == {
        "com.example.Frobnicate (opset 1)": ["frob1", "frob2"],
        "com.example.Munge (opset 1)": ["munge"],
    }


def test_check_of_what_is_native_and_what_is_not(tmp_path):
    text = "m (float[4, 4] x) => (float[4, 4] y, float d) { a = Relu(x) y = Tanh(a) d = Det(a) }"
    onnx.save(onnx.helper.make_model(onnx.parser.parse_graph(text)), tmp_path / "m.onnx")
    found = as_json("check", tmp_path / "m.onnx")
    assert found["ok"]
    assert found["native"] == {"relu": 1, "tanh": 1}
    assert found["host"] == {"det": 1}
    assert found["memory"]["arena"] >= 4 * 4 * 4


# run


def test_run_writes_outputs_and_names_classes(tmp_path):
    with np.load(DIGITS.parent / "digits.npz") as file:
        images, labels = file["images"][:2], file["labels"][:2]
    np.save(tmp_path / "x.npy", (images / 16).astype("float32"))
    (tmp_path / "names.txt").write_text("\n".join(f"digit {n}" for n in range(10)))
    done = run(
        "run", DIGITS, "--input", tmp_path / "x.npy", "--labels", tmp_path / "names.txt", "--output", tmp_path / "out",
        "--repeat", 1, "--top", 2,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for label in labels:
        assert f"digit {label}" in done.stdout
    session = oracle("onnxruntime").InferenceSession(str(DIGITS))
    (wanted,) = session.run(None, {"input": (images / 16).astype("float32")})
    np.testing.assert_allclose(np.load(tmp_path / "out" / "logits.npy"), wanted, atol=1e-4)


def png(pixels, filters):
    """A PNG file of rows that are filtered as told, by the formulas of its specification."""
    height, width, channels = pixels.shape
    rows, above = [], np.zeros((width, channels), int)
    for row, kind in zip(pixels.astype(int), filters):
        left = np.concatenate([np.zeros((1, channels), int), row[:-1]])
        corner = np.concatenate([np.zeros((1, channels), int), above[:-1]])
        p = left + above - corner
        near = np.abs(p - left), np.abs(p - above), np.abs(p - corner)
        paeth = np.where((near[0] <= near[1]) & (near[0] <= near[2]), left, np.where(near[1] <= near[2], above, corner))
        guess = [0 * row, left, above, (left + above) // 2, paeth][kind]
        rows.append(bytes([kind]) + ((row - guess) % 256).astype("uint8").tobytes())
        above = row

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"".join(rows)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_of_every_filter(channels):
    pixels = np.random.default_rng(channels).integers(0, 256, (6, 5, channels)).astype("uint8")
    np.testing.assert_array_equal(png_pixels(png(pixels, [0, 1, 2, 3, 4, 4])), pixels)


def test_damaged_pictures_are_errors():
    good = png(np.zeros((3, 3, 3), "uint8"), [0, 0, 0])
    for bad in (b"", b"GIF89a", good[:20], good[:45], good.replace(b"IDAT", b"IDAX")):
        with pytest.raises(FormatError):
            png_pixels(bad)
    with pytest.raises(Unsupported, match="16 bits"):
        png_pixels(good[:24] + b"\x10" + good[25:])


def test_a_picture_is_an_input(tmp_path):
    with np.load(DIGITS.parent / "digits.npz") as file:
        image, label = file["images"][0, 0], file["labels"][0]
    large = np.kron(np.round(image / 16 * 255), np.ones((4, 4))).astype("uint8")  # 32 x 32
    (tmp_path / "digit.png").write_bytes(png(np.repeat(large[:, :, None], 3, axis=2), [1] * 32))
    found = as_json("run", DIGITS, "--input", tmp_path / "digit.png", "--repeat", 1)
    assert found["outputs"][0]["top"][0][0][0] == str(label)
    picture = read_input(tmp_path / "digit.png")
    assert isinstance(picture, Picture)
    (tmp_path / "photo.jpg").write_bytes(b"x")
    done = run("run", DIGITS, "--input", tmp_path / "photo.jpg")
    assert done.exit_code == 1
    assert "save it as .png" in done.stderr


def test_run_of_torchscript(tmp_path):
    linear = weft.nn.Linear(4, 3)
    weft.jit.save(weft.jit.script(weft.nn.Sequential(linear)), str(tmp_path / "m.pt"))
    x = np.random.default_rng(1).standard_normal((2, 4)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    done = run("run", tmp_path / "m.pt", "--input", tmp_path / "x.npy", "--output", tmp_path, "--repeat", 1)
    assert done.exit_code == 0, done.output
    wanted = x @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()
    np.testing.assert_allclose(np.load(tmp_path / "output.npy"), wanted, rtol=1e-5, atol=1e-6)
    found = as_json("run", tmp_path / "m.pt")  # the weights tell how many features there are
    assert (found["taken"], found["outputs"][0]["shape"]) == ({"input": [1, 4]}, [1, 3])


def test_torchscript_as_a_graph(tmp_path):
    """With the shapes of its inputs an archive is a model like others: PyTorch, if it is there, wrote this one."""
    torch = oracle("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5))
    path = tmp_path / "net.pt"
    torch.jit.trace(net.eval(), torch.rand(2, 3, 8, 8)).save(str(path))
    shape = ("--shape", "input=2,3,8,8")
    assert as_json("check", path, *shape)["native"] == {"conv2d": 1, "relu": 1, "reshape": 1, "dense": 1}
    assert as_json("info", path, *shape)["layers"][0]["operator"] == "conv2d"
    assert any("conv2d" in step["name"] for step in as_json("profile", path, *shape, "--rounds", 1)["steps"])
    assert as_json("compare", path, *shape)["ok"]
    assert run("bisect", path, *shape).exit_code == 0
    assert run("view", path, *shape, "-o", tmp_path / "page.html").exit_code == 0
    x = torch.rand(2, 3, 8, 8)
    np.save(tmp_path / "x.npy", x.numpy())
    assert as_json("compare", path, "--input", tmp_path / "x.npy")["ok"]
    assert run("convert", path, tmp_path / "net.onnx", *shape).exit_code == 0
    (made,) = weft.compile(tmp_path / "net.onnx").run({"input": x.numpy()})
    np.testing.assert_allclose(made, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert as_json("check", path)["taken"] == {"input": [1, 3, 8, 8]}  # the only sides of pictures it takes
    assert as_json("info", path)["layers"][0]["output"] == "float32[1, 8, 6, 6]"
    assert as_json("bench", path, "--rounds", 1)["slowest"]


def test_torchscript_of_two_inputs_asks_for_shapes(tmp_path):
    class Sum(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weft.nn.Parameter(weft.ones(2, 3))

        def forward(self, a, b):
            return a + b + self.weight

    path = tmp_path / "sum.pt"
    weft.jit.save(weft.jit.script(Sum()), str(path))
    for command in ("run", "check", "profile", "compare", "view", "convert"):
        done = run(command, path, *([tmp_path / "other.onnx"] if command == "convert" else []))
        assert done.exit_code == 1
        assert "--shape a=" in done.stderr
    assert as_json("info", path)["operators"] == {"aten::add": 2}


def test_torchscript_on_integers(tmp_path):
    net = weft.nn.Sequential(weft.nn.Embedding(11, 6), weft.nn.Linear(6, 3))
    weft.jit.save(weft.jit.script(net), str(tmp_path / "m.pt"))
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(0, 11, (2, 7)))
    found = as_json("compare", tmp_path / "m.pt", "--input", tmp_path / "ids.npy")
    assert found["ok"]
    assert found["layers"][-1]["output"] == "float32[2, 7, 3]"


def test_labels(tmp_path):
    for text in (
        "cat\ndog\n",
        '["cat", "dog"]',
        '{"0": "cat", "1": "dog"}',
        '{"0": ["n1", "cat"], "1": ["n2", "dog"]}',
    ):
        (tmp_path / "labels").write_text(text)
        assert read_labels(tmp_path / "labels") == ["cat", "dog"]
    (tmp_path / "labels").write_text("[")
    with pytest.raises(FormatError):
        read_labels(tmp_path / "labels")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["run", DIGITS, "--precision", "fp16"], 1, "'bf16'"),
        (["run", DIGITS, "--input", "other=random"], 1, "its inputs: input"),
        (["run", DIGITS, "--input", "input=random", "--repeat", 1], 0, ""),
        (["run", DIGITS, "--input", "random", "--repeat", 1], 0, ""),
        (["run", DIGITS, "--labels", "absent"], 1, "there is no file absent"),
        (["info", "absent.onnx"], 1, "there is no file absent.onnx"),
        (["check", __file__], 1, "no model file"),
        (["profile", DIGITS, "--rounds", 0], 2, "--rounds"),
        (["compare", DIGITS, "--ref", "moon"], 2, "moon"),
        (["bench", DIGITS, "--against", "moon"], 1, "no runtime 'moon'"),
        (["bench", DIGITS, "--against", "torch"], 1, "it runs TorchScript archives"),
        (["ops", "conv"], 1, "did you mean"),
        (["ops", "Conv"], 1, "is an operator of ONNX"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_mistakes_have_text_and_codes(arguments, code, text):
    done = run(*arguments)
    assert done.exit_code == code, done.output
    assert text in done.stderr
    assert "Traceback" not in done.stderr


# profile


def test_profile_as_trace_and_page(tmp_path):
    found = as_json("profile", DIGITS, "--threads", 1, "--trace", tmp_path / "t.json", "--html", tmp_path / "p.html")
    names = [step["name"] for step in found["steps"]]
    assert any("conv2d" in name for name in names)
    assert sum(step["share"] for step in found["steps"]) == pytest.approx(1)
    assert {source for step in found["steps"] for source in step["sources"]} >= {"layer0", "layer12"}
    trace = json.loads((tmp_path / "t.json").read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == 0]
    assert [event["name"] for event in spans] == names
    pieces = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == 1]
    assert [event["name"] for event in pieces] == names  # one thread does each in one go
    lanes = [event["args"]["name"] for event in trace["traceEvents"] if event.get("name") == "thread_name"]
    assert lanes[2:] == ["thread 0, which called"]
    ends = [event["ts"] + event["dur"] for event in spans]
    assert all(start["ts"] >= end - 1e-6 for start, end in zip(spans[1:], ends))
    page = (tmp_path / "p.html").read_text()
    assert page.count("<tr>") == len(names) + 1


def test_profiles_of_models_in_python():
    x = sym.Variable("x", shape=(8, 8))
    model = weft.compile(sym.det(sym.tanh(x, name="t"), name="d"))
    data = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")
    with model.profiling(rounds=1) as found:
        model(data)
    once = model.profile(x=data, rounds=1)
    for profile in (found.profile, once):
        assert [(step.sources, step.native) for step in profile.steps] == [(("t",), True), (("d",), False)]
    assert once.steps[0].bytes == 2 * 8 * 8 * 4  # read and written once
    assert "tanh" in once._repr_html_()


# cache, ops, doctor


def test_the_cache_is_listed_and_cleared(tmp_path):
    with config.override(cache_dir=str(tmp_path)):
        forget_groups()
        assert as_json("cache", "ls")["count"] == 0
        run("run", DIGITS, "--repeat", 1)
        found = as_json("cache", "ls")
        assert found["count"] > 0
        assert any("conv2d" in kernel for file in found["files"] for kernel in file["kernels"])
        assert as_json("cache", "clear")["count"] == found["count"]
        assert not list(tmp_path.rglob("*.bin"))
    with config.override(cache=False):
        assert "off" in run("cache", "ls").stdout


def test_ops():
    found = as_json("ops", "conv2d")
    assert [argument["argument"] for argument in found["arguments"]][:2] == ["data", "weight"]
    listed = {row["name"] for row in as_json("ops", "--like", "pool")["operators"]}
    assert {"max_pool2d", "avg_pool2d"} <= listed
    assert "relu" not in listed


def test_doctor():
    found = as_json("doctor", "--no-measure")
    told = {finding["what"]: finding["value"] for finding in found["findings"]}
    assert told["weft"] == weft.__version__
    assert "WEFT_NUM_THREADS is 1" in run("doctor", "--no-measure", WEFT_NUM_THREADS="1").stdout


# Surroundings, in processes of their own


def test_a_closed_pipe_is_quiet():
    arguments, environment = command("ops", "--all")
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**environment, "PYTHONUNBUFFERED": "1"}
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(PATIENCE) == 0


def test_ctrl_c_has_no_traceback(tmp_path):
    fifo = tmp_path / "x.npy"
    os.mkfifo(fifo)  # reading it waits, as nothing is written
    arguments, environment = command("run", DIGITS, "--input", f"input={fifo}")
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # also where whoever runs the tests ignores it
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, env=environment, text=True, preexec_fn=heard)
    with fifo.open("wb"):  # opens when the command has begun to read
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in error
    assert process.returncode == 1, error


def test_a_narrow_terminal_without_colour_or_home(tmp_path):
    bare = {"COLUMNS": "40", "NO_COLOR": "1", "HOME": str(tmp_path / "none"), "WEFT_CACHE_DIR": ""}
    arguments, environment = command("profile", DIGITS, "--rounds", 1, **bare)
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "…" in done.stdout


def test_tables_fit_and_numbers_stand_on_the_right():
    wide = ["name", "first", "second", "third"], [["a" * 50, 1.25, 2.5, 3.75], ["b", 1000, 2000, 3000]]
    assert table(*wide, width=24).splitlines() == [
        "name      first  second",
        "aaaaaaa…   1.25     2.5",
        "b          1000    2000",
        "no room for: third",
    ]
    assert "no room" not in table(*wide)
    made = table(["name", "count"], [["a" * 50, 1], ["b", 1000]], width=30).splitlines()
    assert max(map(len, made)) == 30
    assert made[1].endswith(" 1")


def test_a_bar_for_what_takes_long(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "BAR_AFTER", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with progress.Stages() as stages:
        stages.begin("compile")
        stages._timer.join()
        stages.progress(3, 7)
        stages.begin("run")
    assert "3/7" in shown.getvalue()
    assert "0/7" not in shown.getvalue()  # what the next stage does is not counted in the last one's
    shown.truncate(0)
    monkeypatch.setattr(shown, "isatty", lambda: False)
    with progress.Stages() as stages:
        stages.begin("compile")
    assert shown.getvalue().strip("\0") == ""


def test_a_run_that_compiles_for_long_says_so_once(monkeypatch, caplog):
    monkeypatch.setattr(part, "NOTICED_SECONDS", 0.0)
    model = weft.compile(sym.relu(sym.Variable("x")), shape={"x": ("n", 3)}, specialise="always")
    for size in (2, 3):
        model(np.zeros((size, 3), "float32"))
    assert len([record for record in caplog.records if "compiled for x: float32[2, 3]" in record.getMessage()]) == 1
    assert len(caplog.records) == 1


# Results show themselves


def test_short_texts_and_html():
    model = weft.compile(DIGITS)
    before = str(model.report())
    assert "13 operators, 24394 parameters" in before
    model(np.zeros((1, 1, 8, 8), "float32"))
    for value in (model, model.program, model.program.plan, model.source, model.graph, model.graph.symbol):
        assert len(repr(value)) < 400
    shown = [model, model.graph, model.graph.symbol, model.report(), weft.ones(2, 2)]
    for value in shown:
        assert value._repr_html_().startswith("<pre>")
        assert "<Symbol" not in value._repr_html_()  # it is escaped

"""The examples run, and say what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from oracles import oracle

import weft

EXAMPLES = Path(__file__).parent.parent / "examples"


def output_of(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("FORCE_COLOR", "TTY_"))}
    environment = {**plain, "COLUMNS": "160"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_demo():
    text = output_of("demo.py")
    assert float(re.search(r"([\d.]+)% of 360 digits", text)[1]) > 98
    assert len(re.findall(r"\d [✓✗]", text)) == 10
    assert "▀" in text
    assert "microseconds" in text


@pytest.mark.parametrize("arguments", [(), ("--full",)])
def test_walk_the_stages(arguments):
    text = output_of("walk_the_stages.py", *arguments)
    titles = re.findall(r"^=== (\d)\. .*: weft/(\S+)$", text, re.MULTILINE)
    assert [number for number, _ in titles] == [str(number) for number in range(1, 10)]
    rooms = [file.split("/")[0] for _, file in titles]
    assert rooms == "frontend core passes passes lower codegen codegen compiler runtime".split()
    for _, file in titles:
        assert (Path(weft.__file__).parent / file).is_file()
    for mark in ("batch_norm(", "relu", "kernel ", "define ", ".p2align", "KernelStep"):
        assert mark in text
    assert float(re.search(r"interpreter: (\S+)", text)[1]) < 1e-6
    assert ("more lines" in text) == (not arguments)


def test_data_is_part_of_the_package():
    data = Path(weft.__file__).parent / "data"
    assert {"digits.onnx", "digits.npz"} <= {path.name for path in data.iterdir()}


def test_train_symbolic():
    text = output_of("train_symbolic.py")
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", text)]
    assert losses[0] > 2 > 0.2 > losses[-1]
    assert int(re.search(r"(\d+) of 60 held-out", text)[1]) >= 50


# Arguments, and how many of 360 held-out digits are then right at least, in percent.
TRAINED = [
    pytest.param("train_digits.py", ("--epochs", "2"), r"reloaded: ([\d.]+)% of 360", 80, id="two epochs"),
    pytest.param("train_digits.py", (), r"reloaded: ([\d.]+)% of 360", 97, id="digits", marks=pytest.mark.slow),
    pytest.param("finetune_onnx.py", (), r"after: ([\d.]+)% of 360", 90, id="negatives", marks=pytest.mark.slow),
    pytest.param("transfer_learning.py", ("--steps", "16"), r"all layers: ([\d.]+)% of 360", 30, id="few batches"),
    pytest.param("transfer_learning.py", (), r"all layers: ([\d.]+)% of 360", 90, id="turned", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "arguments", "told", "least"), TRAINED)
def test_trained_networks_read_digits(name, arguments, told, least):
    assert float(re.search(told, output_of(name, *arguments))[1]) > least


def test_finetuned_file(tmp_path):
    """What is written is the network with other weights and the same open batch; before, it reads negatives badly."""
    text = output_of("finetune_onnx.py", "--steps", "30", "--save", str(tmp_path / "new.onnx"))
    assert float(re.search(r"before: ([\d.]+)% of 360", text)[1]) < 30
    assert float(re.search(r"after: ([\d.]+)% of 360", text)[1]) > 35
    assert len(re.findall(r"step +\d+  loss [\d.]+", text)) == 11
    old, new = (
        weft.frontend.from_onnx(path) for path in (EXAMPLES.parent / "weft/data/digits.onnx", tmp_path / "new.onnx")
    )
    assert new[1].keys() == old[1].keys()
    changed = {name for name in old[1] if (old[1][name].asnumpy() != new[1][name].asnumpy()).any()}
    assert changed == {name for name in old[1] if "running_" not in name}
    assert weft.compile(tmp_path / "new.onnx").inputs[0].shape == ("batch", 1, 8, 8)


def test_transfer_from_a_file_of_torchvision(tmp_path):
    """Names and shapes are torchvision's, and PyTorch wrote the file: 1000 classes of a ResNet-18, made narrow."""
    torch = oracle("torch")
    shapes = {"conv1.weight": (4, 3, 7, 7), "fc.weight": (1000, 32), "fc.bias": (1000,)}
    norms = {"bn1": 4}
    for layer in range(4):
        wide, before = 4 << layer, 4 << max(layer - 1, 0)
        for block, inputs in enumerate((before, wide)):
            at = f"layer{layer + 1}.{block}."
            shapes |= {at + "conv1.weight": (wide, inputs, 3, 3), at + "conv2.weight": (wide, wide, 3, 3)}
            norms |= {at + "bn1": wide, at + "bn2": wide}
        if layer:
            shapes[f"layer{layer + 1}.0.downsample.0.weight"] = (wide, before, 1, 1)
            norms[f"layer{layer + 1}.0.downsample.1"] = wide
    weights = {name: torch.rand(shape) * 0.1 for name, shape in shapes.items()}
    for name, wide in norms.items():
        weights |= {f"{name}.{part}": torch.rand(wide) + 0.5 for part in "weight bias running_mean running_var".split()}
        weights[f"{name}.num_batches_tracked"] = torch.tensor(7)
    assert len(weights) == 122
    torch.save(weights, tmp_path / "resnet18.pth")
    text = output_of("transfer_learning.py", "--weights", str(tmp_path / "resnet18.pth"), "--steps", "1")
    assert "resnet18.pth: <All keys matched successfully>, 1000 classes, 4 channels" in text
    assert len(re.findall(r"layers?: [\d.]+% of 360 held-out digits", text)) == 2


@pytest.mark.parametrize(
    ("arguments", "words", "loss"),
    [
        pytest.param(("--steps", "10", "--letters", "40"), 0, 4, id="few"),
        pytest.param((), 0.8, 0.3, id="whole", marks=pytest.mark.slow),
    ],
)
def test_character_transformer(arguments, words, loss):
    text = output_of("character_transformer.py", *arguments)
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", text)]
    assert losses[0] > 3.9
    assert losses[-1] < loss
    assert "\n\nBeautiful" in text
    known, written = map(int, re.search(r"(\d+) of (\d+) words", text).groups())
    assert known >= words * written


@pytest.mark.parametrize(
    ("arguments", "least"),
    [pytest.param(("--steps", "3"), 1, id="few"), pytest.param((), 2.5, id="whole", marks=pytest.mark.slow)],
)
def test_dcgan(arguments, least):
    text = output_of("dcgan.py", *arguments)
    assert len(re.findall(r"critic [\d.]+  artist [\d.]+", text)) >= 3
    score, first, best = map(
        float, re.search(r"score (\S+), at first (\S+), of handwritten digits (\S+)", text).groups()
    )
    assert least <= score < best
    assert 1 <= first < 2
    assert 7 < best < 10
    assert "█" in text or "▀" in text


def test_new_op():
    text = output_of("new_op.py")
    assert "agree" in text
    assert "0 host steps" in text
    assert float(re.search(r"error (\S+)", text)[1]) < 1e-5
    assert "slope at 1: 1.0908" in text  # s (1 + 2 (1 - s)), s = sigmoid(2)


def test_benchmarks_can_be_loaded():
    """They are run by hand; what they import from weft must be there all the same."""
    paths = (EXAMPLES.parent / "benchmarks").glob("*.py")
    names = [path.stem for path in paths if "\nimport torch\n" not in path.read_text(encoding="utf-8")]
    code = "import sys; sys.path.insert(0, 'benchmarks')\n" + "\n".join(f"import {name}" for name in names)
    assert "cpu" in names
    done = subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("steps", [10, pytest.param(400, marks=pytest.mark.slow)])
def test_generate(steps):
    text = output_of("generate.py", "--steps", str(steps))
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", text)]
    assert losses[-1] < losses[0]
    written = re.findall(r"^(\w+): (Beautiful.*)\n(?:.*\n)*?\d+ tokens a second, (\d+) bytes", text, re.MULTILINE)
    assert [weights for weights, _, _ in written] == ["fp32", "int8", "int4"]
    sizes = [int(size) for *_, size in written]
    assert sizes[0] > 3 * sizes[1] > 5 * sizes[2]
    if steps == 400:
        assert losses[-1] < 0.5
        assert {line for weights, line, _ in written if weights != "int4"} == {"Beautiful is better than ugly."}

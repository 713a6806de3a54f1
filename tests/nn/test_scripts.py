"""Scripts written for PyTorch train with weft when nothing but their import lines changes: every file of
tests/scripts runs with both from the same seeds, and their losses are the same step by step. Initial weights,
dropout, shuffling and sampled data are therefore the same random streams."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import ModuleType

import pytest
from oracles import oracle

import weft

SCRIPTS = sorted((Path(__file__).parent.parent / "scripts").glob("*.py"))
SLOW: set[str] = set()  # scripts that take more than a few seconds
STEPS = 20  # a script whose rounding grows from step to step says fewer by a constant of its own

# (a line of import, the same line for weft)
REWRITES = (
    (re.compile(r"^import torch$"), "import weft as torch"),
    (re.compile(r"^import torch\.(\S+)( as \w+)?$"), r"import weft.\1\2"),
    (re.compile(r"^from torch((?:\.\w+)*) import (.+)$"), r"from weft\1 import \2"),
)


def for_weft(line):
    for form, instead in REWRITES:
        if form.match(line):
            return form.sub(instead, line)
    assert not re.match(r"\s*(import|from)\b.*\btorch\b", line), f"a form of import that has no rewrite: {line}"
    return line


def losses_of(path, text):
    script = ModuleType(path.stem)
    exec(compile(text, str(path), "exec"), vars(script))
    steps = getattr(script, "STEPS", STEPS)
    return script.torch, steps, script.main(steps)


@pytest.fixture
def torch():
    """PyTorch on one thread: steps this small wait longer for other threads than they compute."""
    library = oracle("torch")
    threads = library.get_num_threads()
    library.set_num_threads(1)
    yield library
    library.set_num_threads(threads)


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem in SLOW)) for path in SCRIPTS]
)
def test_a_script_trains_alike(path, torch):
    text = path.read_text(encoding="utf-8")
    expected_library, steps, expected = losses_of(path, text)
    library, _, losses = losses_of(path, "\n".join(map(for_weft, text.splitlines())))
    assert expected_library is torch
    assert library is weft
    assert len(losses) >= steps  # and what a script measures at its end
    assert all(type(loss) is float and math.isfinite(loss) for loss in losses)
    assert len(set(losses)) > steps // 2  # something is trained
    assert losses == pytest.approx(expected, rel=1e-4)
    assert weft.rand(3).tolist() == torch.rand(3).tolist()  # as many draws were made


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("import torch.utils.data", ["weft.utils.data"]),
        ("import torch.nn.functional as F", ["F.conv2d"]),
        ("from torch import nn, optim", ["nn.Linear", "optim.SGD"]),
        ("from torch.optim.lr_scheduler import StepLR", ["StepLR"]),
        ("from torch.nn.utils.rnn import pad_sequence as pad", ["pad"]),
        ("from torch.autograd import Variable, grad", ["Variable", "grad"]),
    ],
)
def test_forms_of_import(line, names):
    script = {}
    exec(for_weft(line), script)
    for name in names:
        found = eval(name, script)
        assert getattr(found, "__module__", found.__name__).split(".")[0] == "weft"


def test_the_scripts_are_there():
    assert {"mnist", "cifar_cnn", "word_lstm", "word_transformer", "vae", "dcgan"} <= {path.stem for path in SCRIPTS}

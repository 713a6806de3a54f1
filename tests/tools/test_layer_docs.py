"""The page of layers, optimisers and data says what the classes are now."""

import re
from pathlib import Path

import weft
from weft import nn
from weft.tools import layer_docs

ROOT = Path(__file__).parents[2]
TEXT = layer_docs.page()
ROWS = re.findall(r"^\| `([\w.]+)(\(.*?\))` \| (.*) \|$", TEXT, re.MULTILINE)


def test_page_is_fresh():
    assert (ROOT / layer_docs.PAGE).read_text(encoding="utf-8") == TEXT, "run `make docs`"
    assert f"weft.tools.layer_docs {layer_docs.PAGE}" in (ROOT / "Makefile").read_text()


def test_every_class_is_on_the_page_once_with_what_it_does():
    names = [name for name, _, _ in ROWS]
    assert len(names) == len(set(names)) == TEXT.count("\n| `")
    assert all(len(told) > 3 for _, _, told in ROWS)
    layers = {
        f"nn.{name}" for name, value in vars(nn).items() if isinstance(value, type) and issubclass(value, nn.Module)
    }
    assert {name for name in names if name.startswith("nn.")} == layers
    assert {f"optim.{name}" for name, value in vars(weft.optim).items() if isinstance(value, type)} <= set(names)
    assert {f"utils.data.{name}" for name in weft.utils.data.__all__} <= set(names)


def test_rows_show_settings():
    shown = {name: signature for name, signature, _ in ROWS}
    assert shown["nn.Linear"] == "(in_features, out_features, bias=True, device=None, dtype=None)"
    assert shown["nn.Tanh"] == "()"
    assert shown["nn.Identity"] == "(*args, **kwargs)"
    assert shown["optim.lr_scheduler.StepLR"] == "(optimizer, step_size, gamma=0.1, last_epoch=-1)"

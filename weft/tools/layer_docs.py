"""The classes of training become a page: layers by the file they are in, optimisers, schedules, datasets and loaders,
distributions; each with its signature and what it computes.

python -m weft.tools.layer_docs docs/layers.md
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import distributions, nn, optim
from ..optim import lr_scheduler, swa_utils
from ..utils import data
from .function_docs import shown_signature

PAGE = "docs/layers.md"
_HEAD = """# Layers, optimisers, data

The classes that networks are made of and trained with (written by `make docs` from the classes; do not edit). Names,
arguments, defaults and keys of states are PyTorch's. [modules.md](modules.md) is about what all layers share,
[tensors.md](tensors.md#training) about training."""


def page() -> str:
    """All classes and functions, part by part."""
    lines = [_HEAD]
    for title, prefix, found in _parts():
        lines += ["", f"## {title}", "", "| name | gives |", "|---|---|"]
        lines += [_line(prefix, name, value) for name, value in found]
    return "\n".join(lines) + "\n"


def _parts() -> Iterator[tuple[str, str, Iterable[tuple[str, Any]]]]:
    layers: dict[str, list[tuple[str, Any]]] = {}
    for name, value in _public(nn):
        if isinstance(value, type) and issubclass(value, nn.Module):
            layers.setdefault(value.__module__, []).append((name, value))
    for path, found in sorted(layers.items()):
        yield _title(sys.modules[path]), "nn", found
    yield _title(optim), "optim", _public(optim)
    yield _title(lr_scheduler), "optim.lr_scheduler", _public(lr_scheduler)
    yield _title(swa_utils), "optim.swa_utils", _public(swa_utils)
    yield _title(data), "utils.data", _public(data)
    kinds = [item for item in _public(distributions) if isinstance(item[1], type)]
    kept = [item for item in kinds if issubclass(item[1], distributions.Distribution)]
    yield _title(distributions), "distributions", kept


def _public(module: ModuleType) -> list[tuple[str, Any]]:
    """The classes and functions that a module names, by their names."""
    found = [(name, getattr(module, name)) for name in module.__all__]
    return sorted((name, value) for name, value in found if isinstance(value, type) or inspect.isfunction(value))


def _title(module: ModuleType) -> str:
    return _sentence(module).partition(":")[0]


def _sentence(value: Any) -> str:
    """The first sentence of a docstring."""
    paragraph = " ".join(inspect.cleandoc(value.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"\. (?=[A-Z`\"])", paragraph)[0].rstrip(".")


def _line(prefix: str, name: str, value: Any) -> str:
    bare = getattr(value, "__init__", None) is nn.Module.__init__  # takes no settings
    shown = "()" if bare else shown_signature(value)
    cells = f"`{prefix}.{name}{shown}`", _sentence(value)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")

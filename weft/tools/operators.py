"""`weft ops`: the operators that weft has, and all about one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .. import ops  # noqa: F401  registers the operators
from ..base.cpu_target import host
from ..base.errors import NotFound
from ..base.shown import Shown, table
from ..compiler.backends import backend_of
from ..core.op import Op, list_ops
from ..frontend.onnx import importer  # noqa: F401  registers what reads ONNX
from ..frontend.onnx.registry import TABLE
from .op_docs import example_text, signature

NEWEST = 1 << 16  # of versions of an operator


class OperatorRow(NamedTuple):
    """An operator in a line: how it runs, whether it has a gradient, what it does."""

    name: str
    runs: str
    gradient: bool
    does: str


@dataclass(frozen=True, repr=False)
class OperatorList(Shown):
    """Operators in the order of their names; those whose names begin with an underscore are weft's own."""

    operators: list[OperatorRow]

    def text(self, width: int | None = None) -> str:
        cells = [(row.name, row.runs, "yes" if row.gradient else "no", row.does) for row in self.operators]
        return table(("operator", "runs", "gradient", "does"), cells, width)


@dataclass(frozen=True, repr=False)
class OperatorHelp(Shown):
    """All about an operator."""

    name: str
    signature: str
    does: str
    arguments: list[dict[str, str]]
    runs: str
    gradient: bool
    aliases: list[str]
    example: list[str]

    def text(self, width: int | None = None) -> str:
        lines = [self.signature, "", self.does, ""]
        lines += [table(("argument", "type", "meaning"), [tuple(a.values()) for a in self.arguments], width)]
        lines += ["", f"runs {self.runs}; {'has a' if self.gradient else 'no'} gradient"]
        lines += [f"also called {', '.join(self.aliases)}"] if self.aliases else []
        return "\n".join([*lines, *(["", *self.example] if self.example else [])])


def list_operators(pattern: str = "", internal: bool = False) -> OperatorList:
    """The operators whose names have `pattern` in them.

    >>> [row.name for row in list_operators("max_pool").operators]
    ['global_max_pool2d', 'max_pool2d']
    """
    chosen = [op for op in list_ops() if pattern in op.name and (internal or op.name[0] != "_")]
    return OperatorList(
        [OperatorRow(op.name, _runs(op), Op.gradient.contains(op), _first_line(op)) for op in sorted(chosen, key=_name)]
    )


def operator_help(name: str) -> OperatorHelp:
    """All about an operator, by its name or alias.

    >>> operator_help("relu").does
    'max(x, 0)'
    """
    try:
        op = Op.get(name)
    except NotFound as error:
        if TABLE.find(name, NEWEST) is not None:
            error.why = f"{name} is an operator of ONNX, which weft reads: docs/onnx.md"
        raise
    arguments = [{"argument": a.name, "type": a.type, "meaning": " ".join(a.doc.split())} for a in op.arguments]
    does = " ".join(op.description.split())
    gradient = Op.gradient.contains(op)
    return OperatorHelp(
        op.name, signature(op), does, arguments, _runs(op), gradient, list(op.aliases), example_text(op)
    )


def _name(op: Op) -> str:
    return op.name.lstrip("_")


def _runs(op: Op) -> str:
    lowering = backend_of(host()).lowering
    written = Op.compute.contains(op) or Op.kernels.contains(op) or op.name in lowering.templates
    return "natively" if written else "in Python" if Op.reference.contains(op) else "as others"


def _first_line(op: Op) -> str:
    return " ".join(op.description.split("\n\n")[0].split())

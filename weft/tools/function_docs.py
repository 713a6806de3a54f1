"""The function table becomes a page and type stubs: what type checkers see of names that load when
they are first used.

python -m weft.tools.function_docs .
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..eager.functions.all import FUNCTIONS, TABLE
from ..eager.functions.table import Row, summary
from ..eager.tensor import types
from ..eager.tensor.tensor import Tensor
from ..eager.torch_core.extra_names import LEAVES
from ..eager.torch_core.public_names import NAMES

_PACKAGE: Any = sys.modules[(__package__ or "").partition(".")[0]]  # where the lazy names are listed
PAGE = "docs/tensor-functions.md"
STUBS = {"weft": "weft/__init__.pyi"}
TABLE_OF_NAMES = "weft/tensor_names.py"
WROTE = "written by `make docs` from the function table"

# How a name in an annotation is written in a stub, where functions and dtypes have such names.
_BUILTINS = {
    name: f"builtins.{name}" for name in "bool bytes complex dict float int list object str tuple type".split()
}
_WORDS = {
    **_BUILTINS,
    "Any": "Any",
    "None": "None",
    "Tensor": "Tensor",
    "Size": "_Size",
    "dtype": "_dtype",
    "device": "_device",
    "layout": "_layout",
    "Iterator": "Iterator",
}
# Methods that Python calls for an operator; a tensor and its operand make a tensor.
_BINARY = "add sub mul matmul truediv div floordiv mod pow and or xor lshift rshift".split()
_OPERATORS = {
    *(f"__{way}{name}__" for name in _BINARY for way in ("", "r", "i")),
    *(f"__{name}__" for name in "eq ne lt le gt ge neg pos abs invert getitem".split()),
}
_HEADER = f'''# fmt: off
# ruff: noqa
"""{{what}} ({WROTE})."""

import builtins
from collections.abc import Iterator
from typing import Any
'''
_TYPES = """
from .eager.tensor.device import device as _device
from .eager.tensor.size import Size as _Size
from .eager.tensor.types import dtype as _dtype
from .eager.tensor.types import layout as _layout
"""


def files() -> dict[str, str]:
    """Every file that comes from the table, by its path in the repository."""
    made = {PAGE: page(), STUBS["weft"]: package_stub(), TABLE_OF_NAMES: table_of_names()}
    for space in FUNCTIONS:
        if space != "weft":
            made[space.replace(".", "/") + ".pyi"] = space_stub(space)
    return made


# The page.


def page() -> str:
    """All functions by family, each with its signature and what it gives, without examples."""
    lines = [
        "# Functions on tensors",
        "",
        f"{len(TABLE)} functions with PyTorch's names and meaning ({WROTE}; do not edit). A method "
        "has the first argument as self; an in-place form has a name that ends with an underscore; "
        "`out=` names a tensor to write to.",
        "",
    ]
    for module, rows in _families().items():
        title = (sys.modules[module].__doc__ or module).partition(": ")[2].replace("\n", " ")
        title = re.split(r"[.;]", title)[0]
        lines += [f"## {title[0].upper()}{title[1:]}", ""]
        lines += ["| function | forms | gives |", "|---|---|---|"]
        lines += [_line(row) for row in rows] + [""]
    return "\n".join(lines)


def _families() -> dict[str, list[Row]]:
    made: dict[str, list[Row]] = {}
    for row in TABLE.values():
        made.setdefault(row.function.__module__, []).append(row)
    return {key: sorted(rows, key=lambda r: r.name) for key, rows in sorted(made.items())}


def _line(row: Row) -> str:
    forms = ["function"] if row.space is not None else []
    forms += ["method"] * row.method + ["in-place"] * row.inplace + ["`out=`"] * bool(row.out)
    space = "" if row.space in ("weft", None) else row.space.removeprefix("weft.") + "."
    shown = f"`{space}{row.name}{shown_signature(row.function)}`"
    if row.aliases:
        shown += " also " + ", ".join(f"`{alias}`" for alias in row.aliases)
    doc = " ".join(summary(row.function).split()).rstrip(".")
    cells = [shown, ", ".join(forms), f"{doc[:1].lower()}{doc[1:]}"]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shown_signature(function: Callable[..., Any]) -> str:
    """How something is called, without types; defaults that are functions by their names."""
    parameters = inspect.signature(function).parameters.values()
    bare = [p.replace(annotation=inspect.Parameter.empty, default=_named(p.default)) for p in parameters]
    return str(inspect.Signature(bare))


def _named(default: Any) -> Any:
    return _Verbatim(default.__name__) if inspect.isfunction(default) else default


# The names.


def table_of_names() -> str:
    """A module with the names that `weft` has for tensors, to be known before any of them loads."""
    lines = textwrap.wrap(" ".join(sorted({**LEAVES, **NAMES})), 96)
    head = f'"""The names of weft for tensors ({WROTE})."""'
    table = ["TENSOR_NAMES = frozenset(", '    """', *lines, '    """.split()', ")"]
    return "\n".join([head, "", *table, ""])


# The stubs.


def package_stub() -> str:
    """What `weft` has."""
    lines = [_HEADER.format(what="The names of weft"), _TYPES]
    lines += [
        "from . import " + ", ".join(f"{m} as {m}" for m, path in _PACKAGE._MODULES.items() if m == path),
        "from . import symbol as sym",
        "from .base import config as config",
        "from .base import ndarray as nd",
        "from .base.errors import Error as Error",
        "from .version import __version__ as __version__",
    ]
    lines += [f"from .{p} import {n} as {n}" for n, p in _PACKAGE._NAMES.items() if n != "nd"]
    others = {n: v for n, v in {**LEAVES, **NAMES}.items() if n not in FUNCTIONS["weft"] and n != "Tensor"}
    lines += list(_imported(others))
    lines += ["", "NNVMError = Error", "", *_class_stub(), ""]
    lines += [_function_stub(name, call) for name, call in sorted(FUNCTIONS["weft"].items())]
    return "\n".join(lines) + "\n"


def space_stub(space: str) -> str:
    """What a module of functions has."""
    up = "." * space.count(".")
    typed = _TYPES.replace("from .eager", f"from {up}eager")
    lines = [
        _HEADER.format(what=f"The functions of {space}"),
        typed,
        f"from {up} import Tensor",
        *_errors_of(space, up),
        "",
    ]
    lines += [_function_stub(name, call) for name, call in sorted(FUNCTIONS[space].items())]
    return "\n".join(lines) + "\n"


def _errors_of(space: str, up: str) -> Iterator[str]:
    """The errors that a module has beside its functions."""
    for name, value in sorted(vars(importlib.import_module(space)).items()):
        if isinstance(value, type) and issubclass(value, Exception):
            yield f"from {up}{value.__module__.removeprefix('weft.')} import {name} as {name}"


def _imported(names: dict[str, Any]) -> Iterator[str]:
    """Constants by their type, and the rest by where it is."""
    for name, value in sorted(names.items()):
        if isinstance(value, types.dtype):
            yield f"{name}: _dtype"
        elif isinstance(value, bool):
            yield f"{name}: builtins.bool"
        elif value is None or isinstance(value, float):
            yield f"{name}: {'None' if value is None else 'builtins.float'}"
        elif (home := _home(name, value)) is not None:
            yield f"from .{home} import {name} as {name}"
        else:
            yield f"{name}: Any"


_NAME_LISTS = (".namespace", ".public_names", ".extra_names")  # which import what others define


def _home(name: str, value: Any) -> str | None:
    """The module of ours that has an object under its own name."""
    known = [*_written_in(value), *_written_in(type(value))]
    known += [f"weft.eager.tensor.{part}" for part in ("types", "storage")]
    others = [p for p in sys.modules if p.startswith("weft.eager.") and not p.endswith(_NAME_LISTS)]
    others.sort(key=lambda p: (p.rpartition(".")[2] != name.lower(), p))
    for path in (*known, *others):
        if path.startswith("weft.") and vars(sys.modules[path]).get(name) is value:
            return path.removeprefix("weft.")
    return None


def _written_in(value: Any) -> list[str]:
    """The modules whose text has a class or function, or its methods, whatever its own `__module__`
    says to users."""
    parts = [value, *(vars(value).values() if isinstance(value, type) else ())]
    return [part.__module__ for part in parts if getattr(part, "__module__", None)]


def _class_stub() -> Iterator[str]:
    yield "class Tensor:"
    for name, value in sorted(vars(Tensor).items()):
        if name in ("_shape", "_dtype"):  # the memory's own, for the library alone
            continue
        if isinstance(value, property) and value.fget is not None:
            told = Tensor.__annotations__.get(name) or inspect.signature(value.fget).return_annotation
            yield f"    @property\n    def {name}(self) -> {_annotated(told)}: ..."
            if value.fset is not None:
                yield f"    @{name}.setter\n    def {name}(self, value: Any) -> None: ..."
        elif inspect.isfunction(value) and _is_public(name):
            yield "    " + _method_stub(name, value)


def _method_stub(name: str, value: Callable[..., Any]) -> str:
    """Operators give a tensor; for what they cannot take, Python asks the other operand."""
    made = _function_stub(name, value, method=True)
    if name not in _OPERATORS:
        return made
    note = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
    return f"{made.partition(' -> ')[0]} -> Tensor: ...{note}"


def _is_public(name: str) -> bool:
    return not name.startswith("_") or (name.endswith("__") and name != "__weft_op__")


def _function_stub(name: str, call: Callable[..., Any], method: bool = False) -> str:
    signature = inspect.signature(call)
    parameters = [
        p.replace(annotation=_Verbatim(_annotated(p.annotation)), default=_default(p.default))
        for p in signature.parameters.values()
    ]
    if method:
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        kinds = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
        rest = parameters if parameters and parameters[0].kind in kinds else parameters[1:]
        parameters = [first.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD), *rest]
    made = inspect.Signature(parameters, return_annotation=_Verbatim(_annotated(signature.return_annotation)))
    return f"def {name}{made}: ..."


class _Verbatim:
    """Text that a signature shows as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(value: Any) -> Any:
    return value if value is inspect.Parameter.empty else _Verbatim("...")


def _annotated(annotation: Any) -> str:
    """An annotation in words that a stub knows; Any where it has others."""
    if not isinstance(annotation, str):
        return "Any"
    words = set(re.findall(r"[A-Za-z_][A-Za-z_0-9.]*", annotation))
    if not words <= set(_WORDS):
        return "Any"
    return re.sub(r"[A-Za-z_][A-Za-z_0-9.]*", lambda word: _WORDS[word[0]], annotation)


def write(root: Path) -> None:
    """Writes the page and the stubs into a repository."""
    for path, text in files().items():
        (root / path).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))

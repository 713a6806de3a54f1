"""The sources in an archive, which are parsed and never run: definitions by their qualified names."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable
from typing import NamedTuple

from ...eager.archive.errors import ArchiveError
from ..frontend.place import Source

MOST_BYTES = 1 << 24  # of one file
DEEPEST = 150  # levels of a syntax tree
ROOT = "__torch__"
Definition = ast.ClassDef | ast.FunctionDef


class Defined(NamedTuple):
    """A class or a function in a file."""

    node: Definition
    source: Source


class Sources:
    """Files with definitions. `read` gives the bytes of a record, or None if there is none of a name.

    >>> files = {"code/__torch__/shapes.py": b"def area(side: int) -> int:\\n  return torch.mul(side, side)\\n"}
    >>> Sources(files.get).find("__torch__.shapes.area").node.name
    'area'
    """

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self._files: dict[str, dict[str, Defined]] = {}

    def find(self, qualified_name: str) -> Defined | None:
        module, _, name = qualified_name.rpartition(".")
        return self.file(module).get(name)

    def file(self, module: str) -> dict[str, Defined]:
        """The definitions of the file of a module, by name; none if there is no such file."""
        if module not in self._files:
            path = f"code/{module.replace('.', '/')}.py"
            content = self._read(path) if _is_module(module) else None
            self._files[module] = {} if content is None else definitions(content, path)
        return self._files[module]


def _is_module(name: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))


def parsed(content: bytes, path: str) -> tuple[ast.Module, str]:
    """The syntax tree of a file, and its text. A file that is too large, too deep or no Python is refused."""
    if len(content) > MOST_BYTES:
        raise ArchiveError(f"{path} has {len(content)} bytes of source", why=f"{MOST_BYTES} are the most that are read")
    try:
        text = content.decode()
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:  # a null, a number of too many digits
        raise ArchiveError(f"{path} is no source", why=str(error)) from None
    except (RecursionError, MemoryError):
        raise ArchiveError(f"{path} is nested too deeply") from None
    _check_depth(tree, path)
    return tree, text


def _check_depth(tree: ast.Module, path: str) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise ArchiveError(f"{path} is nested more than {DEEPEST} levels deep")


def definitions(content: bytes, path: str) -> dict[str, Defined]:
    """What a file defines. Imports say what is found by its qualified name anyway."""
    tree, text = parsed(content, path)
    lines = lines_of(text)
    found: dict[str, Defined] = {}
    for node in tree.body:
        if _is_import(node) or _is_version(node):
            continue
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            raise ArchiveError(f"{path} has a {type(node).__name__}", where=f"line {node.lineno}", why=_ONLY)
        if node.name in found:
            raise ArchiveError(f"{path} defines {node.name!r} twice", where=f"line {node.lineno}")
        if node.decorator_list:
            raise ArchiveError(f"{path} decorates {node.name!r}", where=f"line {node.lineno}", why=_ONLY)
        found[node.name] = _own(node, lines, path)
    return found


def _is_import(node: ast.stmt) -> bool:
    """Whether a statement says what other files of the archive are used."""
    return isinstance(node, ast.Import) and all(name.name.split(".")[0] == ROOT for name in node.names)


def _is_version(node: ast.stmt) -> bool:
    """`op_version_set = 0`, in the first format."""
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return isinstance(target, ast.Name) and target.id == "op_version_set"


_ONLY = "an archive defines classes and functions, and nothing else"


def _own(node: Definition, lines: list[str], path: str, before: int = 0) -> Defined:
    """A definition with its own part of the text, so that places are found quickly."""
    first = node.lineno
    text = "".join(lines[first - 1 : node.end_lineno])
    ast.increment_lineno(node, 1 - first)
    return Defined(node, Source(text, path, before + first))


def own_part(node: ast.FunctionDef, lines: list[str], source: Source) -> Source:
    """A method's own part of the text of its class, whose lines are given."""
    return _own(node, lines, source.file, source.line - 1).source


def lines_of(text: str) -> list[str]:
    return [f"{line}\n" for line in text.split("\n")]

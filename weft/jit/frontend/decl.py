"""Declarations of functions as trees: what type comments say, and what they add to the head of a function."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base.errors import InvalidType, RunError
from ..source import Words
from .place import source_of

Tree = tuple[Any, ...]  # the kind of a part, then its parts: trees, or texts
WIDTH = 40  # columns that a tree in one line has at most
_NOTHING: Tree = ("option",)
_COMMENT = re.compile(r"\s*# type:")
_SIGNS = {"->": "arrow"}


@dataclass(frozen=True)
class Param:
    """An argument: its name, and its type as it is written."""

    name: str
    type: Tree = _NOTHING
    keyword_only: bool = False

    def tree(self) -> Tree:
        return ("param", ("ident", self.name), self.type, _NOTHING, (str(self.keyword_only),))


@dataclass(frozen=True)
class Decl:
    """What a function takes and gives, as its source says.

    >>> parse_type_comment("# type: () -> int")
    (decl
      (list)
      (option (variable (ident int))))
    <BLANKLINE>
    """

    params: tuple[Param, ...]
    result: Tree = _NOTHING

    def __repr__(self) -> str:
        return _shown(("decl", ("list", *[param.tree() for param in self.params]), self.result)) + "\n"


def _flat(tree: Tree | str) -> str:
    return tree if isinstance(tree, str) else f"({' '.join([tree[0], *map(_flat, tree[1:])])})"


def _shown(tree: Tree | str, indent: int = 0) -> str:
    """A tree in one line, if that is not too long; else with a line for each part."""
    flat = _flat(tree)
    if indent + len(flat) < WIDTH or all(isinstance(part, str) for part in tree):
        return flat
    space = " " * (indent + 2)
    return f"({tree[0]}" + "".join([f"\n{space}{_shown(part, indent + 2)}" for part in tree[1:]]) + ")"


def parse_type_comment(text: str) -> Decl:
    """The declaration of a comment such as `# type: (Tensor, int) -> Tensor`: its arguments have no names."""
    if not isinstance(text, str):
        raise InvalidType(f"a type comment is a str, not {text!r:.60}")
    begin = _COMMENT.match(text)
    if begin is None:
        words = Words(text)
        raise words.unexpected("type comment")
    words = Words(" " * begin.end() + text[begin.end() :])
    words.text = text
    words.expect("(")
    params = tuple([Param("", ("option", _type(words))) for _ in _separated(words)])
    result = ("option", _type(words)) if words.accept("->") else _NOTHING
    return Decl(params, result)


def _separated(words: Words) -> Any:
    """Once for each of the arguments, up to the parenthesis that ends them."""
    while not words.is_next(")"):
        yield
        if not words.accept(","):
            break
    _expect(words, ")")


def _expect(words: Words, sign: str) -> None:
    if not words.is_next(sign):
        token = words.token
        found = _SIGNS.get(token.kind, token.kind if token.kind == "eof" else token.text)
        raise words.error(f"expected {sign} but found '{found}' here", token.start, len(token.text))
    words.take()


def _type(words: Words) -> Tree:
    """A type as it is written: names with points, and types in brackets."""
    with words.nested():
        if words.accept("..."):
            return ("dots",)
        name = words.expect("ident").text
        tree: Tree = ("None",) if name == "None" else ("variable", ("ident", name))
        while words.accept("."):
            tree = (".", tree, ("ident", words.expect("ident").text))
        if words.accept("["):
            parts = [_type(words) for _ in words.separated("]")]
            tree = ("subscript", tree, ("list", *parts))
        return tree


def decl_of(function: Any, self_name: str | None = None) -> Decl:
    """The declaration of a function of Python, by its source; of a method, with the name of its class."""
    source = source_of(function)
    node = source.parsed().body[0]
    if not isinstance(node, ast.FunctionDef):
        raise source.place(node).error("expected a function")
    params = [Param(each.arg, _annotation(each.annotation)) for each in [*node.args.posonlyargs, *node.args.args]]
    params += [Param(each.arg, _annotation(each.annotation), True) for each in node.args.kwonlyargs]
    if self_name is not None:
        params[0] = Param(params[0].name, ("option", ("variable", ("ident", self_name))))
    return Decl(tuple(params), _annotation(node.returns))


def _annotation(node: ast.expr | None) -> Tree:
    return _NOTHING if node is None else ("option", _type(Words(ast.unparse(node))))


def merge_type_from_type_comment(decl: Decl, type_decl: Decl, is_method: bool) -> Decl:
    """A declaration with the types of another, which is that of a comment; the first argument of a method has none
    there."""
    skipped = 1 if is_method else 0
    own: Sequence[Param] = decl.params[skipped:]
    if len(own) != len(type_decl.params):
        raise RunError(
            f"Number of type annotations ({len(type_decl.params)}) did not match the number of "
            f"{'method' if is_method else 'function'} parameters ({len(own)})"
        )
    typed = [replace(param, type=other.type) for param, other in zip(own, type_decl.params)]
    return Decl((*decl.params[:skipped], *typed), type_decl.result)

"""What of Python a program may be written in. A source is checked as a whole before it is compiled."""

from __future__ import annotations

import ast

from ...base.errors import RunError
from ..python_source import FORKED
from .place import NotSupportedError, Source, UnsupportedNodeError

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "aten::add",
    ast.Sub: "aten::sub",
    ast.Mult: "aten::mul",
    ast.Div: "aten::div",
    ast.FloorDiv: "aten::floordiv",
    ast.Mod: "aten::remainder",
    ast.Pow: "aten::pow",
    ast.MatMult: "aten::matmul",
    ast.BitAnd: "aten::__and__",
    ast.BitOr: "aten::__or__",
    ast.BitXor: "aten::__xor__",
    ast.LShift: "aten::__lshift__",
    ast.RShift: "aten::__rshift__",
}
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "aten::eq",
    ast.NotEq: "aten::ne",
    ast.Lt: "aten::lt",
    ast.LtE: "aten::le",
    ast.Gt: "aten::gt",
    ast.GtE: "aten::ge",
}
RESERVED = "__jit"  # what no name of a variable begins with
_STATEMENTS = (
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Return,
    ast.Raise,
    ast.Assert,
    ast.Pass,
    ast.Break,
    ast.Continue,
    ast.If,
    ast.While,
    ast.For,
    ast.Delete,
    ast.With,
)
_EXPRESSIONS = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Tuple,
    ast.List,
    ast.Dict,
    ast.ListComp,
    ast.GeneratorExp,
    ast.DictComp,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Subscript,
    ast.Slice,
    ast.Starred,
    ast.Call,
)
_PRETTY: dict[type[ast.AST], tuple[str, str]] = {  # what messages call a construct, and the word it begins with
    ast.FunctionDef: ("function definitions", "def"),
    ast.ClassDef: ("class definitions", "class"),
    ast.Import: ("import statements", "import"),
    ast.ImportFrom: ("import statements", "from"),
    ast.Global: ("global variables", "global"),
    ast.Nonlocal: ("nonlocal variables", "nonlocal"),
    ast.Try: ("try blocks", "try"),
    ast.AsyncFunctionDef: ("async function definitions", "async def"),
    ast.AsyncFor: ("async for loops", "async for"),
    ast.AsyncWith: ("async with statements", "async with"),
}
_VARARGS = "Compiled functions can't take variable number of arguments or use keyword-only arguments with defaults"


def check_function(source: Source, node: ast.FunctionDef) -> None:
    """Raises what a function has that programs cannot have."""
    arguments = node.args
    for rest, stars in ((arguments.kwarg, 2), (arguments.vararg, 1)):
        if rest is not None:
            raise _at(source, rest, _VARARGS, len(rest.arg), before=stars)
    for default in arguments.kw_defaults:
        if default is not None:
            raise _at(source, default, _VARARGS)
    check_statements(source, node.body)


def check_statements(source: Source, body: list[ast.stmt]) -> None:
    """Raises the first construct of some statements that programs cannot have."""
    waiting: list[ast.AST] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)):
            continue
        _check(source, node)
        parts = [] if isinstance(node, ast.Constant) else list(ast.iter_child_nodes(node))
        if isinstance(node, ast.AnnAssign):
            parts = [node.target, *([node.value] if node.value is not None else [])]
        waiting += reversed(parts)


def _at(source: Source, node: ast.AST, what: str, length: int | None = None, before: int = 0) -> RunError:
    place = source.place(node, length)
    return type(place)(source, place.start - before, place.end).error(what, NotSupportedError)


def _check(source: Source, node: ast.AST) -> None:
    if isinstance(node, ast.FunctionDef) and node.name.startswith(FORKED):
        if node.args.args or not isinstance(node.body[-1], ast.Return):
            raise source.place(node, 3).error("what is forked takes nothing and returns", UnsupportedNodeError)
        return
    if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
        name, word = _PRETTY.get(type(node), (type(node).__name__, " "))
        raise source.place(node, len(word)).error(f"{name} aren't supported", UnsupportedNodeError)
    if isinstance(node, ast.expr) and not isinstance(node, _EXPRESSIONS):
        raise source.place(node, 1).error(f"{type(node).__name__} aren't supported", UnsupportedNodeError)
    if isinstance(node, ast.AnnAssign) and node.value is None:
        raise source.place(node, 1).error(
            "annotated assignments without assigned value aren't supported", UnsupportedNodeError
        )
    if isinstance(node, ast.While) and node.orelse:
        raise _at(source, node, "else branches of while loops aren't supported", len("while"))
    if isinstance(node, ast.For) and node.orelse:
        raise _at(source, node, "else branches of for loops aren't supported", len("for"))
    if isinstance(node, ast.keyword) and node.arg is None:
        raise _at(source, node.value, "keyword-arg expansion is not supported")
    if isinstance(node, ast.Name) and node.id.startswith(RESERVED):
        raise _at(source, node, f"names of variables used in JIT-ed functions can't start with {RESERVED}")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
        raise _at(source, node, "unsupported unary operator: UAdd")
    if isinstance(node, ast.Dict) and None in node.keys:
        raise _at(source, node, "Dict expansion (e.g. `{**dict}`) is not supported", 1)
    if isinstance(node, ast.FormattedValue) and node.conversion != -1:
        raise _at(source, node, "Don't support conversion in JoinedStr", 1)
    if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
        raise _at(source, node, "Don't support formatting in JoinedStr", 1)
    if isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp)):
        if len(node.generators) != 1:
            raise _at(source, node, "Only a single generator is currently supported", 1)
        if node.generators[0].ifs:
            raise _at(source, node, "Comprehension ifs are not supported yet", 1)

"""Expressions, computes and kernels as text, in one grammar.

kernel scale(x: float32[n, 8], y: float32[n, 8], n: int64):
  parallel i in 0..n:
    for j in 0..8 vector:
      y[i, j] = x[i, j] * 2.0

The kind of a loop stands after its extent: vector, unroll, or the axis of the grid that it is bound
to. An allocation ends with its scope; `barrier` is a statement.

kernel reverse(x: float32[n, 8], y: float32[n, 8], n: int64):
  for i in 0..n block.x:
    alloc row: float32[8] shared
    for j in 0..8 thread.x:
      row[j] = x[i, j]
      barrier
      y[i, j] = row[7 - j]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..base.dtype import BOOL, FLOAT32, INT64, DType, dtype_name
from .expr import Binary, Call, Cast, Compare, Const, Expr, Load, Ramp, Reduce, Select, Shuffle, Unary, Var
from .loops import (
    Alloc,
    Barrier,
    Buffer,
    Exchange,
    For,
    If,
    Kernel,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    TileStep,
    While,
    WholeKernel,
)
from .tensor import Tensor
from .visit import parts, postorder

_INFIX = {
    "or": ("|", 1),
    "xor": ("^", 2),
    "and": ("&", 3),
    "shl": ("<<", 5),
    "shr": (">>", 5),
    "add": ("+", 6),
    "sub": ("-", 6),
    "mul": ("*", 7),
    "div": ("/", 7),
    "floordiv": ("//", 7),
    "floormod": ("%", 7),
}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_COMPARE_LEVEL, _PREFIX_LEVEL, _ATOM = 4, 8, 9
# A shared part is named once what it prints to is longer than this, so that text stays linear.
_LONGEST_REPEAT = 60

_Text = tuple[str, int]  # the text and how tightly it binds


class Names:
    """One name per variable, buffer or tensor: a second thing called `i` is printed `i_1`."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._kept: list[object] = []
        self._taken: set[str] = set()

    def __call__(self, thing: Var | Buffer | Tensor) -> str:
        if id(thing) not in self._names:
            self._kept.append(thing)
            self._names[id(thing)] = self.fresh(thing.name)
        return self._names[id(thing)]

    def fresh(self, wanted: str) -> str:
        name, count = wanted, 0
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name


def show(thing: Expr | Stmt | Kernel | Tensor) -> str:
    """The text of an expression, a statement, a kernel or a computed tensor.

    >>> i, j = Var("i"), Var("j")
    >>> show((i + 1) * 4 - (i - j))
    '(i + 1) * 4 - (i - j)'
    """
    if isinstance(thing, Kernel):
        return show_kernel(thing)
    if isinstance(thing, Tensor):
        return show_tensor(thing)
    if isinstance(thing, Expr):
        names = Names()
        return "\n".join(show_exprs((thing,), names, " where "))
    return "\n".join(_Lines(Names()).statement(thing, 0))


def show_kernel(kernel: Kernel) -> str:
    """A kernel with its arguments."""
    names = Names()
    scalars = [f"{names(scalar)}: {dtype_name(scalar.dtype)}" for scalar in kernel.scalars]
    args = [f"{names(b)}: {_buffer_type(b, names)}" for b in kernel.buffers]
    lines = [f"kernel {kernel.name}({', '.join(args + scalars)}):"]
    depth = 1
    if kernel.parallel is not None:
        extent = _inline(kernel.parallel.extent, names)
        lines.append(f"  parallel {names(kernel.parallel.var)} in 0..{extent}:")
        depth = 2
    return "\n".join(lines + _Lines(names).statement(kernel.body, depth))


def show_tensor(tensor: Tensor) -> str:
    """A compute as its formula, a placeholder as its type."""
    names = Names()
    kind = f"{dtype_name(tensor.dtype)}[{', '.join(map(str, tensor.shape))}]"
    if tensor.body is None:
        return f"{names(tensor)}: {kind}"
    axes = ", ".join(names(axis) for axis in tensor.axes)
    *shared, text = show_exprs((tensor.body,), names)
    return "\n".join([*shared, f"{names(tensor)}[{axes}]: {kind} = {text}"])


def show_exprs(roots: Sequence[Expr], names: Names, mark: str = "") -> list[str]:
    """The text of each root; before them, one line `%n = ...` per long part used several times."""
    uses = Counter(id(part) for node in postorder(roots) for part in parts(node))
    done: dict[int, _Text] = {}
    shared: list[str] = []
    for node in postorder(roots):
        assert isinstance(node, Expr)
        text = _expr(node, [done[id(part)] for part in parts(node)], names)
        if uses[id(node)] > 1 and len(text[0]) > _LONGEST_REPEAT:
            label = names.fresh(f"%{len(shared)}")
            shared.append(f"{label} = {text[0]}")
            text = (label, _ATOM)
        done[id(node)] = text
    return shared + [done[id(root)][0] for root in roots]


def _inline(expr: Expr, names: Names) -> str:
    """The text of an expression on one line, however often its parts repeat."""
    *shared, text = show_exprs((expr,), names)
    return f"{text} where {'; '.join(shared)}" if shared else text


def _expr(node: Expr, inner: list[_Text], names: Names) -> _Text:
    match node:
        case Var():
            return names(node), _ATOM
        case Const():
            return _const(node)
        case Unary(op=op):
            return ("-" if op == "neg" else "~") + _at(inner[0], _PREFIX_LEVEL), _PREFIX_LEVEL
        case Binary(op=op) if op in _INFIX:
            sign, level = _INFIX[op]
            return f"{_at(inner[0], level)} {sign} {_at(inner[1], level + 1)}", level
        case Compare(op=op):
            left, right = (_at(side, _COMPARE_LEVEL + 1) for side in inner)
            return f"{left} {_COMPARE[op]} {right}", _COMPARE_LEVEL
    return _call_form(node, [text for text, _ in inner], names), _ATOM


def _call_form(node: Expr, inner: list[str], names: Names) -> str:
    args = ", ".join(inner)
    match node:
        case Binary(op=name) | Call(name=name):
            return f"{name}({args})"
        case Select():
            return f"select({args})"
        case Cast():
            return f"cast<{dtype_name(node.dtype)}>({args})"
        case Load(source=source, mask=mask):
            at = ", ".join(inner[: source.rank])
            return f"{names(source)}[{at}{' if ' + inner[-1] if mask is not None else ''}]"  # type: ignore[arg-type]
        case Reduce():
            axes = ", ".join(f"{names(axis.var)} in 0..{axis.extent}" for axis in node.axes)
            return f"{node.combiner}({args} for {axes})"
        case Ramp():
            return f"ramp({args}, x{node.lanes})"
        case Shuffle(order=order):
            return f"shuffle({args}, {list(order)})"
    return f"broadcast({args}, x{node.lanes})"


def _at(text: _Text, level: int) -> str:
    return text[0] if text[1] >= level else f"({text[0]})"


def _const(node: Const) -> _Text:
    """Literals of the dtypes that numbers have by themselves stand bare; others are marked."""
    text = str(node.value).lower() if node.dtype == BOOL else repr(node.value)
    if node.dtype not in (INT64, FLOAT32, BOOL):
        return f"{dtype_name(node.dtype)}({text})", _ATOM
    return text, _PREFIX_LEVEL if text.startswith("-") else _ATOM


def _element(dtype: DType, lanes: int) -> str:
    return dtype_name(dtype) + (f"x{lanes}" if lanes > 1 else "")


def _buffer_type(buffer: Buffer, names: Names) -> str:
    shape = ", ".join(_inline(extent, names) for extent in buffer.shape)
    return f"{_element(buffer.dtype, buffer.lanes)}[{shape}]"


class _Lines:
    """Statements as indented lines."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def statement(self, root: Stmt, depth: int) -> list[str]:
        lines: list[str] = []
        stack: list[tuple[Stmt | str, int]] = [(root, depth)]
        while stack:
            item, level = stack.pop()
            if isinstance(item, str):
                lines.append("  " * level + item)
                continue
            heads, inner = self._pieces(item)
            lines.extend("  " * level + head for head in heads)
            stack.extend((part, level + step) for part, step in reversed(inner))
        return lines

    def _pieces(self, node: Stmt) -> tuple[list[str], list[tuple[Stmt | str, int]]]:
        """The lines that open a statement, and what follows, each with its extra indent."""
        names = self.names
        match node:
            case For():
                kind = "" if node.kind == "serial" else f" {node.kind}"
                extent = _inline(node.extent, names)
                return [f"for {names(node.var)} in 0..{extent}{kind}:"], self._block(node.body)
            case While():
                return [f"while {_inline(node.condition, names)}:"], self._block(node.body)
            case If():
                after: list[tuple[Stmt | str, int]] = []
                if node.otherwise is not None:
                    after = [("else:", 0), *self._block(node.otherwise)]
                head = f"if {_inline(node.condition, names)}:"
                return [head], [*self._block(node.then), *after]
            case Alloc(buffer=buffer):
                kind = _buffer_type(buffer, names)
                return [f"alloc {names(buffer)}: {kind} {buffer.scope}"], [(node.body, 0)]
            case Let():
                *shared, value = show_exprs((node.value,), names)
                return [*shared, f"let {names(node.var)} = {value}"], [(node.body, 0)]
            case Seq():
                return [], [(part, 0) for part in node.body]
            case Barrier():
                return ["barrier"], []
            case WholeKernel():
                stored = [part for part in parts(node) if isinstance(part, Store)]
                return [f"{node}:"], [(part, 1) for part in stored]
        return self._leaf(node), []

    def _block(self, body: Stmt) -> list[tuple[Stmt | str, int]]:
        empty = isinstance(body, Seq) and not body.body
        return [("pass", 1)] if empty else [(body, 1)]

    def _leaf(self, node: Store | Prefetch | Exchange | TileStep) -> list[str]:
        exprs = list(parts(node))
        texts = show_exprs([e for e in exprs if isinstance(e, Expr)], self.names)
        shared, own = texts[: len(texts) - len(exprs)], texts[len(texts) - len(exprs) :]
        if isinstance(node, TileStep):
            words = [f"tiles {node.action}", *map(str, node.tiles), *([f"rows {node.rows}"] if node.rows else [])]
            words += [f"{self.names(node.buffer)}[{', '.join(own)}] stride {node.stride}"] if node.buffer else []
            return [*shared, " ".join(words)]
        place = f"{self.names(node.buffer)}[{', '.join(own[: node.buffer.rank])}]"
        if isinstance(node, Prefetch):
            return [*shared, f"prefetch {place} level {node.level}"]
        if isinstance(node, Exchange):
            return [*shared, f"{place} = exchange({own[-1]}, {node.distance})"]
        guard = f" if {own[-1]}" if node.mask is not None else ""
        return [*shared, f"{place} = {own[node.buffer.rank]}{guard}"]

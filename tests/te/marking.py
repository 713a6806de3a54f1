"""Loops of a kernel changed by name: what tests of vector loops, unrolling and grids start from."""

from __future__ import annotations

from dataclasses import replace

from weft.te.expr import Var
from weft.te.loops import For, Kernel
from weft.te.simplify_loops import statements
from weft.te.transform import split
from weft.te.visit import rewrite


def loop_called(kernel: Kernel, name: str) -> Var:
    (var,) = {s.var for s in statements(kernel.body) if isinstance(s, For) and s.var.name == name}
    return var


def marked(kernel: Kernel, name: str, kind: str) -> Kernel:
    """The kernel with a loop of another kind."""
    var = loop_called(kernel, name)
    rule = lambda node: replace(node, kind=kind) if isinstance(node, For) and node.var is var else node
    return replace(kernel, body=rewrite(kernel.body, rule))


def split_loop(kernel: Kernel, name: str, factor: int, kind: str = "serial") -> Kernel:
    """The kernel with a loop as two, the inner one of a kind."""
    return replace(kernel, body=split(kernel.body, loop_called(kernel, name), factor, kind))

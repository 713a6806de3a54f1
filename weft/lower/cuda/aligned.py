"""Arguments of kernels begin at multiples of 16 bytes, which loads of whole vectors ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...te.expr import Load
from ...te.loops import Buffer, Stmt, Store
from ...te.visit import masked_load, rewrite

ALIGNMENT = 16  # bytes: every value of a plan begins at a multiple of it


def with_alignment(buffers: Sequence[Buffer], body: Stmt) -> tuple[list[Buffer], Stmt]:
    """The same with buffers that are known to be aligned."""
    now = {old: replace(old, alignment=ALIGNMENT) for old in buffers}

    def moved(node: Any) -> Any:
        if isinstance(node, Load) and node.source in now:
            return masked_load(now[node.source], node.indices, node.mask)
        if isinstance(node, Store) and node.buffer in now:
            return Store(now[node.buffer], node.indices, node.value, node.mask)
        return node

    return list(now.values()), rewrite(body, moved)

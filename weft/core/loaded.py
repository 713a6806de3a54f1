"""Checks of nodes that came from a file or a text, whose attributes and links may make no sense.
Whatever an operator's own functions do with them, what comes out is at worst a FormatError."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base.errors import Error, FormatError
from .compose import check_mutation
from .ir import Node, NodeEntry
from .op import VARIADIC, Op


def count_outputs(node: Node) -> int:
    """The number of outputs, as the operator's own function says it."""
    return 1 if node.op is None else int(_answer(node.op.outputs_of, node.params))


def check_inputs(node: Node, count_of: Mapping[Node, int], where: str = "field inputs") -> None:
    """An error unless the operator takes these inputs; `count_of` has each producer's outputs."""
    op = node.op
    assert op is not None
    wanted = _answer(op.inputs_of, node.params)
    if wanted not in (VARIADIC, len(node.inputs)):
        raise FormatError(f"operator {op.name} takes {wanted} inputs, the file gives {len(node.inputs)}", where=where)
    for entry in node.inputs:
        check_index(entry, count_of, where)
    if op in Op.mutates:
        _answer(check_mutation, node)


def check_index(entry: NodeEntry, count_of: Mapping[Node, int], where: str) -> None:
    node, index, _ = entry
    if index >= count_of[node]:
        raise FormatError(f"output {index} of node {node.name[:80]!r} is used, which has {count_of[node]}", where=where)


def _answer(question: Callable[[Any], Any], about: Any) -> Any:
    """What an operator's own function says about attributes that a file may have made nonsense."""
    try:
        return question(about)
    except Error as error:
        raise FormatError(error.what, where=error.where, why=error.why) from None
    except Exception as error:
        raise FormatError(
            "the operator's attributes make no sense", why=f"{type(error).__name__}: {error}"[:200]
        ) from None


def restore_versions(nodes: Iterable[Node], outputs: Iterable[NodeEntry]) -> None:
    """Variables stand at the newest version that is read, so that composing can go on."""
    for entries in (outputs, *(node.inputs for node in nodes)):
        for node, _, version in entries:
            if version and node.op is None and node.params.version < version:
                node.params.version = version

"""Nodes that are converted once shapes are known: written down as text, and taken up again."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from ..building import Alike
from ..deferred import DEFERRED
from ..emitter import TENSOR, Emitter, Value
from . import convert as _converters  # noqa: F401  registers them
from .attributes import signature
from .call import MxnetCall, Subgraph
from .registry import find
from .symbol_file import FileNode


def defer(emitter: Emitter, node: FileNode, inputs: Sequence[Value], wanted: Collection[int]) -> list[Value]:
    """The outputs of a node, as far as they are used, that are known once shapes are."""
    count = max(wanted, default=0) + 1
    fields = {"op": node.op, "name": node.name, "attrs": dict(node.attrs), "wanted": sorted(wanted)}
    attrs = {"importer": "mxnet", "node": json.dumps(fields), "num_outputs": count}
    return emitter.deferred(DEFERRED, emitter.fresh_name(node.name), inputs, attrs, [TENSOR] * count)


def convert(text: str, emitter: Emitter, inputs: Sequence[Value]) -> list[Value]:
    """The values that a node becomes, now that what it waited for is known."""
    fields = json.loads(text)
    return converted(emitter, fields["op"], fields["name"], fields["attrs"], inputs, fields["wanted"])


def converted(
    emitter: Emitter,
    op: str,
    name: str,
    attrs: dict[str, str],
    inputs: Sequence[Value],
    wanted: Collection[int],
    subgraphs: Sequence[Subgraph] = (),
) -> list[Value]:
    """The values of a node by its converter."""
    how = find(op)
    assert how is not None  # else the node would have been reported
    call = MxnetCall(emitter, op, name, attrs, signature(op), inputs, wanted, subgraphs)
    answer = call.alike(how) if isinstance(how, Alike) else how(call)
    call.check_all_read()
    return call.named([answer] if isinstance(answer, Value) else answer)

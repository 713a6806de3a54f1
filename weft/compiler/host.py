"""Host steps: operators that have no body run their numpy reference between native kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import ops  # noqa: F401  a loaded program finds its operators
from ..base.errors import Error, RunError, ShapeError
from ..core.interpret import run_reference
from ..core.json_load import graph_from_json
from ..core.op import Op
from ..runtime.functions import register_func
from ..runtime.program import Array

HOST_REFERENCE = "weft.reference"
HOST_CONTROL = "weft.control_flow"
CONTROL_OPS = ("scan", "while_loop", "cond")


@register_func(HOST_REFERENCE)  # type: ignore[untyped-decorator]
def run_host_step(tensors: Sequence[Array], attrs: Mapping[str, Any]) -> None:
    """Computes the last tensors from the first ones by the operator's reference."""
    op = Op.get(attrs["op"])
    where = f"node {attrs['node']!r}, operator {op.name}, as a host step"
    args = [tensors[index] for index in attrs["inputs"]]
    try:
        subgraphs = [graph_from_json(text).symbol for text in attrs.get("subgraphs", ())]
        results = run_reference(op, op.parse(attrs["attrs"]), args, subgraphs)
    except Error as error:
        error.at(where)
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise RunError("the reference failed", where=where, why=why) from error
    targets = tensors[len(tensors) - len(attrs["outputs"]) :]
    for target, index in zip(targets, attrs["outputs"]):
        if results[index].shape != target.shape:
            why = f"inference said {target.shape}"
            raise ShapeError(f"the reference gave {results[index].shape}", where=where, why=why)
        target[...] = results[index]

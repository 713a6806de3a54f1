"""Native kernels for eager calls: an operator with its params, shapes and dtypes is compiled once,
as a graph of one node, where that is known to be faster than its numpy reference.

Which kernel runs depends on the operator, the dtypes and the sizes alone, never on timing: results
repeat bit for bit.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import config
from ..base.dtype import FLOAT32
from ..base.target import host
from ..compiler.assemble import assemble
from ..compiler.prepare import prepare_typed
from ..core.graph import Graph
from ..core.infer import infer
from ..core.ir import Node, NodeEntry
from ..core.op import Op
from ..passes.fuse import fusible_groups
from ..runtime.executor import Executor

Array = np.ndarray[Any, Any]
KEPT = 512  # compiled calls

# Operators whose reference is slow at any size worth a native call, and from how many elements of
# inputs on that is.
NATIVE_FROM = {
    "conv2d": 256, "conv2d_transpose": 256, "_conv2d_grad": 256, "_conv2d_grad_data": 256,
    "_conv2d_grad_weight": 256, "_conv2d_transpose_grad_data": 256,
    "_conv2d_transpose_grad_weight": 256, "max_pool2d": 1024, "avg_pool2d": 1024,
    "_max_pool2d_grad": 1024, "_avg_pool2d_grad": 1024, "adaptive_avg_pool2d": 4096,
    "_adaptive_avg_pool2d_grad": 4096, "layer_norm": 16384, "softmax": 16384,
    "log_softmax": 16384, "gelu": 4096, "erf": 4096, "scaled_dot_product_attention": 4096,
    "_scaled_dot_product_attention_grad": 4096, "resize": 4096, "_resize_grad": 4096,
}  # fmt: skip

_lock = threading.Lock()
_calls: OrderedDict[Any, Executor] = OrderedDict()


def wants_native(op: Op, params: Any, arrays: Sequence[Array]) -> bool:
    """Whether a call is one for native code."""
    if any(array.dtype != FLOAT32 for array in arrays) or op.mutates_of(params):
        return False
    return sum(array.size for array in arrays) >= NATIVE_FROM[op.name]


def run_native(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of an operator, by compiled code."""
    key = (op, params, *[array.shape for array in arrays])
    with _lock:
        executor = _calls.get(key)
        if executor is not None:
            _calls.move_to_end(key)
    if executor is None:
        executor = _compiled(op, params, arrays)
        with _lock:
            _calls[key] = executor
            if len(_calls) > KEPT:
                _calls.popitem(last=False)
    return executor.run_arrays({f"x{i}": array for i, array in enumerate(arrays)})


def _compiled(op: Op, params: Any, arrays: Sequence[Array]) -> Executor:
    start = time.perf_counter()
    variables = [Node(None, f"x{i}", {}) for i in range(len(arrays))]
    inputs = [NodeEntry(variable) for variable in variables]
    node = Node(op, op.name, op.attributes(params), inputs)
    outputs = [NodeEntry(node, index) for index in range(op.visible_of(params))]
    typed = infer(
        Graph(outputs),
        {f"x{i}": array.shape for i, array in enumerate(arrays)},
        {f"x{i}": array.dtype for i, array in enumerate(arrays)},
    )
    target = host()
    graph, constants = prepare_typed(typed, {}, 3, target)
    program = assemble(graph, fusible_groups(graph), constants, target)
    executor = Executor(program)
    if "dispatch" in config.get("debug"):
        spent = (time.perf_counter() - start) * 1e3
        print(f"weft: compiled {op.name} for an eager call in {spent:.0f} ms", file=sys.stderr)
    return executor

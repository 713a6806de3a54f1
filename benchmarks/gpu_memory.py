"""How fast kernels that are bound by memory run on the GPU that is here, in TB/s of what they must read and write:
`python benchmarks/gpu_memory.py`. Times are the best of several windows of launches."""

from __future__ import annotations

import sys
from math import prod

import numpy as np

import weft.ops  # noqa: F401
from weft.base.dtype import as_dtype
from weft.core.fused import FusedGroup
from weft.core.ir import NodeEntry
from weft.core.op import Op
from weft.lower.cuda.dispatch import LOWERING
from weft.runtime.cuda.array import device_empty
from weft.runtime.cuda.stream import Event, current_stream
from weft.testing import op_check
from weft.testing.on_gpu import gpu_target, prepared
from weft.testing.op_check import Sample

WINDOWS, LAUNCHES = 5, 10
HALF, SINGLE = "float16", "float32"

# What is measured: the operator, the shapes of its inputs, their dtype, attributes.
CASES = {
    "add fp32": ("elemwise_add", [(1 << 27,)] * 2, SINGLE, {}),
    "relu fp16": ("relu", [(1 << 28,)], HALF, {}),
    "gelu fp16": ("gelu", [(1 << 28,)], HALF, {}),
    "exp fp32": ("exp", [(1 << 27,)], SINGLE, {}),
    "sum fp32 2^28": ("sum", [(1 << 28,)], SINGLE, {}),
    "row sums fp32 32768x4096": ("sum", [(32768, 4096)], SINGLE, {"axis": 1}),
    "column sums fp32 262144x768": ("sum", [(262144, 768)], SINGLE, {"axis": 0}),
    "softmax fp16 65536x1024": ("softmax", [(65536, 1024)], HALF, {}),
    "softmax fp16 16384x4096": ("softmax", [(16384, 4096)], HALF, {}),
    "softmax fp32 65536x1024": ("softmax", [(65536, 1024)], SINGLE, {}),
    "layer norm fp16 65536x768": ("layer_norm", [(65536, 768), (768,), (768,)], HALF, {}),
    "layer norm fp16 16384x4096": ("layer_norm", [(16384, 4096), (4096,), (4096,)], HALF, {}),
    "transpose fp32 8192x8192": ("transpose", [(8192, 8192)], SINGLE, {}),
    "broadcast add fp16": ("broadcast_add", [(65536, 2048), (2048,)], HALF, {}),
}


def main() -> None:
    print(f"{gpu_target()}\n\n| kernel | kernels | us | TB/s | of {gpu_target().memory_rate / 1000} |")
    print("|---|---|---|---|---|")
    for label, case in CASES.items():
        if sys.argv[1:] and not any(word in label for word in sys.argv[1:]):
            continue
        count, seconds, nbytes = measured(*case)
        rate = nbytes / seconds
        share = rate / (gpu_target().memory_rate * 1e9)
        print(f"| {label} | {count} | {seconds * 1e6:.1f} | {rate / 1e12:.2f} | {share:.0%} |", flush=True)


def measured(name: str, shapes: list, dtype: str, attrs: dict) -> tuple[int, float, int]:
    """Kernels, seconds, and bytes of the inputs and the result."""
    kind = as_dtype(dtype)
    inputs = [np.broadcast_to(np.zeros((), kind), shape) for shape in shapes]
    node, fact = op_check._typed_node(Op.get(name), Sample(inputs, attrs))
    outputs = tuple(NodeEntry(node, index) for index in range(node.num_outputs))
    group = FusedGroup((node,), tuple(dict.fromkeys(node.inputs)), outputs, node)
    memory = {entry: filled(shape, kind) for entry, shape in zip(node.inputs, shapes)}
    launches = []
    for kernel, places, _ in LOWERING.lower(group, fact, gpu_target()):
        for place in places:
            if place not in memory:
                known = fact(place) if isinstance(place, NodeEntry) else place
                memory[place] = device_empty((max(prod(known.shape), 8) * known.dtype.itemsize,), "uint8")
        launches.append(prepared(kernel, [memory[place].address for place in places]))
    moved = sum(prod(shape) * kind.itemsize for shape in shapes)
    moved += prod(fact(outputs[0]).shape) * fact(outputs[0]).dtype.itemsize
    return len(launches), best_of(launches), moved


def filled(shape: tuple, kind: np.dtype) -> object:
    """Random numbers on the device, repeated: what they are does not matter."""
    memory = device_empty(shape, kind)
    numbers = np.random.default_rng(0).normal(size=1 << 20).astype(kind)
    memory.copyfrom(np.resize(numbers, shape))
    return memory


def best_of(launches: list) -> float:
    """Seconds of one run of all launches, in the best window."""
    stream, times = current_stream(), []
    for _ in range(WINDOWS):
        start, end = Event(enable_timing=True), Event(enable_timing=True)
        start.record(stream)
        for _ in range(LAUNCHES):
            for launch in launches:
                launch.launch(stream)
        end.record(stream)
        end.synchronize()
        times.append(start.elapsed_time(end) / LAUNCHES / 1e3)
    return min(times)


if __name__ == "__main__":
    main()

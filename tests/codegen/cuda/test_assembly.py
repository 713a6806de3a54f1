"""PTX of every kind of loop-IR kernel, as schedules make them at the sizes of networks: what it holds, and what
NVIDIA's assembler makes of it: no spills, no stack, no more registers than a full multiprocessor has for threads."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from codegen.cuda.ptxas import assembled

import weft.ops  # noqa: F401
from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda.compile import CODEGEN
from weft.core.fused import FusedGroup
from weft.core.ir import NodeEntry
from weft.core.op import Op
from weft.lower.cuda.dispatch import LOWERING
from weft.testing import op_check
from weft.testing.op_check import Sample

RESIDENT = 1024  # threads that a multiprocessor should have room for


def kernels_of(name, shapes, dtype, target, **attrs):
    sample = Sample([np.empty(shape, dtype) for shape in shapes], attrs)
    node, fact = op_check._typed_node(Op.get(name), sample)
    outputs = tuple(NodeEntry(node, index) for index in range(node.num_outputs))
    group = FusedGroup((node,), tuple(dict.fromkeys(node.inputs)), outputs, node)
    return [made.kernel for made in LOWERING.lower(group, fact, target)]


# The operator, the shapes of its inputs, attributes; whether all of its kernels move 16 bytes at once.
CONV = {"channels": 32, "kernel_size": (3, 3), "use_bias": False}
KINDS = {
    "add": ("elemwise_add", [(1 << 22,)] * 2, {}, True),
    "broadcast": ("broadcast_mul", [(64, 1, 256), (64, 128, 256)], {}, True),
    "exp": ("exp", [(1 << 20,)], {}, True),
    "gelu": ("gelu", [(4096, 3072)], {}, True),
    "tails": ("elemwise_mul", [(1023, 7)] * 2, {}, False),
    "softmax": ("softmax", [(8192, 1024)], {}, True),
    "long softmax": ("softmax", [(512, 8192)], {}, True),
    "layer norm": ("layer_norm", [(8192, 768), (768,), (768,)], {}, True),
    "row sums": ("sum", [(4096, 4096)], {"axis": 1}, True),
    "one sum": ("sum", [(1 << 24,)], {}, True),
    "column sums": ("sum", [(65536, 768)], {"axis": 0}, False),
    "transpose": ("transpose", [(2048, 1024)], {}, False),
    "pool": ("max_pool2d", [(8, 64, 56, 56)], {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}, False),
    "pool, channels last": (
        "max_pool2d",
        [(8, 56, 56, 64)],
        {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "layout": "NHWC"},
        True,
    ),
    "convolution": (
        "conv2d",
        [(1, 16, 14, 14), (32, 16, 3, 3)],
        {"channels": 32, "kernel_size": (3, 3), "use_bias": False},
        False,
    ),
    "concatenate": ("concatenate", [(32, 64, 128)] * 3, {"axis": 1}, False),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_kernels(kind, dtype, tmp_path):
    name, shapes, attrs, in_vectors = KINDS[kind]
    target = CudaTarget()
    for kernel in kernels_of(name, shapes, dtype, target, **attrs):
        code = CODEGEN.code(kernel, CODEGEN.assemble(CODEGEN.emit(kernel, target), target))
        text = code.code.decode()
        assert ".local" not in text, "a stack"
        assert code.launch.dependent
        assert text.index("griddepcontrol.wait") < text.index("ld.global")
        moved = text.count(".v4.b32") + text.count(".v4.f32") + text.count(".v2.b64") + text.count(".v8.b16")
        assert bool(moved) or not in_vectors
        made = assembled(code.code, target.arch, tmp_path)
        assert made.spilled == 0, made.log
        assert made.stack == 0, made.log
        threads = prod(code.launch.threads)
        assert made.registers * RESIDENT <= target.registers or made.registers * threads <= target.registers


def test_functions_are_as_exact_as_what_is_stored():
    """Where all that a kernel reads and writes is short, float32 in between needs no more than the machine's exp2."""
    target = CudaTarget()
    for dtype, approximates in (("float16", True), ("bfloat16", True), ("float32", False)):
        (kernel,) = kernels_of("softmax", [(512, 1024)], dtype, target)
        text = CODEGEN.assemble(CODEGEN.emit(kernel, target), target)
        assert (b"ex2.approx" in text) == approximates
        assert b"max.NaN.f32" in text


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_architectures(arch, tmp_path):
    target = CudaTarget().changed(arch=arch)
    (kernel,) = kernels_of("softmax", [(512, 1024)], "float16", target)
    text = CODEGEN.assemble(CODEGEN.emit(kernel, target), target)
    assert (b"griddepcontrol" in text) == target.has_dependent_launch
    assert assembled(text, arch, tmp_path).spilled == 0


@pytest.mark.parametrize("name", "exp log tanh sigmoid sin cos erf sqrt pow".split())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions(name, dtype, tmp_path):
    operator = {"pow": "broadcast_pow"}.get(name, name)
    target = CudaTarget()
    shapes = [(1 << 16,)] * (2 if name == "pow" else 1)
    for kernel in kernels_of(operator, shapes, dtype, target):
        made = assembled(CODEGEN.assemble(CODEGEN.emit(kernel, target), target), target.arch, tmp_path)
        assert made.spilled == 0, made.log

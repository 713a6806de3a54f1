"""Every operator with a body as open kernels: made for the sizes of one call, they give the
reference's results there, and touch no memory but theirs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from codegen.guard import guarded
from sample import all_samples
from test_suite import OPS

from weft.base.cpu_target import host
from weft.compiler.kernels import kernel_cache
from weft.core.op import Op
from weft.core.schema import text_of
from weft.lower.cpu.open.generic import lower_open
from weft.lower.cpu.open.loop_bodies import lower_loop_body
from weft.runtime.cpu.open_kernel import OpenKernel
from weft.testing import op_check

# Their computes take shapes through the rules of inference, which know numbers and names only.
NOT_COMPUTED = {
    "_contrib_conv2d_NCHWc",
    "conv2d_transpose",
    "_conv2d_transpose_grad_data",
    "split",
    "correlation",
    "_halo",
    "flatten",
    "reshape",
    "squeeze",
    "multibox_prior",
    "yolo_reorg",
    "_yolo_reorg_grad",
    "_pack_panels",
    "_byte_panels",
    "_byte_image",
    "__layout_transform__",
}
# Their loops are written for sizes that are numbers.
NOT_WRITTEN = {
    "adaptive_roi_align",
    "argsort",
    "sort",
    "topk",
    "proposal",
    "non_max_suppression",
    "rnn",
    "_packed_rnn",
    "_rnn_grad",
    "tree_ensemble",
}
WITH = {
    column: [name for name in OPS if op_check.column_of(Op.get(name), column) is not None]
    for column in ("compute", "kernels")
}
COMPUTED = [name for name in WITH["compute"] if name not in NOT_COMPUTED]
WRITTEN = [name for name in WITH["kernels"] if name not in {*WITH["compute"], *NOT_WRITTEN}]
SAMPLES = 3  # of different ranks


def chosen(name):
    """A few samples with elements in all inputs."""
    found = {}
    for sample in all_samples(name):
        if sample.inputs and all(x.size and x.dtype.kind in "fiub" for x in sample.inputs):
            kind = (*(x.ndim for x in sample.inputs), str(sample.inputs[0].dtype))
            found.setdefault(kind, sample)
    return list(found.values())[:SAMPLES]


def run(program, arrays, shapes):
    sizes = [n for shape in shapes for n in shape if n != 1]
    numbers = program.table.numbers(sizes)
    buffers = [guarded(a).reshape(a.shape) for a in arrays]
    for memory in program.allocated:
        shape = [numbers[row] for row in memory.shape]
        empty = np.full(shape, op_check._poison(memory.dtype), memory.dtype)
        buffers.append(guarded(empty).reshape(shape))
    for step in program.steps:
        used = [buffers[number] for number in step.buffers]
        kernel = OpenKernel(kernel_cache.compiled(step.kernel, host()))
        kernel.run(used, sizes, numbers[step.turns], 0.0)
    return [buffers[number] for number in program.outputs]


def compare(op, sample, made):
    for index, (ours, wanted) in enumerate(zip(made, op_check.run_sample(op, sample))):
        assert ours.dtype == wanted.dtype
        op_check._agree(ours, wanted, sample, f"{op.name}, output {index}, open kernels")


@pytest.mark.parametrize("name", COMPUTED)
def test_computes(name):
    op = Op.get(name)
    for sample in chosen(name):
        params = op.parse({key: text_of(value) for key, value in sample.attrs.items()})
        compute = partial(op.call_with, Op.compute[op], params)
        shapes, dtypes = [x.shape for x in sample.inputs], [x.dtype for x in sample.inputs]
        program = lower_open(name, compute, shapes, dtypes, host())
        compare(op, sample, run(program, sample.inputs, shapes))


@pytest.mark.parametrize("name", WRITTEN)
def test_loops(name):
    op = Op.get(name)
    for sample in chosen(name):
        params = op.parse({key: text_of(value) for key, value in sample.attrs.items()})
        wanted = op_check.run_sample(op, sample)
        inputs = [(x.shape, x.dtype) for x in sample.inputs]
        outputs = [(y.shape, y.dtype) for y in wanted][: op.outputs_of(params)]
        if not all(y.size for y in wanted):
            continue
        program = lower_loop_body(op, params, inputs, outputs)
        made = run(program, sample.inputs, [shape for shape, _ in [*inputs, *outputs]])
        compare(op, sample, made)

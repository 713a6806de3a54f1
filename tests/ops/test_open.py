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
from weft.compiler.open.calls import lower_compute, lowered_operator
from weft.compiler.open.programs import assembled
from weft.core.op import Op
from weft.core.schema import text_of
from weft.runtime.cpu.executor import CpuExecutor
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
    "_word_panels",
    "_word_image",
    "_level_panels",
    "__layout_transform__",
}
# Their loops are written for sizes that are numbers.
NOT_WRITTEN = {
    *("adaptive_roi_align", "argsort", "sort", "topk", "proposal", "non_max_suppression", "tree_ensemble"),
    *("_row_levels", "cached_attention"),
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


def run(call, arrays):
    """The outputs, beside pages that must not be touched."""
    program = assembled(call, host())
    sizes = [arrays[number].shape[axis] for number, axis in program.open_sizes]
    executor = CpuExecutor(program).bound(sizes)
    made = []
    for spec in executor.program.outputs:
        empty = np.full(spec.extents, op_check._poison(spec.dtype), spec.dtype)
        made.append(guarded(empty).reshape(spec.extents))
    executor.run_into([guarded(a).reshape(a.shape) for a in arrays], made)
    return made


def compare(op, sample, made):
    for index, (ours, wanted) in enumerate(zip(made, op_check.run_sample(op, sample))):
        assert ours.dtype == wanted.dtype
        op_check._agree(ours, wanted, sample, f"{op.name}, output {index}, open kernels")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", COMPUTED)
def test_computes(name):
    op = Op.get(name)
    for sample in chosen(name):
        params = op.parse({key: text_of(value) for key, value in sample.attrs.items()})
        compute = partial(op.call_with, Op.compute[op], params)
        call = lower_compute(name, compute, [(x.shape, x.dtype) for x in sample.inputs], host())
        compare(op, sample, run(call, sample.inputs))


@pytest.mark.parametrize("name", WRITTEN)
def test_loops(name):
    op = Op.get(name)
    for sample in chosen(name):
        params = op.parse({key: text_of(value) for key, value in sample.attrs.items()})
        wanted = op_check.run_sample(op, sample)
        inputs = [(x.shape, x.dtype) for x in sample.inputs]
        if not all(y.size for y in wanted):
            continue
        compare(op, sample, run(lowered_operator(op, params, inputs, host()), sample.inputs))

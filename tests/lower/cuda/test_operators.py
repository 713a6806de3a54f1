"""Every operator with a body, lowered for a GPU: its kernels run in the interpreter, block by block and thread by
thread, and agree with the reference; and their PTX is made."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

OPS = Path(__file__).parents[2] / "ops"
sys.path.append(str(OPS))

from sample import all_samples  # noqa: E402

import weft.ops  # noqa: E402, F401
from weft.base.cuda_target import CudaTarget  # noqa: E402
from weft.codegen.cuda.compile import CODEGEN  # noqa: E402
from weft.core.op import Op, list_ops  # noqa: E402
from weft.lower.cuda.dispatch import LOWERING  # noqa: E402
from weft.te.interpret import run_kernel  # noqa: E402
from weft.testing import op_check  # noqa: E402

for _path in sorted(OPS.glob("samples_*.py")):
    importlib.import_module(_path.stem)

TARGET = CudaTarget()
SAMPLES = 3  # of an operator
SMALL = 300  # elements of the inputs of a sample that is interpreted


def _is_ours(op):
    rules = [op_check.column_of(op, column) for column in ("shape", "reference", "compute")]
    return any(getattr(rule, "__module__", "").startswith("weft.ops") for rule in rules)


OPERATORS = [op.name for op in list_ops() if _is_ours(op) and (Op.compute.contains(op) or Op.kernels.contains(op))]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name):
    op = Op.get(name)
    small = [s for s in all_samples(name) if sum(x.size for x in s.inputs) <= SMALL]
    real = [s for s in small if all(x.dtype.kind != "c" for x in s.inputs)]
    for sample in real[:SAMPLES]:
        if op in Op.mutates and op.mutates_of(op_check._params(op, sample)):
            continue  # a build gives what is written to variables a place of its own
        given = op_check.run_kernels_of(op, sample, LOWERING, TARGET, interpreted)
        for index, (ours, theirs) in enumerate(zip(given, op_check.run_sample(op, sample))):
            op_check._agree(ours, theirs, sample, f"operator {name}, output {index}")


def interpreted(kernel, arrays):
    ptx = CODEGEN.assemble(CODEGEN.emit(kernel, TARGET), TARGET).decode()
    assert f".visible .entry {kernel.name}(" in ptx
    assert "griddepcontrol.wait" in ptx
    run_kernel(kernel, list(arrays))


def test_most_operators_have_kernels():
    assert len(OPERATORS) > 300

"""Programs whose sizes are open: bound at several sizes and compared with numpy, refused elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from runtime.open_model import LARGEST_N, arrays, open_program, wanted

from weft.base.errors import InvalidValue, ShapeError
from weft.base.plan import At, Slot
from weft.base.sizes import SIZE, Row
from weft.runtime.cpu.executor import CpuExecutor

SIZES = [(1, 2), (2, 2), (7, 3), (64, 17), (301, 40)]


@pytest.fixture(scope="module")
def program():
    return open_program()


@pytest.mark.parametrize("size", SIZES)
def test_bound_programs_compute_what_numpy_does(program, size):
    inputs = arrays(np.random.default_rng(0), *size)
    sizes = program.sizes_of([array.shape for array in inputs])
    bound = program.bound(sizes)
    assert [spec.extents for spec in bound.inputs] == [array.shape for array in inputs]
    assert bound.objects is program.objects
    assert bound.constants is program.constants
    outputs = CpuExecutor(bound, 2).run(dict(zip("xy", inputs)))
    for output, right in zip(outputs, wanted(*inputs), strict=True):
        np.testing.assert_array_equal(output, right)


def test_guards_refuse(program):
    assert program.bound([4, 1]) is None
    assert program.bound([LARGEST_N, 2]) is None
    assert program.bound([LARGEST_N - 1, 2]) is not None


def test_sizes_are_taken_from_inputs_that_fit(program):
    assert program.sizes_of([(7, 3), (7,)]) == [7, 3]
    with pytest.raises(ShapeError, match="'x' has shape"):
        program.sizes_of([(7, 3, 1), (7,)])
    fixed = replace(program, inputs=(program.inputs[0], program.inputs[1]._replace(shape=(8,))))
    with pytest.raises(ShapeError, match=r"(?s)'y' has shape \(7,\).*y: float32\[8\]"):
        fixed.sizes_of([(7, 3), (7,)])


def test_open_sizes_are_axes_of_inputs_or_numbers_beside_them(program):
    beside = len(program.inputs) + len(program.outputs)
    assert replace(program, open_sizes=((beside, 0), (beside, 1))).bound([7, 3]) is not None
    for wrong in [
        ((beside + 1, 0), (0, 1)),
        ((beside, 2), (0, 1)),
        ((0, 2), (0, 1)),
        ((-1, 0), (0, 1)),
        ((0, -1), (0, 1)),
    ]:
        with pytest.raises(InvalidValue, match="there is none"):
            replace(program, open_sizes=wrong)
    with pytest.raises(InvalidValue, match="size 1 of 1"):
        replace(program, open_sizes=((0, 0),))
    with pytest.raises(InvalidValue, match="0 open sizes"):
        replace(program, open_sizes=())
    table = program.plan.sizes
    with pytest.raises(InvalidValue, match="size 9 of 2"):
        replace(program, plan=replace(program.plan, sizes=table._replace(rows=(*table.rows, Row(SIZE, 9)))))


def test_tensors_fit_their_slots_at_every_size(program):
    slots = program.plan.slots
    smaller = replace(program.plan, slots=(slots[0], Slot("input", slots[2].size), *slots[2:]))
    with pytest.raises(InvalidValue, match="inputs do not fit"):
        replace(program, plan=smaller).bound([5, 2])


def test_an_open_program_does_not_run(program):
    assert [str(spec) for spec in program.inputs] == ["x: float32[#0, #1]", "y: float32[#0]"]
    assert program.inputs[0].dims == ("#0", "#1")
    with pytest.raises(InvalidValue, match="open"):
        _ = program.inputs[0].extents
    assert program.inputs[0].shape == (At(0), At(1))

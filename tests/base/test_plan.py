"""Plans: runs of kernels between host steps, what is refused, and numbers that the sizes of a call decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.base.errors import InvalidValue
from weft.base.plan import At, BufferRef, ExecPlan, HostStep, KernelStep, Launch, OpenWork, Slot, TensorMap, known
from weft.base.sizes import LARGEST, NUMBER, SIZE, Guard, Row, SizeTable

# Rows: n, 4, 4n, n - 4; served from n = 4 on
TABLE = SizeTable((Row(SIZE, 0), Row(NUMBER, 4), Row("mul", 0, 1), Row("sub", 0, 1)), (Guard("ge", 0, 1, True),))
N, FOUR_N, LESS = At(0), At(2), At(3)


def test_host_steps_cut_the_plan_into_segments():
    step = KernelStep("add", (BufferRef(0),) * 3, (1,))
    middle = HostStep("sort", (BufferRef(0),), {"axis": 0})
    plan = ExecPlan((step, step, middle, step, middle), (Slot("output", 8),))
    assert plan.segments() == [(step, step), middle, (step,), middle]


def test_bad_plans_are_refused():
    with pytest.raises(InvalidValue, match="slot 3"):
        ExecPlan((KernelStep("k", (BufferRef(3),)),), (Slot("input", 8),))
    with pytest.raises(InvalidValue, match="byte 9"):
        ExecPlan((KernelStep("k", (BufferRef(0, 9),)),), (Slot("input", 8),))
    with pytest.raises(InvalidValue, match="arena"):
        ExecPlan((), (Slot("arena", 8, 60),), 64)
    with pytest.raises(InvalidValue, match="role"):
        Slot("stack", 8)
    for size, offset in [(-1, 0), (0, -1), (LARGEST + 1, 0)]:
        with pytest.raises(InvalidValue, match="a slot of"):
            Slot("arena", size, offset)
    with pytest.raises(InvalidValue, match="-1 blocks"):
        ExecPlan((KernelStep("k", (), (), Launch((-1, 1, 1))),), ())
    with pytest.raises(InvalidValue, match="scalar"):
        ExecPlan((KernelStep("k", (), (LARGEST + 2,)),), ())


def test_maps_and_clusters_of_a_launch_are_checked_and_bound():
    launch = Launch((LESS, 2, 1), (128, 1, 1), shared=4096, cluster=2, dependent=True)
    mapped = TensorMap(0, "float16", (8, N), (FOUR_N,), (8, 64), offset=LESS)
    step = KernelStep("k", (BufferRef(0),), (), launch, maps=(mapped,))
    plan = ExecPlan((step,), (Slot("input", FOUR_N),), sizes=TABLE)
    (found,) = plan.bound([6]).steps
    assert found.launch == Launch((2, 2, 1), (128, 1, 1), 4096, 2, True)
    assert found.maps == (TensorMap(0, "float16", (8, 6), (24,), (8, 64), offset=2),)
    for wrong in (mapped._replace(buffer=1), mapped._replace(strides=()), mapped._replace(dims=(8, -1))):
        with pytest.raises(InvalidValue, match="maps"):
            ExecPlan((replace(step, maps=(wrong,)),), (Slot("input", FOUR_N),), sizes=TABLE)
    with pytest.raises(InvalidValue, match="row 9"):
        ExecPlan((replace(step, maps=(mapped._replace(offset=At(9)),)),), plan.slots, sizes=TABLE)
    with pytest.raises(InvalidValue, match="clusters of 0"):
        ExecPlan((replace(step, launch=launch._replace(cluster=0)),), plan.slots, sizes=TABLE)


def open_plan():
    step = KernelStep("k", (BufferRef(0, N), BufferRef(1)), (N, 7, LESS), Launch((LESS, 1, 1)), OpenWork(2.5, FOUR_N))
    host = HostStep("f", (BufferRef(0, 3),), {"tensors": [([2, LESS], "float32")], "op": "g"})
    slots = (Slot("input", FOUR_N, 0, "x"), Slot("arena", N, FOUR_N))
    return ExecPlan((step, host), slots, At(4), replaced_rows((*TABLE.rows, Row("add", 0, 2))))


def replaced_rows(rows):
    return TABLE._replace(rows=rows)


def test_a_bound_plan_has_the_numbers_of_its_sizes():
    n = int(np.random.default_rng(0).integers(4, 1000))
    step = KernelStep(
        "k", (BufferRef(0, n), BufferRef(1)), (n, 7, n - 4), Launch((n - 4, 1, 1)), pytest.approx(10.0 * n)
    )
    host = HostStep("f", (BufferRef(0, 3),), {"tensors": [([2, n - 4], "float32")], "op": "g"})
    slots = (Slot("input", 4 * n, 0, "x"), Slot("arena", n, 4 * n))
    plan = open_plan()
    assert plan.is_open
    assert plan.bound([n]) == ExecPlan((step, host), slots, 5 * n)
    assert not plan.bound([n]).is_open
    assert plan.bound([3]) is None
    static = ExecPlan((host,), (Slot("input", 16),))
    assert static.bound([]) is static


def test_open_numbers_are_rows_of_the_table():
    plan = open_plan()
    for wrong in (At(5), At(-1)):
        changes = [
            {"arena_bytes": wrong},
            {"slots": (Slot("input", wrong), plan.slots[1])},
            {"slots": (plan.slots[0], Slot("arena", 4, wrong))},
            {"steps": (replace(plan.steps[0], scalars=(wrong,)),)},
            {"steps": (replace(plan.steps[0], launch=Launch((1, 1, wrong))),)},
            {"steps": (replace(plan.steps[0], work=OpenWork(1.0, wrong)),)},
            {"steps": (KernelStep("k", (BufferRef(0, wrong),)),)},
            {"steps": (replace(plan.steps[1], attrs={"tensors": [([wrong], "float32")]}),)},
        ]
        for change in changes:
            with pytest.raises(InvalidValue, match=f"row {wrong.row} of a table of 5"):
                replace(plan, **change)
    with pytest.raises(InvalidValue, match="row 0 of a table of 0"):
        ExecPlan((), (Slot("input", N),))


def test_numbers_that_do_not_fit_are_refused_when_they_are_known():
    short = replace(open_plan(), arena_bytes=N)
    with pytest.raises(InvalidValue, match="outside the arena"):
        short.bound([8])
    beyond = replace(open_plan(), slots=(Slot("input", LESS), Slot("arena", N, FOUR_N)))
    with pytest.raises(InvalidValue, match="byte 8 of slot 0"):
        beyond.bound([8])
    unguarded = replace(open_plan(), sizes=open_plan().sizes._replace(guards=()))
    with pytest.raises(InvalidValue, match="-2 blocks"):
        unguarded.bound([2])
    assert open_plan().bound([LARGEST]) is None


def test_an_open_plan_is_not_run():
    with pytest.raises(InvalidValue, match="row 2"):
        open_plan().segments()
    with pytest.raises(InvalidValue, match="bound"):
        known(At(1))

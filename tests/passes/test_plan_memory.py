"""PlanMemory: goldens of the original, and what sharing must never do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passes.graphs import F, Graph, Group, Variable, typed

from weft.core.op import Op


def plan(symbol, dtype="float32", **shapes):
    return typed(symbol, dtype, **shapes).apply("PlanMemory")


def test_golden_without_in_place():
    done = plan(F.exp(F.flatten(F.exp(Variable("x")))), x=(4, 2))
    assert done.json_attr("storage_id") == [-1, 0, 1, 1]
    assert done.json_attr("storage_inplace_index") == [-1, -1, -1, 0]
    assert done.json_attr("storage_allocated_bytes") == 64
    assert done.json_attr("storage_num_not_allocated") == 0


def test_golden_all_in_place():
    done = plan(F.relu(F.exp(F.log(Variable("x"))) + 1), x=(4, 2))
    assert done.json_attr("storage_id") == [-1, 0, 0, 0, 0]


def test_golden_unknown_shapes():
    graph = Graph(F.exp(F.relu(Variable("x"))).outputs).apply(["InferShape", "InferType"])
    done = graph.apply("PlanMemory")
    assert done.json_attr("storage_id") == [-1, -1, -1]
    assert done.json_attr("storage_num_not_allocated") == 2


def test_unknown_dtype_is_planned():
    graph = Graph(F.exp(F.relu(Variable("x", shape=(4, 2)))).outputs)
    done = graph.apply(["InferShape", "InferType", "PlanMemory"])
    assert done.json_attr("storage_id") == [-1, 0, 0]
    assert done.json_attr("storage_allocated_bytes") == 32


@pytest.mark.parametrize(("dtype", "size"), [("float64", 8), ("float16", 2), ("int8", 1)])
def test_bytes_follow_the_dtype(dtype, size):
    assert plan(F.negative(Variable("x")), dtype, x=(4, 2)).json_attr("storage_allocated_bytes") == (8 * size)


def test_no_sharing_in_place_between_dtypes_of_other_size():
    done = plan(F.cast(F.exp(Variable("x")), dtype="float64"), x=(4,))
    assert done.json_attr("storage_inplace_index") == [-1, -1, -1]
    assert done.json_attr("storage_id")[1] != done.json_attr("storage_id")[2]


def test_outputs_and_devices_do_not_share():
    x = Variable("x")
    e = F.exp(x)
    done = plan(Group([e, F.relu(e)]), x=(4,))
    assert done.json_attr("storage_id") == [-1, 0, 1]
    graph = typed(F.relu(F.exp(x)), x=(4,))
    graph._set_json_attr("device", [0, 0, 1], "list_int")
    assert graph.apply("PlanMemory").json_attr("storage_id") == [-1, 0, 1]


def test_fixed_storage_is_kept():
    graph = typed(F.relu(F.exp(Variable("x"))), x=(4,))
    graph._set_json_attr("storage", [-1, -1, -2], "list_int")
    assert graph.apply("PlanMemory").json_attr("storage_id") == [-1, 0, -2]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 4)), max_size=40))
def test_no_value_is_overwritten_before_its_last_use(steps):
    """Runs the plan on a memory of cells: each read must find what was written."""
    entries = [Variable("x")]
    for first, second, kind in steps:
        a, b = entries[first % len(entries)], entries[second % len(entries)]
        made = [F.exp, F.relu, F.flatten][kind](a) if kind < 3 else F.broadcast_add(a, b)
        entries.append(made)
    done = plan(Group(entries[-2:]), x=(2, 3))
    storage = done.json_attr("storage_id")
    index = done.indexed
    cells: dict[int, int] = {}
    for number, node in enumerate(index.nodes):
        for entry in index.inputs[number]:
            if storage[entry] >= 0:
                assert cells[storage[entry]] == entry
        if node.op is not None:
            (entry,) = index.entry_range(number)
            cells[storage[entry]] = entry
    for entry in index.outputs:
        assert storage[entry] < 0 or cells[storage[entry]] == entry
    total = sum(np.prod((2, 3)) * 4 for _ in set(storage) - {-1})
    assert done.json_attr("storage_allocated_bytes") == total


def test_largest_output_is_placed_first_and_unused_ones_are_marked():
    parts = F.split(F.exp(Variable("x")), indices_or_sections=(1,), axis=0)
    done = plan(Group([parts[0]]), x=(5, 2))
    assert done.json_attr("storage_inplace_index")[-1] == -2
    both = plan(Group([parts[0], parts[1]]), x=(5, 2))
    small, large = both.json_attr("storage_id")[-2:]
    assert (small, large) == (2, 1)


def test_an_identity_shares_even_what_is_still_read():
    op = Op.register("identity_in_plan_memory_test").set_num_inputs(1)
    if not Op.inplace.contains(op):
        op.inplace, op.inplace_identity = [(0, 0)], [True]
        op.shape = lambda params, ins, outs: ([outs[0]], [ins[0]])
    e = F.exp(Variable("x"))
    done = plan(F.tanh(op(e)) + F.relu(e), x=(4,))
    ids = {n.op_name: s for n, s in zip(done.indexed.nodes, done.json_attr("storage_id"))}
    assert ids["exp"] == ids["identity_in_plan_memory_test"]
    assert ids["tanh"] != ids["exp"]  # relu still reads it


def test_blocks_grow_within_the_match_range_only():
    x = Variable("x")
    small = F.sum(F.exp(x), axis=1)
    done = plan(F.relu(F.broadcast_to(F.expand_dims(small, axis=1), shape=(2, 1000))), x=(2, 1000))
    # The sum and its view take no part of the large block, which the broadcast then takes again.
    assert done.json_attr("storage_id") == [-1, 0, 1, 2, 0, 0]
    assert done.json_attr("storage_allocated_bytes") == 2 * 1000 * 4 + 2 * 4 + 2 * 4

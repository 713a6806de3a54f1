"""Whatever a pass does to a random program, that computes what it did, and what PyTorch computes for its text."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, currently_in_test_context, given, note, settings
from hypothesis import strategies as st
from oracles import oracle
from random_programs import Writer

import weft
from weft import _C
from weft.jit.run.code import Code
from weft.jit.run.interpreter import run

# What is run on programs that write to memory, and what only on those that do not share any.
PASSES = (
    "dce dce_graph cse constant_pooling constant_propagation constant_propagation_immutable_types peephole "
    "lower_simple_tuples loop_unrolling constant_loop_unrolling remove_mutation erase_shape_information "
    "canonicalize_ops create_autodiff_subgraphs fuse batch_mm decompose_ops fuse_addmm inline inline_fork_wait "
    "remove_expands"
).split()
UNSHARED = ["remove_inplace_ops", "fuse_linear"]
SETTINGS = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
CHOOSERS = st.integers(0, 2**64).map(random.Random)


def flat(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flat(value)
        else:
            yield np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def outcome(call, inputs):
    """What a program gives, and what it leaves in its inputs."""
    return list(flat([*call(inputs), *inputs]))


def given_inputs(library, arrays, turns, flag):
    return [*[library.tensor(array.copy()) for array in arrays], turns, flag]


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs):
        np.testing.assert_array_equal(one, two)


def check(text, names, seed):
    if currently_in_test_context():
        note(text)
    torch, chooser = oracle("torch"), np.random.default_rng(seed)
    arrays = [chooser.uniform(-1, 1, (2, 2)) for _ in range(2)]
    given_values = arrays, int(chooser.integers(4)), bool(chooser.integers(2))
    theirs = torch._C.parse_ir(text)
    theirs.makeMultiOutputIntoTuple()
    function = torch._C._create_function_from_graph("f", theirs)
    with torch.jit.optimized_execution(False):  # its own passes leave out writes that loops carry on
        wanted = outcome(lambda values: function(*values), given_inputs(torch, *given_values))
    same(outcome(lambda values: run(Code(_C.parse_ir(text)), values), given_inputs(weft, *given_values)), wanted)
    for name in names:
        graph = _C.parse_ir(text)
        getattr(_C, f"_jit_pass_{name}")(graph)
        graph.lint()
        same(outcome(lambda values: run(Code(graph), values), given_inputs(weft, *given_values)), wanted)  # noqa: B023


@settings(SETTINGS, max_examples=3)
@given(CHOOSERS, st.integers(0, 2**32))
def test_each_pass_keeps_what_a_program_computes(chooser, seed):
    check(Writer(chooser, writes=True).program(chooser.randrange(4, 30)), PASSES, seed)


@pytest.mark.slow
@settings(SETTINGS, max_examples=100)
@given(CHOOSERS, st.integers(0, 2**32))
def test_each_pass_keeps_what_a_long_program_computes(chooser, seed):
    check(Writer(chooser, writes=True).program(chooser.randrange(20, 60)), PASSES, seed)


@SETTINGS
@given(CHOOSERS, st.integers(0, 2**32))
def test_passes_one_after_the_other_keep_it_too(chooser, seed):
    text = Writer(chooser, writes=chooser.random() < 0.5).program(chooser.randrange(4, 25))
    if currently_in_test_context():
        note(text)
    names = [chooser.choice(PASSES) for _ in range(8)]
    arrays = [np.random.default_rng(seed).uniform(-1, 1, (2, 2)) for _ in range(2)]
    graph, values = _C.parse_ir(text), (arrays, chooser.randrange(4), chooser.random() < 0.5)
    wanted = outcome(lambda inputs: run(Code(graph), inputs), given_inputs(weft, *values))
    for name in names:
        getattr(_C, f"_jit_pass_{name}")(graph)
        graph.lint()
        same(outcome(lambda inputs: run(Code(graph), inputs), given_inputs(weft, *values)), wanted)


@SETTINGS
@given(CHOOSERS, st.integers(0, 2**32))
def test_passes_for_programs_without_writes(chooser, seed):
    check(Writer(chooser, writes=False).program(chooser.randrange(4, 20)), UNSHARED, seed)


@SETTINGS
@given(CHOOSERS)
def test_canonical_graphs_of_equal_programs_are_equal_text(chooser):
    graph = _C.parse_ir(Writer(chooser, writes=True).program(12))
    again = _C._jit_pass_canonicalize(_C.parse_ir(str(graph)))
    assert str(_C._jit_pass_canonicalize(graph)) == str(again)
    again.lint()


@pytest.mark.parametrize("name", ["dce_graph", "cse", "constant_propagation", "peephole"])
@SETTINGS
@given(CHOOSERS)
def test_a_pass_that_found_all_finds_no_more(name, chooser):
    graph = _C.parse_ir(Writer(chooser, writes=True).program(15))
    for _ in range(3):
        getattr(_C, f"_jit_pass_{name}")(graph)
    before = str(graph)
    assert not getattr(_C, f"_jit_pass_{name}")(graph) or name == "constant_propagation"
    assert str(graph) == before

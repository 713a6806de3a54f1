"""batch_norm of data whose channels are in blocks: NCHW16c with vectors in C16c."""

import numpy as np
import pytest
from oracles import oracle
from passes.graphs import F, Group, Symbol, Variable, agree, op_names, typed, values
from passes.test_layouts import with_layouts

import weft
from weft.base.cpu_target import host
from weft.base.errors import ShapeError
from weft.compiler.backends.cpu import CPU
from weft.core.interpret import evaluate
from weft.core.ir import NodeEntry
from weft.passes.gradient import gradients
from weft.passes.pipeline import PIPELINE, in_preferred_layouts
from weft.testing import op_check
from weft.testing.op_check import Sample

RULES = CPU.layout_rules_for(host())
LAYOUT_PASSES = next(step.passes for step in PIPELINE if step.name == "AlterOpLayout")
BLOCKS, BLOCK, CHANNELS = 2, 8, 16
DATA = (3, BLOCKS, 5, 4, BLOCK)


def layouts_of(symbol, **layouts):
    return with_layouts(symbol, layouts).apply("CorrectLayout").json_attr("layout")


def test_golden_layouts_of_blocked_data():
    """data, gamma, beta, moving mean and variance; then output, mean and variance."""
    inference = F.batch_norm(Variable("x"), name="bn")[0]
    assert layouts_of(inference, x="NCHW16c") == ["NCHW16c", "C16c", "C16c", "C16c", "C16c", "NCHW16c", "C16c", "C16c"]
    training = F.batch_norm(Variable("x"), training=True, name="bn")[0]
    assert layouts_of(training, x="NCHW16c") == ["NCHW16c", "C16c", "C16c", "C", "C", "NCHW16c", "C16c", "C16c"]


@pytest.mark.parametrize(("axis", "layout"), [(1, "NCHW"), (3, "NHWC"), (1, "NC16cHW"), (2, "NHW")])
def test_golden_layouts_of_vectors_that_are_whole(axis, layout):
    symbol = F.batch_norm(Variable("x"), axis=axis, name="bn")[0]
    assert layouts_of(symbol, x=layout) == [layout, *["C"] * 4, layout, "C", "C"]


def between_convolutions(**attrs):
    conv = lambda x, name: F.conv2d(x, channels=32, kernel_size=(1, 1), use_bias=False, name=name)
    image = conv(Variable("x", shape=(2, 16, 5, 6)), "a")
    return conv(F.relu(F.batch_norm(image, name="bn", **attrs)[0]), "b")


def image_transforms(graph):
    moves = [n for n in graph.indexed.nodes if n.op_name == "__layout_transform__"]
    return sorted(n.params.dst_layout for n in moves if "NCHW" in n.params.src_layout)


def test_an_inference_graph_keeps_its_blocks_before_and_after_simplification():
    graph = typed(between_convolutions())
    blocked = in_preferred_layouts(graph, LAYOUT_PASSES, RULES)
    norm = next(n for n in blocked.indexed.nodes if n.op_name == "batch_norm")
    assert [len(blocked.fact(entry).shape) for entry in norm.inputs] == [5, 2, 2, 1, 1]
    assert [len(fact.shape) for fact in blocked.node_facts(norm)] == [5, 2, 2]
    assert len(image_transforms(blocked)) == 2
    agree(graph, blocked, rtol=1e-4)
    simple = blocked.apply("SimplifyInference")
    assert "batch_norm" not in op_names(simple)
    assert image_transforms(simple) == image_transforms(blocked)
    agree(graph, simple, rtol=1e-4)


def test_hidden_moments_of_an_inference_graph_are_as_they_were_written():
    norm = F.batch_norm(between_convolutions(), name="last")[0]
    node = norm.outputs[0].node
    graph = typed(Group([norm, Symbol([NodeEntry(node, 1)]), Symbol([NodeEntry(node, 2)])]))
    agree(graph, in_preferred_layouts(graph, LAYOUT_PASSES, RULES), rtol=1e-4)


def test_a_training_graph_reads_images_as_they_were_written():
    graph = typed(between_convolutions(training=True))
    done = in_preferred_layouts(graph, LAYOUT_PASSES, RULES)
    norm = next(n for n in done.indexed.nodes if n.op_name == "batch_norm")
    assert [len(done.fact(entry).shape) for entry in norm.inputs] == [4, 1, 1, 1, 1]
    agree(graph, done, rtol=1e-4)


# Graphs that are written in blocks


def written(training, moving):
    names = {"gamma": (BLOCKS, BLOCK), "beta": (BLOCKS, BLOCK), "mean": moving, "var": moving}
    vectors = [Variable(name, shape=shape) for name, shape in names.items()]
    data = Variable("x", shape=DATA)
    return data, vectors, F.batch_norm(data, *vectors, training=training, name="bn")


def plain(array):
    """(N, C, H, W) of blocked data."""
    return np.moveaxis(array, -1, 2).reshape(DATA[0], CHANNELS, *DATA[2:4])


def by_torch(given, training, ograd=None):
    """The output, the moving values, and the gradients of data, gamma and beta, all whole."""
    torch = oracle("torch")
    leaves = [torch.tensor(plain(given["x"]), requires_grad=True)]
    leaves += [torch.tensor(given[n].reshape(-1), requires_grad=True) for n in ("gamma", "beta")]
    moving = [torch.tensor(given[n].reshape(-1)) for n in ("mean", "var")]
    made = torch.nn.functional.batch_norm(leaves[0], *moving, *leaves[1:], training=training)
    if ograd is None:
        return made.detach().numpy(), [moment.numpy() for moment in moving]
    made.backward(torch.tensor(plain(ograd)))
    return [leaf.grad.numpy() for leaf in leaves]


MOVING = {"blocked": (BLOCKS, BLOCK), "whole": (CHANNELS,)}


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("moving", MOVING)
def test_inference_in_blocks_is_what_pytorch_computes(moving, level):
    _, _, norm = written(False, MOVING[moving])
    given = values(typed(norm[0]))
    wanted, _ = by_torch(given, False)
    np.testing.assert_allclose(plain(evaluate(norm[0], given)[0]), wanted, rtol=1e-4, atol=1e-5)
    params = {name: array for name, array in given.items() if name != "x"}
    for kept in ({}, params):
        inputs = {name: array for name, array in given.items() if name not in kept}
        [found] = weft.compile((norm[0], kept), opt_level=level).run(inputs)
        np.testing.assert_allclose(plain(found), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("moving", MOVING)
def test_training_in_blocks_is_what_pytorch_computes(moving, level):
    data, vectors, norm = written(True, MOVING[moving])
    ograd = Variable("ograd", shape=DATA)
    grads = gradients(norm[0], [data, *vectors[:2]], ograd)
    step = Group([norm[0], *grads])
    given = values(typed(step))
    wanted, moved = by_torch(given, True)
    expected = [wanted, *by_torch(given, True, given["ograd"])]
    with weft.compiler.build_config(opt_level=level):
        shapes = {name: array.shape for name, array in given.items()}
        graph, library, _ = weft.compiler.build(step, "llvm", shapes)
    module = weft.runtime.create(graph, library)
    module.run(**given)
    for index, (ours, theirs) in enumerate(zip(evaluate(step, given), expected, strict=True)):
        for found in (ours, module.get_output(index).asnumpy()):
            whole = plain(found) if found.shape == DATA else found.reshape(-1)
            np.testing.assert_allclose(whole, theirs, rtol=1e-3, atol=1e-4)
    count = wanted.size // CHANNELS
    for name, theirs in zip(("mean", "var"), moved):
        before, kept = given[name].reshape(-1), module.get_input(name).asnumpy().reshape(-1)
        if name == "var":  # PyTorch's moves by the unbiased one
            theirs = 0.9 * before + (theirs - 0.9 * before) * (count - 1) / count
        np.testing.assert_allclose(kept, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("moving", MOVING)
@pytest.mark.parametrize("training", [False, True])
def test_kernels_in_blocks_give_what_the_reference_does(training, moving):
    """The operator itself, which no build of an inference graph keeps."""
    _, _, norm = written(training, MOVING[moving])
    given = values(typed(norm[0]))
    arrays = [given[name] for name in norm.list_input_names()]
    sample = Sample(arrays, {"training": training}, rtol=1e-4, atol=1e-5)
    op_check.check_compute(F.batch_norm, sample)
    op_check.check_native(F.batch_norm, sample)


def test_shapes_of_blocked_vectors_follow_from_one_of_them():
    gamma = Variable("gamma", shape=(BLOCKS, BLOCK))
    for training, moving in ((False, (BLOCKS, BLOCK)), (True, (CHANNELS,))):
        x = Variable("x", shape=DATA)
        graph = typed(F.batch_norm(x, gamma, training=training, name="bn")[0])
        nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
        shapes = [graph.node_facts(node)[0].shape for node in nodes]
        assert shapes == [DATA, (BLOCKS, BLOCK), (BLOCKS, BLOCK), moving, moving]


def test_vectors_with_other_blocks_are_an_error():
    x, gamma = Variable("x", shape=DATA), Variable("gamma", shape=(BLOCKS, BLOCK + 1))
    with pytest.raises(ShapeError, match="bn"):
        typed(F.batch_norm(x, gamma, name="bn")[0])

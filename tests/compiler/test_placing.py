"""Values written straight into larger ones: parts of concatenations, images inside their halos."""

from __future__ import annotations

import numpy as np
import pytest
from compiler.models import LEVELS, agree, branches, floats, with_params
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import symbol as sym
from weft.base.plan import KernelStep
from weft.core.interpret import evaluate
from weft.passes.pipeline import optimize
from weft.testing import densenet, inception_v3, resnet, squeezenet


@pytest.fixture
def rng():
    return np.random.default_rng(21)


def conv(data, name, channels=16, kernel=1, **attrs):
    pads = (kernel // 2, kernel // 2)
    return sym.conv2d(data, channels=channels, kernel_size=(kernel, kernel), padding=pads, name=name, **attrs)


def checked(symbol, rng, shape, level=3, **options):
    """The model compiled, after it agreed with the interpreter."""
    params = with_params(symbol, rng, x=shape)
    model = weft.compile((symbol, params), shape={"x": shape}, opt_level=level, **options)
    x = floats(rng, shape)
    agree(model(x), symbol, {**params, "x": x}, 5e-5)
    return model


def copies(model):
    """Kernels that only move what others computed."""
    return [kernel for kernel in model.program.kernels if kernel.name == "copy"]


def image():
    return sym.Variable("x")


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("level", LEVELS)
def test_convolutions_write_their_parts(rng, batch, level):
    y = sym.concatenate(conv(image(), "a"), conv(image(), "b", 32), conv(image(), "c", 16, 3))
    model = checked(sym.Group([conv(y, "last")]), rng, (batch, 16, 6, 5), level)
    report = model.report()
    assert report.concat_copies == 0
    assert not copies(model)
    assert not any("concatenate" in kernel.operators for kernel in report.kernels)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
@pytest.mark.parametrize("level", [1, 3])
def test_along_any_axis(rng, axis, level):
    parts = [conv(image(), name) for name in "abc"]
    model = checked(sym.tanh(sym.concatenate(*parts, axis=axis)), rng, (2, 16, 4, 5), level)
    assert not copies(model)


@pytest.mark.parametrize("batch", [1, 2])
def test_the_whole_is_an_output(rng, batch):
    a, b = conv(image(), "a"), conv(image(), "b")
    model = checked(sym.concatenate(a, b), rng, (batch, 3, 4, 4), 1)
    assert [k.name for k in model.program.kernels if "concat" in k.name] == []
    assert model.program.plan.arena_bytes == 0


# Parts that cannot stand in their places: each is copied, and only that one.


def is_output():
    a, b = conv(image(), "a"), conv(image(), "b")
    return sym.Group([a, conv(sym.concatenate(a, b), "last")])


def is_input():
    x = image()
    return conv(sym.concatenate(conv(x, "a"), x), "last")


def is_constant():
    c = sym.Variable("c", shape=(2, 16, 4, 4))
    return conv(sym.concatenate(c, conv(image(), "a")), "last")


def is_view():
    a = sym.reshape(conv(image(), "a"), shape=(2, 32, 4, 2))
    b = conv(sym.strided_slice(image(), begin=(0, 0, 0, 0), end=(2, 16, 4, 2)), "b")
    return sym.tanh(sym.concatenate(a, b, axis=1))


def is_there_twice():
    a, b = conv(image(), "a"), conv(image(), "b")
    return conv(sym.concatenate(a, b, a), "last")


def is_in_two_wholes():
    a, b, c = (conv(image(), name) for name in "abc")
    return conv(sym.concatenate(a, b), "one") + conv(sym.concatenate(c, b), "two")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("make", [is_output, is_input, is_constant, is_view, is_there_twice, is_in_two_wholes])
def test_one_part_is_copied(rng, make, level):
    symbol = make()
    model = checked(symbol, rng, (2, 16, 4, 4), level)
    assert model.report().concat_copies <= 1
    assert len(copies(model)) == 1 or level == 3  # where a transform may write the part


def test_parts_of_no_elements(rng):
    x = image()
    nothing = sym.relu(sym.Variable("n", shape=(2, 0)))
    y = sym.concatenate(nothing, sym.dense(x, units=3, name="d"), nothing, x, axis=1)
    checked(sym.Group([y * 2, nothing]), rng, (2, 4))


def test_parts_that_a_written_kernel_or_the_host_makes(rng):
    x = image()
    ordered = sym.argsort(x, axis=1)
    y = sym.concatenate(ordered, ordered * 2, sym.argsort(-x, axis=1), axis=0)
    checked(sym.Group([y, y + 1]), rng, (3, 8))
    y = sym.concatenate(sym.argsort(x, axis=1), sym.argsort(-x, axis=1), axis=1)
    checked(sym.relu(y), rng, (3, 8))


@pytest.mark.parametrize("batch", [1, 4])
def test_products_write_their_parts_in_one_piece_or_not_at_all(rng, batch):
    """A row of a batch is no place for a product, so that its concatenation is a kernel, which then
    computes what follows as well."""
    x = image()
    parts = [sym.dense(x, units=16, name=name) for name in "ab"]
    model = checked(sym.relu(sym.concatenate(*parts, axis=1)), rng, (batch, 8))
    last = model.program.kernels[-1].operators
    assert last == (("relu",) if batch == 1 else ("concatenate", "relu"))


def test_who_reads_a_part_through_a_view(rng):
    a, b = conv(image(), "a"), conv(image(), "b")
    flat = sym.flatten(a)
    joined = conv(sym.concatenate(a, b), "last")
    for shape in ((1, 16, 4, 4), (3, 16, 4, 4)):
        checked(sym.Group([joined, sym.dense(flat, units=5, name="d")]), rng, shape)


# Lists that grow


def growing(count, nested, width=16):
    """A block of densely connected layers."""
    features = [conv(image(), "first")]
    whole = features[0]
    for number in range(count):
        features.append(conv(sym.relu(whole * 0.5), f"new{number}", width, 3))
        parts = [whole, features[-1]] if nested else features
        whole = sym.concatenate(*parts, axis=1)
    return conv(sym.relu(whole), "last")


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_list_that_grows_is_one_buffer(rng, nested, batch):
    count = 5
    model = checked(growing(count, nested), rng, (batch, 16, 5, 5))
    assert not copies(model)
    assert model.report().concat_copies == 0
    program = model.program
    sizes = [slot.size for slot in program.plan.slots if slot.role == "arena"]
    whole = batch * 16 * (count + 1) * 5 * 5 * 4
    assert sizes.count(whole) >= 1
    read = [
        step.buffers[0]
        for step, kernel in zip(program.plan.steps, program.kernels)
        if isinstance(step, KernelStep) and "relu" in kernel.operators and len(step.buffers) == 2
    ]
    assert len({ref.slot for ref in read if program.plan.slots[ref.slot].size == whole}) == 1


def test_kernels_of_a_growing_list_are_linear_in_code(rng):
    sizes = [checked(growing(n, False), rng, (1, 16, 5, 5)).report().code_bytes for n in (4, 8)]
    assert sizes[1] < 2.5 * sizes[0]


@pytest.mark.parametrize("axis", [1, -3])
def test_nesting_takes_the_longest_that_is_there(axis):
    a, b, c, d = (sym.Variable(name, shape=(1, 2, 3, 3)) for name in "abcd")
    lists = [[a, b], [a, b, c], [a, c], [a, b, c, d], [b, c]]
    joined = [sym.concatenate(*parts, axis=axis) for parts in lists]
    graph = optimize(weft.compiler.prepare.typed_graph(sym.Group(joined), {}, {}, {}), 1)
    found = [[entry.node for entry in output.node.inputs] for output in graph.outputs]
    wholes = [output.node for output in graph.outputs]
    names = [[wholes.index(n) if n in wholes else n.name for n in inputs] for inputs in found]
    assert names == [["a", "b"], [0, "c"], ["a", "c"], [1, "d"], ["b", "c"]]


# Halos


@pytest.mark.parametrize("batch", [1, 2])
def test_a_concatenation_in_a_halo(rng, batch):
    """Parts are written into the middle of the padded image, and who wants no padding reads it
    there."""
    y = sym.concatenate(conv(image(), "a"), conv(image(), "b", 32, 3))
    model = checked(conv(y, "three", 16, 3) + conv(y, "one"), rng, (batch, 16, 7, 6))
    report = model.report()
    assert (report.concat_copies, report.pad_copies) == (0, 1)  # the input's


def test_two_halos_of_one_image(rng):
    y = sym.relu(conv(image(), "first"))
    wide = sym.conv2d(y, channels=16, kernel_size=(1, 5), padding=(0, 2), name="wide")
    high = sym.conv2d(y, channels=16, kernel_size=(5, 1), padding=(2, 0), name="high")
    checked(wide + high, rng, (2, 16, 8, 8))


POOLS = [
    (sym.avg_pool2d, {"count_include_pad": True}, "zeros"),
    (sym.avg_pool2d, {"count_include_pad": False}, None),
    (sym.avg_pool2d, {"count_include_pad": True, "ceil_mode": True}, None),
    (sym.max_pool2d, {}, "rim"),
    (sym.max_pool2d, {"strides": (2, 2), "dilation": (1, 2), "padding": (1, 1, 0, 1)}, "rim"),
]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("pool", "attrs", "rim"), POOLS)
def test_padded_pools_read_an_image_with_a_rim(rng, batch, pool, attrs, rim):
    y = sym.concatenate(conv(image(), "a"), conv(image(), "b"))
    attrs = {"pool_size": (3, 3), "padding": (1, 1), **attrs}
    model = checked(conv(pool(y, **attrs), "c") + 1, rng, (batch, 16, 8, 7))
    names = [kernel.name for kernel in model.program.kernels]
    assert sum(name.endswith("_rim") for name in names) == (1 if rim else 0)
    assert model.report().pad_copies == 0
    assert model.report().concat_copies == 0


def test_a_rim_is_less_than_anything_a_maximum_sees():
    x = image()
    y = sym.max_pool2d(x * 1.0, pool_size=(3, 3), padding=(1, 1))
    value = np.full((1, 16, 4, 4), -np.inf, "float32")
    value[0, 0, 1, 1] = -3e38
    value[0, 1, 2, 3] = np.nan
    z = sym.relu(conv(sym.elemwise_add(x, x), "c"))  # so that layouts are chosen
    symbol = sym.Group([y, z])
    params = with_params(symbol, np.random.default_rng(1), x=value.shape)
    model = weft.compile((symbol, params), shape={"x": value.shape})
    np.testing.assert_array_equal(model(value)[0], evaluate(y, {"x": value})[0])


# Networks


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("level", LEVELS)
def test_branches(rng, batch, level):
    symbol, params = branches(rng, batch)
    shape = (batch, 3, 9, 9)
    x = floats(rng, shape)
    results = [
        weft.compile((symbol, params), shape={"x": shape}, opt_level=level, threads=threads) for threads in (1, 2, 4)
    ]
    values = [model(x) for model in results]
    agree(values[0], symbol, {**params, "x": x}, 5e-5)
    for other in values[1:]:
        assert [v.tobytes() for v in other] == [v.tobytes() for v in values[0]]
    assert results[0].report().concat_copies == (0 if level else 2)  # nesting is from level 1 on


NETWORKS = {
    "resnet50": (resnet, {"num_layers": 50, "width": 0.25}, (3, 32, 32)),
    "densenet121": (densenet, {"width": 0.5}, (3, 32, 32)),
    "squeezenet": (squeezenet, {"version": "1.1", "width": 1.0}, (3, 64, 64)),
    "inception_v3": (inception_v3, {"width": 0.5}, (3, 107, 107)),
}


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_copy_nothing_but_their_input(name, batch):
    module, options, image_shape = NETWORKS[name]
    symbol, params = module.get_workload(batch, 10, image_shape=image_shape, **options)
    shape = (batch, *image_shape)
    model = weft.compile((symbol, params), shape={"data": shape})
    report = model.report()
    print(f"{name}: {report}")
    assert report.layout_transforms <= 2
    assert report.concat_copies == 0
    assert report.pad_copies <= (4 if name == "inception_v3" else 1)
    x = np.random.default_rng(3).standard_normal(shape).astype("float32")
    values = {key: value.numpy() for key, value in params.items()}
    agree(model(x), symbol, {**values, "data": x}, 1e-4)


# Graphs at random


@st.composite
def graphs(draw):
    """Convolutions, element-wise work, views and concatenations on what came before."""
    x = sym.Variable("x")
    made = [(x, 16)]
    for number in range(draw(st.integers(2, 9))):
        kind = draw(st.sampled_from(["conv", "wide", "relu", "join", "join", "copy"]))
        data, channels = draw(st.sampled_from(made))
        if kind == "join":
            parts = [draw(st.sampled_from(made)) for _ in range(draw(st.integers(1, 4)))]
            made.append((sym.concatenate(*(p for p, _ in parts)), sum(c for _, c in parts)))
        elif kind == "relu":
            made.append((sym.tanh(data) * 0.5, channels))
        elif kind == "copy":
            made.append((sym.reshape(data, shape=(0, 0, 0, -1)), channels))
        else:
            width = draw(st.sampled_from([8, 16, 32]))
            made.append((conv(data, f"c{number}", width, 3 if kind == "wide" else 1), width))
    outputs = [made[-1], *draw(st.lists(st.sampled_from(made[1:]), max_size=2))]
    return sym.Group([symbol for symbol, _ in outputs])


@settings(max_examples=25)
@given(graphs(), st.integers(1, 2), st.sampled_from(LEVELS), st.integers(0, 99))
def test_random_graphs(symbol, batch, level, seed):
    checked(symbol, np.random.default_rng(seed), (batch, 16, 5, 4), level)

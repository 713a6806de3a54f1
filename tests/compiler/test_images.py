"""Programs that compute several images one by one."""

import numpy as np
import onnx
import pytest

import weft
import weft.symbol as sym
from weft.compiler.parts import part as part_module
from weft.runtime.profile import Profile

SIZE = 96  # images of so many pixels: one fits the second cache, several do not
TARGET = "cpu -caches=32768,1048576,33554432"


def network(images, channels=16):
    x = sym.Variable("x", shape=(images, 3, SIZE, SIZE))
    for number in range(3):
        x = sym.relu(sym.conv2d(x, channels=channels, kernel_size=(3, 3), padding=(1, 1), name=f"c{number}"))
    return sym.dense(sym.reshape(sym.mean(x, axis=(2, 3)), shape=(images, channels)), units=7, name="d")


def parameters():
    random = np.random.default_rng(0)
    shapes = {"d_weight": (7, 16), "d_bias": (7,), "c0_weight": (16, 3, 3, 3)}
    shapes |= {f"c{n}_weight": (16, 16, 3, 3) for n in (1, 2)} | {f"c{n}_bias": (16,) for n in range(3)}
    return {name: random.normal(0, 0.2, shape).astype("float32") for name, shape in shapes.items()}


def together(images, monkeypatch, **options):
    """The model that computes all images by every kernel."""
    with monkeypatch.context() as patch:
        patch.setattr(part_module, "one_image", lambda graph, inputs: None)
        return weft.compile(network(images), params=parameters(), target=TARGET, **options)


@pytest.mark.parametrize(("images", "threads"), [(4, 1), (4, 2), (5, 2), (7, 3)])
def test_images_one_by_one_are_those_together(images, threads, monkeypatch):
    model = weft.compile(network(images), params=parameters(), target=TARGET, threads=threads)
    assert model.program.plan.runs == images
    whole = together(images, monkeypatch, threads=1)
    assert whole.program.plan.runs == 1
    x = np.random.default_rng(1).normal(size=(images, 3, SIZE, SIZE)).astype("float32")
    want = whole(x)[0]
    for _ in range(3):
        np.testing.assert_allclose(model(x)[0], want, atol=2e-5 * np.abs(want).max())


def test_threads_change_no_bit_and_steps_run_again():
    x = np.random.default_rng(1).normal(size=(5, 3, SIZE, SIZE)).astype("float32")
    alone, shared = (
        weft.compile(network(5), params=parameters(), target=TARGET, threads=threads) for threads in (1, 2)
    )
    want = alone(x)[0]
    np.testing.assert_array_equal(shared(x)[0], want)
    step = shared.bind({"x": x})
    for _ in range(2):
        np.testing.assert_array_equal(step()[0], want)
    assert isinstance(shared.profile(x, rounds=1), Profile)
    report = shared.report()
    assert report.images == 5
    assert len(report.kernels) * 5 == len(shared.program.plan.steps)
    assert "5 images, one by one" in str(report)


def test_a_saved_program_has_its_runs(tmp_path):
    x = np.random.default_rng(1).normal(size=(4, 3, SIZE, SIZE)).astype("float32")
    model = weft.compile(network(4), params=parameters(), target=TARGET, threads=2)
    model.save(tmp_path / "m.weft")
    again = weft.compile(tmp_path / "m.weft", threads=2)
    assert again.program.plan.runs == 4
    np.testing.assert_array_equal(again(x)[0], model(x)[0])


def test_what_stays_in_the_cache_is_computed_together():
    x = sym.Variable("x", shape=(4, 3, 8, 8))
    model = weft.compile(
        sym.relu(sym.conv2d(x, channels=8, kernel_size=(3, 3), use_bias=False, name="c")),
        params={"c_weight": np.ones((8, 3, 3, 3), "float32")},
    )
    assert model.program.plan.runs == 1


def open_network(mixed=None):
    """A network for any number of images; `mixed` joins what is computed for them."""
    x = sym.Variable("x", shape=(0, 3, SIZE, SIZE))
    for number in range(3):
        x = sym.relu(sym.conv2d(x, channels=16, kernel_size=(3, 3), padding=(1, 1), name=f"c{number}"))
    x = sym.mean(x, axis=(2, 3))
    return sym.dense(x if mixed is None else mixed(x), units=7, name="d")


def test_any_number_of_images_by_the_program_of_one(tmp_path):
    model = weft.compile(open_network(), params=parameters(), target=TARGET, threads=2)
    random = np.random.default_rng(1)
    for images in (3, 1, 8, 5, 3):
        x = random.normal(size=(images, 3, SIZE, SIZE)).astype("float32")
        (found,) = model(x)
        assert model.program.plan.runs == images
        alone = weft.compile(network(images), params=parameters(), target=TARGET, threads=1)
        want = alone(x)[0]
        np.testing.assert_allclose(found, want, atol=2e-5 * np.abs(want).max())
        np.testing.assert_array_equal(found[-1:], model(x[-1:])[0])
    assert model._whole.compilations == 1
    x = random.normal(size=(70, 3, SIZE, SIZE)).astype("float32")  # so many have a program of their own
    (many,) = model(x)
    assert model.program.plan.runs == 1
    np.testing.assert_allclose(many[:5], model(x[:5])[0], atol=2e-5 * np.abs(want).max())
    model.save(tmp_path / "m.weft")
    again = weft.compile(tmp_path / "m.weft", threads=2)
    np.testing.assert_allclose(again(x[:4])[0], model(x[:4])[0], atol=2e-5 * np.abs(want).max())


def test_what_is_saved_serves_any_number(tmp_path):
    model = weft.compile(open_network(), params=parameters(), target=TARGET, threads=2)
    x = np.random.default_rng(1).normal(size=(5, 3, SIZE, SIZE)).astype("float32")
    want = model(x)[0]
    model.save(tmp_path / "m.weft")
    again = weft.compile(tmp_path / "m.weft", threads=2)
    for images in (5, 2):
        np.testing.assert_allclose(again(x[:images])[0], want[:images], atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: sym.broadcast_sub(x, sym.mean(x, axis=(0,), keepdims=True)),
        lambda x: sym.softmax(x, axis=0),
        lambda x: sym.broadcast_div(x, sym.sum(sym.ones_like(sym.mean(x, axis=(1,))))),
    ],
)
def test_images_that_meet_are_computed_together(mixed):
    model = weft.compile(open_network(mixed), params=parameters(), target=TARGET, threads=2)
    x = np.random.default_rng(1).normal(size=(6, 3, SIZE, SIZE)).astype("float32")
    for images in (4, 6):
        (found,) = model(x[:images])
        assert model.program.plan.runs == 1
        graph = weft.compile(open_network(mixed), params=parameters(), target=TARGET, opt_level=0)
        want = graph(x[:images])[0]
        np.testing.assert_allclose(found, want, atol=2e-5 * np.abs(want).max())


def test_how_many_there_are_may_decide_about_one():
    """A network that divides by the number of images is none of one image."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    divided (float[batch, 3, {SIZE}, {SIZE}] x, float[16, 3, 3, 3] w) => (float[batch, 16, {SIZE}, {SIZE}] z)
    {{
        y = Conv <pads = [1, 1, 1, 1]> (x, w)
        n = Shape <start = 0, end = 1> (x)
        count = Cast <to = 1> (n)
        z = Div (y, count)
    }}"""
    w = np.random.default_rng(0).normal(size=(16, 3, 3, 3)).astype("float32")
    model = weft.compile(onnx.parser.parse_model(text), params={"w": w}, target=TARGET, threads=2)
    x = np.random.default_rng(1).normal(size=(6, 3, SIZE, SIZE)).astype("float32")
    (one,) = model(x[:1])
    for images in (4, 6):
        (found,) = model(x[:images])
        np.testing.assert_allclose(found[:1] * images, one, atol=2e-5 * np.abs(one).max())

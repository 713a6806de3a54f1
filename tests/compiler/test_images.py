"""Programs that compute several images one by one."""

import numpy as np
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

"""Steps over memory that stays. Expected values are numpy's."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from bounds import PATIENCE
from compiler.models import floats
from compiler.test_given_outputs import expected_of, model_of, parted, read_only, two_outputs, unaligned
from onnx import TensorProto, helper
from oracles import oracle

import weft
from weft import symbol as sym
from weft.base.errors import DTypeError, InvalidType, InvalidValue, NotFound, RunError, ShapeError
from weft.base.ndarray import NDArray

torch = oracle("torch")


@pytest.fixture
def rng():
    return np.random.default_rng(23)


@pytest.fixture(scope="module")
def model():
    return weft.compile(two_outputs())


def test_a_step_reads_and_writes_where_it_was_told(model, rng):
    x, w = floats(rng, (4, 6)), floats(rng, (4, 6))
    out = [np.zeros((4, 6), "float32"), np.zeros(4, "float32")]
    step = model.bind({"x": x, "w": w}, out=out)
    assert step.inputs["x"] is x
    for _ in range(4):
        x[...], w[...] = floats(rng, (4, 6)), floats(rng, (4, 6))
        made = step()
        for array, own, right in zip(made, out, expected_of(x, w)):
            assert array is own
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)


def test_a_step_has_memory_of_its_own(model, rng, tmp_path):
    model.save(tmp_path / "model.weft")
    for made in (model, weft.runtime.load(tmp_path / "model.weft")):
        step, w = made.bind(), floats(rng, (4, 6))
        assert list(step.inputs) == ["x", "w"]
        np.testing.assert_array_equal(step()[0], 0)
        for array, right in zip(step.outputs, expected_of(*step.inputs.values())):
            np.testing.assert_array_equal(array, right)
        step.inputs["x"][...] = x = floats(rng, (4, 6))
        step.inputs["w"][...] = w
        for array, right in zip(step(), expected_of(x, w)):
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)
        second = np.zeros(4, "float32")
        mixed = made.bind({"w": w}, out={"second_output": second})
        mixed.inputs["x"][...] = x
        assert mixed()[1] is second
        np.testing.assert_allclose(second, expected_of(x, w)[1], rtol=1e-5, atol=1e-6)
        assert "x, w -> 2 outputs" in repr(mixed)


def test_tensors_of_other_libraries(model, rng):
    x, w = torch.from_numpy(floats(rng, (4, 6))), weft.from_numpy(floats(rng, (4, 6)))
    first, second = torch.zeros(4, 6), NDArray(np.zeros(4, "float32"))
    step = model.bind({"x": x, "w": w}, out=[first, second])
    for _ in range(3):
        x.normal_()
        made = step()
        assert made[0] is first
        right = expected_of(x.numpy(), w.numpy())
        np.testing.assert_allclose(first.numpy(), right[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(second.numpy(), right[1], rtol=1e-5, atol=1e-6)
    step = model.bind({"x": read_only(floats(rng, (4, 6)))})
    step.inputs["w"].fill(1)
    np.testing.assert_allclose(step()[1], step.inputs["x"].sum(axis=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (lambda: np.zeros((6, 4), "float32"), ShapeError, r"input 'x' has shape \(6, 4\)"),
        (lambda: np.zeros((4, 6), "float64"), DTypeError, "float64.*\n.*not copied"),
        (lambda: np.zeros((4, 6), ">f4"), DTypeError, ">f4"),
        (lambda: np.zeros((6, 4), "float32").T, InvalidValue, "not dense.*\n.*not copied"),
        (lambda: np.zeros((8, 6), "float32")[::2], InvalidValue, "not dense"),
        (lambda: unaligned((4, 6)), InvalidValue, "not aligned"),
        (lambda: [[0.0] * 6] * 4, InvalidType, "is a list"),
        (lambda: 3.0, InvalidType, "is a float"),
        (lambda: torch.zeros(4, 6, requires_grad=True), InvalidValue, r"detach\(\)"),
        (lambda: torch.zeros(4, 6, device="meta"), InvalidValue, "on meta"),
    ],
)
def test_what_would_need_a_copy_is_not_bound(model, bad, error, match):
    with pytest.raises(error, match=match):
        model.bind({"x": bad()})


def test_names_and_outputs_that_do_not_fit(model):
    with pytest.raises(NotFound, match="no input 'z'"):
        model.bind({"z": np.zeros(2)})
    with pytest.raises(InvalidType, match="dict from name"):
        model.bind([np.zeros(2)])
    with pytest.raises(DTypeError, match="out for 'second_output' is of float64"):
        model.bind(out=[None, np.zeros(4)])
    with pytest.raises(InvalidValue, match="1 arrays for 2 outputs"):
        model.bind(out=[None])


def test_a_state_that_steps_on(rng):
    """An output may be the input: each call is one turn."""
    x, w = sym.Variable("x", shape=(50, 50)), sym.Variable("w", shape=(50, 50))
    model = weft.compile(sym.transpose(x) + w)
    state, weight = floats(rng, (50, 50)), floats(rng, (50, 50))
    expected = state.copy()
    step = model.bind({"x": state, "w": weight}, out=[state])
    for _ in range(6):
        expected = expected.T + weight
        step()
        np.testing.assert_array_equal(state, expected)


def test_open_shapes(rng):
    x, w = sym.Variable("x"), sym.Variable("w")
    model = weft.compile(sym.elemwise_add(x, w), shape={"x": ("n", 3), "w": ("n", 3)})
    given = floats(rng, (7, 3))
    step = model.bind({"x": given})
    assert step.inputs["w"].shape == (7, 3)
    step.inputs["w"][...] = 2
    np.testing.assert_array_equal(step()[0], given + 2)
    with pytest.raises(ShapeError, match=r"input 'x' cannot be made.*\n.*x: float32\[n, 3\]"):
        model.bind()
    with pytest.raises(ShapeError, match="n = "):
        model.bind({"x": given, "w": given[:2]})


def test_steps_outlive_models(rng):
    x = floats(rng, (4, 6))
    closed, dropped = weft.compile(two_outputs()), weft.compile(two_outputs())
    parts, right_values = parted()
    mask = np.array([1, 0, 0, 1, 1, 0], bool)
    rows = floats(rng, (6, 4))
    out = [np.zeros(value.shape, "float32") for value in right_values(rows, mask)]
    steps = [closed.bind({"x": x, "w": x}), dropped.bind({"x": x, "w": x})]
    third = parts.bind({"x": rows, "mask": mask}, out=out)
    closed.close()
    parts.close()
    del dropped, parts
    gc.collect()
    with pytest.raises(RunError, match="closed"):
        closed.run({"x": x, "w": x})
    for step in steps:
        for array, right in zip(step(), expected_of(x, x)):
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)
    for array, right in zip(third(), right_values(rows, mask)):
        np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)
    with pytest.raises(RunError, match="closed"):
        closed.bind({"x": x, "w": x})
    parts, _ = parted()
    parts.close()
    with pytest.raises(RunError, match="closed"):
        parts.bind({"x": rows, "mask": mask}, out=out)


def test_one_thread_at_a_time(rng):
    """A host step that waits holds the step: another thread is refused meanwhile, and served afterwards."""
    entered, leave = threading.Event(), threading.Event()

    def slow(x):
        entered.set()
        assert leave.wait(PATIENCE)
        return x + 1

    op = weft.Op.register("waits_for_a_test").set_num_inputs(1)
    op.shape = lambda params, ins, outs: (ins, ins)
    op.reference = slow
    leave.set()
    model = weft.compile(sym.waits_for_a_test(sym.Variable("x", shape=(3,))))
    step = model.bind()
    leave.clear()
    entered.clear()
    first = threading.Thread(target=step)
    first.start()
    assert entered.wait(PATIENCE)
    with pytest.raises(RunError, match=r"another thread.*\n.*\n.*for each thread"):
        step()
    leave.set()
    first.join()
    step.inputs["x"].fill(4)
    np.testing.assert_array_equal(step()[0], 5)


def test_steps_of_several_threads(rng):
    model = weft.compile(two_outputs((64, 64)))
    values = [(floats(rng, (64, 64)), floats(rng, (64, 64))) for _ in range(4)]
    wrong = []

    def work(x, w):
        step = model.bind({"x": x, "w": w})
        right = expected_of(x, w)
        for _ in range(200):
            step.outputs[0].fill(-1)
            if not np.allclose(step()[0], right[0], rtol=1e-5, atol=1e-6):
                wrong.append(1)

    threads = [threading.Thread(target=work, args=pair) for pair in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_models_in_parts_bind_through_run(rng):
    model, right_values = parted()
    x, mask = floats(rng, (6, 4)), np.array([0, 1, 1, 0, 1, 1], bool)
    out = [np.zeros(value.shape, "float32") for value in right_values(x, mask)]
    step = model.bind({"x": x, "mask": mask}, out=out)
    for _ in range(3):
        x[...] = floats(rng, (6, 4))
        rng.shuffle(mask)
        made = step()
        for array, own, right in zip(made, out, right_values(x, mask)):
            assert array is own
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)
    mask[:] = True
    with pytest.raises(ShapeError, match="out for 'powers' has shape"):
        step()
    with pytest.raises(ShapeError, match="output 'powers' cannot be made"):
        model.bind({"x": x, "mask": mask})
    with pytest.raises(InvalidValue, match="not dense"):
        model.bind({"x": x[::-1], "mask": mask}, out=out)


def test_random_models_draw_on(rng):
    nodes = [helper.make_node("RandomUniformLike", ["x"], ["y"], seed=3.0)]
    model = weft.compile(model_of(nodes, [("x", TensorProto.FLOAT, (4,))], [("y", TensorProto.FLOAT)]))
    step = model.bind()
    assert len({tuple(step()[0].tolist()) for _ in range(5)}) == 5

"""weft.compile: what goes in, what comes out, what is said about input that does not fit."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from bounds import PATIENCE
from compiler.models import agree, convolutional, floats
from oracles import oracle

import weft
from weft import symbol as sym
from weft.base.errors import (
    DTypeError,
    GraphError,
    InvalidType,
    InvalidValue,
    NotFound,
    RunError,
    ShapeError,
    Unsupported,
)
from weft.compiler.parts import part as part_module


def affine(shape=(3, 4)):
    """2 x + y, with x and y of a shape."""
    x, y = sym.Variable("x", shape=shape), sym.Variable("y", shape=shape)
    return sym.elemwise_add(x * 2, y)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


# The model itself


def test_a_symbol_a_pair_and_a_path(rng, tmp_path):
    symbol, params = convolutional(rng)
    x = floats(rng, (2, 3, 9, 9))
    expected = {**params, "x": x}
    agree(weft.compile(symbol, params=params, shape={"x": x.shape})(x), symbol, expected)
    agree(weft.compile((symbol, params), shape={"x": x.shape})(x=x), symbol, expected)
    path = tmp_path / "m.onnx"
    weft.frontend.to_onnx(symbol, params, path, shape={"x": x.shape})
    for given in (path, str(path)):
        agree(weft.compile(given).run({"x": x}), symbol, expected)


@pytest.mark.parametrize("thing", [None, 3, [], {"a": 1}, (1, 2), object()])
def test_what_is_no_model(thing):
    with pytest.raises(InvalidType, match="is no model"):
        weft.compile(thing)


def test_files_that_are_no_models(tmp_path):
    with pytest.raises(NotFound, match=r"absent\.onnx"):
        weft.compile(tmp_path / "absent.onnx")
    (tmp_path / "m.txt").write_text("hello")
    with pytest.raises(Unsupported, match=r"m\.txt"):
        weft.compile(tmp_path / "m.txt")
    (tmp_path / "m.onnx").write_bytes(b"\x00\x01hello")
    with pytest.raises(weft.Error):
        weft.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"opt_level": 4}, "opt_level"),
        ({"opt_level": -1}, "opt_level"),
        ({"precision": "fp8"}, "precision"),
        ({"target": "gpu"}, "gpu"),
        ({"threads": 0}, "0 threads"),
        ({"threads": -2}, "-2 threads"),
        ({"shape": {"z": (1,)}}, "'z'"),
        ({"shape": {"x": (3, -4)}}, "-4"),
        ({"dtype": {"x": "float33"}}, "float33"),
        ({"params": {"x": np.zeros((9, 9), "float32")}}, r"\(9, 9\)"),
    ],
)
def test_options_that_make_no_sense(options, match):
    with pytest.raises(weft.Error, match=match):
        weft.compile(affine(), **options)


def test_a_variable_without_a_shape(rng):
    model = weft.compile(sym.relu(sym.Variable("x")))
    assert model.inputs[0].shape is None
    for shape in [(), (3,), (2, 0, 4), (2, 3, 4)]:
        x = floats(rng, shape)
        np.testing.assert_array_equal(model(x)[0], np.maximum(x, 0))


def test_models_that_write_are_sent_to_build():
    w = sym.Variable("w", shape=(2,))
    with pytest.raises(Unsupported, match=r"(?s)'w'.*weft.compiler.build"):
        weft.compile(sym._assign(w, w + 1))


def test_progress_is_told():
    seen = []
    x = sym.Variable("x", shape=(4,))
    weft.compile(sym.exp(x), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == len(seen)


def test_repr_names_inputs_and_outputs():
    text = repr(weft.compile(affine()))
    assert "x: float32" in text
    assert "y: float32" in text


# Inputs that do not fit


@pytest.mark.parametrize("opened", [False, True])
def test_errors_name_the_input_what_is_expected_and_what_came(opened):
    shape = (None, 4) if opened else (3, 4)
    model = weft.compile(affine(shape))
    good = np.zeros((3, 4), "float32")
    with pytest.raises(NotFound, match=r"(?s)no input 'z'.*x: float32.*y: float32"):
        model.run({"x": good, "y": good, "z": good})
    with pytest.raises(NotFound, match=r"(?s)input 'y' is missing.*y: float32.*given: x"):
        model.run({"x": good})
    with pytest.raises(NotFound, match=r"(?s)'x' is missing.*given: nothing"):
        model.run({})
    with pytest.raises(ShapeError, match=r"(?s)input 'y' has shape \(3, 5\).*y: float32.*4"):
        model.run({"x": good, "y": np.zeros((3, 5), "float32")})
    with pytest.raises(ShapeError, match=r"input 'y' has shape \(12,\)"):
        model.run({"x": good, "y": good.reshape(-1)})
    with pytest.raises(DTypeError, match=r"(?s)input 'x' is of float64.*x: float32.*astype"):
        model.run({"x": good.astype("float64"), "y": good})
    with pytest.raises(DTypeError, match="input 'x' is of int64"):
        model.run({"x": good.astype("int64"), "y": good})
    with pytest.raises(InvalidValue, match="input 'y' is a list"):
        model.run({"x": good, "y": [[1.0], [2.0, 3.0]]})
    with pytest.raises(weft.Error, match="input 'y' is of object"):
        model.run({"x": good, "y": np.full((3, 4), None)})
    with pytest.raises(weft.Error, match="input 'y'"):
        model.run({"x": good, "y": "hello"})
    with pytest.raises(InvalidType, match="dict"):
        model.run([good, good])
    with pytest.raises(InvalidValue, match="3 arrays for 2 inputs"):
        model(good, good, good)
    with pytest.raises(InvalidValue, match="'x' is given twice"):
        model(good, x=good)


def test_dimensions_of_one_name_must_agree():
    x, y = sym.Variable("x", shape=("n", 4)), sym.Variable("y", shape=("n", 4))
    model = weft.compile(sym.elemwise_add(x, y))
    with pytest.raises(weft.Error):
        model(np.zeros((2, 4), "float32"), np.zeros((3, 4), "float32"))


def test_lists_do_not_lose_anything():
    x = sym.Variable("x", shape=(2,), dtype="int32")
    model = weft.compile(x * 2)
    assert model([1, 2])[0].tolist() == [2, 4]
    assert model([True, False])[0].tolist() == [2, 0]
    with pytest.raises(DTypeError, match="float64"):
        model([1.5, 2])
    with pytest.raises(InvalidValue, match="input 'x'"):
        model([2**40, 0])


# Arrays of all kinds


def test_arrays_of_all_kinds(rng):
    model = weft.compile(affine())
    x, y = floats(rng, (3, 4)), floats(rng, (3, 4))
    expected = 2 * x + y
    frozen = y.copy()
    frozen.flags.writeable = False
    raw = np.empty(x.nbytes + 1, np.uint8)
    misaligned = raw[1:].view("float32").reshape(3, 4)
    misaligned[...] = y
    wide = np.zeros((6, 8), "float32")
    wide[::2, ::2] = y
    kinds = {
        "dense": y,
        "fortran": np.asfortranarray(y),
        "negative strides": y[::-1, ::-1].copy()[::-1, ::-1],
        "every second": wide[::2, ::2],
        "transposed": np.ascontiguousarray(y.T).T,
        "read-only": frozen,
        "misaligned": misaligned,
        "big-endian": y.astype(">f4"),
        "list": y.tolist(),
        "NDArray": weft.nd.array(y),
        "broadcast": np.broadcast_to(y, (3, 4)),
    }
    for name, value in kinds.items():
        np.testing.assert_allclose(model(x, value)[0], expected, rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(model(x, np.broadcast_to(np.float32(2), (3, 4)))[0], 2 * x + 2, rtol=1e-6)
    np.testing.assert_array_equal(frozen, y)


def test_tensors_of_torch(rng):
    torch = oracle("torch")
    model = weft.compile(affine())
    x, y = floats(rng, (3, 4)), floats(rng, (3, 4))
    given = torch.tensor(y.T.copy()).T
    np.testing.assert_allclose(model(x, given)[0], 2 * x + y, rtol=1e-6)
    with pytest.raises(weft.Error, match="input 'y'"):
        model(x, torch.tensor(y, requires_grad=True))


def test_inputs_are_not_changed(rng):
    model = weft.compile(affine())
    x, y = floats(rng, (3, 4)), floats(rng, (3, 4))
    kept = x.copy(), y.copy()
    model(x, y)
    np.testing.assert_array_equal(x, kept[0])
    np.testing.assert_array_equal(y, kept[1])


def test_changing_inputs_give_changing_outputs(rng):
    symbol, params = convolutional(rng)
    model = weft.compile((symbol, params), shape={"x": (2, 3, 9, 9)})
    for _ in range(4):
        x = floats(rng, (2, 3, 9, 9))
        agree(model(x), symbol, {**params, "x": x})


def test_an_input_that_nothing_needs(rng):
    x, y = sym.Variable("x", shape=(3,)), sym.Variable("y", shape=(3,))
    model = weft.compile(sym.elemwise_add(x, sym.zeros_like(y)))
    assert [spec.name for spec in model.inputs] == ["x", "y"]
    value = floats(rng, (3,))
    np.testing.assert_array_equal(model(value, value)[0], value)
    with pytest.raises(NotFound, match="'y' is missing"):
        model.run({"x": value})


def test_two_variables_of_one_name_are_one_input(rng):
    model = weft.compile(sym.elemwise_add(sym.Variable("x", shape=(3,)), sym.Variable("x", shape=(3,))))
    assert len(model.inputs) == 1
    x = floats(rng, (3,))
    np.testing.assert_array_equal(model(x)[0], 2 * x)


# Open shapes


def open_model():
    x = sym.Variable("x", shape=("n", 3))
    return weft.compile(sym.exp(x) + 1)


def test_new_shapes_are_compiled_and_kept(rng):
    model = open_model()
    assert model.specialisations == []
    with pytest.raises(RunError, match="nothing is compiled yet"):
        model.program
    report = model.report()
    assert report.kernels == ()
    assert repr(report) == str(report)
    assert "nothing is compiled yet: the shape of x: float32[n, 3] is open" in str(report)
    for rows in (1, 2, 1, 5, 2):
        x = floats(rng, (rows, 3))
        np.testing.assert_allclose(model(x)[0], np.exp(x) + 1, rtol=1e-6)
    assert model.specialisations == [((1, 3),), ((5, 3),), ((2, 3),)]
    assert model.compilations == 1
    always = weft.compile(model.source.symbol, specialise="always")
    for rows in (1, 2, 1, 5, 2):
        always(floats(rng, (rows, 3)))
    assert always.compilations == 3


def test_the_least_recently_used_goes(rng):
    model = open_model()
    count = part_module.MAX_SPECIALISATIONS
    for rows in range(1, count + 1):
        model(floats(rng, (rows, 3)))
    model(floats(rng, (1, 3)))
    model(floats(rng, (count + 1, 3)))
    kept = [shapes[0][0] for shapes in model.specialisations]
    assert kept == [*range(3, count + 1), 1, count + 1]


def test_an_evicted_executor_outlives_its_calls(rng, monkeypatch):
    monkeypatch.setattr(part_module, "MAX_SPECIALISATIONS", 1)
    model = open_model()
    errors = []

    def work(seed):
        own = np.random.default_rng(seed)
        for _ in range(40):
            x = floats(own, (int(own.integers(1, 4)), 3))
            if not np.allclose(model(x)[0], np.exp(x) + 1, rtol=1e-5):
                errors.append(x)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(model.specialisations) == 1


def test_threads_that_need_one_new_shape_compile_it_once(rng):
    model = open_model()
    x = floats(rng, (9, 3))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: model(x)[0], range(8)))
    assert model.compilations == 1
    for result in results:
        np.testing.assert_allclose(result, np.exp(x) + 1, rtol=1e-6)


def test_a_failed_shape_can_be_tried_again():
    x = sym.Variable("x", shape=("n", "m"))
    model = weft.compile(sym.reshape(x, shape=(2, 6)))
    for _ in range(2):
        with pytest.raises(weft.Error):
            model(np.zeros((5, 5), "float32"))
    assert model(np.zeros((4, 3), "float32"))[0].shape == (2, 6)


def test_unknown_shapes_inside_are_told():
    with pytest.raises(GraphError, match="not known"):
        weft.compile(sym.zeros(), shape={})


def test_closed_models_say_so(rng):
    model = open_model()
    x = floats(rng, (2, 3))
    model(x)
    model.close()
    with pytest.raises(RunError, match="closed"):
        model(x)
    with open_model() as other:
        other(x)
    with pytest.raises(RunError, match="closed"):
        other(x)


def test_a_model_may_close_while_it_runs(rng):
    x = floats(rng, (64, 3))
    for _ in range(5):
        model = open_model()
        model(x)
        failed = []

        def work(model=model, failed=failed):
            try:
                for _ in range(200):
                    model(x)
            except RunError:
                return
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        model.close()
        for thread in threads:
            thread.join()
        assert not failed


# Threads and processes


def test_eight_threads_on_one_model(rng):
    symbol, params = convolutional(rng)
    model = weft.compile((symbol, params), shape={"x": (2, 3, 9, 9)}, threads=2)
    inputs = [floats(rng, (2, 3, 9, 9)) for _ in range(8)]
    alone = [model(x)[0] for x in inputs]

    def many(number):
        return [model(inputs[number])[0] for _ in range(25)]

    with ThreadPoolExecutor(8) as pool:
        for number, results in enumerate(pool.map(many, range(8))):
            for result in results:
                np.testing.assert_array_equal(result, alone[number])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_then_run_and_compile_in_the_child(rng):
    symbol, params = convolutional(rng)
    model = weft.compile((symbol, params), shape={"x": (None, 3, 9, 9)}, threads=2)
    x = floats(rng, (2, 3, 9, 9))
    expected = model(x)[0]
    busy = threading.Event()
    stop = threading.Event()

    def keep_locks_busy():
        while not stop.is_set():
            model(x)
            busy.set()

    thread = threading.Thread(target=keep_locks_busy)
    thread.start()
    busy.wait(PATIENCE)
    child = os.fork()
    if not child:
        code = 1
        try:
            same = np.array_equal(model(x)[0], expected)
            other = model(np.concatenate([x, x]))[0]  # compiled in the child
            code = 0 if same and np.allclose(other[:2], expected, atol=1e-6) else 2
        finally:
            os._exit(code)
    stop.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

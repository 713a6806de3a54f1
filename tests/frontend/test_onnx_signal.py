"""Signals, determinants and running products of ONNX: against ONNX Runtime, and numpy where it has none."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto
from onnx_runs import one_node, onnxruntime_run, weft_runs

from weft.base.errors import Error
from weft.core.interpret import evaluate
from weft.frontend import from_onnx

RATHER = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-11}


def agree(model, inputs, wanted, tolerance=1e-5, levels=(3,)):
    for how, (found,) in weft_runs(model, inputs, levels):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), how
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=how)


def known(model):
    """What a model without inputs gives."""
    symbol, params = from_onnx(model)
    return evaluate(symbol, params)[0]


def number(value, dtype=np.int64):
    return np.asarray(value, dtype)


def parts(numbers, dtype=np.float32):
    return np.stack([numbers.real, numbers.imag], -1).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    ("inverse", "onesided", "count"), [(0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 0, 2), (1, 0, 1), (1, 1, 2)]
)
def test_transforms(rng, inverse, onesided, count, dtype):
    """Along every axis, of the signal's own length, of a shorter one and of a longer."""
    x = rng.standard_normal((3, 6, 5, count)).astype(dtype)
    numbers = x[..., 0] + (1j * x[..., 1] if count == 2 else 0)
    for axis, length in [(-2, None), (1, 4), (-4, 7)]:
        settings = {"n": length, "axis": {-2: 2, 1: 1, -4: 0}[axis]}
        if inverse and onesided:
            wanted = np.fft.irfft(numbers, **settings)[..., None]
        elif onesided:
            wanted = parts(np.fft.rfft(numbers.real, **settings), dtype)
        else:
            wanted = parts((np.fft.ifft if inverse else np.fft.fft)(numbers, **settings), dtype)
        attrs = {"inverse": inverse, "onesided": onesided}
        given = None if length is None else number(length)
        model, inputs = one_node("DFT", x, constants=(given, number(axis)), opset=20, **attrs)
        agree(model, inputs, wanted.astype(dtype), 10 * RATHER[dtype])


@pytest.mark.parametrize(("axis", "length"), [(None, None), (0, 9), (-2, 3)])
def test_an_axis_that_is_an_attribute(rng, axis, length):
    x = rng.standard_normal((4, 6, 2)).astype(np.float32)
    wanted = parts(np.fft.fft(x[..., 0] + 1j * x[..., 1], n=length, axis=1 if axis in (None, -2) else 0))
    attrs = {} if axis is None else {"axis": axis}
    given = () if length is None else (number(length, np.int32),)
    model, inputs = one_node("DFT", x, constants=given, opset=17, **attrs)
    agree(model, inputs, wanted)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("count", [1, 2])
def test_frames(rng, count, onesided):
    """With a window, a length, both or neither."""
    x = rng.standard_normal((2, 37, count)).astype(np.float32)
    window = rng.uniform(0.2, 1, 12).astype(np.float32)
    for taken, length in [(window, None), (None, number(9, np.int32)), (window, number(12)), (None, None)]:
        step = number(5, np.int32 if length is not None and length.dtype == np.int32 else np.int64)
        model, inputs = one_node("STFT", x, constants=(step, taken, length), opset=17, onesided=onesided)
        if taken is None and length is None:
            rows = x[..., 0] + (1j * x[..., 1] if count == 2 else 0)
            wanted = parts(np.fft.fft(rows)[:, None, : 19 if onesided else 37])
        else:
            (wanted,) = onnxruntime_run(model, inputs)
        agree(model, inputs, wanted, 2e-5)


def test_frames_of_a_signal_without_an_axis_of_parts(rng):
    x = rng.standard_normal((2, 30)).astype(np.float32)
    model, inputs = one_node("STFT", x, constants=(number(4), None, number(8)), opset=17)
    agree(model, inputs, onnxruntime_run(model, inputs)[0])


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(name, periodic):
    for size in (2, 7, 20):
        model, _ = one_node(name, constants=[number(size, np.int32)], periodic=periodic)
        np.testing.assert_allclose(known(model), onnxruntime_run(model, {})[0], rtol=1e-6, atol=1e-7)
    numpys = {"HannWindow": np.hanning, "BlackmanWindow": np.blackman}.get(name)
    for code, dtype in [(TensorProto.DOUBLE, np.float64), (TensorProto.INT8, np.int8), (TensorProto.FLOAT16, "e")]:
        model, _ = one_node(name, constants=[number(9)], periodic=periodic, output_datatype=code)
        found = known(model)
        assert found.dtype == dtype
        if numpys:
            wanted = numpys(10)[:9] if periodic else numpys(9)
            np.testing.assert_allclose(found, wanted.astype(dtype), rtol=1e-3, atol=1e-9)


def test_short_windows():
    model, _ = one_node("HannWindow", constants=[number(1)], periodic=0)
    assert known(model).tolist() == np.hanning(1).tolist() == [1]
    model, _ = one_node("HannWindow", constants=[number(0)])
    assert known(model).shape == (0,)


def test_bands_of_pitch(rng):
    for bands, length, rate in itertools.product((1, 13, 40), (64, 400), (8000, 44100)):
        edges = [np.float32(rng.choice([0, 20])), np.float32(rng.uniform(0.3, 0.5) * rate)]
        model, _ = one_node("MelWeightMatrix", constants=[number(n) for n in (bands, length, rate)] + edges)
        np.testing.assert_allclose(known(model), onnxruntime_run(model, {})[0], atol=1e-6)
    model, _ = one_node(
        "MelWeightMatrix",
        constants=[*(number(n, np.int32) for n in (5, 32, 8000)), np.float64(30), np.float64(3000)],
        output_datatype=TensorProto.DOUBLE,
    )
    found = known(model)
    assert found.dtype == np.float64
    assert found.max(0).tolist() == [1] * 5


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_determinants(rng, dtype):
    for shape in [(3, 3), (2, 4, 5, 5), (2, 0, 0), (0, 2, 2)]:
        x = rng.standard_normal(shape).astype(dtype)
        model, inputs = one_node("Det", x)
        wanted = np.asarray(np.linalg.det(x.astype(np.float64)), dtype)
        agree(model, inputs, wanted, 10 * RATHER[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint64"])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_products(rng, exclusive, reverse, dtype):
    x = rng.integers(1, 4, (3, 4, 2)).astype(dtype) if "int" in dtype else rng.uniform(-2, 2, (3, 4, 2)).astype(dtype)
    model, inputs = one_node(
        "CumProd", x, constants=[number(-2, np.int32)], opset=26, exclusive=exclusive, reverse=reverse
    )
    turned = x[:, ::-1] if reverse else x
    if exclusive:
        turned = np.concatenate([np.ones_like(x[:, :1]), turned[:, :-1]], 1)
    wanted = np.cumprod(turned, 1, dtype=dtype if "int" in dtype else "float64").astype(dtype)
    agree(model, inputs, wanted[:, ::-1] if reverse else wanted, RATHER.get(dtype, 0))


HUGE = number(1 << 40)


@pytest.mark.parametrize(
    ("op_type", "constants"),
    [
        ("HannWindow", [HUGE]),
        ("BlackmanWindow", [number(-1)]),
        ("MelWeightMatrix", [HUGE, number(64), number(8000), np.float32(0), np.float32(4000)]),
        ("MelWeightMatrix", [number(8), HUGE, number(8000), np.float32(0), np.float32(4000)]),
        ("MelWeightMatrix", [number(8), number(64), number(0), np.float32(0), np.float32(4000)]),
        ("MelWeightMatrix", [number(8), number(64), number(8000), np.float32(0), np.float32(8000)]),
        ("MelWeightMatrix", [number(8), number(64), number(8000), np.float32(20), np.float32(10)]),
        ("MelWeightMatrix", [number(8), number(64), number(8000), np.float32("nan"), np.float32(10)]),
    ],
)
def test_constants_that_are_refused(op_type, constants):
    with pytest.raises(Error):
        from_onnx(one_node(op_type, constants=constants)[0])


@pytest.mark.parametrize(
    ("shape", "constants", "attrs"),
    [
        ((2, 6, 3), (None, None), {}),
        ((2, 6, 1), (None, number(-1)), {}),
        ((2, 6, 1), (number(0), None), {}),
        ((2, 6, 2), (None, None), {"onesided": 1}),
        ((2, 6, 1), (None, None), {"onesided": 1, "inverse": 1}),
        ((2, 1, 2), (None, None), {"onesided": 1, "inverse": 1}),
        ((2, 6, 2), (number(1 << 50), None), {}),
    ],
)
def test_transforms_that_are_refused(shape, constants, attrs):
    model, _ = one_node("DFT", np.zeros(shape, np.float32), constants=constants, opset=20, **attrs)
    with pytest.raises(Error):
        from_onnx(model)


@pytest.mark.parametrize(
    ("step", "window", "length"), [(0, None, 4), (2, None, 40), (2, None, 0), (2, np.ones(3, np.float32), 4)]
)
def test_frames_that_are_refused(step, window, length):
    given = (number(step), window, number(length))
    with pytest.raises(Error):
        from_onnx(one_node("STFT", np.zeros((1, 9, 1), np.float32), constants=given, opset=17)[0])

"""`weft.quantize`: against numpy's own levels, ONNX Runtime on the file that is written, and the model in floats."""

from pathlib import Path

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.compiler.quantise.ranges import Ends, Histogram, Range
from weft.compiler.quantise.rewrite import scale_of
from weft.frontend.onnx.exporter import to_onnx

rng = np.random.default_rng(77)
sym = weft.symbol


def normal(*shape):
    return rng.standard_normal(shape).astype("f")


def layer(data, name, channels, taken, values, kernel=3, stride=1, groups=1):
    """A convolution, its norm and relu, all numbers random."""
    weights = normal(channels, taken // groups, kernel, kernel)
    values[f"{name}_w"] = weights / np.float32(np.sqrt(weights[0].size))
    for part, low in (("gamma", 0.5), ("beta", -0.3), ("mean", -0.3), ("var", 0.5)):
        values[f"{name}_{part}"] = rng.uniform(low, low + 1, channels).astype("f")
    size = {"channels": channels, "kernel_size": (kernel, kernel), "padding": (kernel // 2, kernel // 2)}
    made = sym.conv2d(
        data, sym.Variable(f"{name}_w"), strides=(stride, stride), groups=groups, use_bias=False, name=name, **size
    )
    norm = [sym.Variable(f"{name}_{part}") for part in ("gamma", "beta", "mean", "var")]
    return sym.relu(sym.batch_norm(made, *norm)[0])


def network():
    """Residual, concatenated, pooled and depthwise parts, and a classifier."""
    values = {}
    x = sym.Variable("x", shape=(2, 3, 20, 20))
    y = sym.max_pool2d(layer(x, "first", 32, 3, values, stride=2), pool_size=(2, 2), strides=(2, 2))
    y = sym.broadcast_add(y, layer(layer(y, "a", 32, 32, values), "b", 32, 32, values, kernel=1))
    y = sym.concatenate(layer(y, "c", 16, 32, values, kernel=1), layer(y, "d", 32, 32, values), axis=1)
    y = layer(layer(y, "e", 48, 48, values, groups=48), "f", 64, 48, values, kernel=1)
    y = sym.flatten(sym.global_avg_pool2d(y))
    values["out_w"], values["out_b"] = normal(10, 64), normal(10)
    y = sym.dense(y, sym.Variable("out_w"), sym.Variable("out_b"), units=10, name="out")
    return y, values


def decibels(wanted, found):
    return 10 * np.log10(np.square(wanted, dtype="d").sum() / np.square(wanted - found, dtype="d").sum())


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_a_network_in_bytes(method):
    model = network()
    batches = [normal(2, 3, 20, 20) for _ in range(3)]
    told = []
    made = weft.quantize(model, iter(batches), method, progress=lambda *at: told.append(at))
    assert told == [(1, None), (2, None), (3, None)]
    compiled = weft.compile(made)
    kernels = compiled.report().kernels
    assert sum("_byte_conv2d" in kernel.operators for kernel in kernels) == 6
    assert sum("_byte_depthwise" in kernel.operators for kernel in kernels) == 1
    assert sum("_byte_matmul" in kernel.operators for kernel in kernels) == 1
    x = normal(2, 3, 20, 20)
    wanted = weft.compile(model)(x)[0]
    assert decibels(wanted, compiled(x)[0]) > 22
    assert [row.name for row in made.report.outputs] == ["out_output"]
    assert len(made.report.layers) == 8
    assert all(row.decibels > 20 for row in made.report.layers)
    assert "SNR dB" in str(made.report)


def test_the_same_bits_for_any_threads_and_levels_with_a_sign():
    model, x = network(), normal(2, 3, 20, 20)
    made = weft.quantize(model, [{"x": x}], activations="int8")
    found = [weft.compile(made, threads=threads)(x)[0] for threads in (1, 2)]
    np.testing.assert_array_equal(*found)
    assert decibels(weft.compile(model)(x)[0], found[0]) > 22


def test_the_file_that_is_written_gives_the_same_in_onnx_runtime(tmp_path):
    runtime = oracle("onnxruntime")
    model, x = network(), normal(2, 3, 20, 20)
    made = weft.quantize(model, [x])
    path = tmp_path / "int8.onnx"
    to_onnx(made.symbol, made.params, path)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    assert decibels(wanted, weft.compile(made)(x)[0]) > 30  # halves of a level may be rounded otherwise
    assert decibels(wanted, weft.compile(path)(x)[0]) > 30


def test_levels_of_a_product():
    """By numpy, level by level."""
    x, w, b = normal(5, 70), normal(9, 70), normal(9)
    y = sym.dense(*map(sym.Variable, ("x", "w", "b")), units=9)
    made = weft.quantize((y, {"w": w, "b": b}), [x], shape={"x": (None, 70)})
    steps = np.abs(w).max(1, keepdims=True) / np.float32(127)
    scale = np.float32((float(x.max()) - float(x.min())) / 255)
    zero = np.rint(-float(x.min()) / float(scale))
    data = np.clip(np.rint(x / scale) + zero, 0, 255) - zero
    wanted = data @ np.rint(w / steps).T.astype("d") * steps.T.astype("d") * scale
    corrected = b - (np.rint(w / steps) * steps.astype("d") - w) @ x.astype("d").mean(0)  # what is wrong in the mean
    wanted += np.rint(corrected / (steps[:, 0].astype("d") * scale)) * (steps[:, 0].astype("d") * scale)
    np.testing.assert_allclose(weft.compile(made, shape={"x": x.shape})(x)[0], wanted, rtol=1e-4, atol=1e-4)


def test_first_products_stay_floats_where_noise_grows():
    made = weft.quantize(network(), [normal(2, 3, 20, 20)], least_decibels=1e9)
    assert made.report.layers == ()
    some = weft.quantize(network(), [normal(2, 3, 20, 20)], keep=["first", "out"])
    assert {"first", "out"}.isdisjoint(row.name for row in some.report.layers)
    assert len(some.report.layers) == 6


def test_what_cannot_be_quantised():
    model, x = network(), normal(2, 3, 20, 20)
    wrong = [({"method": "best"}, "'mse'"), ({"activations": "int4"}, "'int8'"), ({"keep": ["no"]}, "'no'")]
    for options, text in wrong:
        with pytest.raises(weft.Error, match=text):
            weft.quantize(model, [x], **options)
    with pytest.raises(weft.Error, match="no batch"):
        weft.quantize(model, [])
    with pytest.raises(weft.Error, match="ndarray"):
        weft.quantize(model, x)
    with pytest.raises(weft.Error, match="finite"):
        weft.quantize(model, [np.full_like(x, np.nan)])


def test_ranges_of_streams():
    """Histograms whose reach grows with what is seen, against numpy's percentiles of all of it."""
    ends, bins = Ends("x"), Histogram("x")
    parts = [normal(5000) * scale + 0.3 for scale in (0.1, 1, 4)]
    for part in parts:
        ends.add(part)
        bins.add(part)
    whole = np.concatenate(parts)
    assert ends.minmax() == bins.minmax() == (min(whole.min(), 0), whole.max())
    wanted = np.percentile(whole, [1, 99])
    np.testing.assert_allclose(bins.percentile(99), wanted, atol=bins.reach / 1000)
    outlier = np.concatenate([normal(200_000), [200.0]]).astype("f")
    bins = Histogram("x")
    bins.add(outlier)
    reached = bins.mse()
    lost = lambda r: np.square(outlier - _levelled(outlier, r)).mean()
    assert lost(reached) <= lost(bins.minmax())


def _levelled(x, reached):
    scale, zero = scale_of(Range(*reached), "uint8")
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale


def test_the_ranges_that_outputs_lose_least_by():
    """Of the others, each by itself, with all products in bytes; one batch has a number far from all others."""
    model, batches = network(), [normal(2, 3, 20, 20) for _ in range(4)]
    batches[1][0, 0, 3, 3] = 100
    made = {name: weft.quantize(model, batches, name, least_decibels=0) for name in ("minmax", "percentile", "mse")}
    lost = {name: found.report.outputs[0].decibels for name, found in made.items()}
    best = max(lost, key=lost.get)
    found = weft.quantize(model, batches, "auto", least_decibels=0).report
    assert found.method == best
    assert found.outputs[0].decibels == pytest.approx(lost[best])


@pytest.mark.parametrize("method", ["minmax", "mse"])
def test_a_trained_network_decides_the_same(method):
    """Calibrated on other images than those that it is asked about."""
    data = Path(weft.__file__).parent / "data"
    seen, asked = (np.load(data / name)["images"] / np.float32(16) for name in ("digits_train.npz", "digits.npz"))
    made = weft.quantize(data / "digits.onnx", [seen[:64], seen[64:192]], method)
    wanted, found = (weft.compile(model)(asked)[0] for model in (data / "digits.onnx", made))
    assert decibels(wanted, found) > 25
    assert (wanted.argmax(1) == found.argmax(1)).mean() > 0.97


def test_the_command(tmp_path):
    from click.testing import CliRunner

    from weft.cli import main

    model, x = network(), normal(6, 3, 20, 20)
    to_onnx(*model, tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=x)
    out = tmp_path / "int8.onnx"
    arguments = [str(tmp_path / "net.onnx"), "-o", str(out), "--data", str(tmp_path / "x.npz")]
    done = CliRunner().invoke(main, ["quantize", *arguments])
    assert done.exit_code == 0, done.output
    assert "of 3 batches" in done.output
    wanted = weft.compile(model)(x[:2])[0]
    assert decibels(wanted, weft.compile(out)(x[:2])[0]) > 22

"""Convolutions and pools of ONNX over one to three axes, drawn at random, against ONNX Runtime, or
ONNX's reference evaluator where that is wrong."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_runs import model_of, onnxruntime_run, weft_runs

from weft.base.errors import FormatError
from weft.frontend import from_onnx

PADDED = ["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]


def check(node, inputs, constants=None, opset=22, wanted=None, tolerance=1e-4, levels=(3,)):
    model = model_of([node], inputs, [name for name in node.output if name], constants, opset)
    wanted = onnxruntime_run(model, inputs) if wanted is None else wanted
    for how, got in weft_runs(model, inputs, levels):
        assert len(got) == len(wanted)
        for mine, theirs in zip(got, wanted):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), how
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=how)


def drawn_windows(rng, rank, extents, most=3, pool=False):
    """Attributes of windows that fit the extents."""
    kernel = [int(k) for k in rng.integers(1, most + 1, rank)]
    attrs = {"kernel_shape": kernel, "auto_pad": str(rng.choice(PADDED))}
    mode = attrs["auto_pad"]  # ONNX Runtime has no SAME with dilations, or with strides beyond the window
    attrs["strides"] = [int(rng.integers(1, 4 if mode in ("NOTSET", "VALID") else k + 1)) for k in kernel]
    attrs["dilations"] = [int(rng.integers(1, 3)) if mode in ("NOTSET", "VALID") else 1 for _ in kernel]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, attrs["dilations"])]
    if mode == "NOTSET":
        limit = kernel if pool else [3] * rank
        attrs["pads"] = [int(rng.integers(0, most)) for most in [*limit, *limit]]
        sums = [a + b for a, b in zip(attrs["pads"][:rank], attrs["pads"][rank:])]
    else:
        sums = [0] * rank
    fits = all(extent + more >= r for extent, more, r in zip(extents, sums, reach))
    return attrs if fits or mode.startswith("SAME") else drawn_windows(rng, rank, extents, most, pool)


def extents_of(rng, rank):
    return [int(n) for n in rng.integers(4, 9, rank)]


@pytest.mark.parametrize("seed", range(16))
def test_convolutions(seed):
    rng = np.random.default_rng(seed)
    rank, groups = 1 + seed % 3, int(rng.choice([1, 1, 2, 3]))
    extents = extents_of(rng, rank)
    attrs = drawn_windows(rng, rank, extents)
    many, outs = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    x = rng.standard_normal((2, many, *extents)).astype(np.float32)
    w = rng.standard_normal((outs, many // groups, *attrs["kernel_shape"])).astype(np.float32)
    b = rng.standard_normal(outs).astype(np.float32)
    names = ["x", "w", "b"][: int(rng.integers(2, 4))]
    node = helper.make_node("Conv", names, ["y"], group=groups, **attrs)
    weights = {"w": w, "b": b} if len(names) == 3 else {"w": w}
    opset = int(rng.choice([7, 11, 22]))
    if seed % 2:
        check(node, {"x": x}, weights, opset)
    else:  # weights that are computed
        check(node, {"x": x, **weights}, opset=opset)


@pytest.mark.parametrize("seed", range(16))
def test_transposed_convolutions(seed):
    rng = np.random.default_rng(seed)
    rank, groups = 1 + seed % 3, int(rng.choice([1, 1, 2]))
    extents = [int(n) for n in rng.integers(2, 6, rank)]
    strides = [int(s) for s in rng.integers(1, 4, rank)]
    kernel = [int(rng.integers(max(s, 2), 5)) for s in strides]
    attrs = {"kernel_shape": kernel, "strides": strides, "dilations": [int(d) for d in rng.integers(1, 3, rank)]}
    mode = ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "output_shape"][seed % 5]
    if mode in ("NOTSET", "VALID"):
        attrs["output_padding"] = [int(rng.integers(0, s)) for s in strides]
    if mode == "output_shape":
        attrs["output_shape"] = [n * s + 1 for n, s in zip(extents, strides)]
    else:
        attrs["auto_pad"] = mode
    if mode == "NOTSET":
        attrs["pads"] = [int(p) for p in rng.integers(0, 2, 2 * rank)]
    many, outs = groups * int(rng.integers(1, 4)), int(rng.integers(1, 4))
    x = rng.standard_normal((2, many, *extents)).astype(np.float32)
    w = rng.standard_normal((many, outs, *kernel)).astype(np.float32)
    b = rng.standard_normal(outs * groups).astype(np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=groups, **attrs)
    check(node, {"x": x}, {"w": w, "b": b}, opset=int(rng.choice([7, 11, 22])))


@pytest.mark.parametrize("seed", range(20))
def test_pools(seed):
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    kind = ["MaxPool", "AveragePool", "LpPool"][seed // 3 % 3]
    extents = extents_of(rng, rank)
    attrs = drawn_windows(rng, rank, extents, pool=True)
    attrs["ceil_mode"] = int(rng.integers(2)) if attrs["auto_pad"] == "NOTSET" else 0
    if kind == "AveragePool":
        attrs["count_include_pad"] = int(rng.integers(2))
    if kind == "LpPool":
        attrs["p"] = int(rng.integers(1, 4))
    x = rng.standard_normal((2, 3, *extents)).astype(np.float32)
    check(helper.make_node(kind, ["x"], ["y"], **attrs), {"x": x})


@pytest.mark.parametrize("seed", range(12))
def test_where_the_largest_are(seed):
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    extents = extents_of(rng, rank)
    attrs = drawn_windows(rng, rank, extents, pool=True)
    attrs["storage_order"] = int(rng.integers(2)) if rank > 1 else 0
    x = rng.integers(0, 5, (2, 3, *extents)).astype(np.float32)  # many are equal
    check(helper.make_node("MaxPool", ["x"], ["y", "places"], **attrs), {"x": x}, opset=12)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "float64"])
def test_largest_of_other_types(rng, dtype):
    x = (rng.standard_normal((2, 3, 7, 6)) * 50).astype(dtype)
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])
    check(node, {"x": x}, opset=12)
    node.output.append("places")
    wanted = onnxruntime_run(
        model_of([node], {"x": x.astype(np.float64)}, ["y", "places"], opset=12), {"x": x.astype(np.float64)}
    )
    check(node, {"x": x}, opset=12, wanted=[wanted[0].astype(dtype), wanted[1]])


@pytest.mark.parametrize(
    ("kind", "counted"), [("MaxPool", {}), *(("AveragePool", {"count_include_pad": n}) for n in (0, 1))]
)
def test_a_window_that_sticks_out_of_everything(rng, kind, counted):
    x = rng.standard_normal((2, 3, 3, 6)).astype(np.float32)
    attrs = {"kernel_shape": [3, 2], "strides": [4, 2], "dilations": [2, 1], "pads": [0, 1, 1, 0], "ceil_mode": 1}
    check(helper.make_node(kind, ["x"], ["y"], **attrs, **counted), {"x": x})


def test_pads_with_valid_do_not_count(rng):
    x = rng.standard_normal((1, 2, 6, 6)).astype(np.float32)
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], auto_pad="VALID", pads=[0, 0, 0, 0])
    check(node, {"x": x})


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_largest_put_back(rng, rank):
    x = rng.standard_normal((2, 3, *(6,) * rank)).astype(np.float32)
    windows = {"kernel_shape": [2] * rank, "strides": [2] * rank}
    pool = helper.make_node("MaxPool", ["x"], ["m", "places"], **windows)
    back = helper.make_node("MaxUnpool", ["m", "places"], ["y"], **windows)
    model = model_of([pool, back], {"x": x}, ["y"], opset=12)
    (wanted,) = onnxruntime_run(model, {"x": x})
    for _, (got,) in weft_runs(model, {"x": x}):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", ["GlobalLpPool", "GlobalMaxPool", "GlobalAveragePool"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools_over_everything(rng, kind, rank):
    x = rng.standard_normal((2, 3, *range(3, 3 + rank))).astype(np.float32)
    attrs = {"p": 3} if kind == "GlobalLpPool" else {}
    check(helper.make_node(kind, ["x"], ["y"], **attrs), {"x": x}, opset=2 if kind == "GlobalLpPool" else 22)


@pytest.mark.parametrize("seed", range(6))
def test_columns_to_images(seed):
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    extents = extents_of(rng, rank)
    attrs = drawn_windows(rng, rank, extents)
    kernel = attrs.pop("kernel_shape")
    attrs.pop("auto_pad")
    attrs["pads"] = pads = [int(p) for p in rng.integers(0, 2, 2 * rank)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, attrs["dilations"])]
    rows = zip(extents, pads[:rank], pads[rank:], reach, attrs["strides"])
    many = [(n + a + b - r) // s + 1 for n, a, b, r, s in rows]
    x = rng.standard_normal((2, 3 * int(np.prod(kernel)), int(np.prod(many)))).astype(np.float32)
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **attrs)
    known = {"image": np.array(extents), "block": np.array(kernel)}
    # ONNX Runtime has dilations of one and three axes wrong.
    wanted = ReferenceEvaluator(model_of([node], {"x": x}, ["y"], known)).run(None, {"x": x})
    check(node, {"x": x}, known, wanted=wanted)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 20])
def test_local_response_of_any_size(rng, size):
    x = rng.standard_normal((2, 6, 3, 4)).astype(np.float32)
    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.7, beta=0.6, bias=1.3)
    before, behind = (size - 1) // 2, size // 2
    sums = np.stack([(x[:, max(c - before, 0) : c + behind + 1] ** 2).sum(1) for c in range(6)], 1)
    check(node, {"x": x}, wanted=[x / (1.3 + 0.7 / size * sums) ** 0.6])


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_causal_convolution_with_a_state(rng, dtype):
    x, w = rng.standard_normal((2, 3, 5)), rng.standard_normal((3, 1, 4))
    inputs = {"x": x, "w": w, "b": rng.standard_normal(3), "past": rng.standard_normal((2, 3, 3))}
    inputs = {name: value.astype(dtype) for name, value in inputs.items()}
    node = helper.make_node("CausalConvWithState", list(inputs), ["y", "present"], activation="silu")
    whole = np.concatenate([inputs["past"], inputs["x"]], 2).astype(np.float64)
    parts = np.lib.stride_tricks.sliding_window_view(whole, 4, 2)
    total = (
        np.einsum("nclk,ck->ncl", parts, inputs["w"][:, 0].astype(np.float64)) + inputs["b"].astype(np.float64)[:, None]
    )
    wanted = [(total / (1 + np.exp(-total))).astype(dtype), whole[:, :, -3:].astype(dtype)]
    check(node, inputs, opset=27, wanted=wanted, tolerance=2e-3 if dtype == "float16" else 1e-5)


def test_what_makes_no_sense_is_refused(rng):
    x, w = rng.standard_normal((1, 2, 3, 3, 3)), rng.standard_normal((2, 2, 5, 1, 1))
    model = model_of([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x, "w": w}, ["y"])
    with pytest.raises(FormatError, match="reaches over 5 for an extent of 3"):
        from_onnx(model)
    node = helper.make_node("MaxUnpool", ["x", "i", "s"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    inputs = {"x": rng.standard_normal((1, 1, 2, 2)), "i": np.arange(4).reshape(1, 1, 2, 2)}
    with pytest.raises(FormatError, match="an output of shape"):
        from_onnx(model_of([node], inputs, ["y"], {"s": np.array([1, 1, 3, 3])}))

"""Data read at places that are computed: against PyTorch, ONNX Runtime and ONNX's reference evaluator."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_runs import model_of, onnxruntime_run, weft_runs
from oracles import oracle

from weft.base.errors import FormatError
from weft.frontend import from_onnx


def check(node, inputs, wanted, constants=None, opset=22, tolerance=1e-4):
    model = model_of([node], inputs, ["y"], constants, opset)
    for how, (got,) in weft_runs(model, inputs, levels=(3,)):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), how
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=how)


def runtime(node, inputs, constants=None, opset=22):
    (wanted,) = onnxruntime_run(model_of([node], inputs, ["y"], constants, opset), inputs)
    return wanted


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "rank"), [("cubic", 2), ("linear", 2), ("linear", 3), ("nearest", 3)])
def test_grids(rng, mode, rank, padding, align):
    torch = oracle("torch")
    x = rng.standard_normal((2, 3, *range(4, 4 + rank))).astype(np.float32)
    grid = rng.uniform(-1.6, 1.6, (2, *range(3, 3 + rank), rank)).astype(np.float32)
    named = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    wanted = torch.nn.functional.grid_sample(
        torch.tensor(x), torch.tensor(grid), named, padding, align_corners=bool(align)
    )
    attrs = {"padding_mode": padding, "align_corners": align}
    check(helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, **attrs), {"x": x, "g": grid}, wanted.numpy())
    if rank == 2:
        node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=named, **attrs)
        check(node, {"x": x, "g": grid}, wanted.numpy(), opset=16)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_grids_of_lines(rng, mode):
    """The same as images of one row."""
    x, grid = rng.standard_normal((2, 3, 7)), rng.uniform(-1.4, 1.4, (2, 5, 1))
    x, grid = x.astype(np.float32), grid.astype(np.float32)
    torch = oracle("torch")
    places = np.concatenate([grid, np.zeros_like(grid)], -1)[:, None]
    named = {"linear": "bilinear"}.get(mode, mode)
    wanted = torch.nn.functional.grid_sample(
        torch.tensor(x[:, :, None]), torch.tensor(places), named, align_corners=False
    )
    check(helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode), {"x": x, "g": grid}, wanted.numpy()[:, :, 0])


@pytest.mark.parametrize("types", [("float16", "float16"), ("float64", "float32"), ("int32", "float32")])
def test_types_of_data_and_grid(rng, types):
    x = (rng.standard_normal((1, 2, 4, 5)) * 9).astype(types[0])
    grid = rng.uniform(-1, 1, (1, 3, 3, 2)).astype(types[1])
    for mode in ("nearest", "cubic"):
        node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode)
        wide = {"x": x.astype(np.float32), "g": grid.astype(np.float32)}
        wanted = runtime(node, wide).astype(types[0])
        check(node, {"x": x, "g": grid}, wanted, tolerance=2e-2 if types[0] == "float16" else 1e-4)


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 3), (2, 3, 3, 4, 5)])
def test_affine_grids(rng, size, align):
    torch = oracle("torch")
    rank = len(size) - 2
    theta = rng.standard_normal((size[0], rank, rank + 1)).astype(np.float32)
    wanted = torch.nn.functional.affine_grid(torch.tensor(theta), size, align_corners=bool(align)).numpy()
    node = helper.make_node("AffineGrid", ["t", "s"], ["y"], align_corners=align)
    check(node, {"t": theta}, wanted, {"s": np.array(size)})


def deformed(scipy, x, w, offsets, windows):
    """A deformable convolution of one group, tap by tap, between elements as scipy has it."""
    places, total = np.indices(offsets.shape[2:]), 0.0
    offsets = offsets.reshape(len(x), -1, x.ndim - 2, *offsets.shape[2:])
    for number, tap in enumerate(np.ndindex(*w.shape[2:])):
        rows = zip(places, windows["strides"], tap, windows["dilations"], windows["pads"])
        plain = np.stack([place * s + t * d - p for place, s, t, d, p in rows])
        taken = [
            [
                scipy.ndimage.map_coordinates(image, plain + moves[number], order=1, mode="grid-constant")
                for image in item
            ]
            for item, moves in zip(x, offsets)
        ]
        total = total + np.einsum("oc,nc...->no...", w[(..., *tap)], np.array(taken))
    return total


@pytest.mark.parametrize("seed", range(8))
def test_deformable_convolutions(seed):
    rng = np.random.default_rng(seed)
    rank, (groups, count) = 2 if seed < 6 else 3, [(1, 1), (2, 1), (1, 2)][seed % 3 if seed < 6 else 0]
    kernel, strides, dilations = ([int(n) for n in rng.integers(1, 4, rank)] for _ in range(3))
    pads = [int(p) for p in rng.integers(0, 3, 2 * rank)]
    extents = (8, 9, 5)[:rank]
    rows = zip(extents, pads[:rank], pads[rank:], kernel, dilations, strides)
    sizes = [(n + a + b - (k - 1) * d - 1) // s + 1 for n, a, b, k, d, s in rows]
    taps = int(np.prod(kernel))
    inputs = {
        "x": rng.standard_normal((2, 4, *extents)),
        "w": rng.standard_normal((6, 4 // groups, *kernel)),
        "o": rng.standard_normal((2, count * rank * taps, *sizes)) * 2,
        "b": rng.standard_normal(6),
        "m": rng.uniform(0, 1, (2, count * taps, *sizes)),
    }
    names = list(inputs)[: 3 + seed % 3 if rank == 2 else 3]
    inputs = {name: inputs[name].astype(np.float32) for name in names}
    attrs = {"strides": strides, "dilations": dilations, "pads": pads}
    node = helper.make_node("DeformConv", names, ["y"], group=groups, offset_group=count, **attrs)
    if rank == 2:
        (wanted,) = ReferenceEvaluator(model_of([node], inputs, ["y"], opset=19)).run(None, inputs)
    else:  # of images alone in ONNX's evaluator
        wanted = deformed(oracle("scipy"), inputs["x"], inputs["w"], inputs["o"], attrs)
    check(node, inputs, wanted.astype(np.float32), opset=19)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_middles(rng, dtype):
    x = (rng.standard_normal((5, 8, 3)) * 9).astype(dtype)
    node = helper.make_node("CenterCropPad", ["x", "s"], ["y"], axes=[1, -3])
    for sizes in ([5, 8], [8, 5], [3, 4], [11, 6]):
        shape = {"s": np.array(sizes)}
        wide = {"x": x.astype(np.float32)}
        (wanted,) = ReferenceEvaluator(model_of([node], wide, ["y"], shape)).run(None, wide)
        check(node, {"x": x}, wanted.astype(dtype), shape)


def test_what_is_refused(rng):
    x, grid = rng.standard_normal((1, 2, 4, 4)), rng.standard_normal((1, 3, 3, 3))
    node = helper.make_node("GridSample", ["x", "g"], ["y"])
    with pytest.raises(FormatError, match="a grid of shape"):
        from_onnx(model_of([node], {"x": x, "g": grid}, ["y"]))

"""Gradients of convolutions and norms as GPUs have them: graphs of products and sums, by the reference interpreter and
kernel by kernel, against PyTorch in float64."""

import ml_dtypes
import numpy as np
import pytest
from lower.cuda.group_runs import interpreted
from oracles import oracle

from weft.base.cuda_target import CudaTarget
from weft.base.dtype import as_dtype
from weft.compiler.backends.cuda import CUDA
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.core.symbol import Group, Symbol, Variable
from weft.lower.cuda.gradients import BLOCKS, LEAST_PIXELS, _parts
from weft.passes.pipeline import optimize
from weft.te.loops import WholeKernel

torch = oracle("torch")
RULES = CUDA.layout_rules_for(CudaTarget())
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
BOUND = {"float16": 2e-3, "bfloat16": 1.2e-2, "float32": 5e-5}  # of the largest number
CONV_GRADIENTS = {"_conv2d_grad_data", "_conv2d_grad_weight"}
NORM_GRADIENTS = {"_batch_norm_moments", "_batch_norm_grad"}


def altered(symbol, given):
    shapes = {name: array.shape for name, array in given.items()}
    dtypes = {name: as_dtype(array.dtype) for name, array in given.items()}
    return optimize(infer(Graph(symbol.outputs), shapes, dtypes), 3, layout_rules=RULES)


def names_of(graph):
    return [node.op_name for node in graph.indexed.nodes]


def close(found, wanted, dtype="float32"):
    found, wanted = np.asarray(found, "float64"), wanted.detach().numpy()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=BOUND[dtype] * max(np.abs(wanted).max(), 1e-3))


# Convolutions


def convolution(rng, count, channels, results, image, size, strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1)):
    """Attributes, what is given, and the gradients that PyTorch has."""
    attrs = {
        "channels": results,
        "kernel_size": size,
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "use_bias": False,
    }
    top, left, bottom, right = padding

    def gradients(dtype):
        drawn = [
            rng.standard_normal(shape).astype(dtype)
            for shape in ((count, channels, *image), (results, channels, *size))
        ]
        x, w = (torch.tensor(array.astype("float64"), requires_grad=True) for array in drawn)
        around = torch.nn.functional.pad(x, (left, right, top, bottom))
        made = torch.nn.functional.conv2d(around, w, None, strides, 0, dilation)
        g = rng.standard_normal(made.shape).astype(dtype)
        made.backward(torch.tensor(g.astype("float64")))
        return {"g": g, "x": drawn[0], "w": drawn[1]}, x.grad, w.grad

    return attrs, gradients


def of_data(attrs):
    return Op.get("_conv2d_grad_data")(*map(Variable, "gxw"), **attrs)


def of_filters(attrs):
    return Op.get("_conv2d_grad_weight")(*map(Variable, "gx"), **attrs)


@pytest.mark.parametrize("seed", range(60))
def test_gradients_of_any_convolution(seed):
    rng = np.random.default_rng(seed)
    draw = lambda low, high, count: tuple(int(n) for n in rng.integers(low, high + 1, count))
    size, strides, padding, dilation = draw(1, 5, 2), draw(1, 3, 2), draw(0, 2, 4), draw(1, 2, 2)
    reach = [(n - 1) * d + 1 for n, d in zip(size, dilation)]
    least = [max(r - padding[axis] - padding[axis + 2], 1) for axis, r in enumerate(reach)]
    image = tuple(low + int(more) for low, more in zip(least, rng.integers(0, 8, 2)))
    (count,), (channels, results) = draw(1, 3, 1), draw(1, 11, 2)
    attrs, gradients = convolution(rng, count, channels, results, image, size, strides, padding, dilation)
    given, to_data, to_filters = gradients("float32")
    graph = altered(Group([of_data(attrs), of_filters(attrs)]), given)
    assert not CONV_GRADIENTS & set(names_of(graph))
    for found, wanted in zip(evaluate(graph, given), (to_data, to_filters)):
        close(found, wanted)


# images, channels, results, image, size, strides, padding, dilation
CASES = {
    "3 x 3": (1, 8, 16, (4, 3), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "1 x 1": (2, 16, 16, (3, 4), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "1 x 1 in steps": (1, 16, 16, (7, 6), (1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    "3 x 3 in steps": (1, 8, 16, (5, 6), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    "apart": (1, 8, 16, (6, 7), (3, 2), (1, 3), (2, 0, 1, 1), (2, 2)),
    "odd channels": (1, 5, 11, (4, 5), (4, 3), (2, 1), (1, 0, 2, 1), (1, 1)),
}


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("dtype", list(NUMPY))
@pytest.mark.parametrize("name", CASES)
def test_kernels_of_gradients(name, dtype, arch):
    """One product of tensor cores for each gradient."""
    rng = np.random.default_rng(3)
    attrs, gradients = convolution(rng, *CASES[name])
    given, to_data, to_filters = gradients(NUMPY[dtype])
    for made, wanted, read in ((of_data(attrs), to_data, "gxw"), (of_filters(attrs), to_filters, "gx")):
        graph = altered(made, {key: given[key] for key in read})
        left = {node.name: given[node.name] for node in graph.indexed.nodes if node.op is None}
        found, kernels = interpreted(Symbol(graph.outputs), CudaTarget().changed(arch=arch), left)
        assert sum(isinstance(kernel.body, WholeKernel) for kernel in kernels) == 1
        close(found, wanted, dtype)


@pytest.mark.parametrize("extent", [24, 23])  # parts of whole rows, and with zeros behind
def test_long_sums_go_in_parts(extent):
    rng = np.random.default_rng(extent)
    attrs, gradients = convolution(rng, 2, 8, 8, (extent, extent), (1, 1))
    given, _, wanted = gradients(NUMPY["bfloat16"])
    graph = altered(of_filters(attrs), {key: given[key] for key in "gx"})
    (products,) = (node for node in graph.indexed.nodes if node.op_name == "_pixel_products")
    assert graph.fact(products.inputs[0]).shape[0] == 2
    close(evaluate(graph, {key: given[key] for key in "gx"})[0], wanted, "bfloat16")


@pytest.mark.parametrize("pixels", [1, 49, 5000, 6272, 100352, 1 << 20, 999_983])
@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (64, 576), (512, 4608), (2048, 1024)])
def test_parts_hold_all_pixels(pixels, rows, columns):
    parts, length = _parts(pixels, rows, columns)
    assert pixels <= parts * length < pixels + 8 * parts
    assert 1 <= parts <= BLOCKS
    assert parts == 1 or length >= LEAST_PIXELS - 8
    assert length % 8 == 0


def test_groups_and_other_layouts_stay():
    attrs = {"channels": 8, "kernel_size": (3, 3), "padding": (1, 1), "groups": 8, "use_bias": False}
    arrays = {"g": (1, 8, 5, 5), "x": (1, 8, 5, 5), "w": (8, 1, 3, 3)}
    given = {name: np.zeros(shape, "float32") for name, shape in arrays.items()}
    graph = altered(Group([of_data(attrs), of_filters(attrs)]), given)
    assert set(names_of(graph)) >= CONV_GRADIENTS


# Batch norm


def norm(rng, shape, dtype, epsilon, scale, center):
    x, g = (rng.standard_normal(shape) + 3 for _ in range(2))
    gamma, beta, to_mean, to_var = rng.standard_normal((4, shape[1]))
    given = {"x": x, "gamma": gamma, "beta": beta, "g": g, "to_mean": to_mean, "to_var": to_var}
    given = {name: array.astype(dtype) for name, array in given.items()}
    wide = {name: torch.tensor(array.astype("float64"), requires_grad=True) for name, array in given.items()}
    mean, var = wide["x"].mean((0, 2, 3)), wide["x"].var((0, 2, 3), correction=0)
    whole = lambda vector: vector[:, None, None]
    unit = (wide["x"] - whole(mean)) / whole(var + epsilon).sqrt()
    made = unit * whole(wide["gamma"]) if scale else unit
    made = made + whole(wide["beta"]) if center else made
    lost = (made * wide["g"]).sum() + (mean * wide["to_mean"]).sum() + (var * wide["to_var"]).sum()
    to_x = torch.autograd.grad(lost, wide["x"], retain_graph=True)[0]
    sums = (wide["g"] * unit).sum((0, 2, 3)), wide["g"].sum((0, 2, 3))
    return given, (made, mean, var), (to_x, *sums)


@pytest.mark.parametrize("dtype", list(NUMPY))
@pytest.mark.parametrize(("scale", "center"), [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (1, 8, 1, 7)])
def test_batch_norm_on_rows_of_channels(shape, scale, center, dtype):
    attrs = {"epsilon": 1e-3, "scale": scale, "center": center, "training": True}
    rng = np.random.default_rng(sum(shape))
    given, forward, backward = norm(rng, shape, NUMPY[dtype], attrs["epsilon"], scale, center)
    g, x = (Op.get("max_pool2d")(Variable(name), pool_size=(1, 1)) for name in "gx")  # which calls their axes NCHW
    gamma, beta, to_mean, to_var = map(Variable, ("gamma", "beta", "to_mean", "to_var"))
    made, mean, var = Op.get("_batch_norm_moments")(x, gamma, beta, **attrs)
    back = Op.get("_batch_norm_grad")(g, x, gamma, mean, var, to_mean, to_var, **attrs)
    graph = altered(Group([Op.get("relu")(made), mean, var, *back]), given)
    assert not NORM_GRADIENTS & set(names_of(graph))
    wanted = (forward[0].relu(), *forward[1:], *backward)
    for found, value in zip(evaluate(graph, given), wanted, strict=True):
        close(found, value, dtype)


def test_pictures_that_nobody_names_are_normed_as_they_are():
    x, gamma, beta = map(Variable, ("x", "gamma", "beta"))
    given = {name: np.ones(shape, "float32") for name, shape in {"x": (2, 3, 4, 5), "gamma": 3, "beta": 3}.items()}
    graph = altered(Op.get("_batch_norm_moments")(x, gamma, beta, training=True), given)
    assert "_batch_norm_moments" in names_of(graph)


def test_nothing_is_copied_between_convolutions():
    """Forward and back through convolution, norm, relu and pool: only filters and what enters and leaves are moved."""
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 8, 8, 6), "w": (8, 8, 3, 3), "gamma": (8,), "beta": (8,), "g": (2, 8, 4, 3), "zero": (8,)}
    given = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    x, w, gamma, beta, g, zero = map(Variable, shapes)
    conv = {"channels": 8, "kernel_size": (3, 3), "padding": (1, 1), "use_bias": False}
    pool = {"pool_size": (2, 2), "strides": (2, 2)}
    first = Op.get("conv2d")(x, w, **conv)
    normed, mean, var = Op.get("_batch_norm_moments")(first, gamma, beta, training=True)
    active = Op.get("relu")(normed)
    second = Op.get("conv2d")(active, w, **conv)
    pooled = Op.get("max_pool2d")(second, **pool)
    to_second = Op.get("_max_pool2d_grad")(g, second, pooled, **pool)
    to_active = Op.get("_conv2d_grad_data")(to_second, active, w, **conv)
    to_normed = Op.get("_keep_between")(to_active, active, a_min=0.0, a_max=float("inf"), strict=True)
    to_first = Op.get("_batch_norm_grad")(to_normed, first, gamma, mean, var, zero, zero, training=True)[0]
    filters = [Op.get("_conv2d_grad_weight")(*pair, **conv) for pair in ((to_second, active), (to_first, x))]
    graph = altered(Group([pooled, *filters]), given)
    moved = [node.inputs[0] for node in graph.indexed.nodes if node.op_name == "__layout_transform__"]
    inside = [entry.node.op_name for entry in moved if entry.node.op is not None]
    assert inside == ["max_pool2d"]
    plain = Group([pooled, *filters])
    shown = infer(Graph(plain.outputs), shapes, dict.fromkeys(shapes, as_dtype("float32")))
    for found, wanted in zip(evaluate(graph, given), evaluate(shown, given)):
        close(found, torch.tensor(np.asarray(wanted)))

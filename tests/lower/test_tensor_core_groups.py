"""Groups around products become kernels of tensor cores, with all that follows. What they mean, or of single warps
their PTX, is run against float64 numpy and, of convolutions, a sum over taps of it."""

import ml_dtypes
import numpy as np
import pytest
from lower.cuda.group_runs import interpreted

from weft.base.cuda_target import CudaTarget
from weft.base.dtype import as_dtype
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.op import Op
from weft.core.symbol import Variable
from weft.lower.cuda.dispatch import LOWERING
from weft.passes.fuse import fusible_groups
from weft.te.loops import WholeKernel
from weft.te.tensor_cores.attention import Attention
from weft.te.tensor_cores.warp_attention import WarpAttention
from weft.te.tensor_cores.warp_product import WarpProduct

rng = np.random.default_rng(0)
TARGET = CudaTarget()
ARCHS = ["sm_90a", "sm_80"]  # with products of warpgroups, and without
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
BOUND = {"float16": 1e-2, "bfloat16": 8e-2, "float32": 5e-5}


def drawn(*shape, dtype="float16"):
    return rng.standard_normal(shape).astype(NUMPY[dtype])


def ran(symbol, target=TARGET, whole=1, **given):
    """The output of a graph, kernel by kernel; `whole`: how many of them are tensor cores' own."""
    output, kernels = interpreted(symbol, target, given)
    assert sum(isinstance(kernel.body, WholeKernel) for kernel in kernels) == whole
    return output


def op(name, *inputs, **attrs):
    return Op.get(name)(*inputs, **attrs)


def target_of(arch):
    return CudaTarget().changed(arch=arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", list(NUMPY))
def test_dense_bias_residual_relu(dtype, arch):
    x, w, b, r = (
        drawn(2, 5, 16, dtype=dtype),
        drawn(16, 16, dtype=dtype),
        drawn(16, dtype=dtype),
        drawn(2, 5, 16, dtype=dtype),
    )
    names = [Variable(name) for name in "xwbr"]
    made = op("relu", op("elemwise_add", op("dense", *names[:3], units=16), names[3]))
    got = ran(made, target_of(arch), x=x, w=w, b=b, r=r)
    wide = [a.astype(np.float64) for a in (x, w, b, r)]
    np.testing.assert_allclose(got, np.maximum(wide[0] @ wide[1].T + wide[2] + wide[3], 0), atol=BOUND[dtype])


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_any_order(turned, dtype, arch):
    a, b = drawn(16, 16, dtype=dtype), drawn(16, 24, dtype=dtype)
    stored = [x.T.copy() if t else x for x, t in zip((a, b), turned)]
    attrs = {"transpose_a": turned[0], "transpose_b": turned[1]}
    got = ran(op("matmul", Variable("a"), Variable("b"), **attrs), target_of(arch), a=stored[0], b=stored[1])
    np.testing.assert_allclose(got, a.astype(np.float64) @ b.astype(np.float64), atol=BOUND[dtype])


@pytest.mark.parametrize("arch", ARCHS)
def test_batches_that_share_matrices(arch):
    a, b = drawn(2, 3, 12, 16), drawn(3, 16, 24)
    got = ran(op("batch_matmul", Variable("a"), Variable("b")), target_of(arch), a=a, b=b)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b.astype(np.float64), atol=1e-2)


def test_tf32_is_one_pass():
    x, w = drawn(12, 8, dtype="float32"), drawn(16, 8, dtype="float32")
    made = op("dense", Variable("x"), Variable("w"), units=16, use_bias=False)
    target, shapes = TARGET.changed(precision="tf32"), {"x": x.shape, "w": w.shape}
    group = fusible_groups(infer(Graph(made.outputs), shapes, {"x": as_dtype("float32")}))[0]
    graph = infer(Graph(made.outputs), shapes, dict.fromkeys(shapes, as_dtype("float32")))
    assert len(LOWERING.lower(group, graph.fact, target)) == 1
    assert len(LOWERING.lower(group, graph.fact, TARGET)) == 3  # the rest of both operands first
    np.testing.assert_allclose(ran(made, target, x=x, w=w), x.astype(np.float64) @ w.T.astype(np.float64), atol=5e-5)


@pytest.mark.parametrize("arch", ARCHS)
def test_convolution_in_nhwc(arch):
    x, w, b = drawn(2, 5, 4, 8), drawn(8, 3, 2, 8), drawn(8)
    attrs = {"channels": 8, "kernel_size": (3, 2), "strides": (2, 1), "padding": (1, 0, 1, 1)}
    layouts = {"layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    made = op("relu", op("conv2d", Variable("x"), Variable("w"), Variable("b"), **attrs, **layouts))
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (0, 1), (0, 0)))
    wanted = np.zeros((2, 3, 4, 8))
    for r in range(3):
        for s in range(2):
            wanted += padded[:, r : r + 5 : 2, s : s + 4] @ w[:, r, s].astype(np.float64).T
    got = ran(made, target_of(arch), x=x, w=w, b=b)
    np.testing.assert_allclose(got, np.maximum(wanted + b, 0), atol=2e-2)


WITHOUT_WARPGROUPS = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize("arch", WITHOUT_WARPGROUPS)
def test_single_warps_multiply_all_sizes(arch):
    """Rows of 7 and 11 elements, a residual, and a product that is stored by columns, where there are no warpgroups."""
    target = CudaTarget().changed(arch=arch)
    x, w, r = drawn(9, 7), drawn(7, 11), drawn(9, 11)
    made = op("elemwise_add", op("matmul", Variable("x"), Variable("w")), Variable("r"))
    kernel = lowered(made, target, x=x, w=w, r=r)
    assert isinstance(kernel.body, WarpProduct)
    assert kernel.body.launch.dependent == (target.sm >= 90)
    assert kernel.body.launch.shared <= target.shared_bytes
    got = ran(made, target, x=x, w=w, r=r)
    np.testing.assert_allclose(got, x.astype(np.float64) @ w.astype(np.float64) + r, atol=1e-2)


def lowered(symbol, target, **given):
    """The one kernel of a graph."""
    graph = Graph(symbol.outputs)
    shapes = {name: array.shape for name, array in given.items()}
    graph = infer(graph, shapes, {name: as_dtype(array.dtype) for name, array in given.items()})
    (group,) = fusible_groups(graph, dense=LOWERING.dense)
    (made,) = LOWERING.lower(group, graph.fact, target)
    return made.kernel


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_single_warps_take_float32_as_it_is(precision):
    """One kernel: nothing is turned and no rests are made before it."""
    target = CudaTarget().changed(arch="sm_80", precision=precision)
    x, w = drawn(10, 10, dtype="float32"), drawn(10, 11, dtype="float32")
    made = op("matmul", Variable("x"), Variable("w"))
    assert lowered(made, target, x=x, w=w).body.tile.exact == (precision == "fp32")
    bound = {"fp32": 5e-5, "tf32": 1e-2}[precision]
    np.testing.assert_allclose(ran(made, target, x=x, w=w), x.astype(np.float64) @ w, atol=bound)


def test_single_warps_convolve_channels_of_any_number():
    target = CudaTarget().changed(arch="sm_86")
    x, w = drawn(1, 5, 4, 3), drawn(5, 3, 3, 3)
    layouts = {"layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC", "use_bias": False}
    made = op("conv2d", Variable("x"), Variable("w"), channels=5, kernel_size=(3, 3), padding=(1, 1), **layouts)
    assert isinstance(lowered(made, target, x=x, w=w).body, WarpProduct)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = sum(padded[:, r : r + 5, s : s + 4] @ w[:, r, s].astype(np.float64).T for r in range(3) for s in range(3))
    np.testing.assert_allclose(ran(made, target, x=x, w=w), wanted, atol=2e-2)


@pytest.mark.parametrize("arch", [*WITHOUT_WARPGROUPS, "sm_90a"])
@pytest.mark.parametrize("dtype", list(NUMPY))
def test_which_template_attends(arch, dtype):
    """Warpgroups take 16 bits on Hopper; single warps all else, even heads of odd sizes."""
    target = CudaTarget().changed(arch=arch)
    given = {
        "q": drawn(1, 2, 10, 8, dtype=dtype),
        "k": drawn(1, 2, 6, 8, dtype=dtype),
        "v": drawn(1, 2, 6, 8, dtype=dtype),
    }
    made = op("scaled_dot_product_attention", *map(Variable, given))
    by_warps = arch != "sm_90a" or dtype == "float32"
    assert isinstance(lowered(made, target, **given).body, WarpAttention if by_warps else Attention)
    odd = {
        "q": drawn(1, 1, 11, 7, dtype=dtype),
        "k": drawn(1, 1, 5, 7, dtype=dtype),
        "v": drawn(1, 1, 5, 9, dtype=dtype),
    }
    assert isinstance(lowered(made, target, **odd).body, WarpAttention)
    np.testing.assert_allclose(ran(made, target, **odd), attended(*odd.values(), 7**-0.5), atol=BOUND[dtype])


def test_what_tensor_maps_cannot_see_goes_by_single_warps():
    x, w = drawn(9, 7), drawn(11, 7)
    made = op("dense", Variable("x"), Variable("w"), units=11, use_bias=False)
    assert isinstance(lowered(made, TARGET, x=x, w=w).body, WarpProduct)
    np.testing.assert_allclose(ran(made, x=x, w=w), x.astype(np.float64) @ w.T.astype(np.float64), atol=1e-2)


def attended(q, k, v, scale, seen=None, mask=0.0):
    """Attention in float64; where `seen` is False a key does not count, and a query that sees none gives zeros."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * scale + mask
    scores = scores if seen is None else np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ v


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("causal", "mask"), [(False, "none"), (True, "none"), (False, "boolean"), (False, "additive"), (True, "additive")]
)
def test_attention_with_masks(causal, mask, arch):
    q, k, v = drawn(2, 2, 10, 8), drawn(2, 2, 12, 8), drawn(2, 2, 12, 8)
    given = {"q": q, "k": k, "v": v}
    seen = np.tri(10, 12, dtype=bool) if causal else None
    added = 0.0
    if mask == "boolean":
        given["m"] = rng.random((2, 1, 10, 12)) > 0.4
        given["m"][0, 0, 2] = False
        seen = given["m"]
    elif mask == "additive":
        given["m"] = drawn(12)
        added = given["m"].astype(np.float64)
    made = op("scaled_dot_product_attention", *map(Variable, given), is_causal=causal, mask=mask)
    np.testing.assert_allclose(ran(made, target_of(arch), **given), attended(q, k, v, 8**-0.5, seen, added), atol=1e-2)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_attention_over_a_packed_projection(dtype, arch):
    """Heads are read where they lie; float32 stays float32."""
    batch, tokens, heads, width = 2, 10, 2, 8
    packed = drawn(batch, tokens, 3 * heads * width, dtype=dtype)
    mask = drawn(batch, 1, tokens, 1, dtype=dtype)
    line = 3 * heads * width
    steps = (tokens * line, width, line, 1)
    made = op(
        "_strided_attention",
        *[Variable("x")] * 3,
        Variable("m"),
        batch=(batch, heads),
        queries=tokens,
        keys=tokens,
        width=width,
        values=width,
        query=(0, *steps),
        key=(heads * width, *steps),
        value=(2 * heads * width, *steps),
        out_axes=(0, 2, 1, 3),
        scale=0.3,
        masked=True,
    )
    got = ran(made, target_of(arch), x=packed, m=mask)
    q, k, v = packed.reshape(batch, tokens, 3, heads, width).transpose(2, 0, 3, 1, 4)
    wanted = attended(q, k, v, 0.3, mask=mask.astype(np.float64).swapaxes(-1, -2)).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(got, wanted, atol=BOUND[dtype])

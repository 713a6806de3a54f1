"""Templates of tensor cores whose sizes are scalars, as NVIDIA's assembler has them: nothing is spilled."""

from __future__ import annotations

import pytest
from codegen.cuda.ptxas import assembled
from lower.cuda.open_groups import open_kernels

from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda.compile import CODEGEN
from weft.core.op import Op
from weft.core.symbol import Variable
from weft.te.loops import WholeKernel


def op(name, *inputs, **attrs):
    return Op.get(name)(*inputs, **attrs)


def dense():
    made = op("gelu", op("dense", *map(Variable, "xwb"), units=768))
    return op("elemwise_add", made, Variable("r")), {
        "x": ("n", "s", 768),
        "w": (768, 768),
        "b": (768,),
        "r": ("n", "s", 768),
    }


INSTRUCTIONS = "wgmma.mma_async mma.sync cp.async.bulk.tensor cp.async.c mbarrier stmatrix ldmatrix st.global".split()


def counts(text):
    return {word: text.count(word) for word in INSTRUCTIONS}


def check(symbol, shapes, values, target, dtype, folder):
    kernels, _ = open_kernels(symbol, shapes, values, target, dtype)
    (kernel,) = [kernel for kernel in kernels if isinstance(kernel.body, WholeKernel)]
    code = CODEGEN.assemble(CODEGEN.emit(kernel, target), target)
    made = assembled(code, target.arch, folder)
    assert (made.spilled, made.stack) == (0, 0), made.log
    assert "C75" not in made.log  # products that wait for each other
    launch = kernel.body.launch
    resident = getattr(getattr(kernel.body, "tile", None), "resident", 1)
    assert -(-made.registers // 8) * 8 * launch.threads[0] * resident <= target.registers


@pytest.mark.parametrize("size", [(2, 6), (8, 64), (9, 128), (16, 1000)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80", "sm_120"])
def test_products(arch, dtype, size, tmp_path):
    check(*dense(), dict(zip("ns", size)), CudaTarget().changed(arch=arch), dtype, tmp_path)


@pytest.mark.parametrize("turned", [(False, False), (True, True)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_products_of_which_nothing_is_known(arch, dtype, turned, tmp_path):
    shapes = {"x": ("b", "m", "k"), "w": ("b", "k", "n")}
    for name, turns in zip("xw", turned):
        shapes[name] = (shapes[name][0], *shapes[name][:0:-1]) if turns else shapes[name]
    made = op("batch_matmul", *map(Variable, "xw"), transpose_a=turned[0], transpose_b=turned[1])
    check(made, shapes, {"b": 4, "m": 64, "k": 96, "n": 128}, CudaTarget().changed(arch=arch), dtype, tmp_path)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80", "sm_120"])
def test_few_rows(arch, dtype, turned, tmp_path):
    """As many as there may be have sums in registers."""
    target = CudaTarget().changed(arch=arch)
    shapes = {"x": ("n", 768), "w": (768, 2304)}
    shapes = {name: shape[::-1] if turns else shape for (name, shape), turns in zip(shapes.items(), turned)}
    made = op("matmul", *map(Variable, "xw"), transpose_a=turned[0], transpose_b=turned[1])
    (kernel,), _ = open_kernels(made, shapes, {"n": 3}, target, dtype)
    assert not isinstance(kernel.body, WholeKernel)
    code = assembled(CODEGEN.assemble(CODEGEN.emit(kernel, target), target), target.arch, tmp_path)
    assert (code.spilled, code.stack) == (0, 0), code.log


def attention(masked):
    shapes = {name: ("n", 12, length, 64) for name, length in zip("qkv", ("s", "t", "t"))}
    if masked:
        shapes["m"] = ("n", 1, 1, "t")
    attrs = {"mask": "additive"} if masked else {"is_causal": True}
    return op("scaled_dot_product_attention", *map(Variable, shapes), **attrs), shapes


@pytest.mark.parametrize("size", [(2, 40, 60), (9, 128, 128), (16, 1000, 1000)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80", "sm_120"])
def test_attention(arch, dtype, masked, size, tmp_path):
    check(*attention(masked), dict(zip("nst", size)), CudaTarget().changed(arch=arch), dtype, tmp_path)


@pytest.mark.parametrize("make", [dense, lambda: attention(True), lambda: attention(False)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_scalars_change_nothing_but_numbers(arch, dtype, make):
    """The same copies, products, barriers and stores as where sizes are numbers that fill no tile, either."""
    target, (symbol, shapes) = CudaTarget().changed(arch=arch), make()
    values = {"n": 16, "s": 1001, "t": 1002}
    opened = {dim: values[dim] for shape in shapes.values() for dim in shape if dim in values}
    fixed = {name: tuple(values.get(dim, dim) for dim in shape) for name, shape in shapes.items()}
    made = []
    for given, sizes in ((shapes, opened), (fixed, {})):
        kernels, _ = open_kernels(symbol, given, sizes, target, dtype)
        (kernel,) = [kernel for kernel in kernels if isinstance(kernel.body, WholeKernel)]
        text = CODEGEN.assemble(CODEGEN.emit(kernel, target), target).decode()
        made.append((kernel.body.tile._replace(**alike(kernel.body.tile)), counts(text)))
    assert made[0] == made[1]


def alike(tile):
    """What of a tile decides nothing about instructions."""
    return {name: 1 for name in ("together", "resident") if hasattr(tile, name)}

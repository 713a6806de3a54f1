"""Products of pairs of bfloat16, and of floats with weights of 16 bits, at guard pages, for every instruction set;
against products in float64 of the same rounded numbers, and PyTorch's rounding."""

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import agrees, targets
from oracles import oracle

import weft
from weft.base.cpu_target import CpuTarget
from weft.core.op import Op
from weft.testing.op_check import Sample, run_lowered

rng = np.random.default_rng(31)
MACHINE = CpuTarget.create()
AMX = "+amx-tile,+amx-bf16,+amx-int8"
TARGETS = [*targets(), MACHINE]  # the last with all that the machine has
DEPTHS = [2, 4, 6, 14, 66, 130]


def normal(*shape):
    return rng.standard_normal(shape).astype("f")


def pair_panels(w, lanes):
    """(depth, units) in panels of pairs."""
    depth, units = w.shape
    wide = np.zeros((depth, -(-units // lanes) * lanes), w.dtype)
    wide[:, :units] = w
    return np.ascontiguousarray(wide.reshape(-1, 2, wide.shape[1] // lanes, lanes).transpose(2, 0, 3, 1))


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 17), min_size=0, max_size=2),
    st.sampled_from(DEPTHS),
    st.sampled_from([1, 3, 4, 15, 16, 17, 40, 48, 64, 97, 130]),
    st.sampled_from(TARGETS),
    st.booleans(),
)
def test_any_product_of_pairs_between_guard_pages(leading, depth, units, target, front):
    x, w = normal(*leading, depth).astype("bfloat16"), normal(depth, units).astype("bfloat16")
    sample = Sample([x, pair_panels(w, target.lanes("float32"))], {"units": units}, None)
    (found,) = run_lowered(Op.get("_pair_matmul"), sample, target, lambda a: guarded(a, front))
    agrees(found, x.astype("d") @ w.astype("d"))


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 9), min_size=0, max_size=2),
    st.sampled_from([1, 2, 5, 33, 131]),
    st.sampled_from([1, 4, 15, 16, 17, 48, 97]),
    st.sampled_from(["bfloat16", "float16"]),
    st.sampled_from(TARGETS),
    st.booleans(),
)
def test_floats_with_weights_of_16_bits_between_guard_pages(leading, depth, units, dtype, target, front):
    lanes = target.lanes("float32")
    x, w = normal(*leading, depth), normal(depth, units).astype(dtype)
    wide = np.pad(w.astype("f"), [(0, 0), (0, -units % lanes)]).astype(dtype)
    panels = np.ascontiguousarray(wide.reshape(depth, -1, lanes).swapaxes(0, 1))
    sample = Sample([x, panels], {"units": units}, None)
    (found,) = run_lowered(Op.get("_packed_matmul"), sample, target, lambda a: guarded(a, front))
    agrees(found, x.astype("d") @ w.astype("d"))


def pair_units(target):
    """What may multiply pairs: vectors, and tiles where the machine has them."""
    return {"amx-bf16", "avx512bf16"} if target.has("amx-bf16") else {"avx512bf16"}


def layer(target, precision, rows, depth, units, **options):
    """relu(x w' + b), compiled, and what it is made of: the same for the same sizes."""
    sym, own = weft.symbol, np.random.default_rng(units)
    w, b = own.standard_normal((units, depth)).astype("f"), own.standard_normal(units).astype("f")
    y = sym.relu(sym.dense(*map(sym.Variable, ("x", "w", "b")), units=units))
    shape = {"x": (rows, depth)}
    model = weft.compile((y, {"w": w, "b": b}), shape=shape, target=target, precision=precision, **options)
    return model, w, b


def rounded(value):
    torch = oracle("torch")
    return torch.tensor(value).bfloat16().double().numpy()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.isa)
def test_layers_in_bfloat16(target):
    """Where the machine multiplies pairs faster than floats rows are rounded too, elsewhere weights alone."""
    for rows, depth, units in ((5, 131, 70), (17, 128, 33), (1, 96, 256), (40, 1030, 35)):
        model, w, b = layer(target, "bf16", rows, depth, units)
        pairs = target.facts.pair_flops > target.facts.flops
        (unit,) = {kernel.isa for kernel in model.report().kernels if "matmul" in kernel.name}
        assert unit in pair_units(target) if pairs else unit == f"{target.isa}, weights of bfloat16"
        x = normal(rows, depth)
        wanted = (rounded(x) if pairs else x.astype("d")) @ rounded(w).T + b
        agrees(model(x)[0], np.maximum(wanted, 0))


def test_rows_of_any_number():
    model, w, b = layer(MACHINE, "bf16", None, 131, 70)
    for rows in range(1, 18):
        x = normal(rows, 131)
        wanted = np.maximum(x.astype("d") @ w.astype("d").T + b, 0)
        assert np.abs(model(x)[0] - wanted).max() <= 0.01 * np.abs(wanted).max()
    assert model.compilations == 1


@pytest.mark.parametrize("precision", ["bf16", "fp16-weights"])
def test_same_bits_for_any_threads_and_what_is_not_finite(precision):
    rows, depth, units = 67, 2050, 300
    x = normal(rows, depth)
    x[3, 5], x[4, 7], x[5, 9] = np.nan, np.inf, -np.inf
    found = []
    for threads in (1, 2):
        model, w, b = layer(MACHINE, precision, rows, depth, units, threads=threads)
        found.append(model(x)[0])
    np.testing.assert_array_equal(found[0].view(np.int32), found[1].view(np.int32))
    with np.errstate(all="ignore"):
        wanted = np.maximum(x @ w.T + b, 0)
    np.testing.assert_array_equal(np.isnan(found[0]), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(found[0]), np.isinf(wanted))
    finite = np.isfinite(wanted).all(1)
    assert np.abs(found[0][finite] - wanted[finite]).max() <= 0.01 * wanted[finite].max()


def test_what_follows_may_be_bfloat16():
    """Two layers: what is between them is rounded as it is stored, long sums included."""
    sym = weft.symbol
    w, v = normal(1600, 3300), normal(48, 1600)
    hidden = sym.tanh(sym.dense(sym.Variable("x"), sym.Variable("w"), units=1600, use_bias=False) * 0.02)
    y = sym.dense(hidden, sym.Variable("v"), units=48, use_bias=False)
    x = normal(70, 3300)
    model = weft.compile((y, {"w": w, "v": v}), shape={"x": x.shape}, precision="bf16")
    wanted = rounded(np.tanh(rounded(x) @ rounded(w).T * 0.02)) @ rounded(v).T
    assert np.abs(model(x)[0] - wanted).max() <= 0.01 * np.abs(wanted).max()


CONVOLUTIONS = [  # data, weight, strides, padding, dilation
    ((2, 6, 9, 8), (40, 6, 3, 5), (2, 1), (1, 0, 2, 1), (1, 2)),
    ((1, 64, 7, 9), (70, 64, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    ((1, 3, 19, 19), (33, 3, 7, 7), (2, 2), (3, 3, 3, 3), (1, 1)),
    ((2, 32, 6, 7), (48, 32, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_in_bfloat16(case):
    """With a bias, a residual that another convolution reads too, and a concatenation; same bits for any threads."""
    torch = oracle("torch")
    data, weight, strides, padding, dilation = case
    sym, x = weft.symbol, normal(*data)
    attrs = {"kernel_size": weight[2:], "strides": strides, "padding": padding, "dilation": dilation}
    units = weight[0]
    values = {"w": normal(*weight) / 8, "b": normal(units), "v": normal(96, 2 * units, 1, 1) / 8}
    first = sym.relu(sym.conv2d(*map(sym.Variable, ("x", "w", "b")), channels=units, **attrs))
    joined = sym.concatenate(first, first * 2, axis=1)
    second = sym.conv2d(joined, sym.Variable("v"), channels=96, kernel_size=(1, 1), use_bias=False)
    made = Op.get("global_avg_pool2d")(second), first * 1
    models = [
        weft.compile((weft.symbol.Group(made), values), shape={"x": data}, precision="bf16", threads=threads)
        for threads in (1, 2)
    ]
    top, left, bottom, right = padding
    image = torch.nn.functional.pad(torch.tensor(rounded(x)), (left, right, top, bottom))
    filters, bias = torch.tensor(rounded(values["w"])), torch.tensor(values["b"]).double()
    sums = torch.nn.functional.conv2d(image, filters, bias, stride=strides, dilation=dilation).relu().numpy()
    pixels = np.concatenate([sums, sums * 2], 1)
    wanted = np.einsum("oi,nihw->nohw", rounded(values["v"])[..., 0, 0], pixels).mean((2, 3), keepdims=True)
    for name, value, found in zip(("second", "first"), (wanted, sums), models[0](x)):
        assert np.abs(found - value).max() <= 0.01 * np.abs(value).max(), name
    for one, two in zip(models[0](x), models[1](x)):
        np.testing.assert_array_equal(one, two)
    if MACHINE.facts.pair_flops > MACHINE.facts.flops:
        units = {kernel.isa for kernel in models[0].report().kernels if "pair_conv2d" in kernel.name}
        assert units
        assert units <= pair_units(MACHINE)


def test_convolutions_that_winograd_computes_faster_multiply_floats():
    """3x3 filters on a large image, whose products tiles cut to a quarter: of the rounded numbers, where an instruction
    takes pairs. AMX is faster than that."""
    sym, x, w = weft.symbol, normal(1, 64, 112, 112), normal(64, 64, 3, 3)
    y = sym.conv2d(sym.Variable("x"), sym.Variable("w"), channels=64, kernel_size=3, padding=1, use_bias=False)

    def compiled(weight, **options):
        return weft.compile((y, {"w": weight}), shape={"x": x.shape}, **options)

    zen4 = CpuTarget.create("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4")
    for target, by_pairs in ((zen4, False), (CpuTarget.create(str(zen4), features=f"{zen4.features},{AMX}"), True)):
        names = [kernel.name for kernel in compiled(w, target=target, precision="bf16").report().kernels]
        assert any("pair_conv2d" in name for name in names) is by_pairs, names
    found = compiled(w, precision="bf16")(x)[0]
    floats = compiled(short(w))(short(x))[0]
    if MACHINE.facts.pair_flops > MACHINE.facts.flops and not MACHINE.has("amx-bf16"):
        np.testing.assert_array_equal(found, floats)
    assert np.abs(found - floats).max() <= 0.01 * np.abs(floats).max()


def short(value):
    return value.astype("bfloat16").astype("f")

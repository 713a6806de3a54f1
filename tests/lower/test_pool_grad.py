"""Gradients of pools by their template: one program for all sizes, on every instruction set this machine has, with
arrays that end at guard pages; and compiled with what follows them, for known and for open sizes. Against PyTorch."""

import numpy as np
import pytest
from codegen.guard import guarded
from lower.accuracy import agrees, targets
from oracles import oracle

import weft
from weft.compiler.open.calls import lowered_operator
from weft.compiler.open.programs import assembled
from weft.core.op import Op
from weft.core.schema import parse
from weft.runtime.cpu.executor import CpuExecutor

# kind, and what PyTorch's function takes, by our names
POOLS = [
    ("max", {"pool_size": (2, 2), "strides": (2, 2)}),
    ("max", {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "ceil_mode": True}),
    ("max", {"pool_size": (2, 3), "strides": (1, 1), "padding": (1, 0), "dilation": (2, 1)}),
    ("max", {"pool_size": (2, 2), "strides": (4, 3), "dilation": (1, 2)}),
    ("avg", {"pool_size": (2, 2), "strides": (2, 2)}),
    ("avg", {"pool_size": (3, 2), "strides": (1, 1), "padding": (1, 1)}),
    ("avg", {"pool_size": (3, 3), "strides": (2, 3), "padding": (1, 1), "ceil_mode": True, "count_include_pad": True}),
    ("adaptive_avg", {"output_size": (3, 5)}),
    ("adaptive_avg", {"output_size": (7, 1)}),
    ("adaptive_avg", {"output_size": (1, 1)}),
    ("adaptive_avg", {"output_size": (9, 40)}),
]
SHAPES = [(2, 3, 8, 9), (4, 2, 7, 40), (3, 2, 6, 37)]
TORCH_NAMES = {"pool_size": "kernel_size", "strides": "stride"}


def gradient(kind, attrs, shape, dtype="float32", nan=False):
    """What goes in, and what PyTorch makes of it."""
    torch = oracle("torch")
    rng = np.random.default_rng(len(str(attrs)) + shape[3])
    data = rng.integers(0, 5, shape).astype(dtype)  # with equal elements
    if nan:
        data[..., shape[2] // 2, shape[3] // 2] = np.nan
    x = torch.tensor(data, requires_grad=True)
    pool = getattr(torch.nn.functional, f"{kind}_pool2d")
    given = {"count_include_pad": False} if kind == "avg" else {}
    y = pool(x, **given | {TORCH_NAMES.get(name, name): value for name, value in attrs.items()})
    g = torch.tensor(rng.standard_normal(y.shape).astype(dtype))
    y.backward(g)
    arrays = [g.numpy(), data, *([y.detach().numpy()] if kind == "max" else [])]
    return arrays, x.grad.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
@pytest.mark.parametrize(("kind", "attrs"), POOLS)
def test_programs_serve_many_sizes(kind, attrs, target, dtype):
    op = Op.get(f"_{kind}_pool2d_grad")
    params = parse(op.parser, {name: str(value) for name, value in attrs.items()}, "test")
    programs = []
    for shape in SHAPES:
        arrays, expected = gradient(kind, attrs, shape, dtype, nan=kind == "max")
        sizes = [n for array in arrays for n in array.shape if n != 1]
        if not any(program.bound(sizes) for program in programs):
            specs = [(array.shape, array.dtype) for array in arrays]
            programs.append(CpuExecutor(assembled(lowered_operator(op, params, specs, target), target)))
        made = guarded(np.full(shape, np.nan, dtype))
        bound = next(filter(None, [program.bound(sizes) for program in programs]))
        bound.run_into([guarded(array) for array in arrays], [made])
        agrees(made, expected)
    assert len(programs) <= (3 if "count_include_pad" in attrs else 2)  # windows may all be inside, or not


@pytest.mark.parametrize("shape", [(2, 3, 8, 9), ("n", 3, 8, 9), ("n", 3, "h", "w")], ids=str)
@pytest.mark.parametrize(("kind", "attrs"), POOLS)
def test_compiled_with_what_follows(kind, attrs, shape):
    names = ["g", "x", "y"][: 3 if kind == "max" else 2]
    g, x, *y = (weft.symbol.Variable(name) for name in names)
    made = getattr(weft.symbol, f"_{kind}_pool2d_grad")(g, x, *y, **attrs)
    symbol = weft.symbol.tanh(made) * x  # as the gradient of what came before would
    arrays, expected = gradient(kind, attrs, (2, 3, 8, 9))
    windows = arrays[0].shape if shape[2] == 8 else (shape[0], 3, *arrays[0].shape[2:])
    if "h" in shape and kind != "adaptive_avg":
        windows = ("n", 3, "p", "q")
    elif "n" in shape:
        windows = ("n", *windows[1:])
    shapes = {"g": windows, "x": shape, **({"y": windows} if y else {})}
    model = weft.compile((symbol, {}), shape=shapes)
    assert not model.report().host_steps
    agrees(model.run(dict(zip(names, arrays)))[0], np.tanh(expected) * arrays[1])


def test_infinite_gradients_stay_in_their_windows():
    g = np.zeros((1, 1, 3, 3), "float32")
    g[0, 0, 1, 2] = np.inf
    x = weft.from_numpy(np.zeros((1, 1, 10, 11), "float32")).requires_grad_()
    weft.nn.functional.adaptive_avg_pool2d(x, 3).backward(weft.from_numpy(g))
    assert np.isinf(x.grad.numpy()[0, 0, 3:7, 7:]).all()
    assert np.isinf(x.grad.numpy()).sum() == 16

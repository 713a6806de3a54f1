"""Products of words by tiles (AMX), which the machine at hand may not have: loop IR is interpreted, with every access
checked, and compared with numpy's products; machine code is looked at."""

import re

import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen.test_inner_loops import TARGETS, inner_loops

import weft
from weft.base import config
from weft.base.cpu_target import CpuTarget
from weft.base.tile_unit import ONE_PRODUCT
from weft.codegen.cpu.object import compile_assembly
from weft.compiler.stages import watched
from weft.core.op import Op
from weft.lower.cpu.dispatch import LOWERING
from weft.te.interpret import run_kernel
from weft.te.loops import TileStep
from weft.te.simplify_loops import statements
from weft.testing.op_check import Sample, run_kernels_of

rng = np.random.default_rng(41)
AMX = CpuTarget.create(TARGETS["intel"])
BYTES, PAIRS = ("uint8", "int8", 4), ("bfloat16", "bfloat16", 2)


def values(shape, dtype):
    if dtype == "bfloat16":
        return rng.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def panels_of(w, together):
    """Filters (h, w, depth, units) in panels of 16 columns."""
    h, v, depth, units = w.shape
    wide = np.zeros((h * v * depth, -(-units // 16) * 16), w.dtype)
    wide[:, :units] = w.reshape(-1, units)
    return np.ascontiguousarray(wide.reshape(-1, together, wide.shape[1] // 16, 16).transpose(2, 0, 3, 1))


def interpreted(name, inputs, attrs):
    kernels = []

    def run(kernel, arrays):
        kernels.append(kernel)
        run_kernel(kernel, list(arrays))

    (found,) = run_kernels_of(Op.get(name), Sample(inputs, attrs, None), LOWERING, AMX, run, np.copy)
    (kernel,) = kernels
    return found, any(isinstance(stmt, TileStep) for stmt in statements(kernel.body))


def agrees(found, x, w, dtype, offsets):
    """w is (depth, units) and x rows of as many numbers."""
    if dtype == "bfloat16":
        wanted = x.astype("d") @ w.astype("d")
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    else:
        np.testing.assert_array_equal(found, x.astype(np.int64) @ w.astype(np.int64) + offsets)


@pytest.mark.parametrize("kind", [BYTES, PAIRS], ids=["bytes", "pairs"])
@pytest.mark.parametrize("rows", [4, 16, 17, 33, 50])
@pytest.mark.parametrize(("steps", "units"), [(16, 16), (48, 33), (32, 80)])
def test_products(kind, rows, steps, units):
    """Fewer rows than a tile has, one tile of all rows, a last one that overlaps; panels that are shared and not."""
    data, weight, together = kind
    x, w = values((rows, steps * together), data), values((1, 1, steps * together, units), weight)
    offsets = rng.integers(-999, 999, units).astype(np.int32)
    name, more = ("_byte_matmul", [offsets]) if together == 4 else ("_pair_matmul", [])
    found, by_tiles = interpreted(name, [x, panels_of(w, together), *more], {"units": units})
    assert by_tiles
    agrees(found, x, w[0, 0], data, offsets)


CONVOLUTIONS = [  # data (n, h, w, words), units, kernel, strides, dilation
    ((2, 5, 7, 16), 40, (1, 1), (1, 1), (1, 1)),
    ((1, 9, 9, 16), 33, (3, 3), (2, 2), (1, 1)),
    ((1, 5, 21, 16), 16, (3, 3), (1, 1), (1, 1)),
    ((2, 7, 6, 16), 16, (2, 2), (1, 1), (2, 3)),
    ((1, 4, 9, 8), 17, (3, 2), (1, 2), (1, 1)),
]


@pytest.mark.parametrize("kind", [BYTES, PAIRS], ids=["bytes", "pairs"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(kind, case):
    """Pixels of all rows as one stretch, rows of the result in tiles of their own, taps one by one and side by side."""
    (data, weight, together), (shape, units, kernel, strides, dilation) = kind, case
    x = values((*shape[:3], shape[3] * together), data)
    w = values((*kernel, x.shape[3], units), weight)
    offsets = rng.integers(-999, 999, units).astype(np.int32)
    name, more = ("_byte_conv2d", [offsets]) if together == 4 else ("_pair_conv2d", [])
    attrs = {"units": units, "kernel_size": kernel, "strides": strides, "dilation": dilation}
    found, by_tiles = interpreted(name, [x, panels_of(w, together), *more], attrs)
    assert by_tiles
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilation)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, (1, 2))
    view = view[:, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]].transpose(0, 1, 2, 4, 5, 3)
    agrees(found, view.reshape(*view.shape[:3], -1), w.reshape(-1, units), data, offsets)


@pytest.mark.parametrize(("rows", "depth", "zeros"), [(3, 64, False), (20, 60, False), (20, 64, True)])
def test_what_vectors_do(rows, depth, zeros):
    """Few rows, words that fill no tile, zero points of weights."""
    x, w = values((rows, depth), "uint8"), values((1, 1, depth, 20), "int8")
    vectors = [rng.integers(-99, 99, 20).astype(np.int32) for _ in range(1 + zeros)]
    found, by_tiles = interpreted(
        "_byte_matmul", [x, panels_of(w, 4), *vectors], {"units": 20, "use_zeros": bool(zeros)}
    )
    assert not by_tiles
    zero = vectors[1] if zeros else 0
    agrees(found, x, w[0, 0].astype(np.int64) - zero, "uint8", vectors[0])


def test_the_inner_loop_of_a_layer():
    """Four products of tiles for four loads, and nothing on the stack; reports name the unit."""
    sym, params = weft.symbol, {"w": values((768, 768), "bfloat16").astype("f"), "b": np.ones(768, "f")}
    y = sym.relu(sym.dense(*map(sym.Variable, ("x", "w", "b")), units=768))
    texts = []
    with config.override(cache=False), watched(lambda stage: stage.title == "text" and texts.append(stage.value)):
        model = weft.compile((y, params), shape={"x": (128, 768)}, target=AMX, precision="bf16")
    (unit,) = {kernel.isa for kernel in model.report().kernels if "pair_matmul" in kernel.name}
    assert unit == "amx-bf16"
    (text,) = [text for text in texts if "tdpbf16ps" in text]
    loops = [loop.lines for loop in inner_loops(compile_assembly(text, AMX), arm=False)]
    (loop,) = [lines for lines in loops if any("tdpbf16ps" in line for line in lines)]
    assert [sum(line.startswith(name) for line in loop) for name in ("tdpbf16ps", "tileloadd")] == [4, 4]
    assert not any("rsp" in line or "rbp" in line for line in loop)
    others = [line for line in loop if not re.match("prefetch|tile|tdp", line)]
    assert len(others) <= 10, others


def test_the_code_that_tries_the_unit():
    """Is what LLVM makes of the same steps."""
    steps = ["ldtilecfg(ptr %0)", "tilezero(i8 0)", "tileloadd64(i8 1, ptr %1, i64 64)"]
    steps += ["tileloadd64(i8 2, ptr %2, i64 64)", "tdpbusd(i8 0, i8 1, i8 2)", "tilestored64(i8 0, ptr %3, i64 64)"]
    calls = "\n".join(f"call void @llvm.x86.{step}" for step in [*steps, "tilerelease()"])
    kinds = {"ldtilecfg": "ptr", "tilezero": "i8", "tdpbusd": "i8, i8, i8", "tilerelease": ""}
    kinds |= dict.fromkeys(("tileloadd64", "tilestored64"), "i8, ptr, i64")
    declared = "\n".join(f"declare void @llvm.x86.{name}({kind})" for name, kind in kinds.items())
    text = f"{declared}\ndefine void @f(ptr %0, ptr %1, ptr %2, ptr %3) nounwind {{\n{calls}\nret void\n}}"
    machine = llvm.Target.from_triple(AMX.triple).create_target_machine(cpu="sapphirerapids", opt=3)
    made = llvm.ObjectFileRef.from_data(machine.emit_object(llvm.parse_assembly(text)))
    assert ONE_PRODUCT in [section.data() for section in made.sections() if section.is_text()]

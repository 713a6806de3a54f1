"""Inner loops as machine code, for CPUs that need not be here: what LLVM makes of the register tiles that each has."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from weft import symbol as sym
from weft.base import config
from weft.base.cpu_target import CpuTarget
from weft.codegen.cpu.emit import emit_kernel
from weft.codegen.cpu.object import compile_assembly
from weft.compiler.stages import watched
from weft.te.build import KernelBuilder
from weft.te.expr import Ramp, as_expr, call

SERVER, SMALL = "-caches=32768,1048576,33554432 -num-cores=2", "-caches=32768,262144,8388608 -num-cores=2"
TARGETS = {
    "zen4": f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4 {SERVER}",
    "intel": f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids {SERVER}",
    "avx2": f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell {SMALL}",
    "neon": f"llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1 {SERVER}",
}
LABEL, X86_JUMP, ARM_JUMP = r"(\.?L\w+):", r"j\w+\s+(\.?L\w+)", r"(?:b|b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.?L\w+)"
# On vectors: a fused product, and what moves lanes one by one; on one number: arithmetic.
X86 = (
    r"vf?n?m(add|sub)\d+p[sd]",
    r"v(insert|pinsr|extract|pextr|p?gather|perm|shuf|unpck)",
    r"v(fm|mul|add|sub|div)\w*s[sd]\s",
)
ARM = (r"fml[as]\s+v", r"(ins|ext|zip|uzp|trn|tbl|umov)\d?\s|ld1\s.*\[\d+\]", r"f(n?madd|mul|add|sub|div)\s+[sd]\d")


class Loop:
    """The instructions of one innermost loop."""

    def __init__(self, lines: list[str], arm: bool, framed: bool) -> None:
        self.lines = lines
        self.fused, self.lanes, self.scalar = (self._count(pattern) for pattern in (ARM if arm else X86))
        frame = r"\[(sp|x29)" if arm else r"\(%r[sb]p" if framed else r"\(%rsp"
        self.on_stack = [line for line in lines if re.search(frame, line) and re.search(r"[xyz]mm|\b[qdsv]\d", line)]
        self.calls = self._count(r"(call\w*|bl)\s")

    def _count(self, pattern: str) -> int:
        return sum(bool(re.match(pattern, line)) for line in self.lines)

    @property
    def share(self) -> float:
        """Of fused products among all instructions."""
        return self.fused / len(self.lines)


def inner_loops(assembly: str, arm: bool) -> list[Loop]:
    """Runs of code that end in a jump to their beginning, without another such run inside."""
    labels: dict[str, int] = {}
    code: list[str] = []
    for line in map(str.strip, assembly.splitlines()):
        label = re.match(LABEL, line)
        if label:
            labels[label[1]] = len(code)
        elif line and line[0].isalpha():
            code.append(line)
    jumps = [(re.match(ARM_JUMP if arm else X86_JUMP, line), end) for end, line in enumerate(code)]
    runs = {(labels[jump[1]], end) for jump, end in jumps if jump and labels.get(jump[1], end + 1) <= end}
    inner = [
        run for run in runs if not any(run != other and run[0] <= other[0] and other[1] <= run[1] for other in runs)
    ]
    framed = bool(re.search(r"movq\s+%rsp, %rbp", assembly))
    return [Loop(code[first : last + 1], arm, framed) for first, last in inner]


def loops_of(symbol, target_name: str) -> list[Loop]:
    """The inner loops of all kernels of a model whose parameters are random."""
    target, rng = CpuTarget.create(TARGETS[target_name]), np.random.default_rng(5)
    shapes = dict(zip(symbol.list_input_names(), weft.graph.create(symbol).apply("InferShape").json_attr("shape")))
    params = {n: rng.standard_normal(s).astype("float32") for n, s in shapes.items() if n not in ("x", "y")}
    texts: list[str] = []
    with config.override(cache=False), watched(lambda stage: stage.title == "text" and texts.append(stage.value)):
        weft.compile((symbol, params), target=target)
    assert texts
    return [loop for text in texts for loop in inner_loops(compile_assembly(text, target), target.arch == "aarch64")]


def convolution(channels, size, outputs, **attrs):
    x = sym.Variable("x", shape=(1, channels, size, size))
    return sym.relu(sym.conv2d(x, channels=outputs, name="c", **attrs))


DENSE = {
    "product": lambda: sym.dense(sym.Variable("x", shape=(96, 512)), units=768, name="d"),
    "batched": lambda: sym.batch_matmul(sym.Variable("x", shape=(3, 50, 60)), sym.Variable("y", shape=(3, 60, 70))),
    "1x1": lambda: convolution(128, 28, 64, kernel_size=(1, 1)),
    "3x3": lambda: convolution(64, 28, 128, kernel_size=(3, 3), strides=(2, 2), padding=(1, 1)),
    "winograd": lambda: convolution(64, 28, 64, kernel_size=(3, 3), padding=(1, 1)),
    "transposed": lambda: sym.conv2d_transpose(
        sym.Variable("x", shape=(1, 64, 14, 14)),
        channels=32,
        kernel_size=(4, 4),
        strides=(2, 2),
        padding=(1, 1),
        name="t",
    ),
    "depthwise": lambda: convolution(96, 28, 96, kernel_size=(3, 3), padding=(1, 1), groups=96),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DENSE)
def test_tiles_stay_in_registers(name, target):
    """Half of the instructions and more are fused products (of transposed convolutions, which look for their sources in
    each turn, two in five), and none is for results that found no register."""
    found = loops_of(DENSE[name](), target)
    if name == "winograd":  # its transforms are no products
        found = [loop for loop in found if loop.share >= 0.5]
    loop = max(found, key=lambda loop: loop.fused)
    assert loop.share >= (0.4 if name == "transposed" else 0.5), "\n".join(loop.lines)
    assert loop.fused >= 12
    assert loop.on_stack == []
    assert (loop.lanes, loop.scalar, loop.calls) == (0, 0, 0), "\n".join(loop.lines)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_rows_are_computed_by_vectors(name, target):
    """Exponentials and deviations of a row take no call and no arithmetic of one element at a time."""
    x = sym.Variable("x", shape=(64, 192))
    loop = max(loops_of(getattr(sym, name)(x), target), key=lambda loop: loop.fused)
    assert loop.fused >= 4
    assert (loop.lanes, loop.scalar, loop.calls) == (0, 0, 0), "\n".join(loop.lines)


@pytest.mark.parametrize(
    ("cpu", "instruction"),
    [
        ("x86_64-linux-gnu -mcpu=znver4", "vpdpbusd"),
        ("x86_64-linux-gnu -mcpu=haswell", "vpmaddwd"),
        ("aarch64-linux-gnu -mcpu=neoverse-v1", "usdot"),
    ],
    ids=["vnni", "avx2", "i8mm"],
)
def test_four_bytes_are_multiplied_and_added_at_once(cpu, instruction):
    target = CpuTarget.create(f"llvm -mtriple={cpu}")
    b, lanes = KernelBuilder("four"), target.lanes("int32")
    x, y, out = (b.arg(name, "int32", (lanes,)) for name in ("x", "y", "out"))
    at = Ramp(as_expr(0), as_expr(1), lanes)
    b.store(out, at, call("dot_bytes", out[at], x[at], y[at]))
    assembly = compile_assembly(emit_kernel(b.finish(), target), target)
    assert re.search(instruction, assembly), assembly
    if instruction == "usdot":  # what has no sign comes first
        loaded = dict(re.findall(r"ldr\s+q(\d+), \[(x\d)\]", assembly))
        places = [loaded[n] for n in re.search(r"usdot\s+v(\d+)\.4s, v(\d+)\.16b, v(\d+)\.16b", assembly).groups()]
        assert places == ["x2", "x0", "x1"]

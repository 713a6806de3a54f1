"""A backend from outside, whole: a machine that exists only as an interpreter of loop IR, with blocks, threads, shared
memory and barriers. `register_backend(TOY)` is all it takes for `weft.compile(model, target="toy")`.

A backend needs a target (what its machines are called and can do), a way to lower a stage to a kernel (and templates
where a kernel by hand is better), a way to make code of kernels, and a runtime that loads programs and owns memory.
"""

import os
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from weft import te
from weft.base.device import Device
from weft.base.plan import KernelStep
from weft.base.target import Target, register_target
from weft.codegen.generator import Codegen
from weft.compiler.backend import Backend
from weft.lower.epilogue import Epilogue
from weft.lower.group import LoweredKernel, kernel_name, sources
from weft.lower.lowering import Lowering, Template
from weft.runtime.executor import Executor
from weft.runtime.registry import Runtime
from weft.te.interpret import run_kernel
from weft.te.loops import For, Let
from weft.te.printer import show
from weft.te.schedule import loop_nest


@dataclass(frozen=True)
class ToyTarget(Target):
    """Facts: how many threads a block has. The rest is what every target answers."""

    kind: ClassVar[str] = "toy"
    isa: ClassVar[str] = "loops"
    nanoseconds_per_operation: ClassVar[float] = 1000.0
    threads: int = 8

    def __str__(self):
        return f"toy -threads={self.threads}"

    def changed(self, **options):
        return replace(self, **options)


# What follows "toy" in a target's text: -threads=N.
register_target("toy", lambda words, **given: ToyTarget(*[int(w.removeprefix("-threads=")) for w in words], **given))


# Lowering: any stage has a thread for each element of its result; a product has tiles in shared memory.
def schedule(name, output, places, target, strides=None):
    """One stage: `output` is computed into memory from tensors that are in memory."""
    b, steps, total = te.KernelBuilder(name), strides or {}, prod(output.shape)
    tensors = [*sources(output, places), output]
    buffers = {t: b.arg(f"b{i}", t.dtype, t.shape, strides=steps.get(places[t])) for i, t in enumerate(tensors)}
    body = loop_nest([output], buffers)
    with b.block("block", -(-total // target.threads)) as block, b.thread("thread", target.threads) as thread:
        element = b.let("element", block * target.threads + thread)
        axes, inner = [], 1
        for _ in output.shape:  # the loops over the result become arithmetic on the number of the element
            assert isinstance(body, For)
            axes, body = [*axes, body.var], body.body
        for var, extent in zip(reversed(axes), reversed(output.shape)):
            body, inner = Let(var, element // inner % extent, body), inner * extent
        with b.when(element < total):
            b.emit(body)
    return LoweredKernel(b.finish(), tuple(places[t] for t in tensors), total)


def dense_kernels(group, fact, target):
    """The template of dense: a block computes a tile of the result from tiles that its threads fetch together. What
    follows in the group comes as an expression."""
    (m, k), (n, _) = (fact(entry).shape for entry in group.master.inputs[:2])
    tile = 2
    b = te.KernelBuilder(kernel_name(group))
    x, w, *bias = (b.arg(f"in{i}", "float32", fact(entry).shape) for i, entry in enumerate(group.master.inputs))
    epilogue = Epilogue(b, group, fact)
    y = b.arg("y", "float32", (m, n))
    with b.block("by", -(-m // tile), "y") as by, b.block("bx", -(-n // tile)) as bx:
        rows, columns = (b.alloc(name, "float32", (tile, tile), scope="shared") for name in ("rows", "columns"))
        with b.thread("ty", tile, "y") as ty, b.thread("tx", tile) as tx:
            row, column = b.let("row", by * tile + ty), b.let("column", bx * tile + tx)
            total = b.alloc("total", "float32", (), scope="register")
            b.store(total, (), 0)
            with b.loop("t", -(-k // tile)) as t:
                across, down = t * tile + tx, t * tile + ty
                b.store(rows, (ty, tx), te.read_or(x, (row, across), (row < m) & (across < k), 0))
                b.store(columns, (ty, tx), te.read_or(w, (column, down), (column < n) & (down < k), 0))
                b.barrier()
                with b.loop("i", tile) as i:
                    b.store(total, (), total[()] + rows[ty, i] * columns[i, tx])
                b.barrier()
            with b.when((row < m) & (column < n)):
                value = total[()] + bias[0][column] if bias else total[()]
                b.store(y, (row, column), epilogue.finished(value, (row, column)))
    return [LoweredKernel(b.finish(), (*group.master.inputs, *epilogue.arguments, group.outputs[0]), m * n * k)]


# Code: the text of a kernel. This machine reads no text, so it remembers what each was printed from.
KERNELS, BYTES = {}, np.dtype("uint8")


def emit(kernel, target):
    KERNELS[show(kernel)] = kernel
    return f"@{kernel.name}\n{show(kernel)}"


class ToyExecutor(Executor):
    """Runs the steps of a plan, one after the other, on the toy's memory."""

    def __init__(self, program, threads=None):
        super().__init__(program)
        listings = [code.decode().partition("\n") for code in program.objects]
        self.kernels = {head.removeprefix("@"): KERNELS[text] for head, _, text in listings}

    def run_into(self, inputs, outputs):
        plan, allocate, copy = self.program.plan, TOY.runtime.allocate, TOY.runtime.copy
        arena = allocate((plan.arena_bytes,), BYTES, Device("toy"))
        slots = [arena[s.offset :] if s.role == "arena" else allocate((s.size,), BYTES, s.device) for s in plan.slots]
        of_role = lambda role: [memory for slot, memory in zip(plan.slots, slots) if slot.role == role]
        for array, memory in zip([*inputs, *self.program.constants], of_role("input") + of_role("constant")):
            copy(np.ascontiguousarray(array).reshape(-1).view(BYTES), memory)
        for step in plan.steps:
            assert isinstance(step, KernelStep)  # a host step would need its tensors on the host
            kernel = self.kernels[step.kernel]
            memories = [slots[ref.slot][ref.offset :] for ref in step.buffers]
            sizes = [len(m) // b.dtype.itemsize * b.dtype.itemsize for m, b in zip(memories, kernel.buffers)]
            run_kernel(kernel, [m[:size].view(b.dtype) for m, size, b in zip(memories, sizes, kernel.buffers)])
        for memory, array in zip(of_role("output"), outputs):
            copy(memory.view(array.dtype).reshape(array.shape), array)


TOY = Backend(
    Runtime(
        "toy",
        check=lambda target, threads: None,
        load=ToyExecutor,
        allocate=lambda shape, dtype, device: np.zeros(shape, dtype),
        copy=lambda source, destination: np.copyto(destination, source),
    ),
    Lowering(schedule, {"dense": Template(dense_kernels)}),
    Codegen("loops", emit, assemble=lambda text, target: text.encode(), key=lambda target: f"toy {os.getpid()}"),
    layout_rules={},
)

"""A loop-IR Kernel becomes the text of an LLVM module with one exported function.

    void NAME(ptr buffers, ptr scalars, i64 begin, i64 end)

The exported function reads the pointers and calls the body, whose pointer arguments do not alias.
"""

from __future__ import annotations

from functools import partial

from ...base.cpu_target import CpuTarget
from ...base.errors import Unsupported
from ...te.expr import Var
from ...te.loops import Alloc, Barrier, Exchange, For, Kernel, TileStep
from ...te.simplify_loops import statements
from ..builder import Builder, Value
from ..emit import KernelEmitter, Step
from .tiles import emit_tile_step


def emit_kernel(kernel: Kernel, target: CpuTarget, may_alias: bool = False) -> str:
    """The LLVM IR of a kernel for a target.

    >>> from ...te.build import KernelBuilder
    >>> b = KernelBuilder("double")
    >>> x = b.arg("x", "float32", (3,))
    >>> with b.loop("i", 3) as i:
    ...     b.store(x, i, x[i] * 2)
    >>> kernel = b.finish()
    >>> "define void @double(ptr" in emit_kernel(kernel, CpuTarget.create("llvm -mcpu=x86-64-v3"))
    True
    """
    _refuse_grids(kernel)
    return _CpuEmitter(kernel, target, may_alias).module()


def _refuse_grids(kernel: Kernel) -> None:
    """A CPU has neither blocks nor barriers: taken as plain loops they would mean another thing."""
    for stmt in statements(kernel.body):
        match stmt:
            case For() if stmt.is_bound:
                what = f"loop {stmt.var.name}, bound to {stmt.kind},"
            case Alloc(buffer=buffer) if buffer.scope == "shared":
                what = f"shared memory {buffer.name}"
            case Barrier() | Exchange():
                what = "a barrier" if isinstance(stmt, Barrier) else "an exchange between threads"
            case _:
                continue
        raise Unsupported(
            f"{what} in code for a CPU",
            where=f"kernel {kernel.name}",
            why="blocks, what they share and their barriers are of kernels for a GPU",
            hint="run it by te.interpret.run_kernel, or write it with parallel and serial loops",
        )


def function_attributes(target: CpuTarget) -> str:
    """LLVM would use half-width vectors on AVX-512 machines unless told what to prefer."""
    width = target.vector_bits
    return f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'


class _CpuEmitter(KernelEmitter):
    def __init__(self, kernel: Kernel, target: CpuTarget, may_alias: bool) -> None:
        super().__init__(kernel, Builder(target, may_alias))
        self.target = target

    def module(self) -> str:
        self._bind_arguments()
        self._run(self._outer_loop())
        attributes = function_attributes(self.target)
        body = self._function(attributes)
        parts = [*self.b.globals.values(), body, self._wrapper(attributes)]
        parts += self.b.declarations.values()
        return "\n\n".join(parts) + "\n"

    def _function(self, attributes: str) -> str:
        arguments = [self._pointer_argument(n) for n in range(len(self.kernel.buffers))]
        arguments += [f"i64 %scalar{n}" for n in range(len(self.kernel.scalars))]
        arguments += ["i64 %begin", "i64 %end"]
        name = f"{self.kernel.name}.body"
        nowhere = ["  %nowhere = alloca [64 x i8], align 64"] if self.b.uses_nowhere else []
        lines = ["entry:", *nowhere, *self.allocas, *self.b.scope.lines, "  ret void"]
        header = f"define internal void @{name}({', '.join(arguments)}) noinline {attributes} {{"
        return "\n".join([header, *lines, "}"])

    def _wrapper(self, attributes: str) -> str:
        lines: list[str] = []
        passed: list[str] = []
        for kind, array, count in (
            ("ptr", "buffers", len(self.kernel.buffers)),
            ("i64", "scalars", len(self.kernel.scalars)),
        ):
            for n in range(count):
                lines.append(f"  %{array}.at{n} = getelementptr i8, ptr %{array}, i64 {8 * n}")
                lines.append(f"  %{array}{n} = load {kind}, ptr %{array}.at{n}, align 8")
                passed.append(f"{kind} %{array}{n}")
        passed += ["i64 %begin", "i64 %end"]
        name = self.kernel.name
        header = f"define void @{name}(ptr %buffers, ptr %scalars, i64 %begin, i64 %end)"
        call = f"  call void @{name}.body({', '.join(passed)})"
        return "\n".join([f"{header} {attributes} {{", *lines, call, "  ret void", "}"])

    def _tile_step(self, stmt: TileStep, stack: list[Step]) -> None:
        access = self.e.access(stmt.buffer, stmt.indices) if stmt.buffer is not None else ()
        emit_tile_step(self.b, stmt, self.e.places[stmt.buffer] if stmt.buffer is not None else None, access)

    def _outer_loop(self) -> Step:
        if self.kernel.parallel is None:
            return self.kernel.body
        return partial(self._parallel, self.kernel.parallel.var)

    def _parallel(self, var: Var) -> None:
        begin, end = Value("%begin", "i64", 1, 0), Value("%end", "i64", 1, 0)
        steps: list[Step] = []
        self._counted(var, self.kernel.body, begin, end, steps)
        while steps:
            self._run(steps.pop())

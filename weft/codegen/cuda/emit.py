"""A loop-IR Kernel with a grid becomes the text of an LLVM module for NVPTX with one kernel.

    ptx_kernel void NAME(ptr addrspace(1) buffer0, ..., i64 scalar0, ...)

Loops of the grid become special registers, shared memory a global of address space 3. A kernel that may begin while the
one before it still runs waits for it before it touches memory (griddepcontrol).
"""

from __future__ import annotations

from math import prod

from ...base.cuda_target import MAX_STATIC_SHARED, CudaTarget
from ...base.dtype import FLOAT32
from ...base.errors import Unsupported
from ...te.grid import constant, grid_of
from ...te.linear import scalar
from ...te.loops import Alloc, Barrier, Exchange, For, Kernel, Prefetch
from ...te.verify import verify
from ..affine import sum_of
from ..builder import Value
from ..emit import KernelEmitter, Step
from ..llvm_types import HALF_FLOATS, memory_type
from .builder import CudaBuilder
from .templates.emit import emit_template, is_template

ALIGNMENT = 16  # bytes, of memory that all threads of a block share
_REGISTERS = {"block": "ctaid", "thread": "tid"}


def emit_kernel(kernel: Kernel, target: CudaTarget) -> str:
    """The LLVM IR of a kernel for a GPU.

    >>> from ...te.build import KernelBuilder
    >>> b = KernelBuilder("double")
    >>> x = b.arg("x", "float32", (512,))
    >>> with b.block("i", 2) as i, b.thread("j", 256) as j:
    ...     b.store(x, i * 256 + j, x[i * 256 + j] * 2)
    >>> "define ptx_kernel void @double(ptr addrspace(1)" in emit_kernel(b.finish(), CudaTarget())
    True
    """
    if is_template(kernel):
        return emit_template(kernel, target)
    if kernel.parallel is not None:
        raise Unsupported(
            f"parallel loop {kernel.parallel.var.name} in code for a GPU",
            where=f"kernel {kernel.name}",
            hint="bind its turns to the blocks and threads of a grid",
        )
    verify(kernel)
    return _CudaEmitter(kernel, target).module()


class _CudaEmitter(KernelEmitter):
    pointer = "ptr addrspace(1)"
    max_scratch = 256 << 10  # of the 512 KB that a thread may have in local memory
    b: CudaBuilder

    def __init__(self, kernel: Kernel, target: CudaTarget) -> None:
        super().__init__(kernel, CudaBuilder(target))
        if all(buffer.dtype in HALF_FLOATS for buffer in kernel.buffers):  # float32 only holds what becomes short
            self.b.short_floats = (*HALF_FLOATS, FLOAT32)
        self.target = target
        self.shared: list[str] = []

    def module(self) -> str:
        if self.target.has_dependent_launch:
            self.b.nothing("llvm.nvvm.griddepcontrol.launch.dependents")
            self.b.nothing("llvm.nvvm.griddepcontrol.wait")
        self._bind_arguments()
        self._run(self.kernel.body)
        parts = [*self.b.globals.values(), *self.shared, self._function(), *self.b.declarations.values()]
        return "\n\n".join([*parts, self._attributes()]) + "\n"

    def _function(self) -> str:
        arguments = [self._pointer_argument(n) for n in range(len(self.kernel.buffers))]
        arguments += [f"i64 %scalar{n}" for n in range(len(self.kernel.scalars))]
        lines = ["entry:", *self.allocas, *self.b.scope.lines, "  ret void"]
        header = f"define ptx_kernel void @{self.kernel.name}({', '.join(arguments)}) #0 {{"
        return "\n".join([header, *lines, "}"])

    def _attributes(self) -> str:
        """How many threads a block has at most, and how many blocks there are: what the assembler divides registers by.
        Left to itself it rather spills a few than have fewer blocks."""
        grid = grid_of(self.kernel)
        threads = prod(constant(loop.extent) or 1 for loop in grid.threads) if grid is not None else 1
        resident = f' "nvvm.minctasm"="{self.kernel.resident}"' if self.kernel.resident else ""
        return f'attributes #0 = {{ nounwind "nvvm.maxntid"="{threads},1,1"{resident} }}'

    # Statements of a grid

    def _for(self, stmt: For, stack: list[Step]) -> None:
        if not stmt.is_bound:
            super()._for(stmt, stack)
            return
        kind, axis = stmt.kind.split(".")
        if constant(stmt.extent) == 1:
            self._bind_constant(stmt.var, 0)
        else:
            number = self.b.special(f"{_REGISTERS[kind]}.{axis}")
            self.e.variables[stmt.var] = scalar(sum_of(number))
            self.e.nonnegative.add(number.ref)
        stack.append(stmt.body)

    def _alloc(self, stmt: Alloc, stack: list[Step]) -> None:
        if stmt.buffer.scope != "shared":
            super()._alloc(stmt, stack)
            return
        elements = self._element_count(stmt.buffer)
        size = elements * stmt.buffer.dtype.itemsize
        if size > MAX_STATIC_SHARED:
            raise Unsupported(
                f"shared memory {stmt.buffer.name} of {size} bytes",
                where=f"kernel {self.kernel.name}",
                why=f"a block has at most {MAX_STATIC_SHARED} without asking the driver for more",
            )
        name = f"@{self.kernel.name}.shared{len(self.shared)}"
        kind = f"[{max(elements, 1)} x {memory_type(stmt.buffer.dtype)}]"
        self.shared.append(f"{name} = internal addrspace(3) global {kind} poison, align {ALIGNMENT}")
        self._place(stmt.buffer, Value(name, "ptr addrspace(3)", 1, 0))
        stack.append(stmt.body)

    def _barrier(self, stmt: Barrier, stack: list[Step]) -> None:
        self.b.nothing("llvm.nvvm.barrier.cta.sync.aligned.all", "i32 0")
        for scope in self.b.scopes:
            scope.loaded.clear()

    def _exchange(self, stmt: Exchange, stack: list[Step]) -> None:
        slot = self.e.register_slot(stmt.buffer, self.e.access(stmt.buffer, stmt.indices))
        self.e.registers[stmt.buffer][slot] = self.b.from_lane(self.e.value(stmt.value), stmt.distance)

    def _prefetch(self, stmt: Prefetch, stack: list[Step]) -> None:
        """A hint that other threads' work makes needless."""

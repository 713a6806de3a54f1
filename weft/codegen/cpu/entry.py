"""An ExecPlan becomes LLVM IR: one native function for each run of kernels between host steps.

    void NAME(ptr slots, ptr pool, i64 threads)

The steps are constant tables that the function walks, so that its size and compile time do not
depend on the length of the graph. What lies where in the pool's state: `base/pool_state.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...base.cpu_facts import CpuFacts
from ...base.cpu_target import CpuTarget
from ...base.plan import ExecPlan, KernelStep
from ...base.pool_state import with_offsets
from ..generator import Entry

NEVER, IF_AWAKE, ALWAYS = 0, 1, 2  # whether threads share a step


def emit_entry(plan: ExecPlan, name: str, target: CpuTarget) -> Entry | None:
    """The native functions of a plan, if it has kernels; those are external symbols to be linked with them."""
    runs = [segment for segment in plan.segments() if isinstance(segment, tuple)]
    if not runs:
        return None
    symbols = tuple(f"{name}.{number}" for number in range(len(runs)))
    kernels = sorted({step.kernel for run in runs for step in run})
    parts = [f"declare void @{_quoted(kernel)}(ptr, ptr, i64, i64)" for kernel in kernels]
    for symbol, run in zip(symbols, runs):
        parts += _tables(symbol, run, target.facts)
        parts.append(_function(symbol, run))
    return Entry("\n".join(parts) + "\n", symbols)


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\5C").replace('"', "\\22") + '"'


def _tables(symbol: str, run: Sequence[KernelStep], facts: CpuFacts) -> list[str]:
    """@NAME.refs: slot, offset of every buffer. @NAME.scalars. @NAME.steps: kernel, first ref, end
    of refs, scalars, extent, whether threads may share it."""
    rows: list[str] = []
    refs: list[int] = []
    scalars: list[int] = []
    for step in run:
        first = len(refs) // 2
        for ref in step.buffers:
            refs += [ref.slot, ref.offset]
        at = f"getelementptr (i8, ptr @{_quoted(symbol + '.scalars')}, i64 {8 * len(scalars)})"
        scalars += step.scalars
        rows.append(
            f"{_ROW} {{ ptr @{_quoted(step.kernel)}, i64 {first}, i64 {len(refs) // 2}, "
            f"ptr {at}, i64 {step.launch.blocks[0]}, i64 {_shared(step, facts)} }}"
        )
    return [
        _constant(f"{symbol}.refs", "i64", (f"i64 {number}" for number in refs)),
        _constant(f"{symbol}.scalars", "i64", (f"i64 {number}" for number in scalars)),
        _constant(f"{symbol}.steps", _ROW, rows),
    ]


def _shared(step: KernelStep, facts: CpuFacts) -> int:
    if step.launch.blocks[0] < 2 or step.work < facts.threads.share:
        return NEVER
    return ALWAYS if step.work >= facts.threads.wake else IF_AWAKE


_ROW = "{ ptr, i64, i64, ptr, i64, i64 }"


def _constant(name: str, kind: str, items: Iterable[str]) -> str:
    listed = list(items)
    return f"@{_quoted(name)} = private unnamed_addr constant [{len(listed)} x {kind}] [{', '.join(listed)}]"


def _function(symbol: str, run: Sequence[KernelStep]) -> str:
    most = max(len(step.buffers) for step in run)
    text = with_offsets(_TEMPLATE).replace("ROW", _ROW).replace("STEPS", _quoted(symbol + ".steps"))
    text = text.replace("REFS", _quoted(symbol + ".refs")).replace("NAME", _quoted(symbol))
    return text.replace("MOST", str(max(most, 1))).replace("COUNT", str(len(run)))


_TEMPLATE = """
define void @NAME(ptr %slots, ptr %pool, i64 %threads) nounwind {
entry:
  %pointers = alloca [MOST x ptr], align 64
  %several = icmp sgt i64 %threads, 1
  %asleep = getelementptr i8, ptr %pool, i64 POOL.ASLEEP
  %pulse = getelementptr i8, ptr %pool, i64 POOL.PULSE
  br label %step
step:
  %number = phi i64 [ 0, %entry ], [ %following, %next ]
  %at.kernel = getelementptr ROW, ptr @STEPS, i64 %number, i32 0
  %at.first = getelementptr ROW, ptr @STEPS, i64 %number, i32 1
  %at.last = getelementptr ROW, ptr @STEPS, i64 %number, i32 2
  %at.scalars = getelementptr ROW, ptr @STEPS, i64 %number, i32 3
  %at.extent = getelementptr ROW, ptr @STEPS, i64 %number, i32 4
  %at.shared = getelementptr ROW, ptr @STEPS, i64 %number, i32 5
  %kernel = load ptr, ptr %at.kernel, align 8
  %first = load i64, ptr %at.first, align 8
  %last = load i64, ptr %at.last, align 8
  %scalars = load ptr, ptr %at.scalars, align 8
  %extent = load i64, ptr %at.extent, align 8
  %shared = load i64, ptr %at.shared, align 8
  %any = icmp slt i64 %first, %last
  br i1 %any, label %fill, label %ready
fill:
  %ref = phi i64 [ %first, %step ], [ %ref.next, %fill ]
  %at.slot = getelementptr { i64, i64 }, ptr @REFS, i64 %ref, i32 0
  %at.offset = getelementptr { i64, i64 }, ptr @REFS, i64 %ref, i32 1
  %slot = load i64, ptr %at.slot, align 8
  %offset = load i64, ptr %at.offset, align 8
  %at.base = getelementptr ptr, ptr %slots, i64 %slot
  %base = load ptr, ptr %at.base, align 8
  %pointer = getelementptr i8, ptr %base, i64 %offset
  %place = sub i64 %ref, %first
  %at.pointer = getelementptr ptr, ptr %pointers, i64 %place
  store ptr %pointer, ptr %at.pointer, align 8
  %ref.next = add i64 %ref, 1
  %more = icmp slt i64 %ref.next, %last
  br i1 %more, label %fill, label %ready
ready:
  br i1 %several, label %choose, label %alone
choose:
  %sleepers = load atomic i32, ptr %asleep monotonic, align 4
  %awake = icmp eq i32 %sleepers, 0
  %least = select i1 %awake, i64 1, i64 2
  %split = icmp sge i64 %shared, %least
  br i1 %split, label %together, label %busy
together:
  %parallel = load ptr, ptr %pool, align 8
  call void %parallel(ptr %pool, ptr %kernel, ptr %pointers, ptr %scalars, i64 %extent,
                      i64 %threads)
  br label %next
busy:
  %beat = trunc i64 %number to i32
  store atomic i32 %beat, ptr %pulse monotonic, align 4
  br label %alone
alone:
  call void %kernel(ptr %pointers, ptr %scalars, i64 0, i64 %extent)
  br label %next
next:
  %following = add i64 %number, 1
  %going = icmp slt i64 %following, COUNT
  br i1 %going, label %step, label %end
end:
  ret void
}
"""

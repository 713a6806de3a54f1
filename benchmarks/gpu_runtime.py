"""The runtime of GPUs on the device of this machine: right answers first, then what calls cost.

    python benchmarks/gpu_runtime.py

Needs NVIDIA's driver; what is shared with PyTorch is checked where that is installed with CUDA.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import weft
from weft.base import config
from weft.base.device import Device
from weft.base.errors import Error, NoDevice, OutOfMemory
from weft.base.plan import BufferRef, ExecPlan, HostStep, KernelStep, Launch, Slot
from weft.runtime.cuda.array import device_empty, to_device
from weft.runtime.cuda.context import platform
from weft.runtime.cuda.executor import CudaExecutor
from weft.runtime.functions import register_func
from weft.runtime.loading import profiled
from weft.runtime.program import KernelInfo, Program, TensorSpec

F32 = np.dtype("float32")
LIMIT = 60  # seconds of one check
ADD = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry NAME(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 n)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<4>;
    EARLY
    ld.param.u64 %rd0, [a];
    ld.param.u64 %rd1, [b];
    ld.param.u64 %rd2, [c];
    ld.param.u64 %rd3, [n];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r0, %r1, %r2, %r0;
    cvt.u64.u32 %rd4, %r0;
    setp.ge.u64 %p, %rd4, %rd3;
    @%p bra DONE;
    shl.b64 %rd5, %rd4, 2;
    add.u64 %rd0, %rd0, %rd5;
    add.u64 %rd1, %rd1, %rd5;
    add.u64 %rd2, %rd2, %rd5;
    ld.global.f32 %f0, [%rd0];
    ld.global.f32 %f1, [%rd1];
    add.f32 %f2, %f0, %f1;
    st.global.f32 [%rd2], %f2;
DONE:
    ret;
}
"""
EARLY = "griddepcontrol.launch_dependents; griddepcontrol.wait;"


def added(name: str = "add", early: bool = True) -> bytes:
    """PTX of c = a + b."""
    return ADD.replace("NAME", name).replace("EARLY", EARLY if early else "").encode()


@register_func("gpu_runtime.reverse")  # type: ignore[untyped-decorator]
def reverse(tensors: Any, attrs: Any) -> None:
    """A step of the host."""
    tensors[1][...] = tensors[0][::-1]


def chain(n: int, steps: int, early: bool = True) -> Program:
    """y = x + c * steps, by one kernel each, to and fro between two values of the arena."""
    size, rng = 4 * n, np.random.default_rng(5)
    constant = rng.integers(-8, 8, n).astype(F32)
    gpu = Device("cuda")
    slots = [
        Slot("input", size, 0, "x", gpu),
        Slot("constant", size, 0, "c", gpu),
        Slot("output", size, 0, "y", gpu),
        Slot("arena", size, 0, "", gpu),
        Slot("arena", size, -(-size // 256) * 256, "", gpu),
    ]
    launch = Launch((-(-n // 256), 1, 1), (256, 1, 1), dependent=early)
    places = [0, *[3 + number % 2 for number in range(steps - 1)], 2]
    made: list[Any] = [
        KernelStep("add", (BufferRef(places[i]), BufferRef(1), BufferRef(places[i + 1])), (n,), launch)
        for i in range(steps)
    ]
    plan = ExecPlan(tuple(made), tuple(slots), 2 * (-(-size // 256) * 256))
    specs = [TensorSpec(name, (n,), F32) for name in "xy"]
    infos = tuple(KernelInfo(f"add{i}", "add", ("add",), (), "sm_90") for i in range(steps))
    return Program(plan, (added(early=early),), (specs[0],), (specs[1],), (constant,), "cuda -arch=sm_90", infos)


def inputs(n: int, seed: int = 1) -> Any:
    """Whole numbers, whose sums are exact."""
    return np.random.default_rng(seed).integers(-100, 100, n).astype(F32)


def equal(found: Any, wanted: Any) -> None:
    """Raises unless all elements are equal."""
    np.testing.assert_array_equal(found, wanted)


# Checks, each in a process of its own


def check_facts() -> None:
    """What the device says of itself."""
    cuda = weft.cuda
    print(cuda.get_device_name(), cuda.get_device_capability(), cuda.mem_get_info(), platform().version)
    print(cuda.get_device_properties())
    for wrong in (99, "cuda:99"):
        try:
            cuda.get_device_name(wrong)
        except NoDevice as error:
            print("refused:", error.what)
        else:
            raise AssertionError("a device that is not there")


def check_runs() -> None:
    """Arrays of the host and of the device, with and without kernels that start early."""
    for n, steps, early in [(1, 1, True), (1000, 3, False), (70000, 200, True)]:
        program = chain(n, steps, early)
        executor = CudaExecutor(program)
        for seed in range(3):
            x = inputs(n, seed)
            wanted = x + steps * program.constants[0]
            equal(executor.run({"x": x})[0], wanted)
            on_device = to_device(x)
            (y,) = executor.run({"x": on_device}, out="cuda")
            equal(y.numpy(), wanted)
            executor.run({"x": on_device}, out=[on_device])
            equal(on_device.numpy(), wanted)
        print(f"{n} elements, {steps} kernels: ok;", executor.loaded.functions["add"].facts())


def check_host_steps() -> None:
    """A step of the host in the middle."""
    program = chain(1000, 4)
    c, x = program.constants[0], inputs(1000)
    first, second = program.plan.steps[:2], program.plan.steps[2:]
    attrs = {"tensors": [([1000], "float32")] * 2, "outputs": [0]}
    turn = HostStep("gpu_runtime.reverse", (first[-1].buffers[2], BufferRef(3)), attrs)
    moved = replace(second[0], buffers=(BufferRef(3), *second[0].buffers[1:2], BufferRef(4)))
    last = replace(second[1], buffers=(BufferRef(4), *second[1].buffers[1:]))
    executor = CudaExecutor(replace(program, plan=replace(program.plan, steps=(*first, turn, moved, last))))
    equal(executor.run({"x": x})[0], (x + 2 * c)[::-1] + 2 * c)


def check_streams() -> None:
    """Runs on several streams, from several threads' worth of arrays, without waits between."""
    program = chain(1 << 20, 50)
    executor = CudaExecutor(program)
    streams = [weft.cuda.Stream() for _ in range(3)]
    found = []
    for turn in range(30):
        x = inputs(1 << 20, turn)
        with streams[turn % 3]:
            found.append((x, executor.run({"x": x}, out="cuda")[0]))
    for x, y in found:
        equal(y.numpy(), x + 50 * program.constants[0])


def check_torch() -> None:
    """Memory shared with PyTorch, both ways, on its stream."""
    try:
        import torch
    except ImportError:
        print("no torch")
        return
    program = chain(100_000, 20)
    c = program.constants[0]
    executor = CudaExecutor(program)
    x = torch.arange(100_000, device="cuda", dtype=torch.float32)
    (y,) = executor.run({"x": x}, out="cuda")
    for theirs in (torch.from_dlpack(y), torch.as_tensor(y, device="cuda")):
        assert theirs.data_ptr() == y.address, "the memory is shared"
        equal((theirs + 1).cpu().numpy(), x.cpu().numpy() + 20 * c + 1)
    out = torch.empty(100_000, device="cuda")
    executor.run({"x": x}, out=[out])
    equal(out.cpu().numpy(), x.cpu().numpy() + 20 * c)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), weft.cuda.stream(weft.cuda.ExternalStream(side.cuda_stream)):
        for turn in range(50):
            given = torch.full((100_000,), float(turn), device="cuda")
            (y,) = executor.run({"x": given}, out="cuda")
            del given
            noise = torch.full((100_000,), 7.0, device="cuda")  # which may get the memory that went
            kept = torch.from_dlpack(y) * 1
            del y, noise
            equal(kept.cpu().numpy(), turn + 20 * c)
    strided = torch.zeros(100_000, 2, device="cuda")[:, 0]
    try:
        executor.run({"x": strided})
    except Error as error:
        print("refused:", error.what)
    half = torch.ones(3, device="cuda", dtype=torch.bfloat16)
    equal(weft.runtime.shared.shared_array(half).numpy().astype("float32"), np.ones(3, "float32"))
    before = weft.cuda.memory_allocated()
    for _ in range(100):
        torch.from_dlpack(executor.run({"x": x}, out="cuda")[0])
    gc.collect()
    assert weft.cuda.memory_allocated() <= before, "memory is let go"


def check_memory() -> None:
    """Too much, and what is freed."""
    try:
        device_empty((1 << 45,), "uint8")
    except OutOfMemory as error:
        print("refused:", error)
    else:
        raise AssertionError("too much memory")
    before = weft.cuda.memory_allocated()
    for _ in range(50):
        device_empty((1 << 30,), "uint8")
    executor: Any = CudaExecutor(chain(1 << 20, 4))
    equal(executor.run({"x": np.zeros(1 << 20, F32)})[0], 4 * executor.program.constants[0])
    del executor
    gc.collect()
    assert weft.cuda.memory_allocated() == before
    weft.cuda.empty_cache()
    print("reserved:", weft.cuda.memory_reserved(), "free, all:", weft.cuda.mem_get_info())


def check_errors() -> None:
    """Code that is wrong, and a fork."""
    program = chain(100, 2)
    broken = replace(program, objects=(added().replace(b"add.f32", b"odd.f32"),))
    try:
        CudaExecutor(broken)
    except Error as error:
        print("refused:", error)
    else:
        raise AssertionError("wrong code")
    executor = CudaExecutor(program)
    equal(executor.run({"x": np.zeros(100, F32)})[0], 2 * program.constants[0])
    child = os.fork()
    if child == 0:
        try:
            executor.run({"x": np.zeros(100, F32)})
        except Error:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, "a fork cannot use the device"


def check_profile() -> None:
    """Times of steps by events."""
    program = chain(1 << 24, 5)
    executor = CudaExecutor(program)
    found = profiled(executor, {"x": inputs(1 << 24)}, 5)
    print(found)
    assert all(1e-6 < step.seconds < 1e-2 for step in found.steps)


def check_costs() -> None:
    """What calls cost, in microseconds."""
    with tempfile.TemporaryDirectory() as folder, config.override(cache=True, cache_dir=folder):
        for turn in ("assembled", "from disk"):
            start = time.perf_counter()
            loaded = CudaExecutor(chain(1000, 2))
            print(f"load, {turn}: {1e3 * (time.perf_counter() - start):.2f} ms")
            del loaded
    for steps in (1, 57, 200):
        for early in (True, False):
            _costs_of(steps, early)


def _costs_of(steps: int, early: bool) -> None:
    executor = CudaExecutor(chain(132 * 256, steps, early))
    host = inputs(132 * 256)
    x, other, y = to_device(host), to_device(host), device_empty(host.shape, F32)
    sync = weft.cuda.current_stream().synchronize

    def moving() -> None:
        moving.turn = not getattr(moving, "turn", False)  # type: ignore[attr-defined]
        executor.run({"x": x if moving.turn else other}, out=[y])  # type: ignore[attr-defined]
        sync()

    same = lambda: (executor.run({"x": x}, out=[y]), sync())
    queued = lambda: executor.run({"x": x}, out=[y])
    whole = lambda: executor.run({"x": host})
    step = executor.bind({"x": x}, out=[y])
    bound = lambda: (step(), sync())
    told = {
        "bound, sync": _best(bound),
        "sync": _best(same),
        "sync, new input": _best(moving),
        "queued": _best(queued, 200),
        "from and to the host": _best(whole),
    }
    print(f"{steps} kernels{', early' if early else ''}:", {k: f"{v:.1f}" for k, v in told.items()})


def _best(call: Callable[[], object], turns: int = 50) -> float:
    best = float("inf")
    for _ in range(5):
        call()
        weft.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(turns):
            call()
        weft.cuda.synchronize()
        best = min(best, 1e6 * (time.perf_counter() - start) / turns)
    return best


def main() -> None:
    """Each check in a process of its own, with a limit."""
    checks = [name for name in globals() if name.startswith("check_")]
    if len(sys.argv) > 1:
        globals()[f"check_{sys.argv[1]}"]()
        return
    failed = []
    for name in checks:
        start = time.perf_counter()
        try:
            command = [sys.executable, __file__, name.removeprefix("check_")]
            code = subprocess.run(command, timeout=LIMIT, check=False).returncode
        except subprocess.TimeoutExpired:
            code = 124
        failed += [name] if code else []
        print(f"== {name}: {'ok' if not code else f'FAILED ({code})'}, {time.perf_counter() - start:.1f} s", flush=True)
    print("failed:", failed or "none")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

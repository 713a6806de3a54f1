"""Kernels of tensor cores, and those for one token, on the GPU of this machine: right answers first, each kind in a
process of its own with a short limit, then times beside PyTorch's, in alternating rounds.

    python benchmarks/gpu_kernels.py check             all kinds
    python benchmarks/gpu_kernels.py check plain tails some of them
    python benchmarks/gpu_kernels.py time              all of them beside PyTorch's
    python benchmarks/gpu_kernels.py time token        products of few rows and attention of few queries: bytes a second

Outputs are filled with NaN before each kernel runs; references are float64. Needs PyTorch with CUDA.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch

from weft.base.cuda_target import CudaTarget, host_gpu
from weft.base.plan import KernelCode, TensorMap
from weft.codegen.cuda.compile import CODEGEN
from weft.lower.cuda.attention import can_attend, write_attention
from weft.lower.cuda.tiles import candidates
from weft.te.build import KernelBuilder
from weft.te.loops import Kernel
from weft.te.tensor_cores.attention import AttentionTile
from weft.te.tensor_cores.product import Tile
from weft.testing.few_rows import FewRowsCase
from weft.testing.split_attention import SplitCase
from weft.testing.tensor_cores import (
    AttentionCase,
    ConvolutionCase,
    ProductCase,
    attention_cases,
    convolution_cases,
    product_cases,
)

LIMIT = 20  # seconds of a kind
AT_ONCE = 5
TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
EXACT = 5e-5  # float32 that stays float32
TOLERANCE = {"fp16": 1e-3, "bf16": 8e-3, "tf32": 1e-3}  # of the largest result; inputs are exact


# The driver, as far as one kernel needs it.

_ELEMENTS = {"float16": 6, "float32": 7, "bfloat16": 9, "tfloat32": 11}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("gap", ctypes.c_int), ("value", ctypes.c_uint32 * 16)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


def call(name: str, *arguments: Any) -> None:
    status = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        ctypes.CDLL("libcuda.so.1").cuGetErrorName(status, ctypes.byref(text))
        raise RuntimeError(f"{name}: {status} {text.value!r}")


def encoded(spec: TensorMap, address: int) -> Any:
    """128 bytes, aligned to 64."""
    raw = ctypes.create_string_buffer(128 + 64)
    at = (ctypes.addressof(raw) + 63) & ~63
    rank = len(spec.dims)
    dims, strides = (ctypes.c_uint64 * rank)(*spec.dims), (ctypes.c_uint64 * (rank - 1))(*spec.strides)
    steps = (ctypes.c_uint32 * rank)(*(spec.steps or (1,) * rank))
    kind, swizzle = _ELEMENTS[spec.element], _SWIZZLES[spec.swizzle]
    head = (ctypes.c_void_p(at), kind, rank, ctypes.c_void_p(address + spec.offset), dims, strides)
    if spec.corners is None:
        call("cuTensorMapEncodeTiled", *head, (ctypes.c_uint32 * rank)(*spec.box), steps, 0, swizzle, 3, 0)
    else:
        lower, upper = ((ctypes.c_int * (rank - 2))(*corner) for corner in spec.corners)
        call("cuTensorMapEncodeIm2col", *head, lower, upper, *spec.box, steps, 0, swizzle, 3, 0)
    return raw, at


@cache
def loaded(kernel: Kernel, target: CudaTarget) -> tuple[ctypes.c_void_p, KernelCode]:
    """The function of a kernel, and what it is launched with."""
    made = CODEGEN.code(kernel, CODEGEN.assemble(CODEGEN.emit(kernel, target), target))
    function, module = ctypes.c_void_p(), ctypes.c_void_p()
    log = ctypes.create_string_buffer(1 << 16)
    options, values = (ctypes.c_int * 2)(5, 6), (ctypes.c_void_p * 2)(ctypes.addressof(log), 1 << 16)
    try:
        call("cuModuleLoadDataEx", ctypes.byref(module), made.code + b"\0", 2, options, values)
    except RuntimeError as error:
        raise RuntimeError(f"{error} {log.value.decode()[:2000]}") from None
    call("cuModuleGetFunction", ctypes.byref(function), module, kernel.name.encode())
    return function, made


class Ready:
    """A kernel with its arguments, to be launched on PyTorch's stream."""

    def __init__(self, kernel: Kernel, target: CudaTarget, tensors: Sequence[torch.Tensor]) -> None:
        self.function, made = loaded(kernel, target)
        launch = made.launch
        assert launch is not None
        if launch.shared > 48 << 10:
            call("cuFuncSetAttribute", self.function, 8, launch.shared)
        pointers = [ctypes.c_uint64(tensor.data_ptr()) for tensor in tensors]
        maps = [encoded(spec, tensors[spec.buffer].data_ptr()) for spec in made.maps]
        places = [ctypes.addressof(pointer) for pointer in pointers] + [at for _, at in maps]
        self.parameters = (ctypes.c_void_p * len(places))(*places)
        self.config = _Config()
        self.config.grid[:], self.config.block[:] = launch.blocks, launch.threads
        self.config.shared = launch.shared
        wanted = [(4, launch.cluster)] if launch.cluster > 1 else []
        wanted += [(6, 1)] if launch.dependent else []
        attributes = (_Attribute * max(1, len(wanted)))()
        for attribute, (number, value) in zip(attributes, wanted):
            attribute.id = number
            attribute.value[:3] = (value, 1, 1) if number == 4 else (value, 0, 0)
        self.config.attributes, self.config.count = attributes, len(wanted)
        self.kept = (attributes, pointers, maps, tensors)

    def __call__(self) -> None:
        self.config.stream = torch.cuda.current_stream().cuda_stream
        call("cuLaunchKernelEx", ctypes.byref(self.config), self.function, self.parameters, None)


# Products


def operands(case: ProductCase) -> list[torch.Tensor]:
    """a, b, what follows, and the result, which is NaN."""
    torch.manual_seed(case.rows + case.columns)
    made = TORCH[case.dtype]
    draw = lambda *shape, dtype=made: torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
    swap = lambda shape, turned: (shape[0], shape[2], shape[1]) if turned else shape
    a = draw(*swap((case.batch, case.rows, case.depth), case.turned[0]))
    b = draw(*swap((1 if case.shared_b else case.batch, case.columns, case.depth), case.turned[1]))
    found = [a, b, *(x - truncated(x) for x in (a, b) if case.exact)]
    found += [draw(case.columns) * 5] if case.bias else []
    shape = (case.batch, case.rows, case.columns)
    found += [draw(*shape, dtype=TORCH[case.out_dtype]) * 5] if case.other else []
    return [*found, torch.full(shape, float("nan"), device="cuda", dtype=TORCH[case.out_dtype])]


def truncated(x: torch.Tensor) -> torch.Tensor:
    """What tensor cores read of float32: its first 19 bits."""
    return (x.view(torch.int32) & -(1 << 13)).view(torch.float32)


def expected(case: ProductCase, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    a, b, *rest = (tensor.double() for tensor in tensors[:-1])
    rest = rest[2:] if case.exact else rest
    a = a.transpose(1, 2) if case.turned[0] else a
    b = b if case.turned[1] else b.transpose(1, 2)
    made = a @ b
    for extra in rest:
        made = made + extra
    if case.activation == "relu":
        made = made.relu()
    return torch.nn.functional.gelu(made) if case.activation == "gelu" else made


def check_product(case: ProductCase, target: CudaTarget) -> str:
    tensors = operands(case)
    kernel = case.kernel(target)
    run = Ready(kernel, target, tensors)
    torch.cuda.synchronize()
    run()
    torch.cuda.synchronize()
    return verdict(tensors[-1], expected(case, tensors), EXACT if case.exact else TOLERANCE[case.kind])


def check_convolution(case: ConvolutionCase, target: CudaTarget) -> str:
    torch.manual_seed(case.out_channels)
    draw = lambda *shape: torch.randn(shape, device="cuda").to(TORCH[case.dtype])
    (count, *_, channels), (down, across) = case.pictures, case.image
    x, w = draw(*case.pictures), draw(case.out_channels, *case.filter, channels)
    rests = [side - truncated(side) for side in (x, w) if case.exact]
    more = [draw(case.out_channels) * 5] if case.bias else []
    more += [draw(count, down, across, case.out_channels) * 5] if case.other else []
    out = torch.full((count, down, across, case.out_channels), float("nan"), device="cuda", dtype=x.dtype)
    run = Ready(case.kernel(target), target, [x, w, *rests, *more, out])
    torch.cuda.synchronize()
    run()
    torch.cuda.synchronize()
    top, left, below, right = case.pads
    padded = torch.nn.functional.pad(x.double().permute(0, 3, 1, 2), (left, right, top, below))
    filters = w.double().permute(0, 3, 1, 2)
    wanted = torch.nn.functional.conv2d(padded, filters, None, case.strides, 0, case.dilation).permute(0, 2, 3, 1)
    for extra in more:
        wanted = wanted + extra.double()
    return verdict(out, wanted.relu() if case.activation else wanted, EXACT if case.exact else TOLERANCE[case.kind])


def attention_tensors(case: AttentionCase) -> list[torch.Tensor]:
    torch.manual_seed(case.tokens)
    draw = lambda *shape: torch.randn(shape, device="cuda").to(TORCH[case.dtype])
    found = [draw(case.batch, case.tokens, case.line)] + ([draw(case.batch, case.tokens) * 2] if case.masked else [])
    shape = (case.batch, case.tokens, case.heads * case.columns)
    return [*found, torch.full(shape, float("nan"), device="cuda", dtype=found[0].dtype)]


def heads_of(case: AttentionCase, packed: torch.Tensor) -> list[torch.Tensor]:
    """Queries, keys and values as (batch, heads, tokens, columns)."""
    sizes = [n * case.columns for n in (case.heads, case.key_heads, case.key_heads)]
    parts = [part.unflatten(-1, (-1, case.columns)).transpose(1, 2) for part in packed.split(sizes, -1)]
    each = case.heads // case.key_heads
    return [parts[0], *(part.repeat_interleave(each, 1) for part in parts[1:])]


def check_attention(case: AttentionCase, target: CudaTarget) -> str:
    tensors = attention_tensors(case)
    run = Ready(case.kernel(target), target, tensors)
    torch.cuda.synchronize()
    run()
    torch.cuda.synchronize()
    q, k, v = heads_of(case, tensors[0].double())
    scores = q @ k.transpose(-1, -2) * case.columns**-0.5
    if case.masked:
        scores = scores + tensors[1].double()[:, None, None]
    if case.causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], device="cuda").tril() == 0, float("-inf"))
    wanted = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
    return verdict(tensors[-1], wanted, 2 * TOLERANCE[case.kind])


def verdict(got: torch.Tensor, wanted: torch.Tensor, bound: float) -> str:
    """How far it is off; where it is wrong, the first places and how many."""
    scale = wanted.abs().max().item()
    error = (got.double() - wanted).abs() / scale
    worst = error.max().item()
    if worst <= bound:
        return f"ok {worst:.1e}"
    wrong = (~(error <= bound)).nonzero()
    shown = [
        f"{tuple(at.tolist())}: {got[tuple(at)].item():.5g} for {wanted[tuple(at)].item():.5g}"
        for at in (*wrong[:3], *wrong[-2:])
    ]
    return f"WRONG {worst:.1e}, {len(wrong)} of {got.numel()}; " + "; ".join(shown)


def check(names: Sequence[str]) -> int:
    """Each kind in a process of its own, some of them at once; the number of those that failed."""
    failed = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for good, text in pool.map(_in_child, names or KINDS):
            failed += not good
            print(text, end="", flush=True)
    print(f"{failed} kinds failed")
    return failed


def _in_child(name: str) -> tuple[bool, str]:
    begun = time.perf_counter()
    command = [sys.executable, __file__, "one", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        text, good = done.stdout + done.stderr[-1500:] * (done.returncode != 0), done.returncode == 0
    except subprocess.TimeoutExpired as error:
        text, good = f"{(error.stdout or b'').decode()}  HANGS\n", False
    return good, f"{name} ({time.perf_counter() - begun:.1f} s): {'ok' if good else 'FAILED'}\n{text}"


def check_one(name: str) -> int:
    target, wrong = host_gpu(), 0
    for title, run in KINDS[name]():
        result = run(target)
        wrong += not result.startswith("ok")
        print(f"  {title}: {result}", flush=True)
    return wrong


def _product_kind(cases: Sequence[ProductCase]) -> Callable[[], list[tuple[str, Callable[[CudaTarget], str]]]]:
    return lambda: [(_title(case), lambda target, case=case: check_product(case, target)) for case in cases]


def _title(case: ProductCase) -> str:
    words = [f"{case.batch}x" * (case.batch > 1) + f"{case.rows}x{case.columns}x{case.depth} {case.kind}"]
    words += [str(case.tile)] if case.tile else []
    words += [word for word in ("bias", "other") if getattr(case, word)] + [case.activation, case.out]
    words += [f"turned {case.turned}"] if any(case.turned) else []
    return " ".join(filter(None, words))


def _convolution_kind(cases: Sequence[ConvolutionCase]) -> Callable[[], list[tuple[str, Callable[[CudaTarget], str]]]]:
    title = lambda c: (
        f"{c.pictures} {c.filter}/{c.strides} pads {c.pads} to {c.out_channels} {c.kind} {c.tile or ''}"
        + " exact" * c.exact
    )
    return lambda: [(title(case), lambda target, case=case: check_convolution(case, target)) for case in cases]


def _attention_kind(cases: Sequence[AttentionCase]) -> Callable[[], list[tuple[str, Callable[[CudaTarget], str]]]]:
    return lambda: [(_attention_title(case), lambda target, case=case: check_attention(case, target)) for case in cases]


def _attention_title(case: AttentionCase) -> str:
    words = [f"{case.batch} x {case.heads} x {case.tokens} x {case.columns} {case.kind}"]
    words += [word for word in ("causal", "masked") if getattr(case, word)]
    return " ".join(words + ([f"{case.groups} groups"] if case.groups else []))


KINDS = {name: _product_kind(cases) for name, cases in product_cases().items()}
KINDS |= {name: _convolution_kind(cases) for name, cases in convolution_cases().items()}
KINDS |= {name: _attention_kind(cases) for name, cases in attention_cases().items()}


# Times


def microseconds(
    runs: dict[str, Callable[[], None]], repeats: int = 10, rounds: int = 7
) -> dict[str, tuple[float, float]]:
    """Best and median of each, by replays of a graph of several launches, in alternating rounds."""
    graphs = {}
    for name, run in runs.items():
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(repeats):
                run()
        graphs[name].replay()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / repeats)
    return {name: (min(found), sorted(found)[len(found) // 2]) for name, found in times.items()}


def peer(case: ProductCase, tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
    a, b, *rest = tensors[:-1]
    rest = rest[2:] if case.exact else rest
    a, b = a[0], b[0].t()
    bias = rest[0] if case.bias else None

    def run() -> None:
        torch.backends.cuda.matmul.allow_tf32 = not case.exact
        made = torch.addmm(bias, a, b) if bias is not None else a @ b
        if case.other:
            made = made + rest[-1][0]
        if case.activation:
            getattr(torch.nn.functional, case.activation)(made)

    return run


TIMED = [
    *[ProductCase(None, n, n, n, kind) for n in (4096, 8192) for kind in ("bf16", "fp16", "tf32")],
    *[ProductCase(None, *shape, "bf16") for shape in ((512, 3072, 768), (128, 1024, 1024), (128, 768, 3072))],
    ProductCase(None, 4096, 4096, 4096, "tf32", exact=True),
    *[ProductCase(None, *s, "bf16", bias=True, activation="gelu") for s in ((4096, 3072, 768), (16384, 4096, 1024))],
]


def time_products(full: bool) -> None:
    target = host_gpu()
    for case in TIMED:
        tensors = operands(case)
        runs = {"torch": peer(case, tensors)}
        plan: Any = case.kernel(target).body
        runs[f"chosen {plan.tile}"] = Ready(case.kernel(target), target, tensors)
        for tile in others(case) if full else ():
            try:
                other = ProductCase(**{**case.__dict__, "tile": tile})
                runs.setdefault(str(tile), Ready(other.kernel(target), target, tensors))
            except (AssertionError, RuntimeError) as error:
                print(f"  {tile}: {error}")
        large = case.rows * case.columns * case.depth > 1 << 33
        found = microseconds(runs, 4 if large else 20, 5 if large else 9)
        flops = 2 * case.rows * case.columns * case.depth
        base = found["torch"][1]
        _show(_title(case), found, flops, base)


TIMED_ATTENTION = [
    *[AttentionCase(batch, 12, 128, 64) for batch in (1, 8, 32)],
    AttentionCase(8, 12, 197, 64),
    AttentionCase(4, 16, 4096, 64, "bf16"),
    AttentionCase(4, 16, 4096, 128, "bf16"),
    AttentionCase(4, 16, 4096, 128, "bf16", causal=True),
]


def _peers(case: AttentionCase, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, Callable[[], None]]:
    """PyTorch's kernels that take a case."""

    def run(backend: str) -> None:
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case.causal)

    runs: dict[str, Callable[[], None]] = {}
    for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        try:
            run(backend)
            runs[f"torch {backend.split('_')[0].lower()}"] = partial(run, backend)
        except RuntimeError as error:
            print(f"  {backend}: {str(error)[:80]}")
    return runs


def time_attention() -> None:
    target = host_gpu()
    for case in TIMED_ATTENTION:
        tensors = attention_tensors(case)
        runs = _peers(case, *heads_of(case, tensors[0]))
        for tile in (None, AttentionTile(1, 128), AttentionTile(2, 128), AttentionTile(2, 64), AttentionTile(1, 64, 4)):
            made = replace(case, tile=tile).kernel(target)
            runs[f"{'chosen ' if tile is None else ''}{made.body.tile}"] = Ready(made, target, tensors)
        found = microseconds(runs)
        flops = 4 * case.batch * case.heads * case.tokens**2 * case.columns // (2 if case.causal else 1)
        base = min(median for name, (_, median) in found.items() if name.startswith("torch"))
        _show(_attention_title(case), found, flops, base)


TIMED_CONVOLUTIONS = [
    (56, 64, 64, 3, 1),
    (28, 128, 128, 3, 1),
    (14, 256, 256, 3, 1),
    (7, 512, 512, 3, 1),
    (56, 128, 128, 3, 2),
    (56, 256, 512, 1, 2),
]


def time_convolutions() -> None:
    """Those of ResNet-50, with bias and relu; PyTorch's in channels_last, with cudnn.benchmark."""
    torch.backends.cudnn.benchmark = True
    target = host_gpu()
    for count in (1, 8, 32):
        for extent, channels, out, size, stride in TIMED_CONVOLUTIONS:
            pads = (size // 2,) * 4
            case = ConvolutionCase(None, (count, extent, extent, channels), out, (size, size), (stride, stride), pads)
            x = torch.randn(case.pictures, device="cuda", dtype=torch.float16)
            w = torch.randn(out, size, size, channels, device="cuda", dtype=torch.float16)
            bias = torch.randn(out, device="cuda", dtype=torch.float16)
            result = torch.empty((count, *case.image, out), device="cuda", dtype=torch.float16)
            seen, filters = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)

            def run(
                seen: Any = seen, filters: Any = filters, bias: Any = bias, stride: int = stride, pad: int = size // 2
            ) -> None:
                torch.nn.functional.conv2d(seen, filters, bias, stride, pad).relu_()

            runs: dict[str, Callable[[], None]] = {"torch": run}
            chosen: Any = case.kernel(target)
            runs[f"chosen {chosen.body.tile}"] = Ready(chosen, target, [x, w, bias, result])
            for tile in (Tile("fp16", 1, 64), Tile("fp16", 2, 64), Tile("fp16", 1, 64, split=4), Tile("fp16", 1, 128)):
                made: Any = replace(case, tile=tile).kernel(target)
                runs[str(tile)] = Ready(made, target, [x, w, bias, result])
            found = microseconds(runs, 20)
            flops = 2 * count * case.image[0] * case.image[1] * out * size * size * channels
            _show(
                f"{count} x {extent} x {extent} x {channels} to {out}, {size}x{size}/{stride}",
                found,
                flops,
                found["torch"][1],
            )


# One token: what is read comes from memory, since copies of it are taken in turns.

COLD = 240 << 20  # bytes of copies, four times what the second cache has
DECODED = [
    *[
        FewRowsCase(rows, *shape, dtype, turned=(False, turned))
        for shape in ((50257, 768), (14336, 4096), (4096, 14336), (4096, 4096), (768, 3072))
        for rows, dtype, turned in (
            (1, "float16", False), (1, "float16", True), (1, "bfloat16", False), (1, "float32", False),
            (2, "float16", False), (4, "float16", False), (8, "float16", False), (8, "float16", True),
            (8, "float32", False),
        )
    ],
    FewRowsCase(1, 1000, 2048),
    FewRowsCase(1, 64, 1024),
]  # fmt: skip
ATTENDED = [
    *[SplitCase(1, 32, 1, 4096, 128, 128, dtype) for dtype in ("float16", "bfloat16", "float32")],
    *[SplitCase(1, 8, 1, keys, 128, 128, group=4) for keys in (4096, 32768)],
    SplitCase(1, 8, 2, 4096, 128, 128, group=4),
    SplitCase(8, 12, 1, 1024, 64, 64),
    SplitCase(1, 12, 1, 128, 64, 64),
    *[SplitCase(batch, 12, 197, 197, 64, 64, "float32") for batch in (1, 8)],  # ViT's, which tensor cores do not take
]


class InTurns:
    """Some of several launches at each call: those on the next copy."""

    def __init__(self, runs: Sequence[Callable[[], object]], each: int = 1) -> None:
        self.runs, self.each, self.next = runs, each, 0

    def __call__(self) -> None:
        for _ in range(self.each):
            self.runs[self.next]()
            self.next = (self.next + 1) % len(self.runs)


def _copies(case: FewRowsCase | SplitCase) -> int:
    return max(2, min(64, -(-COLD // case.bytes_read)))


def _drawn(dtype: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(TORCH[dtype])


def time_few_rows() -> None:
    target = host_gpu()
    for case in DECODED:
        depth, turned, lines = case.depth, case.turned[1], _drawn(case.dtype, case.rows, case.depth)
        bias = _drawn(case.dtype, case.columns)
        weights = [
            _drawn(case.dtype, *((depth, case.columns) if turned else (case.columns, depth)))
            for _ in range(_copies(case))
        ]
        out = torch.full((case.rows, case.columns), float("nan"), device="cuda", dtype=lines.dtype)
        made: Any = case.kernel(target)
        sides = [(lines, weight if turned else weight.t(), weight) for weight in weights]
        torch.backends.cuda.matmul.allow_tf32 = False
        runs: dict[str, Callable[[], None]] = {
            "torch": InTurns([partial(torch.addmm, bias, a, b) for a, b, _ in sides]),
            "few rows": InTurns([Ready(made, target, [a, w, bias, out]) for a, _, w in sides]),
        }
        if case.dtype != "float32" and case.columns % 8 == 0:
            kind = {"float16": "fp16", "bfloat16": "bf16"}[case.dtype]
            plain = ProductCase(None, case.rows, case.columns, depth, kind, turned=case.turned, bias=True)
            made = plain.kernel(target)
            runs[f"{made.body.tile}"] = InTurns([Ready(made, target, [a, w, bias, out]) for a, _, w in sides])
        out.fill_(float("nan"))
        for _ in weights:
            runs["few rows"]()
        a, b, _ = sides[-1]
        bound = EXACT if case.dtype == "float32" else TOLERANCE[{"float16": "fp16", "bfloat16": "bf16"}[case.dtype]]
        print(verdict(out, a.double() @ b.double() + bias.double(), bound), end=" ")
        _show_bytes(str(case), microseconds(runs, 2 * len(weights)), case.bytes_read)


def time_split_attention() -> None:
    target = host_gpu()
    for case in ATTENDED:
        copies = []
        for _ in range(_copies(case)):
            copies.append({name: _drawn(case.dtype, *shape) for name, shape in case.shapes.items()})
            copies[-1]["out"] = torch.full(case.shape, float("nan"), device="cuda", dtype=TORCH[case.dtype])
        kernels = case.kernels(target)
        passed: dict[str, torch.Tensor] = {}
        for each in (each for kernel in kernels for each in kernel.buffers if each.name not in copies[0]):
            elements: Any = each.shape[0]
            passed.setdefault(each.name, torch.full((int(elements.value),), float("nan"), device="cuda"))

        def launches(made: Sequence[Kernel], tensors: dict[str, torch.Tensor]) -> Callable[[], None]:
            ready = [Ready(kernel, target, [tensors[each.name] for each in kernel.buffers]) for kernel in made]
            return InTurns(ready, len(ready))

        def peer(tensors: dict[str, torch.Tensor], case: SplitCase = case) -> Callable[[], object]:
            q, k, v = (tensors[name] for name in ("query", "key", "value"))
            q = q.flatten(1, 2)
            attend = torch.nn.functional.scaled_dot_product_attention
            return lambda: attend(q, k, v, enable_gqa=case.group > 1)

        torch.backends.cuda.matmul.allow_tf32 = False
        runs: dict[str, Callable[[], None]] = {
            "torch": InTurns([peer(tensors) for tensors in copies]),
            f"split, {len(kernels)} kernels": InTurns([launches(kernels, {**t, **passed}) for t in copies]),
        }
        b = KernelBuilder("kernel")
        request = case.request(b)
        if target.sm == 90 and can_attend(request):
            whole = write_attention(b, request, target)
            runs["tensor cores"] = InTurns([launches([whole], tensors) for tensors in copies])
        list(runs.values())[1]()
        q, k, v = (copies[0][name].double() for name in ("query", "key", "value"))
        wanted = (q @ k[:, :, None].mT * case.width**-0.5).softmax(-1) @ v[:, :, None]
        bound = EXACT if case.dtype == "float32" else 2 * TOLERANCE[{"float16": "fp16", "bfloat16": "bf16"}[case.dtype]]
        print(verdict(copies[0]["out"], wanted, bound), end=" ")
        _show_bytes(str(case), microseconds(runs, 2 * len(copies)), case.bytes_read)


def _show_bytes(title: str, found: dict[str, tuple[float, float]], read: int) -> None:
    print(title)
    base = found["torch"][1]
    for name, (best, median) in sorted(found.items(), key=lambda item: item[1][1]):
        print(f"  {name:44} {best:9.2f} {median:9.2f} us {read / median / 1e6:6.2f} TB/s {base / median:5.2f} of torch")


def _show(title: str, found: dict[str, tuple[float, float]], flops: float, base: float) -> None:
    print(title)
    for name, (best, median) in sorted(found.items(), key=lambda item: item[1][1]):
        print(f"  {name:44} {best:9.2f} {median:9.2f} us {flops / median / 1e6:6.0f} TF {base / median:5.2f} of torch")


def others(case: ProductCase) -> list[Tile]:
    tiles = candidates(case.kind, False)
    large = case.rows * case.columns >= 1 << 22
    return [tile for tile in tiles if (tile.split == 1 and tile.width >= 128) or not large]


def main(words: Sequence[str]) -> int:
    if words[:1] == ["check"]:
        return check(words[1:])
    if words[:1] == ["one"]:
        return check_one(words[1])
    if words[:2] == ["time", "token"]:
        time_few_rows()
        time_split_attention()
        return 0
    if words[:1] == ["time"]:
        time_products("all" in words)
        time_attention()
        time_convolutions()
        time_few_rows()
        time_split_attention()
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Kernels of single warps on the GPU that is here, with each of their tiles, against float64 on the CPU:
`python tests/gpu/run_templates.py [--target TEXT] [--times] [kind ...]` prints those that differ, and how many agree.

Code is made for sm_80, which every GPU runs, and once more for the architecture that is here. Every kind
of case runs in a process of its own with a limit. `--times` prints what a kernel takes, in microseconds: the least of
some runs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 240  # seconds that one process has
RUNS = 20  # of which the fastest counts
STAYS_FLOAT32 = 5e-5  # of the largest result: tensor cores cut sums off, which interpreted ones do not


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--target", default="")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if options.worker:
        return work(options.kinds, options.target, options.times)
    return supervise(options)


def supervise(options: argparse.Namespace) -> int:
    from weft.base.cuda_target import CudaTarget

    failed, here = 0, f"cuda -arch=sm_{CudaTarget.create().sm}"
    for target in [options.target] if options.target else dict.fromkeys(("cuda -arch=sm_80", here)):
        for kind in options.kinds or list(all_cases()):
            command = [sys.executable, __file__, "--worker", f"--target={target}", kind]
            try:
                done = subprocess.run(command + ["--times"] * options.times, cwd=ROOT, timeout=LIMIT)
                code = done.returncode
            except subprocess.TimeoutExpired:
                print(f"{kind} for {target}: no answer in {LIMIT} s")
                code = 1
            failed += code != 0
    print(f"{failed} kinds of kernels failed" if failed else "all templates agree")
    return 1 if failed else 0


def all_cases() -> dict[str, list]:
    from weft.testing.tensor_cores import warp_attention_cases, warp_convolution_cases, warp_product_cases

    return {**warp_product_cases(), **warp_convolution_cases(), **warp_attention_cases()}


def work(kinds: list[str], text: str, times: bool) -> int:
    from codegen.cuda.template_data import bound_of, data_of, error_of

    from weft.base.cuda_target import CudaTarget
    from weft.testing.on_gpu import run_on_gpu

    target, cases, bad = CudaTarget.create(text), [case for kind in kinds for case in all_cases()[kind]], 0
    for number, case in enumerate(cases):
        arrays, wanted = data_of(case, number)
        kernel = case.kernel(target)
        run_on_gpu(kernel, arrays, target)
        exact = kernel.body.tile.exact
        error, bound = error_of(arrays[-1], wanted), STAYS_FLOAT32 if exact else bound_of(case, kernel.body.tile)
        if not error < bound:
            bad += 1
            print(f"{case}: {error:.1e} off, {bound:.1e} is allowed", flush=True)
        elif times:
            print(f"{microseconds(kernel, arrays, target):9.1f} us {kernel.body}", flush=True)
    print(f"{' '.join(kinds)} for {target.arch}: {len(cases) - bad} of {len(cases)} agree", flush=True)
    return 1 if bad else 0


def microseconds(kernel, arrays, target) -> float:
    """The least of some runs, with the launch."""
    from weft.runtime.cuda.array import device_empty
    from weft.runtime.cuda.stream import current_stream
    from weft.testing.on_gpu import prepared

    held = [device_empty((max(array.nbytes, 16),), "uint8") for array in arrays]
    launch, stream, found = prepared(kernel, [memory.address for memory in held], target), current_stream(), []
    for _ in range(RUNS):
        start = time.perf_counter()
        with stream.context:
            for _ in range(RUNS):
                launch.launch(stream)
        stream.synchronize()
        found.append((time.perf_counter() - start) / RUNS * 1e6)
    return min(found)


if __name__ == "__main__":
    sys.exit(main())

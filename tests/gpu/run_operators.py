"""Every operator with a body on the GPU that is here, on the samples of the operator suite, against its reference:
`python tests/gpu/run_operators.py [--samples N] [--target TEXT] [operator ...]` prints a table of those that fail, and
how many passed. Products, convolutions and attention are tried once more as code of sm_80, which every GPU runs: by
single warps.

Kernels run one by one on memory that is filled with NaN. Operators are tried in batches, each in a process of its own
with a limit; after a crash or a hang the operator that ran is named, and the rest go on in a new process. Templates are
tried the same way at sizes that no sample has, by kinds of cases ("few_rows:odd").
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
BATCH = 60  # operators of one process
LIMIT = 240  # seconds that one process has
QUIET = 30  # seconds in which an operator has to be done
LARGEST = 200_000  # elements of a sample's inputs
MOST_BYTES, CASES = 20 << 20, 24  # that the kernel of a case reads, and cases of a kind
WARPS = "cuda -arch=sm_80"  # has no products of warpgroups


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--samples", type=int, default=4, help="of each operator, in each dtype")
    parser.add_argument("--target", default="", help="what code is made for; the GPU that is here if not told")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.operators, options.samples, options.target)
    failed = supervise(options.operators or with_bodies(), options.samples, options.target)
    if not options.operators and not options.target:
        print(f"{WARPS}:")
        failed |= supervise(multiplying(), options.samples, WARPS)
    return failed


def supervise(names: list[str], samples: int, target: str) -> int:
    start, rows, waiting = time.perf_counter(), {}, list(names)
    while waiting:
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        done = run_batch(batch, samples, target)
        rows |= done
        rest = [name for name in batch if name not in done]
        if rest and not done:  # it died before the first one was done
            rows[rest[0]] = {"status": "crashed", "why": "the process ended"}
            rest = rest[1:]
        waiting = rest + waiting
    failed = {name: row for name, row in rows.items() if row["status"] not in ("ok", "nothing to run")}
    for name, row in sorted(failed.items()):
        print(f"{name:<36} {row['status']:<9} {row['why'][:300]}")
    ran = sum(row.get("ran", 0) for row in rows.values())
    kernels = sum(row.get("kernels", 0) for row in rows.values())
    good = sum(row["status"] == "ok" for row in rows.values())
    empty = sorted(name for name, row in rows.items() if row["status"] == "nothing to run")
    unseen = f"{len(empty)} have no sample that runs: {' '.join(empty)}"
    print(f"{good} operators and kinds of cases agree, {len(failed)} do not, {unseen}")
    print(f"{ran} samples, {kernels} kernels, {time.perf_counter() - start:.0f} s")
    return 1 if failed else 0


def run_batch(names: list[str], samples: int, target: str) -> dict[str, dict]:
    """What a process says about each operator; those it did not come to are left out, but for the one it died in."""
    command = [sys.executable, __file__, "--worker", "--samples", str(samples), f"--target={target}", *names]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
        output, error = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        output, error = (
            part.decode() if isinstance(part, bytes) else part or "" for part in (late.stdout, late.stderr)
        )
    rows: dict[str, dict] = {}
    begun = None
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        if "begin" in row:
            begun = row["begin"]
        else:
            rows[row.pop("name")] = row
    if begun is not None and begun not in rows:
        rows[begun] = {"status": "crashed", "why": " | ".join(error.strip().splitlines()[-3:]) or "no answer"}
    return rows


# In the process that runs operators


def import_suite() -> None:
    """The samples of the operator suite; they ask pytest only to skip what is missing."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "ops")]
    try:
        import pytest  # noqa: F401
    except ImportError:
        sys.modules["pytest"] = SimpleNamespace(skip=lambda *a, **k: None)  # type: ignore[assignment]
    import importlib

    import weft.ops  # noqa: F401

    for path in sorted((ROOT / "tests" / "ops").glob("samples_*.py")):
        try:
            importlib.import_module(path.stem)
        except ImportError as error:
            print(f"# {path.name}: {error}", file=sys.stderr)


def with_bodies() -> list[str]:
    import_suite()
    from weft.core.op import Op, list_ops

    return [op.name for op in list_ops() if Op.compute.contains(op) or Op.kernels.contains(op)] + list(kinds_of_cases())


def kinds_of_cases() -> dict[str, list]:
    """Cases of templates, by their kinds."""
    from weft.testing.few_rows import few_rows_cases
    from weft.testing.split_attention import split_cases

    found: dict[str, list] = {}
    for name, kinds in (("few_rows", few_rows_cases()), ("split_attention", split_cases())):
        for kind, cases in kinds.items():
            small = [case for case in cases if case.bytes_read <= MOST_BYTES]
            found[f"{name}:{kind}"] = small[:: -(-len(small) // CASES)]
    return found


def multiplying() -> list[str]:
    """Operators that tensor cores have templates for."""
    import_suite()
    from weft.lower.cuda.masters import READERS

    return [*READERS, "scaled_dot_product_attention", "_strided_attention"]


def work(names: list[str], samples: int, target: str) -> int:
    import faulthandler

    import_suite()
    for name in names:
        print(json.dumps({"begin": name}), flush=True)
        faulthandler.dump_traceback_later(QUIET, exit=True)
        row = tried(name, samples, target)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"name": name, **row}), flush=True)
        if row["status"] == "driver":
            return 1  # what follows an error of the driver means nothing
    return 0


def tried(name: str, samples: int, target: str) -> dict:
    return tried_cases(name, target) if ":" in name else tried_operator(name, samples, target)


def tried_cases(name: str, target: str) -> dict:
    from weft.base.cuda_target import CudaTarget
    from weft.testing.kernel_cases import check_case, run_case
    from weft.testing.on_gpu import run_on_gpu

    ran, kernels = 0, [0]

    chosen = CudaTarget.create(target or "cuda")

    def run(kernel, arrays) -> None:
        kernels[0] += 1
        run_on_gpu(kernel, arrays, chosen)

    for case in kinds_of_cases()[name]:
        arrays = case.arrays()
        try:
            check_case(run_case(case, chosen, arrays, run), case.wanted(arrays), str(case.dtype))
        except Exception as error:
            status = "differs" if isinstance(error, AssertionError) else "error"
            status = "driver" if isinstance(error, RuntimeError) else status
            why = " ".join(f"{case}: {type(error).__name__}: {error}".split())
            return {"status": status, "why": why[:600], "ran": ran, "kernels": kernels[0]}
        ran += 1
    return {"status": "ok", "why": "", "ran": ran, "kernels": kernels[0]}


def tried_operator(name: str, samples: int, target: str) -> dict:
    from sample import all_samples

    from weft.base.dtype import FLOAT32, as_dtype
    from weft.base.errors import Error
    from weft.core.op import Op
    from weft.testing import op_check

    op, ran, kernels = Op.get(name), 0, [0]
    small = [s for s in all_samples(name) if sum(x.size for x in s.inputs) <= LARGEST]
    chosen = [s for s in small if all(x.dtype.kind != "c" for x in s.inputs)][:samples]
    narrow = [s for s in chosen if any(x.dtype == FLOAT32 for x in s.inputs)][:2]
    cases = chosen + [op_check.narrowed(s, as_dtype(dtype)) for s in narrow for dtype in ("float16", "bfloat16")]
    for sample in cases:
        status, why = "ok", ""
        try:
            ran += compared(op, sample, kernels, target)
        except Error as error:
            status, why = "driver" if isinstance(error, RuntimeError) else "error", f"{type(error).__name__}: {error}"
        except AssertionError as error:
            status, why = "differs", " ".join(str(error).split())
        except Exception as error:
            status, why = "error", f"{type(error).__name__}: {error}"
        if status != "ok":
            return {"status": status, "why": why[:600], "ran": ran, "kernels": kernels[0]}
    return {"status": "ok" if ran else "nothing to run", "why": "", "ran": ran, "kernels": kernels[0]}


def compared(op, sample, kernels: list[int], target: str) -> bool:
    """Whether a sample ran; an AssertionError if it gives something else than the reference."""
    from weft.base.cuda_target import CudaTarget
    from weft.base.errors import DTypeError
    from weft.core.op import Op
    from weft.lower.cuda.dispatch import LOWERING
    from weft.testing import op_check
    from weft.testing.on_gpu import run_on_gpu

    chosen = CudaTarget.create(target or "cuda")

    def run(kernel, arrays) -> None:
        kernels[0] += 1
        run_on_gpu(kernel, arrays, chosen)

    try:
        wanted = op_check.run_sample(op, sample)
    except DTypeError:
        return False  # it takes no 16-bit floats
    if op in Op.mutates and op.mutates_of(op_check._params(op, sample)):
        return False  # a build gives what is written to variables a place of its own
    try:
        given = op_check.run_kernels_of(op, sample, LOWERING, chosen, run)
    except DTypeError:
        if any(x.dtype.itemsize == 2 for x in sample.inputs):
            return False  # nor do its rules of dtypes
        raise
    for index, (ours, theirs) in enumerate(zip(given, wanted)):
        op_check._agree(ours, theirs, sample, f"output {index}")
    return True


if __name__ == "__main__":
    sys.exit(main())

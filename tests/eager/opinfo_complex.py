"""Compares the function table with PyTorch's operator database on complex numbers.

python tests/eager/opinfo_complex.py          # a line for each function that fails
python tests/eager/opinfo_complex.py add mm   # with what fails in these
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
from opinfo import (
    Tally,
    builtin,
    check_sample,
    compare,
    compare_gradients,
    compared,
    compared_part,
    counted,
    function_of,
    magnitudes,
    main_entries,
    recorded_pairs,
    shown,
    shown_sample,
    told,
    weights,
)
from opinfo_lists import ANY_VALUES, BEYOND, COMPLEX_LEFT_OUT, UNDECIDED
from torch_samples import Converter, database, samples_of, torch

from weft.base.errors import Error
from weft.eager.autograd.backward import grad
from weft.eager.tensor.tensor import wrap

COMPLEX = (torch.complex64, torch.complex128)
TWICE = 4  # samples of which gradients of gradients are compared
REFUSED = 3  # samples that are tried where PyTorch has no complex numbers


def takes_complex(name: str) -> bool:
    """Whether PyTorch has the function for complex numbers."""
    return not _kinds(name).isdisjoint(COMPLEX)


def takes_only_reals(name: str) -> bool:
    """Whether PyTorch has the function for floats, and not for complex numbers."""
    return torch.float32 in _kinds(name) and not takes_complex(name)


def _kinds(name: str) -> set[Any]:
    return {kind for info in database()[name] for kind in info.supported_dtypes("cpu")}


def tally_complex(name: str, many: bool = False) -> Tally:
    """Runs the complex samples of a function; where they are small, gradients of gradients, too."""
    made = Tally(name)
    start = time.perf_counter()
    function = function_of(name)
    assert function is not None
    for info in main_entries(name):
        for kind in COMPLEX:
            label = f"{info.variant_test_name} {kind}".strip()
            for number, sample in enumerate(samples_of(info, kind, many)):
                with counted(made, f"{label} #{number}"):
                    check_sample(info, function, sample)
                if kind == torch.complex128 and number < TWICE and info.supports_gradgrad:
                    with counted(made, f"{label} #{number} twice"):
                        _check_twice(info, function, sample)
    made.seconds = time.perf_counter() - start
    return made


def _check_twice(info: Any, function: Callable[..., Any], sample: Any) -> None:
    """Gradients of gradients, weighted with random numbers, against PyTorch's."""
    convert = Converter()
    theirs, ours = convert((sample.input, tuple(sample.args), dict(sample.kwargs)))
    if info.name in ANY_VALUES or not convert.leaves:
        return
    expected, got = info.op(theirs[0], *theirs[1], **theirs[2]), function(ours[0], *ours[1], **ours[2])
    if info.name in UNDECIDED:
        got, expected = magnitudes(info.name, got), magnitudes(info.name, expected)
    pairs = recorded_pairs(got, expected)
    if not pairs:
        return
    rng = np.random.default_rng(7)
    seeds = [weights(rng, mine._array) for mine, _ in pairs]
    leaves = [pair for pair in convert.leaves if pair[0].numel()] or convert.leaves
    first = torch.autograd.grad(
        [y for _, y in pairs],
        [y for y, _ in leaves],
        [torch.from_numpy(np.array(s)).to(y.dtype) for s, (_, y) in zip(seeds, pairs)],
        create_graph=True,
        allow_unused=True,
    )
    mine = grad(
        [m for m, _ in pairs],
        [m for _, m in leaves],
        [wrap(np.asarray(s).astype(m._array.dtype)) for s, (m, _) in zip(seeds, pairs)],
        create_graph=True,
        allow_unused=True,
    )
    case = shown_sample(sample)
    both = [(m, y) for m, y in zip(mine, first) if m is not None and m.requires_grad]
    part = compared_part(info.name, sample)
    both = [(part(m), part(y)) for m, y in both]
    try:
        compare_gradients([m for m, _ in both], [y for _, y in both], convert.leaves, part)
    except AssertionError as error:
        raise AssertionError(f"twice: {error} with {case}") from None


def tally_refused(name: str) -> Tally:
    """Runs samples of a function that PyTorch has for real numbers only, as complex ones: what it
    refuses we refuse, by a typed error; what we give all the same is no less than it gives."""
    made = Tally(name)
    function = function_of(name)
    assert function is not None
    for info in database()[name]:
        for number, sample in enumerate(samples_of(info, torch.float32, first=REFUSED)):
            with counted(made, f"{info.variant_test_name} #{number}".strip()):
                _check_refused(info, function, sample)
    return made


def _check_refused(info: Any, function: Callable[..., Any], sample: Any) -> None:
    values = _as_complex((sample.input, tuple(sample.args), dict(sample.kwargs)))
    theirs, ours = Converter()(values)
    try:
        expected, refused = info.op(theirs[0], *theirs[1], **theirs[2]), None
    except Exception as error:
        expected, refused = None, error
    try:
        got = function(ours[0], *ours[1], **ours[2])
    except Error as error:
        kind = RuntimeError if refused is None else builtin(refused)
        kind = RuntimeError if issubclass(kind, RuntimeError) else kind
        if not isinstance(error, kind):
            raise AssertionError(f"{told(error)} is no {kind.__name__}: {refused}") from error
        return
    if info.name in BEYOND and "automatic differentiation" in str(refused):
        return
    assert refused is None, f"no {type(refused).__name__} ({refused}) with {shown(values)}"[:300]
    if info.name not in ANY_VALUES:
        compare(got, expected, False)


def _as_complex(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        wanted = value.dtype == torch.float32
        made = value.detach().to(torch.complex64) if wanted else value
        return made.requires_grad_(value.requires_grad) if wanted else made
    if isinstance(value, dict):
        return {key: _as_complex(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_as_complex(item) for item in value)
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--many", action="store_true", help="the larger set of samples")
    parser.add_argument("--refused", action="store_true", help="what PyTorch has no complex of")
    options = parser.parse_args()
    names = options.names or [n for n in compared() if n not in COMPLEX_LEFT_OUT]
    total = passed = count = 0
    for name in names:
        if not (takes_only_reals if options.refused else takes_complex)(name):
            continue
        count += 1
        result = tally_refused(name) if options.refused else tally_complex(name, options.many)
        total, passed = total + result.tried, passed + result.tried - len(result.failures)
        if result.failures or options.names:
            good = result.tried - len(result.failures)
            print(f"{name:32} {good:5}/{result.tried:<5} {result.seconds:5.1f} s", flush=True)
        for failure in result.failures[: 12 if options.names else 1]:
            print(f"    {failure.case}: {failure.why}", flush=True)
    print(f"{count} functions; {passed}/{total} samples pass")


if __name__ == "__main__":
    main()

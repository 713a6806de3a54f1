"""Samples of PyTorch's operator database on tensors of a device: values and gradients are PyTorch's, on the processor.

python tests/eager/devices/samples.py [--first N] [names]    # on a GPU
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from opinfo import (
    ANY_INDICES,
    ANY_VALUES,
    TIED,
    UNDECIDED,
    compared,
    compared_part,
    function_of,
    magnitudes,
    main_entries,
    shown_sample,
    told,
)
from opinfo_lists import EXCEPTIONS, LEFT_OUT
from torch_samples import Converter, Foreign, plain, samples_of, torch

import weft
from weft.eager.tensor.tensor import Tensor
from weft.eager.transforms.trees import flattened


class Unequal(AssertionError):
    pass


def on_device(value: Any) -> tuple[Any, list[tuple[int, Tensor]]]:
    """Arguments with tensors on the device, and the leaves there by their place."""
    leaves, tree = flattened(value)
    placed: list[Any] = []
    wanted: list[tuple[int, Tensor]] = []
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            there = leaf.detach().to("cuda").requires_grad_(leaf.requires_grad)
            wanted += [(number, there)] if leaf.requires_grad else []
            leaf = there
        placed.append(leaf)
    return tree.built(placed), wanted


JUDGED = {np.dtype("float32"): np.dtype("float64"), np.dtype("complex64"): np.dtype("complex128")}


def close(got: Any, expected: Any, what: str, loose: float = 1) -> None:
    if JUDGED.get(got.dtype) == expected.dtype:
        expected = expected.astype(got.dtype)
    if got.dtype != expected.dtype or got.shape != expected.shape:
        raise Unequal(f"{what}: {got.dtype}{got.shape}, {expected.dtype}{expected.shape} wanted")
    if got.dtype.kind in "biu":
        same = got == expected
    else:
        a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (got, expected))
        finite = np.abs(b[np.isfinite(b)])
        room = loose * (2e-5 + 1e-5 * (float(finite.max()) if finite.size else 0.0))
        same = np.isclose(a, b, rtol=1e-4 * loose, atol=room, equal_nan=True)
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        raise Unequal(f"{what}: {int((~same).sum())} of {same.size}, at {at} {got[at]!r}, {expected[at]!r} wanted")


def compare(got: Any, expected: Any, any_values: bool) -> None:
    if isinstance(expected, (tuple, list)) and not isinstance(expected, torch.Size):
        for mine, yours in zip(got, expected, strict=True):
            compare(mine, yours, any_values)
    elif isinstance(expected, torch.Tensor):
        if not got.is_cuda:
            raise Unequal(f"a result is on {got.device}")
        if not any_values:
            close(got.detach().cpu().numpy(), plain(expected.detach()), "value")
    elif not any_values and plain(got) != plain(expected):
        raise Unequal(f"{got!r}, {expected!r} wanted")


def compare_gradients(got: Any, expected: Any, pairs: Any, part: Any) -> None:
    mine = [x for x in flattened(got)[0] if isinstance(x, Tensor)]
    yours = [x for x in _flat(expected) if isinstance(x, torch.Tensor)]
    kept = [(a, b) for a, b in zip(mine, yours) if b.grad_fn is not None and (b.is_floating_point() or b.is_complex())]
    if not kept:
        return
    rng = np.random.default_rng(7)
    weights = [rng.uniform(0.5, 1.5, tuple(b.shape)) for _, b in kept]
    try:
        torch.autograd.backward([b for _, b in kept], [torch.tensor(w).to(b.dtype) for w, (_, b) in zip(weights, kept)])
    except NotImplementedError:
        return
    grads = [weft.tensor(w).to(a.dtype).to("cuda") for w, (a, _) in zip(weights, kept)]
    weft.autograd.backward([a for a, _ in kept], grads)
    for leaf, ours in pairs:
        if leaf.grad is not None and ours.grad is not None:
            if not ours.grad.is_cuda:
                raise Unequal(f"a gradient is on {ours.grad.device}")
            close(part(ours.grad.cpu().numpy()), part(plain(leaf.grad)), "gradient", 5)
        elif leaf.grad is not None and plain(leaf.grad).any():
            raise Unequal("a gradient is missing")


def _flat(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in _flat(item)] if isinstance(value, (tuple, list)) else [value]


def check(name: str, info: Any, sample: Any) -> bool:
    """Compares one sample; False where it has no tensors, or is not for weft."""
    try:
        return check_by(name, info, sample, Converter())
    except Unequal:  # PyTorch itself, in double precision, is the judge of rounding
        return check_by(name, info, sample, Converter(wide=True))


def check_by(name: str, info: Any, sample: Any, convert: Converter) -> bool:
    try:
        theirs, ours = convert((sample.input, tuple(sample.args), dict(sample.kwargs)))
    except Foreign:
        return False
    if not any(isinstance(leaf, Tensor) for leaf in flattened(ours)[0]) or "device" in ours[2]:
        return False
    given, leaves = on_device(ours)
    expected = info.op(theirs[0], *theirs[1], **theirs[2])
    got = function_of(name)(given[0], *given[1], **given[2])  # type: ignore[misc]
    any_values = name in ANY_VALUES or name in TIED or bool(sample.kwargs.get("dropout_p"))
    if name in ANY_INDICES and isinstance(expected, tuple):
        got, expected = got[0], expected[0]
    if name in UNDECIDED:
        got, expected = magnitudes(name, got), magnitudes(name, expected)
    compare(got, expected, any_values)
    flat, _ = flattened(ours)
    pairs = [(leaf, there) for leaf, mine in convert.leaves for number, there in leaves if flat[number] is mine]
    if pairs and not any_values:
        compare_gradients(got, expected, pairs, compared_part(name, sample))
    return True


def failures(name: str, first: int, kinds: Any = (torch.float32, torch.int64)) -> tuple[int, list[str]]:
    """How many samples of a function were compared, and what is wrong with some."""
    tried, wrong = 0, []
    for info in main_entries(name):
        for kind in kinds:
            for sample in samples_of(info, kind, first=first):
                try:
                    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
                        tried += check(name, info, sample)
                except Unequal as error:
                    wrong.append(f"{kind} {shown_sample(sample)}: {error}")
                    tried += 1
                except Exception as error:
                    wrong.append(f"{kind} {shown_sample(sample)}: {told(error)}")
                    tried += 1
    return tried, wrong


# What is no function of tensors of one device, looks at memory that a copy has not, or is called in another way.
ELSEWHERE = {"to", "as_strided", "as_strided_scatter", "normal", "svd_lowrank", "nextafter"}


def names_to_try() -> list[str]:
    return [name for name in compared() if name not in {*LEFT_OUT, *EXCEPTIONS, *ELSEWHERE}]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=3, help="samples of each function, in each dtype")
    parser.add_argument("--part", default="0/1", help="which of how many parts of all functions")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    names, tried, failed = options.names or names_to_try()[part::parts], 0, 0
    for name in names:
        count, wrong = failures(name, options.first)
        tried, failed = tried + count, failed + len(wrong)
        for line in wrong[: None if options.names else 2]:
            print(f"{name}: {line}", flush=True)
    print(f"{tried} samples of {len(names)} functions, {failed} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

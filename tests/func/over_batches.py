"""Samples of PyTorch's operator database over batches: what vmap gives, and a loop over the batch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from opinfo import function_of, main_entries
from torch_samples import Converter, samples_of, torch

import weft
from weft.eager.tensor.tensor import Tensor
from weft.eager.transforms.trees import flattened

SIZE = 3


def batches(sample: Any) -> tuple[list[Any], Any, list[int]]:
    """The leaves of a sample, their structure, and which of them are tensors to be batched."""
    convert = Converter()
    _, mine = convert((sample.input, tuple(sample.args), dict(sample.kwargs)))
    leaves, tree = flattened(mine)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    return leaves, tree, places


def batch_of(tensor: Tensor) -> Tensor:
    """A tensor, and others of the same range beside it."""
    x = tensor.detach()
    if x.is_floating_point():
        return weft.stack([x * (1 - 0.25 * index) for index in range(SIZE)])
    return weft.stack([x] * SIZE)


def numbers(value: Any) -> list[Any]:
    return [leaf.detach().resolve_conj().numpy() if isinstance(leaf, Tensor) else leaf for leaf in flattened(value)[0]]


class Unequal(AssertionError):
    pass


def same(got: Any, want: Any, what: str) -> None:
    ours, theirs = numbers(got), numbers(want)
    if len(ours) != len(theirs):
        raise Unequal(f"{what}: {len(ours)} results, {len(theirs)} wanted")
    for a, b in zip(ours, theirs):
        if not isinstance(a, np.ndarray):
            if a != b:
                raise Unequal(f"{what}: {a} {b}")
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            raise Unequal(f"{what}: {a.dtype}{a.shape}, {b.dtype}{b.shape} wanted")
        a, b = (x.astype(np.float64) if x.dtype.kind in "fV" else x for x in (a, b))
        if not np.allclose(a, b, rtol=2e-4, atol=2e-4, equal_nan=True):
            raise Unequal(f"{what}: off by {np.nanmax(np.abs(a - b))}")


def looped(function: Any, tensors: list[Tensor]) -> Any:
    """The definition: the function for each element of the batch, results stacked."""
    rows = [flattened(function(*[tensor[i] for tensor in tensors])) for i in range(SIZE)]
    columns = list(zip(*[leaves for leaves, _ in rows]))
    return [weft.stack(list(column)) if isinstance(column[0], Tensor) else column[0] for column in columns]


def total(value: Any) -> Tensor:
    """A number of all results, in which each element counts otherwise."""
    parts = [leaf for leaf in flattened(value)[0] if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    sums = [(part * weft.linspace(1, 2, part.numel()).reshape(part.shape).to(part.dtype)).sum() for part in parts]
    return sum(sums[1:], sums[0])


def check_sample(name: str, function: Any, sample: Any, derivatives: bool = True) -> str | None:
    """Why a sample is not for batches, or None where vmap gives what the loop does; else an error."""
    leaves, tree, places = batches(sample)
    if not places:
        return "no tensor"
    for batched in [places] if len(places) == 1 else [places, places[:1], places[1:]]:
        tensors = [batch_of(leaves[place]) for place in batched]

        def call(*values: Tensor, batched: list[int] = batched) -> Any:
            given = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            for place, value in zip(batched, values):
                given[place] = value
            x, args, options = tree.built(given)
            return function(x, *args, **options)

        try:
            with warnings.catch_warnings(action="ignore"):
                want = looped(call, tensors)
        except Exception as error:
            return f"the loop fails: {str(error)[:60]}"
        if not all(isinstance(leaf, Tensor) for leaf in want):
            return "gives no tensors"
        with warnings.catch_warnings(action="ignore"):
            same(weft.vmap(call)(*tensors), want, f"values {batched}")
        if not derivatives:
            continue
        places_of = [at for at, tensor in enumerate(tensors) if tensor.is_floating_point()]
        if not places_of or not any(leaf.is_floating_point() for leaf in want):
            continue
        derived = weft.func.grad(lambda *values: total(call(*values)), argnums=tuple(places_of))
        try:
            with warnings.catch_warnings(action="ignore"):
                want = looped(derived, tensors)
        except Exception as error:
            return f"the loop's gradient fails: {str(error)[:60]}"
        with warnings.catch_warnings(action="ignore"):
            same(weft.vmap(derived)(*tensors), want, f"gradients inside {batched}")
            outside = weft.func.grad(
                lambda *values: total(weft.vmap(lambda *v: total(call(*v)))(*values)), argnums=tuple(places_of)
            )
            weights = np.linspace(1, 2, SIZE).astype(np.float32)
            scaled = [w * weft.tensor(weights).reshape(-1, *(1,) * (w.ndim - 1)).to(w.dtype) for w in want]
            same(outside(*tensors), scaled, f"gradients outside {batched}")
    return None


def tally(name: str, first: int = 4, kinds: Any = (torch.float32, torch.int64)) -> tuple[int, list[str], list[str]]:
    """How many samples vmap gives what a loop does for; what failed, and what was left out."""
    function, done, failed, left = function_of(name), 0, [], []
    for info in main_entries(name):
        for kind in kinds:
            for number, sample in enumerate(samples_of(info, kind, first=first)):
                try:
                    why = check_sample(name, function, sample)
                except Exception as error:
                    failed.append(f"{kind} #{number}: {type(error).__name__}: {str(error)[:300]}")
                    continue
                if why is None:
                    done += 1
                else:
                    left.append(why)
    return done, failed, left

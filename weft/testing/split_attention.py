"""Attention of few queries over many keys, to be assembled without a GPU and run with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.cuda_target import CudaTarget
from ..base.dtype import as_dtype
from ..lower.cuda.attention import AttentionRequest, Strided
from ..lower.cuda.split_attention import write_split_attention
from ..te.build import KernelBuilder
from ..te.expr import Expr, cast, const
from ..te.loops import Kernel
from .kernel_cases import Array


@dataclass(frozen=True)
class SplitCase:
    """Queries of `group` heads share the keys of each of `heads`; tensors are (batch, head, row, column), one after the
    other. Buffers are called query, key, value, mask (batch, keys), out, and what kernels pass on."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    values: int
    dtype: str = "float16"
    group: int = 1
    causal: bool = False
    masked: bool = False
    unseen: str = "nan"

    def __str__(self) -> str:
        heads = f"{self.heads} x {self.group}" if self.group > 1 else str(self.heads)
        words = [f"{self.batch} x {heads} x {self.queries} x {self.keys}, {self.width} and {self.values} {self.dtype}"]
        return " ".join(words + [word for word in ("causal", "masked") if getattr(self, word)])

    @property
    def bytes_read(self) -> int:
        """Of keys and values, which are read once."""
        return self.batch * self.heads * self.keys * (self.width + self.values) * as_dtype(self.dtype).itemsize

    def kernels(self, target: CudaTarget) -> list[Kernel]:
        b = KernelBuilder("kernel")
        request = self.request(b)
        return write_split_attention("kernel", b.buffers, request, target)

    def request(self, b: KernelBuilder) -> AttentionRequest:
        """What is asked for, over buffers that the builder gets."""
        dtype = as_dtype(self.dtype)
        mask_shape = (self.batch, self.keys)
        sides = [b.arg(name, dtype, (int(np.prod(shape)),)) for name, shape in self.shapes.items()]
        mask = b.arg("mask", dtype, mask_shape) if self.masked else None
        out = b.arg("out", dtype, (int(np.prod(self.shape)),))
        scale = self.width**-0.5

        def steps(rows: int, columns: int, group: int) -> tuple[int, ...]:
            each = rows * columns
            return (self.heads * group * each, group * each, each if group > 1 else 0, columns, 1)

        def score(total: Expr, batch: Sequence[Expr], query: Expr, key: Expr) -> Expr:
            assert mask is not None
            return total * const(scale, total.dtype) + cast(mask[batch[0], key], total.dtype)

        return AttentionRequest(
            Strided(sides[0], 0, steps(self.queries, self.width, self.group)),
            Strided(sides[1], 0, steps(self.keys, self.width, 1)),
            Strided(sides[2], 0, steps(self.keys, self.values, 1)),
            Strided(out, 0, steps(self.queries, self.values, self.group)),
            (self.batch, self.heads, self.group), self.queries, self.keys, self.width, self.values,
            1.0 if self.masked else scale, self.causal, self.unseen, score if self.masked else None,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, self.heads, self.group, self.queries, self.values)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of queries, keys and values."""
        batch = self.batch, self.heads
        return {
            "query": (*batch, self.group, self.queries, self.width),
            "key": (*batch, self.keys, self.width),
            "value": (*batch, self.keys, self.values),
        }

    def arrays(self, seed: int = 0) -> dict[str, Array]:
        """Random ones, and a result of NaN."""
        rng, dtype = np.random.default_rng(seed), as_dtype(self.dtype)
        found: dict[str, Array] = {n: rng.standard_normal(s).astype(dtype) for n, s in self.shapes.items()}
        if self.masked:
            found["mask"] = np.where(rng.random((self.batch, self.keys)) < 0.3, -np.inf, 0.5).astype(dtype)
        return {**found, "out": np.full(self.shape, np.nan, dtype)}

    def wanted(self, arrays: Mapping[str, Array]) -> Array:
        """By numpy, in float64."""
        q, k, v = (arrays[name].astype(np.float64) for name in self.shapes)
        scores = q @ k[:, :, None].swapaxes(-1, -2) * self.width**-0.5
        if self.masked:
            scores = scores + arrays["mask"].astype(np.float64)[:, None, None, None]
        if self.causal:
            scores = np.where(np.tri(self.queries, self.keys, dtype=np.bool_), scores, -np.inf)
        with np.errstate(invalid="ignore"):  # of a query that sees no key
            top = scores.max(-1, keepdims=True)
            e = np.exp(scores - (np.where(np.isneginf(top), 0, top) if self.unseen == "zero" else top))
            total = e.sum(-1, keepdims=True)
            p = e / (np.where(total == 0, 1, total) if self.unseen == "zero" else total)
        made: Array = (np.where(np.isnan(p), 0, p) if self.unseen == "clean" else p) @ v[:, :, None]
        return made


def split_cases() -> dict[str, list[SplitCase]]:
    """Kinds of such attention, each with the sizes that may go wrong in their own ways."""
    C = SplitCase
    floats = ("float16", "bfloat16", "float32")
    return {
        "decode": [
            C(1, heads, 1, 4096, columns, columns, dtype, group)
            for heads, group, columns in ((32, 1, 128), (8, 4, 128), (8, 8, 64), (4, 3, 256))
            for dtype in floats
        ],
        "odd": [
            C(2, 3, queries, keys, width, values, dtype, group)
            for queries, keys, width, values, group in (
                (1, 333, 80, 80, 1),
                (5, 197, 33, 17, 1),
                (7, 500, 255, 255, 1),
                (3, 65, 40, 72, 2),
                (1, 1, 8, 8, 1),
            )
            for dtype in floats
        ],
        "masked": [
            C(3, 4, 2, 1000, 64, 64, dtype, 2, masked=True, unseen=unseen)
            for dtype in floats
            for unseen in ("nan", "zero", "clean")
        ],
        "causal": [C(2, 3, queries, keys, 64, 64, "float32", causal=True) for queries, keys in ((4, 300), (300, 300))],
        "many queries": [C(2, 12, 197, 197, 64, 64, dtype) for dtype in ("float32", "float16")],
    }

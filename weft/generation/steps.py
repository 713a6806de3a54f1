"""A step of a decoder as a graph: some new tokens and the cache of those before them come in, the scores after one of
the new tokens go out, and the keys and values to put into the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.errors import NotFound
from ..core.op import Op
from ..core.symbol import Group, Symbol, Variable
from ..ops.nn.cached_attention import BLOCK
from .cache import Kept

Arrays = Mapping[str, np.ndarray]
ROWS = "rows"  # the name of how many new tokens there are


def cache_names(count: int) -> list[tuple[str, str]]:
    """What keys and values of so many caches are called."""
    return [(f"keys{end}", f"values{end}") for end in ("", *(f".{number}" for number in range(1, count)))]


class StepGraph:
    """Builds the graph: its inputs are `ids` and `positions` of new tokens, keys and values of each cache, `past`, how
    many tokens there were before, and `last`, which new token scores are wanted of."""

    def __init__(self, params: Arrays, kept: Sequence[Kept], dtype: str) -> None:
        """Caches are of some dtype; all else is of the parameters'."""
        self._params, self._dtype = params, dtype
        self._used, self._values = dict[str, Symbol](), dict[str, np.ndarray]()
        self._windows = [layers.window for layers in kept]
        self._new: list[tuple[list[Symbol], list[Symbol]]] = [([], []) for _ in kept]
        self.ids, self.positions = (Variable(name, shape=(ROWS,), dtype="int64") for name in ("ids", "positions"))
        self.past, self._last = (Variable(name, shape=(1,), dtype="int64") for name in ("past", "last"))
        self._caches = []
        for names, layers in zip(cache_names(len(kept)), kept):
            outer = (layers.blocks, layers.layers, layers.shared)
            ends = (layers.width, BLOCK), (BLOCK, layers.width)
            self._caches.append([Variable(n, shape=(*outer, *end), dtype=dtype) for n, end in zip(names, ends)])

    def op(self, name: str, *inputs: Symbol, **attrs: Any) -> Symbol:
        """An operator applied to values."""
        made: Symbol = Op.get(name)(*inputs, **attrs)
        return made

    def has(self, name: str) -> bool:
        """Whether there is a parameter of a name."""
        return name in self._params

    def param(self, name: str) -> Symbol:
        """A parameter."""
        if name not in self._params:
            raise NotFound(f"no parameter {name!r}", why="there are " + ", ".join(sorted(self._params)[:20]))
        return self._named(name, self._params[name])

    def _named(self, name: str, value: np.ndarray) -> Symbol:
        if name not in self._used:
            self._used[name], self._values[name] = Variable(name, shape=value.shape, dtype=str(value.dtype)), value
        return self._used[name]

    def rows(self, table: str, numbers: Symbol) -> Symbol:
        """Rows of a parameter by their numbers."""
        return self.op("take", self.param(table), numbers, axis=0)

    def product(self, x: Symbol, weight: str, turned: bool = False) -> Symbol:
        """Rows times a parameter, whose columns are its first axis if it is turned."""
        return self.op("matmul", x, self.param(weight), transpose_b=turned)

    def attended(
        self, query: Symbol, key: Symbol, value: Symbol, window: int | None = None, scale: float | None = None
    ) -> Symbol:
        """Attention of the next layer that has such a window over its cache and the new tokens, whose keys and values
        go out."""
        place = self._windows.index(window)
        keys, values = self._new[place]
        number = self._number(len(keys))
        keys.append(key)
        values.append(value)
        attrs = {name: known for name, known in (("window", window), ("scale", scale)) if known is not None}
        return self.op("cached_attention", query, key, value, *self._caches[place], self.past, number, **attrs)

    def _number(self, layer: int) -> Symbol:
        return self._named(f"layer.{layer}", np.array([layer], np.int64))

    def last(self, x: Symbol, axis: int = 0) -> Symbol:
        """The row that scores are wanted of."""
        return self.op("take", x, self._last, axis=axis)

    def finished(self, scores: Symbol) -> tuple[Symbol, dict[str, np.ndarray]]:
        """The graph with all it gives, and its parameters."""
        lists = [made for pair in self._new for made in pair]
        new = [made[0] if len(made) == 1 else self.op("concatenate", *made, axis=1) for made in lists]
        if self._dtype != "float32":
            new = [self.op("cast", made, dtype=self._dtype) for made in new]
        return Group([scores, *new]), self._values

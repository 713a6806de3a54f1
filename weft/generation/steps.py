"""A step of a decoder as a graph: some new tokens and the cache of those before them come in, the scores after one of
the new tokens go out, and the keys and values to put into the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.errors import NotFound
from ..core.op import Op
from ..core.symbol import Group, Symbol, Variable
from ..ops.nn.cached_attention import BLOCK

Arrays = Mapping[str, np.ndarray]
ROWS = "rows"  # the name of how many new tokens there are


class StepGraph:
    """Builds the graph: its inputs are `ids` and `positions` of new tokens, `keys` and `values` of the cache, `past`,
    how many tokens that has, and `last`, which new token scores are wanted of."""

    def __init__(self, params: Arrays, layers: int, shared: int, width: int, context: int, dtype: str) -> None:
        """The cache is of some dtype; all else is of the parameters'."""
        self._params, self._dtype = params, dtype
        self._used, self._values = dict[str, Symbol](), dict[str, np.ndarray]()
        self._new: tuple[list[Symbol], list[Symbol]] = [], []
        blocks = -(-context // BLOCK)
        self.ids, self.positions = (Variable(name, shape=(ROWS,), dtype="int64") for name in ("ids", "positions"))
        self.past, self._last = (Variable(name, shape=(1,), dtype="int64") for name in ("past", "last"))
        self.keys = Variable("keys", shape=(blocks, layers, shared, width, BLOCK), dtype=dtype)
        self.values = Variable("values", shape=(blocks, layers, shared, BLOCK, width), dtype=dtype)

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

    def attended(self, layer: int, query: Symbol, key: Symbol, value: Symbol, **attrs: Any) -> Symbol:
        """Attention over the cache and the new tokens, whose keys and values go out, the layers' in their order."""
        self._new[0].append(key)
        self._new[1].append(value)
        number = self._number(layer)
        return self.op("cached_attention", query, key, value, self.keys, self.values, self.past, number, **attrs)

    def _number(self, layer: int) -> Symbol:
        return self._named(f"layer.{layer}", np.array([layer], np.int64))

    def last(self, x: Symbol, axis: int = 0) -> Symbol:
        """The row that scores are wanted of."""
        return self.op("take", x, self._last, axis=axis)

    def finished(self, scores: Symbol) -> tuple[Symbol, dict[str, np.ndarray]]:
        """The graph with all it gives, and its parameters."""
        new = [made[0] if len(made) == 1 else self.op("concatenate", *made, axis=1) for made in self._new]
        if self._dtype != "float32":
            new = [self.op("cast", made, dtype=self._dtype) for made in new]
        return Group([scores, *new]), self._values

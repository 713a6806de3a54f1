"""Recurrent layers of eager tensors by open kernels: all steps in one call where threads can share
the sequences, or one thread does it all; else a call for each step, whose cells they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...base.cpu_facts import COSTS, THREADS
from ...base.cpu_target import host
from ...base.dtype import DType
from ...core.op import Op
from ...lower.cpu.open.recurrent import backward_kernel, forward_kernel, pack_kernel, step_tile, tile_cells
from ...ops.nn._rnn_kernels import GATES, KEPT, limited
from ...ops.nn.rnn import grad_names, input_names
from ...runtime.cpu.open_kernel import OpenKernel
from ...runtime.cpu.pool import eager_threads
from .calls import Array, Declined, floats, native
from .kernels import kernel
from .product import multiply, products_per_nanosecond
from .strides import has_steps, steps_of
from .thresholds import FROM

CELL, PACKED = COSTS.cell, COSTS.packed
FEWEST = 4  # sequences that are worth a thread of their own


class _Sequences(NamedTuple):
    """Sequences as rows of steps: how long they are, from the longest on, the order this takes
    (None where they have one length), and the table of steps (lower/cpu/open/recurrent.py)."""

    lengths: Array
    order: Array | None
    table: Array

    def inwards(self, array: Array) -> Array:
        """(..., batch, values) in order of length, and of memory."""
        chosen = array if self.order is None else np.take(array, self.order, -2)
        return np.ascontiguousarray(chosen)

    def outwards(self, array: Array) -> Array:
        if self.order is None:
            return array
        ordered = np.empty_like(array)
        ordered[..., self.order, :] = array
        return ordered

    def starts(self, reverse: bool) -> Any:
        """The step that each sequence begins with."""
        return np.maximum(self.lengths - 1, 0) if reverse else np.zeros_like(self.lengths)

    @property
    def empty(self) -> Callable[[tuple[int, ...], DType], Array]:
        """Makes memory of which rows that take no part stay zero."""
        return np.empty if self.order is None else np.zeros


def _sequences(steps: int, batch: int, reverse: bool, length: Array | None) -> _Sequences:
    if length is None:
        return _even(steps, batch, reverse)
    lengths = np.clip(length.astype(np.int64), 0, steps)
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    return _Sequences(lengths, order, _table(steps, batch, reverse, lengths))


@lru_cache(256)
def _even(steps: int, batch: int, reverse: bool) -> _Sequences:
    lengths = np.full(batch, steps)
    return _Sequences(lengths, None, _table(steps, batch, reverse, lengths))


def _table(steps: int, batch: int, reverse: bool, lengths: Array) -> Array:
    """place, rows, past, before, next, after of every step, in the order they are taken."""
    rows = (lengths[None] > np.arange(steps)[:, None]).sum(1)
    taken = np.stack([np.arange(steps) * batch, rows], 1)
    taken = taken[::-1] if reverse else taken
    none = np.zeros((1, 2), np.int64)
    past, following = np.concatenate([none, taken[:-1]]), np.concatenate([taken[1:], none])
    return np.ascontiguousarray(np.concatenate([taken, past, following], 1), np.int64)


class _Layer:
    """The sizes of a call, and how its work is shared."""

    def __init__(self, mode: str, shape: tuple[int, ...], dtype: DType, back: bool) -> None:
        self.mode, self.dtype = mode, dtype
        self.steps, self.batch, self.wide = shape
        self.size = self.wide // GATES[mode]
        self.sums = 1 if back else GATES[mode]
        self.depth = self.wide if back else self.size
        self.tile = step_tile(host(), dtype, self.sums)
        self.tiles = -(-self.size // tile_cells(self.tile, self.sums))

    def packed(self, weight: Array) -> Array:
        """(products, columns) as tiles; columns are the sums of all cells, one after the other."""
        product, column = steps_of(weight)
        tiles = np.empty(self.tiles * self.depth * self.tile.width, self.dtype)
        scalars = (self.size, self.depth, product, column, column * self.size, self.tiles)
        kernel(pack_kernel, self.dtype, self.sums).run([weight, tiles], scalars, self.tiles, tiles.size * PACKED)
        return tiles

    def run(self, cells: OpenKernel, arrays: Sequence[Array]) -> None:
        """All steps, in the order of their table."""
        width = self.size * self.sums
        step = self.batch * (self.depth * width / products_per_nanosecond() + self.size * CELL)
        threads, whole = eager_threads(), self.steps * step
        weights = self.tiles * self.depth * self.tile.width * self.dtype.itemsize
        if threads > 1 and whole >= THREADS.wake:
            near = host().caches[1]  # weights that stay near a core are read by each
            if self.batch >= FEWEST * threads and weights <= near:
                rows = -(-self.batch // threads)
                self._call(cells, arrays, 0, self.steps, rows, self.tiles, whole)
                return
            if step >= THREADS.wake:
                for number in range(self.steps):
                    self._call(cells, arrays, number, 1, self.batch, 1, step)
                return
        self._call(cells, arrays, 0, self.steps, self.batch, self.tiles, whole)

    def _call(
        self, cells: OpenKernel, arrays: Sequence[Array], first: int, steps: int, rows: int, tiles: int, work: float
    ) -> None:
        row_turns = -(-self.batch // rows)
        turns = row_turns * -(-self.tiles // tiles)
        total = self.steps * self.batch
        alone = self.steps == 1
        scalars = [self.batch, self.size, 0 if alone else self.depth, self.wide if alone else 0]
        scalars += [total, first, steps, rows, row_turns, tiles, self.tiles, turns]
        cells.run(arrays, scalars, turns, work)


@lru_cache(256)
def _layer(mode: str, shape: tuple[int, ...], dtype: DType, back: bool) -> _Layer:
    return _Layer(mode, shape, dtype, back)


def _named(params: Any, names: Sequence[str], arrays: Sequence[Array]) -> dict[str, Array]:
    """The arrays by name, of a call that is one for this: products of states alone, on floats."""
    if params.projected or params.reset_first or limited(params):
        raise Declined("attributes")
    named = dict(zip(names, arrays))
    gates, weight = named["gates"], named["weight"]
    floats([gates])
    if any([array.dtype != gates.dtype for name, array in named.items() if name != "length"]):
        raise Declined("dtype")
    if not has_steps(weight):
        raise Declined("strides")
    return named


@native("rnn", from_=FROM.recurrent)
def run_rnn(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    inputs = _named(params, input_names(params), arrays)
    mode, dtype = params.mode, arrays[0].dtype
    layer = _layer(mode, arrays[0].shape, dtype, False)
    steps, batch, size = layer.steps, layer.batch, layer.size
    sequences = _sequences(steps, batch, params.reverse, inputs.get("length"))
    total = steps * batch
    states = sequences.empty((total + batch, size), dtype)
    states[total:] = sequences.inwards(inputs["state"])
    bias, gates = np.ascontiguousarray(inputs["bias"]), sequences.inwards(inputs["gates"])
    if steps == 1:  # one product, which needs no packed weights
        weights = bias = multiply(states[total:], inputs["weight"], bias)
    else:
        weights = layer.packed(inputs["weight"])
    used = [sequences.table, weights, gates, bias, states]
    cells = kept = None
    if mode == "lstm":
        cells = sequences.empty((total + batch, size), dtype)
        cells[total:] = sequences.inwards(inputs["cell"])
        used.append(cells)
    if params.kept:
        kept = sequences.empty((steps, batch, KEPT[mode] * size), dtype)
        used.append(kept)
    layer.run(kernel(forward_kernel, mode, params.kept, dtype), used)
    shape = (steps, batch, size)
    results = [states[:total].reshape(shape), _last(params, sequences, layer, states)]
    if cells is not None:
        results.append(_last(params, sequences, layer, cells))
    if kept is not None:
        results += [kept] if cells is None else [kept, cells[:total].reshape(shape)]
    return [sequences.outwards(result) for result in results]


def _last(params: Any, sequences: _Sequences, layer: _Layer, rows: Array) -> Array:
    """What each sequence has after its last step; that it began with, if it has none."""
    batch, total = layer.batch, layer.steps * layer.batch
    if sequences.order is None:
        first = 0 if params.reverse else total - batch
        return rows[first : first + batch].copy()
    ends = np.zeros_like(sequences.lengths) if params.reverse else sequences.lengths - 1
    places = np.where(sequences.lengths > 0, ends * batch, total) + np.arange(batch)
    return rows[places]


@native("_rnn_grad", from_=FROM.recurrent)
def run_rnn_grad(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    inputs = _named(params, grad_names(params), arrays)
    mode, weight = params.mode, inputs["weight"]
    shape, dtype = inputs["gates"].shape, inputs["gates"].dtype
    layer = _layer(mode, shape, dtype, True)
    sequences = _sequences(layer.steps, layer.batch, params.reverse, inputs.get("length"))

    def of(name: str) -> Array:
        return sequences.inwards(inputs[name])

    table = np.ascontiguousarray(sequences.table[::-1])
    gates = hidden = sequences.empty(shape, dtype)
    carried = of("state_grad").copy()
    weights = layer.packed(weight.T) if layer.steps > 1 else weight
    used = [table, weights, of("output_grad"), of("kept_gates"), gates, carried]
    more: list[Array] = []
    if mode == "lstm":
        more = [of("cell_grad").copy()]
        used += [of("kept_cells"), of("cell"), *more]
    elif mode == "gru":
        hidden = sequences.empty(shape, dtype)
        more = [hidden]
        used += [of("output"), of("state"), hidden]
    layer.run(kernel(backward_kernel, mode, dtype), used)
    starts = sequences.starts(params.reverse), np.arange(layer.batch)
    state = multiply(hidden[starts], weight.T)
    state[sequences.lengths == 0] = 0
    state += carried
    before = _before(params, sequences, of("output"), of("state"))
    return [sequences.outwards(array) for array in (gates, before, state, *more)]


def _before(params: Any, sequences: _Sequences, output: Array, state: Array) -> Array:
    """The state that each step starts from."""
    before = np.empty_like(output)
    if params.reverse:
        before[:-1] = output[1:]
    else:
        before[1:] = output[:-1]
    live = sequences.lengths > 0
    starts = sequences.starts(params.reverse)
    before[starts[live], np.flatnonzero(live)] = state[live]
    if sequences.order is not None:
        before[np.arange(len(before))[:, None] >= sequences.lengths] = 0
    return before

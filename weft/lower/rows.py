"""Which groups compute rows: some reductions of each row, then every element of it from those.

softmax, normalisations and what follows them element by element are of that form, over any axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..te.expr import Const, Expr, Load, Reduce, Var, as_expr
from ..te.extents import is_open
from ..te.linear import Linear, expression
from ..te.loops import Buffer, buffer
from ..te.schedule import inline
from ..te.simplify import simplify
from ..te.tensor import Tensor
from ..te.visit import rewrite, substitute
from .access import address, continues
from .axes import Axis, turns_of
from .collapse import value_vars
from .group import reached_tensors
from .stages import stages


class RowStage(NamedTuple):
    """A reduction: `result` stands for the body combined over the row."""

    result: Var
    combiner: str
    body: Expr


class Rows(NamedTuple):
    """`kept` axes number the rows, `reduced` ones the elements of a row; `value` goes to `place`.

    Buffers are flat; the result's is the last."""

    kept: list[Axis]
    reduced: list[Axis]
    in_row: bool  # whether neighbours in memory are in one row
    stages: list[RowStage]
    value: Expr
    place: Expr
    buffers: dict[Tensor, Buffer]


def find_rows(inputs: Sequence[Tensor], output: Tensor, longest: int) -> Rows | None:
    """The output as a computation of rows; None where it is none, or rows of more bytes than the longest: those do not
    stay in a cache between two walks."""
    if output.body is None or output.is_reduction or 0 in output.shape:
        return None
    *before, _ = stages(inputs, [output])
    index = _index(output, before[0]) if before else None
    if index is None:
        return None
    axes, at = index
    reduced = [axis for axis, n in zip(axes, before[0].shape) if n == 1 and axis.extent != 1]
    if not reduced or any(is_open(axis.extent) for axis in reduced):
        return None
    if prod(axis.extent for axis in reduced) * output.dtype.itemsize > longest:
        return None
    return _Finder(axes, reduced, inputs, before, output).rows(at)


def _index(output: Tensor, stage: Tensor) -> tuple[list[Axis], list[Expr]] | None:
    """Axes for each of the stage's, and the output's index in terms of them: the output may have
    one axis where the stage has groups, and 1 for what is in a group."""
    shape, kept = output.shape, stage.shape
    if len(shape) == len(kept):
        axes = _axes(shape)
        return axes, [axis.var for axis in axes]
    if len(shape) + 1 != len(kept):
        return None
    for n, extent in enumerate(shape):
        if kept[:n] == shape[:n] and kept[n + 1] == 1 and extent % max(kept[n], 1) == 0:
            size = extent // kept[n]
            axes = _axes((*shape[:n], kept[n], size, *shape[n + 1 :]))
            at: list[Expr] = [axis.var for axis in (*axes[:n], *axes[n + 1 :])]
            at[n] = axes[n].var * size + axes[n + 1].var
            return axes, at
    return None


def _axes(shape: Sequence[int]) -> list[Axis]:
    return [Axis(Var(f"i{number}"), extent) for number, extent in enumerate(shape)]


class _Misfit(Exception):
    """Something is read in a way that rows do not have."""


class _Finder:
    def __init__(
        self, axes: list[Axis], reduced: list[Axis], inputs: Sequence[Tensor], before: Sequence[Tensor], output: Tensor
    ) -> None:
        self.axes, self.reduced, self.before, self.output = axes, reduced, before, output
        reached = reached_tensors(output)
        used = [tensor for tensor in inputs if tensor in reached]
        self.buffers = {t: _flat(f"b{n}", t) for n, t in enumerate([*used, output])}
        self.ranges = turns_of(axes)
        self.results: dict[Tensor, Var] = {}
        self.places: list[Linear[Var]] = []

    def rows(self, at: Sequence[Expr]) -> Rows | None:
        try:
            stages = [self._stage(tensor) for tensor in self.before]
            value = self._value(self.output, dict(zip(self.output.axes, at)))
            place = self._place(self.output.shape, at)
        except _Misfit:
            return None
        axes, gone = self._joined([value, *(stage.body for stage in stages)])
        stages = [stage._replace(body=substitute(stage.body, gone)) for stage in stages]
        value, place = substitute(value, gone), substitute(place, gone)
        in_row = {axis.var for axis in self.reduced}
        kept = [axis for axis in axes if axis.var not in in_row]
        reduced = [axis for axis in axes if axis.var in in_row]
        return Rows(kept, reduced, axes[-1] in reduced, stages, value, place, self.buffers)

    def _stage(self, tensor: Tensor) -> RowStage:
        """A reduction over the axes that all others reduce as well."""
        body = tensor.body
        kept = tuple(1 if axis in self.reduced else axis.extent for axis in self.axes)
        if tensor.shape != kept or not isinstance(body, Reduce):
            raise _Misfit
        over = [axis for axis in body.axes if axis.extent != 1]
        if [axis.extent for axis in over] != [axis.extent for axis in self.reduced]:
            raise _Misfit
        index: dict[Var, Expr] = {
            var: as_expr(0) if axis in self.reduced else axis.var for var, axis in zip(tensor.axes, self.axes)
        }
        index |= {axis.var: as_expr(0) for axis in body.axes}
        index |= {axis.var: ours.var for axis, ours in zip(over, self.reduced)}
        value = self._value(tensor, index)
        assert isinstance(value, Reduce)
        self.results[tensor] = Var(tensor.name, tensor.dtype)
        return RowStage(self.results[tensor], value.combiner, value.body)

    def _value(self, tensor: Tensor, index: Mapping[Var, Expr]) -> Expr:
        """The body at an index, over flat buffers and the results of the stages before it."""
        between = [t for t in reached_tensors(tensor, self.before) if t.body is not None and t not in self.before]
        if any(t.is_reduction for t in between):
            raise _Misfit
        body = inline(tensor, between).body
        assert body is not None
        return rewrite(substitute(body, index), self._read)

    def _read(self, node: Any) -> Any:
        if not isinstance(node, Load) or not isinstance(node.source, Tensor):
            return node
        if node.mask is not None:
            raise _Misfit
        if node.source in self.results:
            for index, axis in zip(node.indices, self.axes):
                self._check_own(simplify(index, self.ranges), axis)
            return self.results[node.source]
        return Load(self.buffers[node.source], (self._place(node.source.shape, node.indices),))

    def _check_own(self, index: Expr, axis: Axis) -> None:
        """A row reads its own results only."""
        first = isinstance(index, Const) and int(index.value) == 0
        if not (index is axis.var or (first and (axis in self.reduced or axis.extent == 1))):
            raise _Misfit

    def _place(self, shape: Sequence[int], indices: Sequence[Expr]) -> Expr:
        """The number of an element in its tensor."""
        at = tuple(simplify(index, self.ranges) for index in indices)
        place = address(Load(buffer("probe", "float32", shape), at))
        if place is None:
            raise _Misfit
        self.places.append(place)
        return expression(place)

    def _joined(self, bodies: Sequence[Expr]) -> tuple[list[Axis], dict[Var, Expr]]:
        """The axes, neighbours that are always walked in one go as one; and values for those that
        are not there any more."""
        fixed = value_vars(*bodies)
        joined: list[Axis] = []
        gone: dict[Var, Expr] = {}
        for axis in self.axes:
            if axis.extent == 1:
                gone[axis.var] = as_expr(0)
                continue
            if joined and self._continues(joined[-1], axis, fixed):
                before = joined.pop()
                gone[before.var] = as_expr(0)
                axis = Axis(axis.var, axis.extent * before.extent)
            joined.append(axis)
        return joined, gone

    def _continues(self, outer: Axis, inner: Axis, fixed: set[Var]) -> bool:
        in_row = {axis.var for axis in self.reduced}
        if fixed & {outer.var, inner.var} or (outer.var in in_row) != (inner.var in in_row):
            return False
        return all(continues(place, outer.var, inner.var, inner.extent) for place in self.places)


def _flat(name: str, tensor: Tensor) -> Buffer:
    return buffer(name, tensor.dtype, (prod(tensor.shape),))

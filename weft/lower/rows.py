"""Which computations are of rows: some reductions of each row, then what follows from those for all of it and for every
element.

softmax, normalisations, cross entropy, their gradients and what follows them element by element are of that form, over
any axes, whose extents are numbers or arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from operator import eq
from typing import Any, NamedTuple

from ..base.dtype import is_float
from ..te.expr import Const, Expr, Load, Reduce, Var, as_expr
from ..te.extents import greater, is_open, is_same, lesser
from ..te.linear import Linear, expression
from ..te.loops import Buffer, buffer
from ..te.schedule import inline
from ..te.simplify import simplify
from ..te.tensor import Tensor
from ..te.visit import postorder, rewrite, same, substitute
from .access import accessed, address, continues, step
from .axes import Axis, in_one_go, turns_of
from .collapse import value_vars
from .group import reached_tensors
from .stages import topological

BLOCKS, SHORTEST, LONGEST = 16, 8, 64  # of rows whose elements are summed up first: about so many, of so many rows


class RowStage(NamedTuple):
    """A reduction: `result` stands for the body combined over the row."""

    result: Var
    combiner: str
    body: Expr


class RowResult(NamedTuple):
    """What goes to a place in memory, or is added to what is there: of every element, or of the row."""

    buffer: Buffer
    place: Expr
    value: Expr
    is_each: bool
    adds: bool = False


class Columns(NamedTuple):
    """Sums across rows, which come in parts: of each element over a `block` of turns along the first kept axis, or of
    each row over its last axis (`runs`). So many, one after the other, add up to each of the outputs."""

    runs: list[tuple[RowStage, RowResult]]
    block: Any  # None where all rows are turns
    turn: Var  # the number of a block
    parts: Any
    totals: dict[Tensor, Tensor]  # what has the parts, and what they add up to


class Rows(NamedTuple):
    """`kept` axes number the rows, `reduced` ones the elements of a row. Buffers are flat."""

    kept: list[Axis]
    reduced: list[Axis]
    in_row: bool  # whether neighbours in memory are in one row
    stages: list[RowStage]
    results: list[RowResult]
    buffers: dict[Tensor, Buffer]
    columns: Columns | None = None


def find_rows(inputs: Sequence[Tensor], outputs: Sequence[Tensor], longest: int) -> Rows | None:
    """The outputs as a computation of rows; None where they are none, or rows of more bytes than the longest: those do
    not stay in a cache between two walks. Where it is an argument how long they are, all are rows."""
    if any(_is(n, 0) for output in outputs for n in output.shape):
        return None
    order = topological(outputs, set(inputs))
    columns = _across(order)
    before = [tensor for tensor in order if tensor.is_reduction and tensor not in columns]
    if not before or not isinstance(before[0].body, Reduce):
        return None
    if columns and any(t in columns for tensor in (*before, *columns) for t in reached_tensors(tensor, inputs)):
        return None
    reduced = [axis for axis in before[0].body.axes if not _is(axis.extent, 1)]
    length = prod(axis.extent for axis in reduced)
    if not reduced or (not is_open(length) and length * outputs[0].dtype.itemsize > longest):
        return None
    if is_open(length) and all(_is(n, 1) for n in before[0].shape):
        return None  # one row, whose elements threads can share
    try:
        return _Finder(inputs, before, outputs, columns).rows()
    except _Misfit:
        return None


def has_columns(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Whether reductions go along other axes than the first does."""
    return bool(_across(topological(outputs, set(inputs))))


def _across(order: Sequence[Tensor]) -> list[Tensor]:
    """The reductions that go along other axes than the first does."""
    reductions = [tensor for tensor in order if tensor.is_reduction]
    return [tensor for tensor in reductions if not _alike(tensor.shape, reductions[0].shape)]


def _alike(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether the same axes are left, as extents of 1 or not at all."""
    if len(shape) == len(other):
        return [_is(n, 1) for n in shape] == [_is(n, 1) for n in other]
    left, right = ([n for n in extents if not _is(n, 1)] for extents in (shape, other))
    return len(left) == len(right) and all(map(is_same, left, right))


def _is(extent: Any, number: int) -> bool:
    """Whether an extent is that number in all calls."""
    return type(extent) is int and extent == number


class _Misfit(Exception):
    """Something is read in a way that rows do not have."""


class _Column(NamedTuple):
    """A sum across rows: what it adds up, and the axes that it goes along."""

    tensor: Tensor
    value: Expr
    summed: set[Var]


class _Index(NamedTuple):
    """Axes for each of a stage's, those of them that are reduced, and an output's index in terms of them."""

    axes: list[Axis]
    reduced: list[Axis]
    at: list[Expr]


def _index(shape: Sequence[Any], stage: Tensor) -> _Index | None:
    """An output that has an element for each that is reduced: it may have one axis where the stage has groups, and 1
    for what is in a group."""
    kept = stage.shape
    if len(shape) == len(kept):
        axes = _axes(shape)
        return _with_reduced(axes, kept, [axis.var for axis in axes])
    assert isinstance(stage.body, Reduce)
    inside = stage.body.axes[0].extent
    for n, extent in enumerate(shape if len(shape) + 1 == len(kept) else ()):
        if not _is(kept[n + 1], 1) or _is(kept[n], 0):
            continue
        size = 1 if is_same(extent, kept[n]) else extent // kept[n]
        if is_same(size, inside) and kept[:n] == tuple(shape[:n]) and kept[n] * size == extent:
            axes = _axes((*shape[:n], kept[n], size, *shape[n + 1 :]))
            at: list[Expr] = [axis.var for axis in (*axes[:n], *axes[n + 1 :])]
            at[n] = axes[n].var * size + axes[n + 1].var
            return _with_reduced(axes, kept, at)
    return None


def _with_reduced(axes: list[Axis], kept: Sequence[Any], at: list[Expr]) -> _Index | None:
    reduced = [axis for axis, n in zip(axes, kept) if _is(n, 1) and not _is(axis.extent, 1)]
    return _Index(axes, reduced, at) if reduced else None


def _row_index(stage: Tensor) -> _Index:
    """Where nothing has an element for each that is reduced: the axes as the stage has them."""
    assert isinstance(stage.body, Reduce)
    over = [Axis(Var(f"k{number}"), axis.extent) for number, axis in enumerate(stage.body.axes)]
    ones = [place for place, extent in enumerate(stage.shape) if _is(extent, 1)]
    axes = _axes(stage.shape)
    if len(ones) == len(over):
        axes = [over[ones.index(place)] if place in ones else axis for place, axis in enumerate(axes)]
    else:
        axes = [*axes, *over]
    return _Index(axes, [axis for axis in over if not _is(axis.extent, 1)], [])


def _axes(shape: Sequence[int]) -> list[Axis]:
    return [Axis(Var(f"i{number}"), extent) for number, extent in enumerate(shape)]


class _Finder:
    def __init__(
        self, inputs: Sequence[Tensor], before: Sequence[Tensor], outputs: Sequence[Tensor], columns: Sequence[Tensor]
    ) -> None:
        self.before, self.given, self.columns = before, {*before, *inputs}, columns
        self.after = [t for t in outputs if t in columns or any(c in columns for c in reached_tensors(t, inputs))]
        outputs = self.outputs = [t for t in outputs if t not in self.after]
        found = [_index(t.shape, before[0]) for t in outputs if t not in before]
        self.axes, self.reduced, self.at = next(filter(None, found), None) or _row_index(before[0])
        split = [n for n, whole in enumerate(self.at) if not isinstance(whole, Var)]
        self.split = {self.at[n]: (self.axes[n], self.axes[n + 1]) for n in split}
        reached = {tensor for output in (*outputs, *columns) for tensor in reached_tensors(output, inputs)}
        used = [tensor for tensor in inputs if tensor in reached]
        self.buffers = {t: _flat(f"b{n}", t) for n, t in enumerate([*used, *outputs])}
        self.ranges = turns_of(self.axes)
        self.results: dict[Tensor, Var] = {}
        self.places: list[Linear[Var] | None] = []
        self.steps: set[int | None] = set()

    def rows(self) -> Rows:
        stages = [self._stage(tensor) for tensor in self.before]
        results = [self._result(output) for output in self.outputs]
        columns = [self._column(tensor) for tensor in self.columns]
        bodies = [*(each.value for each in results), *(stage.body for stage in stages), *(c.value for c in columns)]
        groups, gone = self._joined(bodies, [column.summed for column in columns])
        axes = [Axis(group[-1].var, prod(axis.extent for axis in group)) for group in groups]
        stages = [stage._replace(body=substitute(stage.body, gone)) for stage in stages]
        results = [r._replace(value=substitute(r.value, gone), place=substitute(r.place, gone)) for r in results]
        in_row = {axis.var for axis in self.reduced}
        kept = [axis for axis in axes if axis.var not in in_row]
        reduced = [axis for axis in axes if axis.var in in_row]
        if not self.at and axes[-1] in reduced and 1 not in self.steps:
            raise _Misfit  # columns
        made = Rows(kept, reduced, axes[-1] in reduced, stages, results, self.buffers)
        if not columns:
            return made
        return self._with_columns(made, [c._replace(value=substitute(c.value, gone)) for c in columns])

    # Sums across rows

    def _column(self, tensor: Tensor) -> _Column:
        """A sum along axes of the elements, whose extents it has as 1."""
        node, places = tensor.body, [place for place, n in enumerate(tensor.shape) if _is(n, 1)]
        assert isinstance(node, Reduce)
        if node.combiner != "sum" or not is_float(tensor.dtype) or len(places) != len(node.axes):
            raise _Misfit
        whole = list(tensor.shape)
        for place, axis in zip(places, node.axes):
            whole[place] = axis.extent
        if len(self.at) != tensor.rank or not self._is_whole(whole) or any(axis.turns for axis in node.axes):
            raise _Misfit
        index: dict[Var, Expr] = dict(zip(tensor.axes, self.at))
        index |= {axis.var: self.at[place] for axis, place in zip(node.axes, places)}
        value = self._value(tensor, index)
        assert isinstance(value, Reduce)
        summed = {part for place in places for part in postorder((self.at[place],)) if isinstance(part, Var)}
        return _Column(tensor, value.body, summed)

    def _with_columns(self, rows: Rows, columns: Sequence[_Column]) -> Rows:
        """All columns are of elements, or of runs along the last axis, and go along the first of the others."""
        *outer, last = rows.reduced
        runs = last.var in columns[0].summed
        if not rows.in_row or not rows.kept:
            raise _Misfit
        (head, *rest), whole = rows.kept, columns[0].summed - {last.var}
        summed = [axis for axis in (*rows.kept, *outer) if axis.var in whole]
        if any(column.summed != columns[0].summed for column in columns) or summed != [head][: len(summed) or not runs]:
            raise _Misfit
        block: Any = None if runs else lesser(greater(head.extent // BLOCKS, SHORTEST), LONGEST)
        turn = Var("turn")
        first = head if runs else Axis(turn, (head.extent + (block - 1)) // block)
        axes = [first, *rest, *(outer if runs else rows.reduced)]
        place = sum([axis.var * prod([a.extent for a in axes[n + 1 :]]) for n, axis in enumerate(axes)], as_expr(0))
        made = Columns([], block, turn, first.extent if summed else 1, {})
        for tensor, value, _ in columns:
            part = Tensor(f"{tensor.name}_parts", tuple([axis.extent for axis in axes]), tensor.dtype)
            rows.buffers[part] = _flat(f"b{len(rows.buffers)}", part)
            result = RowResult(rows.buffers[part], place, value, is_each=not runs, adds=not runs)
            if runs:
                stage = RowStage(Var(tensor.name, tensor.dtype), "sum", value)
                made.runs.append((stage, result._replace(value=stage.result)))
            else:
                rows.results.append(result)
            made.totals[part] = self._shown(tensor)
        return rows._replace(columns=made)

    def _shown(self, column: Tensor) -> Tensor:
        """The output that is a column, or shows it without the axes that it goes along."""
        own = [output for output in self.after if column is output or column in output.inputs()]
        if len(own) != 1 or len(self.after) != len(self.columns):
            raise _Misfit
        (output,) = own
        if output is column:
            return output
        shown = output.body
        if not isinstance(shown, Load) or shown.mask is not None:
            raise _Misfit
        if [index for index in shown.indices if not isinstance(index, Const)] != list(output.axes):
            raise _Misfit
        return output

    def _own_axes(self, shape: Sequence[Any]) -> list[Axis | None]:
        """The axis of rows that each of a tensor's is, which has an element for each row; None: of one element."""
        whole: list[Axis | None] = [None if axis in self.reduced else axis for axis in self.axes]
        for own in (whole, [axis for axis in whole if axis is not None]):
            sizes = [(1 if axis is None else axis.extent, n) for axis, n in zip(own, shape)]
            if len(own) == len(shape) and all(is_same(*pair) or (not _is(pair[0], 1) and eq(*pair)) for pair in sizes):
                return list(own)
        raise _Misfit

    def _stage(self, tensor: Tensor) -> RowStage:
        """A reduction over the axes that all others reduce as well."""
        body = tensor.body
        if not isinstance(body, Reduce):
            raise _Misfit
        over = [axis for axis in body.axes if not _is(axis.extent, 1)]
        if [axis.extent for axis in over] != [axis.extent for axis in self.reduced]:
            raise _Misfit
        index = self._row_at(tensor)
        index |= {axis.var: as_expr(0) for axis in body.axes}
        index |= {axis.var: ours.var for axis, ours in zip(over, self.reduced)}
        value = self._value(tensor, index)
        assert isinstance(value, Reduce)
        self.results[tensor] = Var(tensor.name, tensor.dtype)
        return RowStage(self.results[tensor], value.combiner, value.body)

    def _row_at(self, tensor: Tensor) -> dict[Var, Expr]:
        """The index of a tensor that has an element for each row."""
        own = zip(tensor.axes, self._own_axes(tensor.shape))
        return {var: as_expr(0) if axis is None else axis.var for var, axis in own}

    def _result(self, output: Tensor) -> RowResult:
        """What an output has of every element, or of each row."""
        is_each = output not in self.results and len(self.at) == output.rank and self._is_whole(output.shape)
        index = dict(zip(output.axes, self.at)) if is_each else self._row_at(output)
        value = self.results[output] if output in self.results else self._value(output, index)
        place = self._place(output.shape, [index[var] for var in output.axes])
        return RowResult(self.buffers[output], place, value, is_each)

    def _is_whole(self, shape: Sequence[Any]) -> bool:
        extents: dict[Expr, Any] = {axis.var: axis.extent for axis in self.axes}
        extents |= {whole: outer.extent * inner.extent for whole, (outer, inner) in self.split.items()}
        return all(n == extents[index] for n, index in zip(shape, self.at))

    def _value(self, tensor: Tensor, index: Mapping[Var, Expr]) -> Expr:
        """The body at an index, over flat buffers and the results of the stages before it."""
        between = [t for t in reached_tensors(tensor, self.given) if t.body is not None and t not in self.given]
        body = inline(tensor, between).body
        assert body is not None
        return rewrite(substitute(body, index), self._read)

    def _read(self, node: Any) -> Any:
        if not isinstance(node, Load) or not isinstance(node.source, Tensor):
            return node
        if node.mask is not None:
            raise _Misfit
        if node.source in self.results:
            for index, axis in zip(node.indices, self._own_axes(node.source.shape)):
                self._check_own(self._simplified(index), axis)
            return self.results[node.source]
        if node.source not in self.buffers:
            raise _Misfit  # of rows that only sums across them follow from
        return Load(self.buffers[node.source], (self._place(node.source.shape, node.indices),))

    def _simplified(self, index: Expr) -> Expr:
        """An index in terms of the axes, where those of groups and inside them were one."""
        quotients = [(outer.var, whole // inner.extent) for whole, (outer, inner) in self.split.items()]

        def rule(node: Any) -> Any:
            return next((var for var, quotient in quotients if same(node, quotient)), node)

        return simplify(rewrite(index, rule) if quotients else index, self.ranges)

    def _check_own(self, index: Expr, axis: Axis | None) -> None:
        """A row reads its own results only."""
        first = isinstance(index, Const) and int(index.value) == 0
        if not (first if axis is None else index is axis.var or (first and _is(axis.extent, 1))):
            raise _Misfit

    def _place(self, shape: Sequence[int], indices: Sequence[Expr]) -> Expr:
        """The number of an element in its tensor."""
        at = tuple(map(self._simplified, indices))
        probe = Load(buffer("probe", "float32", shape), at)
        place = address(probe)
        self.places.append(place)
        self.steps.add(step(probe, self.reduced[-1].var))
        if place is not None:
            return expression(place)
        return sum([index * by for index, by in zip(at, accessed(probe).strides)], as_expr(0))

    def _joined(self, bodies: Sequence[Expr], sums: Sequence[set[Var]]) -> tuple[list[list[Axis]], dict[Var, Expr]]:
        """The axes, neighbours that are always walked in one go together; and values for those that
        are not there any more: the last of such neighbours stands for all."""
        fixed = value_vars(*bodies)
        alike = [{axis.var for axis in self.reduced}, *sums]
        groups = in_one_go(self.axes, lambda outer, inner: self._continues(outer, inner, fixed, alike))
        stays = {group[-1].var for group in groups}
        return groups, {axis.var: as_expr(0) for axis in self.axes if axis.var not in stays}

    def _continues(self, outer: Axis, inner: Axis, fixed: set[Var], alike: Sequence[set[Var]]) -> bool:
        apart = any((outer.var in some) != (inner.var in some) for some in alike)
        if fixed & {outer.var, inner.var} or apart or is_open(inner.extent):
            return False
        return all(place and continues(place, outer.var, inner.var, inner.extent) for place in self.places)


def _flat(name: str, tensor: Tensor) -> Buffer:
    return buffer(name, tensor.dtype, (prod(tensor.shape),))

"""The schedule of a stage with a reduction: sums, maxima, pools, convolutions, matrix products.

One axis is vectorised: an output axis whose neighbours are neighbours in memory, or else the
innermost reduced axis, with partial results in the lanes. Two more output axes are cut into tiles
whose turns run side by side in registers. What is left outside is shared by threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from ...base.cpu_target import CpuTarget
from ...te.expr import Binary, Call, Const, Expr, Load, Var, as_expr
from ...te.extents import fewest, is_open, typical
from ...te.jam import jam
from ...te.loops import Alloc, Buffer, For, If, Kernel, Seq, Stmt, Store, buffer
from ...te.simplify_loops import loops_inside, sequence, simplify_statement, statements
from ...te.transform import expanded, split
from ...te.visit import loads, postorder, rewrite, substitute
from ..access import accessed, step
from ..axes import Axis, simplified
from ..collapse import collapsed
from .nest import finished_kernel
from .nests.sums import in_lanes
from .panels_ahead import Lines, Tiles, asking, bytes_of, following, unrolled_loop
from .pointwise import PARALLEL_TURNS, axes_without_blocks, pointwise_kernel, vector_lanes
from .tile import Tiling, choose_tiles, registers
from .tile_walk import total_of

GATHER_COST = 0.8  # of one element, relative to a vector load
BROADCAST_COST = 0.4
LANE_SUM_COST = 1.1  # partial results in lanes have to be summed at the end
WINDOW = 16  # elements that are combined without a loop
INNER_UNROLL = 4
FAR = 0.75  # of the second cache: what is larger comes from beyond it every time
SHORT_CALLS = frozenset("sqrt abs floor ceil trunc round isnan isinf isfinite fma".split())


class Reduction(NamedTuple):
    """The reduced loops of a body, outermost first (of extent None if that is an argument), and the loads inside."""

    axes: list[Axis]
    loads: list[Load]


def reduction_kernel(
    name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt, target: CpuTarget
) -> Kernel:
    """The kernel of a body that reduces, then stores elements at `axes`."""
    body = in_memory_order(_without_blocks(simplified(body, axes)))
    if not reduction_of(body).axes:  # of one element, or of none
        return pointwise_kernel(name, buffers, axes, body, target)
    if _is_window(axes, body):
        return pointwise_kernel(name, buffers, axes, expanded(body), target)
    buffers, axes, body = collapsed(buffers, *axes_without_blocks(axes, body))
    lanes = vector_lanes(body, target)
    vector = choose_vector(axes, body, lanes)
    if vector is None:
        return _tiled(name, buffers, axes, body, target)
    if vector not in axes:
        return _tiled(name, buffers, axes, in_lanes(body, vector.var, lanes), target)
    return _vectorised(name, buffers, axes, body, vector, lanes, target)


def has_vectors(axes: Sequence[Axis], body: Stmt, target: CpuTarget) -> bool:
    """Whether neighbours along an axis of known extent are neighbours in memory: results of a body whose strides follow
    from the sizes of a call are then computed in tiles of registers all the same."""
    body = in_memory_order(_without_blocks(simplified(body, axes)))
    return choose_vector(axes, body, vector_lanes(body, target)) in axes


# Reduced loops


def _is_window(axes: Sequence[Axis], body: Stmt) -> bool:
    """Whether few elements are combined, as by pools, and neighbouring results read neighbours, or every other one."""
    reduction = reduction_of(body)
    known = [axis.extent for axis in reduction.axes if axis.extent is not None]
    if len(known) < len(reduction.axes) or prod(known) > WINDOW or len(reduction.loads) != 1 or not axes:
        return False
    return step(reduction.loads[0], axes[-1].var) in (1, 2)


def reduction_of(body: Stmt) -> Reduction:
    loops = [node for node in statements(body) if isinstance(node, For)]
    axes = [Axis(loop.var, int(loop.extent.value) if isinstance(loop.extent, Const) else None) for loop in loops]
    inner = loops[-1].body if loops else body
    return Reduction(axes, [load for load in loads(inner) if accessed(load).scope == "arg"])


def _without_blocks(body: Stmt) -> Stmt:
    """A reduced loop whose index is used as i // c and i % c becomes two loops."""
    while True:
        blocked = _blocked_loop(body)
        if blocked is None:
            return body
        var, block = blocked
        body = simplify_statement(split(body, var, block))


def _blocked_loop(body: Stmt) -> tuple[Var, int] | None:
    extents = {n.var: n.extent for n in statements(body) if isinstance(n, For)}
    for node in postorder((body,)):
        if not (isinstance(node, Binary) and node.op in ("floordiv", "floormod")):
            continue
        if isinstance(node.a, Var) and isinstance(node.b, Const) and node.a in extents:
            extent, block = extents[node.a], int(node.b.value)
            if isinstance(extent, Const) and int(extent.value) % block == 0:
                return node.a, block
    return None


def in_memory_order(body: Stmt) -> Stmt:
    """Reduced loops that stand directly inside each other, longest strides outermost."""

    def reordered(node: object) -> object:
        if not (isinstance(node, For) and isinstance(node.body, For)):
            return node
        nest = loops_inside(node)
        reads = loads(nest[-1].body)
        order = sorted(nest, key=lambda loop: -_longest_step(reads, loop.var))
        inner: Stmt = nest[-1].body
        for loop in reversed(order):
            inner = For(loop.var, loop.extent, inner, loop.kind)
        return inner

    outermost = [n for n in statements(body) if isinstance(n, For)][:1]
    if not outermost:
        return body
    first = outermost[0]
    return rewrite(body, lambda node: reordered(node) if _loops(node, first.var) else node)


def _loops(node: object, var: Var) -> bool:
    return isinstance(node, For) and node.var is var


def _longest_step(reads: Sequence[Load], var: Var) -> int:
    """How far apart in memory two turns of a loop are, in the tensor where that is most."""
    steps = [step(load, var) for load in reads if accessed(load).scope == "arg"]
    return max((abs(s) for s in steps if s is not None), default=0)


# The vector axis


def choose_vector(axes: Sequence[Axis], body: Stmt, lanes: int) -> Axis | None:
    """The axis whose vectors cost least to load; None when lanes bring nothing."""
    reduction = reduction_of(body)
    if lanes < 2 or not reduction.loads or not reduction.axes:
        return None
    known = [axis for axis in axes if not is_open(axis.extent) and axis.extent > 1]
    costs = [(_cost(axis, body, min(lanes, axis.extent)), axis) for axis in known]
    inner = reduction.axes[-1]
    plain = inner.extent is not None and all(load.mask is None for load in reduction.loads)
    if plain and inner.extent >= lanes and _is_dense(reduction.loads, inner.var):
        costs.append((LANE_SUM_COST * _cost(inner, body, lanes), inner))
    best = min(costs, key=lambda item: item[0], default=None)
    scalar = 0.9 * (len(reduction.loads) + 1)
    return best[1] if best is not None and best[0] < scalar else None


def _is_dense(reads: Sequence[Load], var: Var) -> bool:
    return all(step(load, var) in (0, 1) for load in reads)


def _cost(axis: Axis, body: Stmt, lanes: int) -> float:
    """Of one element's worth of work, counting lanes that do nothing; what is stored counts once for all of a sum."""
    reduced = prod(loop.extent or 1 for loop in reduction_of(body).axes)
    total = 1.0 + sum(
        lanes * GATHER_COST / reduced for result in _results(body) if step(result, axis.var) not in (0, 1)
    )
    for distance in _distances(axis, body, lanes):
        vector = BROADCAST_COST if distance == 0 else 1.0 if distance == 1 else lanes * GATHER_COST
        total += vector
    full, rest = divmod(axis.extent, lanes)
    return total * (full + bool(rest)) / axis.extent


def _results(body: Stmt) -> list[Store]:
    return [node for node in statements(body) if isinstance(node, Store) and node.buffer.scope == "arg"]


def _distances(axis: Axis, body: Stmt, lanes: int) -> list[int | None]:
    """How far apart neighbouring lanes read, for each load: as far as neighbours of the axis, if that can be told of
    all; else by the body in lanes, which may say more."""
    found = [step(load, axis.var) for load in reduction_of(body).loads]
    if None not in found:
        return found
    return [step(load, _LANE) for load in reduction_of(_in_lanes(axis, body, lanes)[0]).loads]


_LANE = Var("lane")


def _in_lanes(axis: Axis, body: Stmt, lanes: int, start: int = 0) -> tuple[Stmt, Axis]:
    """The body at start + outer * lanes + lane, and the axis of `outer`."""
    outer = Axis(Var(f"{axis.var.name}_o"), (axis.extent - start) // lanes)
    index = outer.var * lanes + _LANE + start
    ranges = {_LANE: (0, lanes - 1), outer.var: (0, max(outer.extent - 1, 0))}
    return simplify_statement(substitute(body, {axis.var: index}), ranges), outer


# The nest


class Panels(NamedTuple):
    """Some panels: `turns` vectors of `lanes` side by side, `repeats` times; the body at index
    `axis`, which starts at `done`. Of short vectors two may lie `beside` each other in a register."""

    body: Stmt
    axis: Axis | None
    lanes: int
    turns: int
    repeats: int
    done: int = 0
    beside: int = 1


def _tiled(name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt, target: CpuTarget) -> Kernel:
    """Without a vector axis: tiles of single elements (or of lanes that the body makes itself)."""
    across, _ = choose_tiles(_shared(axes, body), None, registers(target))
    return _nest(name, buffers, axes, across, [Panels(_unroll_inner(body), None, 1, 1, 1)], target)


def _vectorised(
    name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt, vector: Axis, lanes: int, target: CpuTarget
) -> Kernel:
    lanes = min(lanes, vector.extent)
    body = _with_results_kept(body)
    main, row = _in_lanes(vector, body, lanes)
    rest = vector.extent % lanes
    outer = [axis for axis in axes if axis is not vector]
    if row.extent == 1 and not rest:
        main = substitute(main, {row.var: as_expr(0)})
        row = next((axis for axis in outer if not is_open(axis.extent) and _is_panel(axis, main)), row)
        outer = [axis for axis in outer if axis is not row]
    wide = row if _is_panel(row, main) else None
    beside = 2 if wide is not None and _fill_halves(row, lanes, main, target) else 1
    groups = row._replace(extent=row.extent // beside)
    across, tiling = choose_tiles(_shared(outer, main), None if wide is None else groups, registers(target))
    counts = tiling.counts if tiling is not None else ((1, groups.extent),)
    panels: list[Panels] = []
    done = 0
    for turns, count in counts:
        panels.append(Panels(_unroll_inner(main), row, lanes, turns * beside, count, done, beside))
        done += turns * count * beside
    if done < row.extent:
        panels.append(Panels(_unroll_inner(main), row, lanes, 1, row.extent - done, done))
    if rest:
        tail, last = _in_lanes(vector, body, rest, vector.extent - rest)
        panels.append(Panels(_unroll_inner(tail), last, rest, 1, 1))
    return _nest(name, buffers, outer, across, panels, target)


def _fill_halves(panels: Axis, lanes: int, body: Stmt, target: CpuTarget) -> bool:
    """Whether two panels side by side fill a vector, of which each has half of the lanes, and units take whole ones."""
    whole = 2 * lanes == vector_lanes(body, target) and target.unit_bits == target.vector_bits
    return whole and panels.extent > 1 and not any(isinstance(node, If) for node in statements(body))


def _is_panel(axis: Axis, body: Stmt) -> bool:
    """Whether vectors change along an axis, and what is broadcast to them does not."""
    vectors: list[int | None] = []
    broadcasts: list[int | None] = []
    for load in reduction_of(body).loads:
        (broadcasts if step(load, _LANE) == 0 else vectors).append(step(load, axis.var))
    return axis.extent > 1 and any(vectors) and not any(broadcasts) and bool(broadcasts)


def _shared(axes: Sequence[Axis], body: Stmt) -> list[Axis]:
    """Axes over which some load stays the same, and some does not; the innermost first."""
    reads = reduction_of(body).loads
    found = []
    for axis in reversed(axes):
        steps = [step(load, axis.var) for load in reads]
        if any(s == 0 for s in steps) and any(s != 0 for s in steps):
            found.append(axis)
    known = [axis for axis in found if not is_open(axis.extent)]
    return known or [axis for axis in found if None not in [step(load, axis.var) for load in reads]][:1]


def _nest(
    name: str,
    buffers: Sequence[Buffer],
    axes: Sequence[Axis],
    across: Tiling | None,
    panels: Sequence[Panels],
    target: CpuTarget,
) -> Kernel:
    """Loops over panels, other axes and tiles across; which are outermost depends on how much is
    read again and again."""
    outer = [axis for axis in axes if across is None or axis is not across.axis]
    number = Axis(Var("panel"), sum(part.repeats for part in panels))
    turns = fewest(axis.extent for axis in outer) * number.extent
    tile = None
    if across is not None and turns < PARALLEL_TURNS:
        tile = Axis(Var("tile"), sum(count for _, count in across.counts))
        outer.append(tile)
    far = FAR * target.caches[1]
    outside = across is not None and _panels_outside(panels[0], number.extent, outer, far)
    around = [axis for axis in outer if axis is not tile]
    asking = _Asking(around, outside, target)
    choices = [(part.repeats, _tiles(part, number.var, across, tile, asking)) for part in panels]
    body = _choose(number.var, choices)
    loops = [number, *outer] if outside else [*outer, number]
    return finished_kernel(name, buffers, [axis for axis in loops if not _is_one(axis)], _at_zero(body, loops))


def _at_zero(body: Stmt, loops: Sequence[Axis]) -> Stmt:
    zeros = {axis.var: as_expr(0) for axis in loops if _is_one(axis)}
    return substitute(body, zeros) if zeros else body


def _is_one(axis: Axis) -> bool:
    return not is_open(axis.extent) and bool(axis.extent == 1)


def _panels_outside(part: Panels, count: int, outer: Sequence[Axis], far: float) -> bool:
    """Whether less has to come from far memory if every panel walks over all of the rest, than if
    all panels do so for each turn of the outer loops; where panels stay near, whether they are
    larger."""
    if part.axis is None:
        return False
    sizes = {True: 0, False: 0}
    for load in reduction_of(part.body).loads:
        sizes[step(load, part.axis.var) != 0] += bytes_of(accessed(load))
    panels, rest = sizes[True], sizes[False]
    if panels <= far:
        return panels >= rest
    return rest * (count if rest > far else 1) <= panels * prod(typical(axis.extent) for axis in outer)


def _choose(number: Var, choices: Sequence[tuple[int, Callable[[Expr], Stmt]]]) -> Stmt:
    """The choice that turn `number` falls to, told its turn within it."""
    start: Any = 0
    parts: list[tuple[Any, Stmt]] = []
    for count, choice in choices:
        parts.append((start + count, choice(number - start if is_open(start) or start else number)))
        start += count
    result = parts[-1][1]
    for end, stmt in reversed(parts[:-1]):
        result = If(number < end, stmt, result)
    return result


class _Asking(NamedTuple):
    """How a kernel walks over its panels, for tiles that ask for the next one: `outer` loops, and whether those over
    panels are outside of them."""

    outer: Sequence[Axis]
    panels_outside: bool
    target: CpuTarget

    def added(self, part: Panels, across: Axis, start: Expr, tiles: Tiles, stmt: Stmt) -> Stmt:
        """A tile of the panel that begins at `start`, asking where there are weights, and more than the first cache
        holds: they were left there by nobody."""
        inner = unrolled_loop(part.body)
        if part.axis is None or inner is None:
            return stmt
        panel = part.axis.var
        found = [load for load in reduction_of(part.body).loads if step(load, panel) != 0]
        if len(found) != 1 or step(found[0], _LANE) != 1 or step(found[0], across.var) != 0:
            return stmt
        (weights,) = found
        source = accessed(weights)
        if bytes_of(source) <= self.target.caches[0]:
            return stmt
        apart = max(self.target.facts.line_bytes // (part.lanes * source.dtype.itemsize), 1)
        lines = Lines(panel, start, part.turns, inner.var, INNER_UNROLL, apart)
        after = following(weights, {panel: start + part.turns}, self.outer, self.panels_outside)
        return asking(stmt, weights, _LANE, lines, after, tiles)


def _tiles(
    part: Panels, number: Var, across: Tiling | None, tile: Axis | None, asks: _Asking
) -> Callable[[Expr], Stmt]:
    """What one turn over some panels does: all tiles across, or the one that `tile` names."""

    def at_turn(turn: Expr) -> Stmt:
        start = turn * part.turns + part.done
        fixed = [] if part.axis is None else [(part.axis, part.turns, start)]
        if across is None:
            return _register_tile(part, fixed)
        total = total_of(across.counts)

        def tile_at(turns: int, done: Any, before: Any) -> Callable[[Expr], Stmt]:
            def at(turn: Expr) -> Stmt:
                made = _register_tile(part, [(across.axis, turns, turn * turns + done), *fixed])
                return asks.added(part, across.axis, start, Tiles(turn + before, total), made)

            return at

        choices = []
        done: Any = 0
        before: Any = 0
        for turns, count in across.counts:
            choices.append((count, tile_at(turns, done, before)))
            done, before = done + turns * count, before + count
        if tile is not None:
            return _choose(tile.var, choices)
        loops: list[Stmt] = []
        for count, choice in choices:
            var = Var(f"{across.axis.var.name}_t")
            loops.append(For(var, as_expr(count), choice(var)))
        return sequence(loops)

    return at_turn


def _register_tile(part: Panels, tiles: Sequence[tuple[Axis, int, Expr]]) -> Stmt:
    """The body for every turn of the tiles at once; the turns of the last change fastest, so that
    what is broadcast to the panels is live for no longer than they take."""
    body, half = part.body, Var("half")
    for axis, turns, start in tiles:
        apart = 1
        if part.beside > 1 and axis is part.axis:
            apart, turns, start = part.beside, turns // part.beside, start + half
        turn = Var(f"{axis.var.name}_u")
        body = substitute(body, {axis.var: start + turn * apart if turns > 1 else start})
        if turns > 1:
            body = jam(For(turn, as_expr(turns), body, "unroll"))
    body = rewrite(body, _rolled)
    if part.lanes > 1:
        body = For(_LANE, as_expr(part.lanes), body, "vector")
        return For(half, as_expr(part.beside), body, "vector") if part.beside > 1 else body
    return substitute(body, {_LANE: as_expr(0)})


# What is done with a result


def _with_results_kept(body: Stmt) -> Stmt:
    """The body with its results put into scratch memory where much is to be done with each: code
    for all of a tile at once would be long, and need more registers than there are."""
    results, inner = [], body
    while isinstance(inner, Alloc):
        results.append(inner.buffer)
        inner = inner.body
    if not isinstance(inner, Seq) or not _is_long(inner.body[-1]):
        return body
    kept = {b: buffer(f"{b.name}_kept", b.dtype, (), scope="scratch") for b in results}

    def from_scratch(node: object) -> object:
        scratch = kept.get(node.source) if isinstance(node, Load) else None  # type: ignore[call-overload]
        return node if scratch is None else scratch[()]

    keep = [Store(place, (), b[()]) for b, place in kept.items()]
    stmt: Stmt = sequence([*inner.body[:-1], *keep, rewrite(inner.body[-1], from_scratch)])
    for b in (*reversed(results), *kept.values()):
        stmt = Alloc(b, stmt)
    return stmt


def _is_long(stmt: Stmt) -> bool:
    calls = (node for node in postorder((stmt,)) if isinstance(node, Call))
    return any(call.name not in SHORT_CALLS for call in calls)


def _rolled(node: object) -> object:
    """Turns of a tile that read their results from scratch memory run one after the other."""
    if not isinstance(node, For) or node.kind != "unroll" or not _is_long(node.body):
        return node
    return node if _uses_registers(node.body) else replace(node, kind="serial")


def _uses_registers(body: Stmt) -> bool:
    touched = [n for n in postorder((body,)) if isinstance(n, (Load, Store))]
    return any(accessed(node).scope == "register" for node in touched)


def _unroll_inner(body: Stmt) -> Stmt:
    """The innermost reduced loop in steps of a few turns, where that divides it."""
    reduction = reduction_of(body)
    if not reduction.axes:
        return body
    inner = reduction.axes[-1]
    if inner.extent is None or inner.extent % INNER_UNROLL or inner.extent == INNER_UNROLL:
        return body
    return split(body, inner.var, INNER_UNROLL, "unroll")

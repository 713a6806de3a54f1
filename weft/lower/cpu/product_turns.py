"""How products that pack their columns are cut: products of a part, rows and columns of a turn. It depends on sizes and
the target alone, and changes no result."""

from __future__ import annotations

from ...base.cpu_facts import THREADS
from ...base.cpu_target import CpuTarget
from .tile import TileSize

BLOCK = 384  # products of a part, at most
TURNS_PER_CORE = 4
MOST_GROUPS = 32  # ways to cut columns that are looked at
WAITING = 0.2  # of a turn, for the thread that is done last
PACKING = 12.0  # of an element of b, in multiplications of one
LOADING = {"rows": 5.0, "packed": 24.0, "dot": 5.0}  # of an element of a
FLOAT_BYTES = 4
EVEN = 8  # products that a part is a multiple of
NARROW = 0.4  # of what a panel costs that is not as wide as a tile


def products_per_nanosecond(target: CpuTarget) -> float:
    """Of one core, in register tiles."""
    return target.facts.flops / 2e9


def far_packing(target: CpuTarget) -> float:
    """PACKING of an element that another kernel of the same program computed, which comes from the last cache. Doubles
    are twice as long, and their products take twice as long: it is the same."""
    return PACKING + FLOAT_BYTES / target.facts.last_rate * target.facts.flops / 2


def even_part(depth: int, most: int = BLOCK) -> int:
    """Products of a part: equal ones, that tiles take without a rest."""
    parts = -(-depth // most)
    return min(-(-depth // (parts * EVEN)) * EVEN, most)


def turn_of(
    kind: str,
    batch: int,
    extents: tuple[int, int, int],
    size: TileSize,
    most: int,
    target: CpuTarget,
    packing: float = PACKING,
) -> tuple[int, int]:
    """Rows and columns of a turn, multiples of a tile's rows and lanes, the columns at most `most`: what the target is
    expected to be done with first. `extents`: rows, products of a sum, columns."""
    rows, depth, columns = extents
    work = batch * rows * columns * depth
    cores = target.cores if work >= THREADS.wake * products_per_nanosecond(target) else 1
    waiting = WAITING if cores > 1 else 0.0
    fewest = -(-columns // most)
    wanted = {-(-turns // batch) for turns in (cores, 2 * cores, TURNS_PER_CORE * cores)}
    best = (float("inf"), rows, columns)
    for groups in range(fewest, fewest + min(max(wanted), MOST_GROUPS)):
        turn_columns = -(-columns // (groups * size.lanes)) * size.lanes
        for count in wanted:
            turn_rows = -(-rows // (-(-count // groups) * size.rows)) * size.rows
            turns = batch * -(-columns // turn_columns) * -(-rows // turn_rows)
            cost = 1 + packing / min(turn_rows, rows) + LOADING[kind] / min(turn_columns, columns)
            cost += NARROW * (-turn_columns % size.width) / turn_columns
            time = cost * turn_rows * turn_columns * (-(-turns // cores) + waiting)
            best = min(best, (time, turn_rows, turn_columns))
    return best[1:]

"""Events of a profile, sums of those that are alike, and how both are shown: a table, and Chrome's format of traces."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...base.errors import InvalidValue

_NAME_WIDTH, _SHAPES_WIDTH, _GAP = 55, 80, "  "


@dataclass(eq=False)
class FunctionEvent:
    """One call. Times are in microseconds."""

    id: int
    name: str
    thread: int
    input_shapes: list[Any]
    cpu_parent: FunctionEvent | None
    is_user_annotation: bool = False
    start_ns: int = 0
    end_ns: int = 0
    cpu_children: list[FunctionEvent] = field(default_factory=list, repr=False)
    count: int = 1

    @property
    def key(self) -> str:
        """The name, by which events are summed."""
        return self.name

    @property
    def cpu_time_total(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / 1000

    cpu_time = cpu_time_total

    @property
    def self_cpu_time_total(self) -> float:
        """How long it took without what it called."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={shown(self.cpu_time_total)} thread={self.thread}>"
        )


@dataclass
class FunctionEventAvg:
    """Events of one name, and of one list of shapes if they are told apart by these."""

    key: str
    input_shapes: list[Any] = field(default_factory=list)
    is_user_annotation: bool = False
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0

    def add(self, event: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """With one more; a call within one of its own name counts its time once."""
        self.count += event.count
        self.self_cpu_time_total += event.self_cpu_time_total
        if not (isinstance(event, FunctionEvent) and _within_its_own(event)):
            self.cpu_time_total += event.cpu_time_total
        return self

    @property
    def cpu_time(self) -> float:
        """The mean time of a call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        """The mean time with its unit."""
        return shown(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """The time of all calls with its unit."""
        return shown(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """The time of all calls without what they called, with its unit."""
        return shown(self.self_cpu_time_total)

    def __repr__(self) -> str:
        times = f"self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str}"
        return f"<FunctionEventAvg key={self.key} {times} input_shapes={self.input_shapes or ''}>"


def _within_its_own(event: FunctionEvent) -> bool:
    parent = event.cpu_parent
    while parent is not None and parent.name != event.name:
        parent = parent.cpu_parent
    return parent is not None


def shown(microseconds: float) -> str:
    """A time with a unit.

    >>> shown(12.5), shown(3400.0), shown(2.5e6)
    ('12.500us', '3.400ms', '2.500s')
    """
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= limit:
            return f"{microseconds / limit:.3f}{unit}"
    return f"{microseconds:.3f}us"


_SORTS = ("cpu_time", "cpu_time_total", "self_cpu_time_total", "count")


class EventList(list[Any]):
    """Events, or sums of them."""

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events together."""
        return float(sum(event.self_cpu_time_total for event in self))

    def key_averages(self, group_by_input_shapes: bool = False) -> EventList:
        """Sums of events of one name, and of the same shapes if these are to be told apart."""
        made: dict[tuple[str, ...], FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shapes else []
            key = (event.name, str(shapes))
            if key not in made:
                made[key] = FunctionEventAvg(event.name, shapes, event.is_user_annotation)
            made[key].add(event)
        return EventList(made.values())

    def total_average(self) -> FunctionEventAvg:
        """The sum of all."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = _NAME_WIDTH,
        max_shapes_column_width: int = _SHAPES_WIDTH,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """A table with a row for each; the longest first if it is sorted by a time."""
        rows = [event for event in self if not top_level_events_only or getattr(event, "cpu_parent", None) is None]
        if sort_by is not None:
            if sort_by not in _SORTS:
                raise InvalidValue(f"a profile is not sorted by {sort_by!r}", why="it has " + ", ".join(_SORTS))
            rows.sort(key=lambda event: -getattr(event, sort_by))
        total = self.self_cpu_time_total
        columns = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls"]
        shapes = any(event.input_shapes for event in rows)
        lines = [columns + ["Input Shapes"] * shapes]
        for event in rows[: None if row_limit < 0 else row_limit]:
            cells = [
                _cut(event.key, max_name_column_width),
                _share(event.self_cpu_time_total, total),
                shown(event.self_cpu_time_total),
                _share(event.cpu_time_total, total),
                shown(event.cpu_time_total),
                shown(event.cpu_time),
                str(event.count),
            ]
            lines.append(cells + [_cut(str(event.input_shapes), max_shapes_column_width)] * shapes)
        text = _aligned(lines)
        head = "" if header is None else f"{header}\n"
        return f"{head}{text}\nSelf CPU time total: {shown(total)}\n"

    def export_chrome_trace(self, path: Any) -> None:
        """Writes events in Chrome's format of traces (chrome://tracing, Perfetto)."""
        written: dict[str, Any] = {"displayTimeUnit": "ms", "traceEvents": list(_traced(self))}
        text = json.dumps(written)
        if str(path).endswith(".gz"):
            with gzip.open(path, "wt") as file:
                file.write(text)
        else:
            Path(path).write_text(text)

    def __str__(self) -> str:
        return self.table()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "0.00%"


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) + 2 for i in range(len(rows[0]))]
    line = _GAP.join("-" * width for width in widths)
    texts = [_GAP.join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
    return "\n".join([line, texts[0], line, *texts[1:], line])


def _traced(events: Iterable[FunctionEvent]) -> Iterator[dict[str, Any]]:
    process = os.getpid()
    for event in events:
        arguments: dict[str, Any] = {"id": event.id}
        if event.input_shapes:
            arguments["Input Dims"] = event.input_shapes
        yield {
            "ph": "X",
            "cat": "user_annotation" if event.is_user_annotation else "cpu_op",
            "name": event.name,
            "pid": process,
            "tid": event.thread,
            "ts": event.start_ns / 1000,
            "dur": event.cpu_time_total,
            "args": arguments,
        }

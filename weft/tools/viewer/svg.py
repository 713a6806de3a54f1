"""Static pictures: a graph as SVG, blocks closed as far as it takes to stay readable; memory and roofline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log2, log10, sqrt
from typing import NamedTuple

from .layout import placed
from .records import ProgramView, StepView

MOST_BOXES = 120
FAMILIES = {
    "data": ("variable",),
    "product": ("conv", "dense", "matmul", "winograd", "attention", "lstm", "gru", "rnn"),
    "reduce": ("pool", "norm", "softmax", "sum", "mean", "max", "min", "reduce", "arg"),
    "move": tuple(
        "reshape transpose concat split slice pad halo layout expand squeeze flatten take gather pack".split()
    ),
}
STYLE = """
svg{font:12px system-ui,sans-serif;background:#fff}
text{fill:#1b2230}.small{font:10.5px ui-monospace,monospace;fill:#5d6778}
.box{fill:#fff;stroke:#b9c2cf}.block{fill:#eef2fb;stroke:#2457c5}
.edge{fill:none;stroke:#97a2b3}.grid{stroke:#dde2ea}.roof{stroke:#5d6778}
.product{fill:#3565d6}.reduce{fill:#8a49c9}.move{fill:#b7791f}.plain{fill:#1f8a70}.data{fill:#6b7688}
.soft{fill-opacity:.6}
@media(prefers-color-scheme:dark){
svg{background:#12161d}text{fill:#e6eaf1}.small{fill:#97a3b6}
.box{fill:#1f2733;stroke:#465266}.block{fill:#24324e;stroke:#82aaff}
.edge{stroke:#667389}.grid{stroke:#2c3544}.roof{stroke:#97a3b6}
.product{fill:#7ea2ff}.reduce{fill:#c29bf0}.move{fill:#e0b062}.plain{fill:#5fc9ab}.data{fill:#98a4b7}}
"""
MARGIN = 20.0


class Box(NamedTuple):
    """A node, or a closed block."""

    title: str
    lines: tuple[str, ...]
    family: str  # "" for a block


class Axis(NamedTuple):
    """Values from the first to the last (or their logarithms) as places from a start to an end.

    >>> Axis(0, 10, 100, 300)(5), Axis(0, 2, 0, 100, logarithmic=True)(10)
    (200.0, 50.0)
    """

    first: float
    last: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        at = log10(value) if self.logarithmic else value
        return self.start + (self.end - self.start) * (at - self.first) / (self.last - self.first)


def family(op: str) -> str:
    """What kind of work an operator is.

    >>> family("_winograd_conv2d"), family("relu")
    ('product', 'plain')
    """
    return next((name for name, words in FAMILIES.items() if any(word in op for word in words)), "plain")


def _picture(width: float, height: float, *parts: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
    return f'{head}viewBox="0 0 {width:.0f} {height:.0f}"><style>{STYLE}</style>{"".join(parts)}</svg>\n'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _rect(x: float, y: float, width: float, height: float, kind: str, radius: float = 0, title: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{max(height, 0.5):.1f}"'
    return f'<rect {place} rx="{radius:g}" class="{kind}"><title>{escape(title)}</title></rect>'


def graph_svg(program: ProgramView, moment: int = -1) -> str:
    """The graph at one moment, the last one unless another is told."""
    boxes, edges = _boxes(program, moment)
    sizes = [_size(box) for box in boxes]
    places = placed(sizes, edges)
    parts = []
    for source, target in edges:
        a, b = places[source], places[target]
        top, bottom = a.y + sizes[source][1] / 2, b.y - sizes[target][1] / 2
        parts.append(_curve(a.x + MARGIN, top + MARGIN, b.x + MARGIN, bottom + MARGIN))
    for box, (width, height), (x, y) in zip(boxes, sizes, places):
        parts.append(_drawn(box, x - width / 2 + MARGIN, y - height / 2 + MARGIN, width, height))
    right = max((place.x + width / 2 for place, (width, _) in zip(places, sizes)), default=0.0)
    bottom = max((place.y + height / 2 for place, (_, height) in zip(places, sizes)), default=0.0)
    return _picture(right + 2 * MARGIN, bottom + 2 * MARGIN, *parts)


def _size(box: Box) -> tuple[float, float]:
    """About what the texts of a box take: a picture has no fonts to measure."""
    wide = max(7.2 * len(box.title), *(6.5 * len(line) for line in box.lines))
    return wide + 30, 22 + 14.0 * len(box.lines)


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    bend = max(18.0, abs(y2 - y1) / 2.5)
    path = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
    return f'<path d="{path}" class="edge"/>'


def _drawn(box: Box, left: float, top: float, width: float, height: float) -> str:
    parts = [_rect(left, top, width, height, "box" if box.family else "block", 6, box.title)]
    if box.family:
        parts.append(_rect(left + 4, top + 4, 4, height - 8, box.family, 2))
    parts.append(_text(left + 15, top + 16, box.title))
    parts += [_text(left + 15, top + 30 + 14 * number, line, "small") for number, line in enumerate(box.lines)]
    return "".join(parts)


def _boxes(program: ProgramView, moment: int) -> tuple[list[Box], list[tuple[int, int]]]:
    """Boxes of nodes and closed blocks, in order, and edges between them."""
    given = {slot.name for slot in program.slots if slot.role == "input"}
    records = [program.records[number] for number in program.snapshots[moment].nodes]
    shown = [r for r in records if r.op != "variable" or program.names[r.name] in given]
    paths = [_path(program, record.scope) for record in shown]
    depth = max(map(len, paths), default=0)
    keys: list[tuple[int, ...]] = []
    for cut in range(depth, -1, -1):
        keys = [tuple(path[: cut + 1]) if len(path) > cut else (*path, -1 - r.name) for path, r in zip(paths, shown)]
        if len(set(keys)) <= MOST_BOXES:
            break
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    members: list[int] = [0] * len(number)
    for key in keys:
        members[number[key]] += 1
    boxes: dict[int, Box] = {}
    box_of = {}
    for record, key in zip(shown, keys):
        place = number[key]
        box_of[record.name] = place
        if members[place] == 1:
            title = "input" if record.op == "variable" else record.op
            lines = (_short(program.names[record.name]), *(_short(text) for text in record.outputs[:1]))
            boxes[place] = Box(_short(title), lines, family(record.op))
        else:
            boxes[place] = Box(_short(program.scopes[key[-1]].label), (f"{members[place]} nodes",), "")
    edges = {
        (box_of[source], box_of[record.name]): None for record in shown for source in record.inputs if source in box_of
    }
    return [boxes[place] for place in range(len(number))], [(a, b) for a, b in edges if a != b]


def _path(program: ProgramView, scope: int) -> list[int]:
    found = []
    while scope > 0:
        found.append(scope)
        scope = program.scopes[scope].parent
    return found[::-1]


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-most // 2 :]}"


def _kind(step: StepView) -> str:
    kinds = [family(op) for op in step.operators]
    return next((kind for kind in ("product", "reduce") if kind in kinds), kinds[0] if kinds else "plain")


def _bytes(size: float) -> str:
    power = min(int(log2(size) // 10), 3) if size >= 1 else 0
    return f"{size / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def memory_svg(program: ProgramView, width: float = 900, height: float = 420) -> str:
    """The arena over the steps: a box is a value, as long as it is alive, at the bytes it has."""
    left, top, right, bottom = 70.0, 30.0, width - 16, height - 40
    steps, most = max(len(program.steps), 1), max(program.arena_bytes, 1)
    x, y = Axis(0, steps, left, right), Axis(0, most, bottom, top)
    parts = [_text(left, 18, f"{program.title}: arena of {_bytes(most)} over {len(program.steps)} steps")]
    tick = 2 ** ceil(log2(most / 5)) if most > 5 else 1
    for place in range(0, most + 1, tick):
        parts.append(_line(left, y(place), right, y(place), "grid"))
        parts.append(_text(left - 6, y(place) + 4, _bytes(place), "small", "end"))
    for slot in program.slots:
        if slot.role == "arena":
            kind = _kind(program.steps[slot.first]) if program.steps else "plain"
            wide, high = x(slot.last + 1) - x(slot.first) - 0.5, y(slot.offset) - y(slot.offset + slot.size) - 0.5
            told = f"{_bytes(slot.size)} at {slot.offset}"
            parts.append(_rect(x(slot.first), y(slot.offset + slot.size), wide, high, f"{kind} soft", 0, told))
    parts.append(_text((left + right) / 2, height - 10, "step", "small", "middle"))
    return _picture(width, height, *parts)


def roofline_svg(program: ProgramView, width: float = 900, height: float = 460) -> str:
    """Operations a second over operations a byte of each step, and what one core can do."""
    left, top, right, bottom = 70.0, 30.0, width - 20, height - 44
    points = [point for step in program.steps if (point := _point(program, step)) is not None]
    flops, far = program.rates.get("flops", 1e11), program.rates.get("far", 1e10)
    x0, x1 = _span([point[0] for point in points], 0.1, 100)
    y0, y1 = _span([point[1] for point in points], 1e9, flops * 1.2)
    x, y = Axis(x0, x1, left, right, logarithmic=True), Axis(y0, y1, bottom, top, logarithmic=True)
    told = "measured" if any(step.seconds is not None for step in program.steps) else "estimated"
    parts = [_text(left, 18, f"{program.title}: operations a second ({told}) over operations for a byte")]
    for power in range(x0, x1 + 1):
        parts += [_line(x(10**power), top, x(10**power), bottom, "grid")]
        parts += [_text(x(10**power), bottom + 16, f"{10.0**power:g}", "small", "middle")]
    for power in range(y0, y1 + 1):
        parts += [_line(left, y(10**power), right, y(10**power), "grid")]
        parts += [_text(left - 6, y(10**power) + 4, f"1e{power}", "small", "end")]
    start, knee = max(10**x0, 10**y0 / far), flops / far
    parts += [
        _line(x(start), y(start * far), x(knee), y(flops), "roof"),
        _line(x(knee), y(flops), right, y(flops), "roof"),
    ]
    parts += [_text(right - 4, y(flops) - 6, f"one core, {flops / 1e9:.0f} GFLOP/s", "small", "end")]
    longest = max((point[2] for point in points), default=1.0)
    for intensity, rate, seconds, kind, name in points:
        size = 3 + 6 * sqrt(seconds / longest)
        parts.append(
            f'<circle cx="{x(intensity):.1f}" cy="{y(rate):.1f}" r="{size:.1f}" class="{kind} soft">'
            f"<title>{escape(name)}: {rate / 1e9:.1f} GFLOP/s</title></circle>"
        )
    return _picture(width, height, *parts)


def _span(values: Sequence[float], low: float, high: float) -> tuple[int, int]:
    return floor(log10(min([*values, low]))), ceil(log10(max([*values, high])))


def _point(program: ProgramView, step: StepView) -> tuple[float, float, float, str, str] | None:
    """Operations a byte and a second, seconds, kind and name of a step that computes."""
    operations = program.kernels[step.kernel].operations if step.kernel >= 0 else 0.0
    moved = sum({(buffer.slot, buffer.offset): buffer.bytes for buffer in step.buffers}.values())
    seconds = step.seconds if step.seconds is not None else step.nanoseconds / 1e9
    if not operations or not moved or not seconds:
        return None
    return operations / moved, operations / seconds, seconds, _kind(step), step.name

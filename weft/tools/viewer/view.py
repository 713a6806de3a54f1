"""`view`: models come in; out comes something that can be saved as a page, or as pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.shape import Dim
from ...base.target import Target
from .collect import collect
from .page import page
from .records import ProgramView
from .svg import graph_svg, memory_svg, roofline_svg


class View:
    """The programs of one or several models, as they were compiled."""

    def __init__(self, programs: Sequence[ProgramView]) -> None:
        self.programs = list(programs)

    def __repr__(self) -> str:
        told = ", ".join(f"{program.title}: {len(program.steps)} steps" for program in self.programs)
        return f"View({told})"

    def html(self) -> str:
        """The page as text."""
        return page(self.programs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, one file that needs nothing else."""
        Path(path).write_text(self.html(), encoding="utf-8")

    def save_svg(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes pictures of each program: the model and its kernels as graphs, memory, roofline."""
        written = []
        Path(folder).mkdir(parents=True, exist_ok=True)
        for program in self.programs:
            name = re.sub(r"[^\w.-]+", "-", program.title)
            pictures = {
                "model": graph_svg(program, 0),
                "kernels": graph_svg(program),
                "memory": memory_svg(program),
                "roofline": roofline_svg(program),
            }
            for kind, picture in pictures.items():
                path = Path(folder) / f"{name}-{kind}.svg"
                path.write_text(picture, encoding="utf-8")
                written.append(path)
        return written


def view(
    *models: Any,
    titles: Sequence[str] = (),
    shape: Mapping[str, Sequence[Dim]] | None = None,
    params: Mapping[str, Any] | None = None,
    target: str | Target = "cpu",
    threads: int | None = None,
    opt_level: int = 3,
    measure: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> View:
    """Compiles models as `weft.compile` does, and keeps every graph on the way and all code, to be looked at. Of
    several models the page shows what differs. With `measure`, they run on random inputs and times are shown.

    >>> import weft
    >>> x = weft.symbol.Variable("x", shape=(2, 3))
    >>> view(weft.symbol.relu(x), titles=["small"])
    View(small: 1 steps)
    """
    named = [titles[n] if n < len(titles) else _title(model, n + 1) for n, model in enumerate(models)]
    programs = [
        program
        for model, title in zip(models, _distinct(named))
        for program in collect(
            model,
            title,
            shape=shape,
            params=params,
            target=target,
            threads=threads,
            opt_level=opt_level,
            measure=measure,
            progress=progress,
        )
    ]
    return View(programs)


def _title(model: Any, number: int) -> str:
    """The name of a file, or a number."""
    return Path(model).stem if isinstance(model, (str, os.PathLike)) else f"model {number}"


def _distinct(titles: Sequence[str]) -> list[str]:
    """Titles that can be told apart: of equal ones the later are numbered."""
    return [t if t not in titles[:i] else f"{t} ({titles[:i].count(t) + 1})" for i, t in enumerate(titles)]

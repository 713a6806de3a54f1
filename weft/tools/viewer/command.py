"""`weft view`: model files come in, a page and pictures are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ...base.errors import NotFound, RunError
from ...base.shape import Dim
from ..model_files import read_model
from .view import view


def view_models(
    models: Sequence[Path],
    shapes: Mapping[str, Sequence[Dim]],
    out: Path | None,
    svg: Path | None,
    params: Path | None,
    threads: int | None,
    opt_level: int,
    profile: bool,
    console: Console,
) -> None:
    """Writes the page of some models; with a folder for pictures, those too."""
    for path in models:
        if not path.is_file():
            raise NotFound(f"there is no file {path}")
    read = [path if params is None else read_model(path, params, shapes) for path in models]
    titles = [path.stem for path in models]
    made = view(*read, titles=titles, shape=shapes, threads=threads, opt_level=opt_level, measure=profile)
    page = out if out is not None else Path(f"{'-'.join(titles)}.html")
    try:
        made.save(page)
        pictures = [] if svg is None else made.save_svg(svg)
    except OSError as error:
        raise RunError(f"cannot write {page if svg is None else svg}", why=str(error)) from None
    for path in (page, *pictures):
        console.print(f"wrote    {path} ({path.stat().st_size / 1024:.0f} kB)", highlight=False, soft_wrap=True)

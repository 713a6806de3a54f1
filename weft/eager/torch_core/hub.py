"""Models from a folder with a `hubconf.py`, which is Python that its author wrote and `load` runs. weft reaches no
network: what would be downloaded is refused, with what to do instead."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from urllib.parse import urlparse

from ...base.errors import InvalidValue, RunError, Unsupported
from ..archive.load import load as _load_archive

CONFIGURATION = "hubconf.py"
_chosen: list[str] = []  # the folder of files that were downloaded, where one was set


def load(
    repo_or_dir: Any,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """Calls an entry point of a folder's `hubconf.py`: `load(folder, "resnet", depth=18, source="local")`."""
    if source not in ("github", "local"):
        raise InvalidValue(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        _refuse_github(repo_or_dir)
    return _entry(_configuration(repo_or_dir), model)(*args, **kwargs)


def list_entries(
    github: Any,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = "check",
    verbose: bool = True,
) -> list[str]:
    """The names of the entry points in a local folder's `hubconf.py`."""
    module = _configuration(_local(github))
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def help_of(
    github: Any, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check"
) -> str | None:
    """What an entry point in a local folder's `hubconf.py` says about itself."""
    return _entry(_configuration(_local(github)), model).__doc__


def get_dir() -> str:
    """The folder of files that were downloaded by other means: `checkpoints` in it is where weights are looked for."""
    if _chosen:
        return _chosen[-1]
    cache = os.getenv("XDG_CACHE_HOME", os.path.join("~", ".cache"))
    home = os.getenv("WEFT_HOME", os.path.join(cache, "weft"))
    return os.path.join(os.path.expanduser(home), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Says where files that were downloaded by other means are."""
    _chosen[:] = [os.path.expanduser(os.fspath(d))]


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """The weights of a URL that are already in `model_dir` (`checkpoints` in `get_dir()`); others are refused."""
    folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    path = folder / (file_name or os.path.basename(urlparse(url).path))
    if not path.is_file():
        raise Unsupported(
            f"{url} cannot be downloaded",
            why="weft reaches no network",
            hint=f"put the file at {path}, then call again",
        )
    return _load_archive(path, map_location)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> NoReturn:
    """Refuses: weft reaches no network."""
    raise Unsupported(
        f"{url} cannot be downloaded", why="weft reaches no network", hint=f"put the file at {dst} yourself"
    )


def _refuse_github(name: Any) -> NoReturn:
    raise Unsupported(
        f"the repository {name!r} cannot be downloaded",
        why="weft reaches no network",
        hint='clone it and call load(folder, model, source="local")',
    )


def _local(folder: Any) -> Any:
    if not os.path.isdir(folder):
        _refuse_github(folder)
    return folder


def _configuration(folder: Any) -> ModuleType:
    """A folder's `hubconf.py`, run with the folder first among those that modules are imported from."""
    root = os.path.realpath(folder)
    path = os.path.join(root, CONFIGURATION)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no {CONFIGURATION} in {root}")
    loader = SourceFileLoader("hubconf", path)
    module = importlib.util.module_from_spec(ModuleSpec("hubconf", loader, origin=path))
    module.__file__ = path
    sys.path.insert(0, root)
    try:
        loader.exec_module(module)
    finally:
        sys.path.remove(root)
    missing = [name for name in getattr(module, "dependencies", ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise RunError(f"Missing dependencies: {', '.join(missing)}", where=path, hint="install them")
    return module


def _entry(module: ModuleType, name: str) -> Callable[..., Any]:
    if not isinstance(name, str):
        raise InvalidValue(f"the name of an entry point is a string, not {name!r:.60}")
    found = getattr(module, name, None)
    if not callable(found):
        raise RunError(f"Cannot find callable {name} in hubconf", where=str(module.__file__))
    return found  # type: ignore[no-any-return]

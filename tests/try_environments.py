"""Builds the source distribution and the wheel, and tries the wheel in environments of its own, far from the sources.

python tests/try_environments.py          this Python, with the newest of what weft depends on
python tests/try_environments.py --all    also each Python from 3.11 to 3.14 that is found, and the oldest of what
                                          pyproject.toml allows on this one
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MADE = ROOT / "build" / "wheel"
MINORS = range(11, 15)


def called(*words: str | Path, cwd: Path = ROOT) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(word) for word in words], check=True, cwd=cwd, env=environment)


def pip(python: str | Path, *words: str | Path) -> None:
    called(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words)


def build() -> Path:
    """The wheel, made from the source distribution as an installer would."""
    shutil.rmtree(MADE, ignore_errors=True)
    MADE.mkdir(parents=True)
    called(sys.executable, "-m", "venv", MADE / "maker")
    maker = MADE / "maker" / "bin" / "python"
    pip(maker, "install", "build")
    called(maker, "-m", "build", "--outdir", MADE, ROOT)
    (wheel,) = MADE.glob("*.whl")
    return wheel


def pythons() -> Iterator[Path]:
    """Interpreters of other versions that are on the path, or that pyenv has."""
    for minor in MINORS:
        if minor == sys.version_info.minor:
            continue
        known = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        found = shutil.which(f"python3.{minor}")
        if found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            yield Path(found)
        elif known:
            yield known[-1]


def oldest() -> list[str]:
    """What weft depends on, each in the oldest version that is allowed."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        return [re.sub(">=", "==", one) for one in tomllib.load(file)["project"]["dependencies"]]


def attempt(title: str, python: Path, wheel: Path, pins: Sequence[str] = ()) -> None:
    folder = MADE / re.sub(r"\W+", "-", title)
    called(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    pip(inside, "install", wheel, *pins)
    script = shutil.copy(ROOT / "tests" / "try_wheel.py", folder)
    print(f"{title}: ", end="", flush=True)
    called(inside, script, cwd=Path("/"))
    shutil.rmtree(folder)


def main(everything: bool) -> None:
    wheel = build()
    attempt("this Python", Path(sys.executable), wheel)
    if everything:
        attempt("oldest dependencies", Path(sys.executable), wheel, oldest())
        for python in pythons():
            told = subprocess.run([python, "--version"], capture_output=True, text=True, check=True)
            attempt(told.stdout.strip(), python, wheel)


if __name__ == "__main__":
    main("--all" in sys.argv[1:])

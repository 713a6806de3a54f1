#!/usr/bin/env python3
"""Fuzzes one reader: `python fuzz/run.py TARGET`. Coverage guides it where atheris is installed.

Anything but a result or a weft.Error is a finding, and so is more than a second of computing.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import sys
import tempfile
import time
import traceback
from importlib.util import find_spec
from pathlib import Path

ATHERIS = find_spec("atheris") is not None and "--without-atheris" not in sys.argv
if ATHERIS:
    import atheris

    with atheris.instrument_imports(include=["weft.frontend", "weft.core", "weft.base"]):
        from targets import TARGETS, Target

        import weft
else:
    from targets import TARGETS, Target

    import weft

SECONDS = 3.0 if ATHERIS else 1.0  # counting what is covered takes its part
MEGABYTES = 3072
LARGEST_INPUT = 1 << 16


class Fuzzing:
    """Runs a target on inputs, and keeps each kind of finding once."""

    def __init__(self, name: str, target: Target, findings: Path) -> None:
        self.name, self.target, self.findings = name, target, findings
        self.seen: set[str] = set()
        self.runs = self.read = 0

    def try_input(self, data: bytes) -> None:
        self.runs += 1
        start = time.process_time()
        try:
            self.target.read(data)
            self.read += 1
        except weft.Error:
            pass
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            last = frames[-1]
            self.report(f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}", data)
        seconds = time.process_time() - start
        if seconds > SECONDS:
            self.report("slow", data, f"{seconds:.1f} s")

    def report(self, kind: str, data: bytes, more: str = "") -> None:
        if kind in self.seen:
            return
        self.seen.add(kind)
        file = self.findings / f"{self.name}-{hashlib.sha256(data).hexdigest()[:12]}"
        file.write_bytes(data)
        print(f"FOUND {self.name}: {kind} {more} {file}", flush=True)


def guided(fuzzing: Fuzzing, corpus: Path, seconds: int) -> None:
    """libFuzzer's loop; it ends the process."""
    change = fuzzing.target.change

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if change is None or rng.random() < 0.1:
            return atheris.Mutate(data, largest)
        made = change(data, rng)
        return made if len(made) <= largest else data

    options = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEGABYTES}", "-timeout=60"]
    options += [f"-max_len={LARGEST_INPUT}", f"-artifact_prefix={fuzzing.findings}/", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], fuzzing.try_input, custom_mutator=mutate)
    atheris.Fuzz()


def unguided(fuzzing: Fuzzing, seeds: list[bytes], seconds: int) -> None:
    rng, end = random.Random(0), time.monotonic() + seconds
    while time.monotonic() < end:
        data = rng.choice(seeds)
        change = fuzzing.target.change
        data = change(data, rng) if change and rng.random() < 0.9 else flipped(data, rng)
        fuzzing.try_input(data)


def flipped(data: bytes, rng: random.Random) -> bytes:
    """A few bytes replaced, a part taken out, or the end cut off."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(made) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            made[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            made[at : at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, (1 << 40).to_bytes(8, "little")])
        elif kind == 2:
            del made[at : at + rng.randint(1, 9)]
        elif rng.random() < 0.2:
            del made[at:]
    return bytes(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=[*TARGETS])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--without-atheris", action="store_true")
    folder = Path(tempfile.gettempdir())
    parser.add_argument("--findings", type=Path, default=folder / "fuzz-findings")
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chosen.findings.mkdir(parents=True, exist_ok=True)
    target = TARGETS[chosen.target]
    fuzzing = Fuzzing(chosen.target, target, chosen.findings)
    seeds = [seed for seed in target.seeds() if len(seed) <= LARGEST_INPUT]
    for seed in seeds:
        target.read(seed)
    if not ATHERIS:
        unguided(fuzzing, seeds, chosen.seconds)
        print(f"{fuzzing.runs} inputs, {fuzzing.read} read, {len(fuzzing.seen)} findings")
        return
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as corpus:
        for number, seed in enumerate(seeds):
            (Path(corpus) / f"seed{number}").write_bytes(seed)
        guided(fuzzing, Path(corpus), chosen.seconds)


if __name__ == "__main__":
    main()

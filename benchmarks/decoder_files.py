#!/usr/bin/env python3
"""Milliseconds of a token of ONNX decoders with caches among inputs and outputs, behind texts of some lengths: weft
beside ONNX Runtime, which copies the caches.

    python benchmarks/decoder_files.py decoder.onnx other.onnx --threads 2

Lengths are open in the files, the batch is one. Rounds alternate, and the best of each counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import onnxruntime

from weft.generation import Generator

LENGTHS = (16, 500, 2000)
ROUNDS, TOKENS, CHUNK = 5, 8, 100

Feed = Callable[[list[int]], object]


def own_feed(path: str, threads: int) -> Feed:
    generator = Generator(path, context=LENGTHS[-1] + ROUNDS * TOKENS, threads=threads)
    print("caches stay where they are" if generator.copies is None else f"caches are copied: {generator.copies}")
    return generator.feed


def runtime_feed(path: str, threads: int) -> Feed:
    """ONNX Runtime's step, whose caches are what the step before gave."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    caches = [spec for spec in inputs if len(spec.shape) == 4]
    kinds = {"tensor(float)": "float32", "tensor(float16)": "float16"}
    past = {spec.name: np.zeros((1, spec.shape[1], 0, spec.shape[3]), kinds[spec.type]) for spec in caches}
    length = 0

    def feed(tokens: list[int]) -> None:
        nonlocal length, past
        total = length + len(tokens)
        ranges = {"mask": np.ones((1, total), np.int64), "position": np.arange(length, total)[None]}
        given: dict[str, np.ndarray] = dict(past)
        for spec in inputs:
            role = next((role for role in ranges if role in spec.name), None)
            if spec.name not in past:
                given[spec.name] = np.array([tokens], np.int64) if role is None else ranges[role]
        _, *kept = session.run(None, given)
        past, length = dict(zip(past, kept)), total

    return feed


def seconds_of_token(feed: Feed) -> float:
    start = time.perf_counter()
    for _ in range(TOKENS):
        feed([4])
    return (time.perf_counter() - start) / TOKENS


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("files", nargs="+")
    options.add_argument("--threads", type=int, default=2)
    given = options.parse_args()
    for path in given.files:
        print(path)
        feeds = own_feed(path, given.threads), runtime_feed(path, given.threads)
        length = 0
        for wanted in LENGTHS:
            for feed in feeds:
                for at in range(length, wanted, CHUNK):
                    feed([3] * min(CHUNK, wanted - at))
            rounds = [[seconds_of_token(feed) for feed in feeds] for _ in range(ROUNDS)]
            own, other = (1e3 * min(times) for times in zip(*rounds))
            length = wanted + ROUNDS * TOKENS
            print(f"  {wanted:5d} tokens  weft {own:7.2f} ms  ONNX Runtime {other:7.2f} ms  ratio {other / own:.2f}")


if __name__ == "__main__":
    main()

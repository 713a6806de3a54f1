#!/usr/bin/env python3
"""How long the first eager call of an operator waits for its kernels, when the disk cache is empty,
and in the next process: processor time, since others share the machine.

    python benchmarks/first_calls.py        milliseconds of every call, the longest first
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import weft

F = weft.nn.functional
SQUARE, IMAGES, HEADS = (300, 300), (8, 16, 33, 31), (2, 4, 64, 32)
CHANNELS = (IMAGES[1],)


class Call(NamedTuple):
    """A call on tensors of some shapes; with `backward`, its gradients are a call of their own."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    backward: bool = False


def _batch_norm(training: bool) -> Callable[..., Any]:
    return lambda x, mean, var: F.batch_norm(x, mean, var * var, training=training)


CALLS = (
    Call("exp", weft.exp, (SQUARE,)),
    Call("matmul", weft.matmul, (SQUARE, SQUARE), True),
    Call("sum", lambda x: x.sum(0), (SQUARE,)),
    Call("mean", lambda x: x.mean(1), (SQUARE,)),
    Call("amax", lambda x: x.amax(1), ((30, 30, 200),)),
    Call("argmax", lambda x: x.argmax(0), (SQUARE,)),
    Call("softmax", lambda x: x.softmax(1), (SQUARE,)),
    Call("log_softmax", lambda x: x.log_softmax(0), (SQUARE,)),
    Call("layer_norm", lambda x, w, b: F.layer_norm(x, (300,), w, b), (SQUARE, (300,), (300,))),
    Call("group_norm", lambda x: F.group_norm(x, 4), (IMAGES,)),
    Call("batch_norm", _batch_norm(False), (IMAGES, CHANNELS, CHANNELS)),
    Call("batch_norm in training", _batch_norm(True), (IMAGES, CHANNELS, CHANNELS)),
    Call("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGES,), True),
    Call("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGES,), True),
    Call("interpolate", lambda x: F.interpolate(x, (50, 60), mode="bilinear"), (IMAGES,)),
    Call("conv2d", lambda x, w: F.conv2d(x, w, padding=1), (IMAGES, (8, 16, 3, 3)), True),
    Call("attention", F.scaled_dot_product_attention, (HEADS, HEADS, HEADS), True),
)


def _steps(call: Call) -> Iterator[tuple[str, Callable[[], Any]]]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in call.shapes]
    tensors = [weft.from_numpy(a).requires_grad_(call.backward) for a in arrays]
    yield call.name, lambda: call.function(*tensors)
    if call.backward:
        made = call.function(*tensors)
        given = weft.ones_like(made)
        yield f"{call.name} backward", lambda: made.backward(given, retain_graph=True)


def waits() -> dict[str, float]:
    """Seconds that each first call takes longer than the second, in this process."""
    found = {}
    for call in CALLS:
        for name, step in _steps(call):
            times = []
            for _ in range(2):
                start = time.process_time()
                step()
                times.append(time.process_time() - start)
            found[name] = times[0] - times[1]
    return found


def measure() -> dict[str, tuple[float, float]]:
    """The same in processes of their own: with an empty cache, and with the one this has filled."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "WEFT_CACHE_DIR": folder}
        command = [sys.executable, __file__, "here"]
        cold, warm = (
            json.loads(subprocess.run(command, env=env, capture_output=True, check=True).stdout) for _ in range(2)
        )
    return {name: (seconds, warm[name]) for name, seconds in cold.items()}


if __name__ == "__main__":
    if sys.argv[1:] == ["here"]:
        print(json.dumps(waits()))
    else:
        print(f"{'not in the cache':>18} {'in the cache':>14}")
        for name, (cold, warm) in sorted(measure().items(), key=lambda item: -item[1][0]):
            print(f"{cold * 1e3:>15.1f} ms {warm * 1e3:>11.1f} ms  {name}")

"""Whole networks on the GPU of this machine, in fp16, beside PyTorch: eager in a CUDA graph, and compiled.

    python benchmarks/gpu_networks.py                  ResNet-50, BERT-base and ViT-B/16 at batches of 1, 8 and 32
    python benchmarks/gpu_networks.py resnet 1 8       one of them, some batches

Outputs are compared with those of the CPU in float32 at the smallest batch. Times are microseconds: best and median of
alternating rounds of calls on arrays that are on the device already. Needs PyTorch with CUDA, and torchvision for ViT.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import weft
from weft import symbol as sym
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.ir import NodeEntry
from weft.runtime.cuda.array import to_device
from weft.testing import bert, vit

ROUNDS, REPEATS = 9, 20
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


# ResNet-50, version 1.5: as weft's symbol and as a module of PyTorch


def resnet_symbol() -> Any:
    def unit(x: Any, channels: int, size: int, stride: int, name: str, relu: bool = True) -> Any:
        pad = (size // 2, size // 2)
        made = sym.conv2d(
            x,
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=pad,
            use_bias=False,
            name=name,
        )
        made = sym.batch_norm(made, name=f"{name}_bn")
        return sym.relu(made) if relu else made

    x = unit(sym.Variable("data"), 64, 7, 2, "stem")
    x = sym.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for stage, (width, count, first) in enumerate(STAGES):
        for block in range(count):
            stride, name = (first if block == 0 else 1), f"s{stage}b{block}"
            kept = unit(x, 4 * width, 1, stride, f"{name}_short", relu=False) if block == 0 else x
            y = unit(x, width, 1, 1, f"{name}_a")
            y = unit(y, width, 3, stride, f"{name}_b")
            x = sym.relu(sym.elemwise_add(unit(y, 4 * width, 1, 1, f"{name}_c", relu=False), kept))
    return sym.dense(sym.flatten(sym.global_avg_pool2d(x)), units=1000, name="fc")


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int, short: bool) -> None:
        super().__init__()
        sizes = ((inside, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in sizes)
        self.short = nn.Conv2d(inside, 4 * width, 1, stride, bias=False) if short else None
        self.short_norm = nn.BatchNorm2d(4 * width) if short else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x if self.short is None else self.short_norm(self.short(x))
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            x = norm(conv(x))
            x = torch.relu(x) if number < 2 else x
        return torch.relu(x + kept)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, inside = [], 64
        for width, count, first in STAGES:
            for block in range(count):
                blocks.append(Bottleneck(inside, width, first if block == 0 else 1, block == 0))
                inside = 4 * width
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(2048, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


def random_params(net: Any, batch: int) -> dict[str, np.ndarray]:
    """Random ones, at scales at which signals stay what they are."""
    rng = np.random.default_rng(0)
    shapes = dict(zip(net.list_input_names(), _shapes(net, data=(batch, 3, 224, 224))))
    params = {}
    for name, shape in shapes.items():
        if name == "data":
            continue
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        made = rng.standard_normal(shape) * (2 / fan) ** 0.5 if len(shape) > 1 else rng.uniform(0.2, 0.6, shape)
        params[name] = made.astype(np.float32)
    return params


def _shapes(net: Any, **given: tuple[int, ...]) -> list[tuple[int, ...]]:
    graph = infer(Graph(net.outputs), given)
    facts = {node.name: graph.fact(NodeEntry(node)).shape for node in graph.indexed.nodes}
    return [facts[name] for name in net.list_input_names()]


# BERT-base: weft.testing's, and an encoder of PyTorch


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 768), nn.Parameter(torch.randn(128, 768))
        self.norm = nn.LayerNorm(768)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layers(self.norm(self.words(ids) + self.places))


def network(name: str, batch: int) -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
    """Symbol, float32 parameters and an input."""
    rng = np.random.default_rng(batch)
    image = rng.standard_normal((batch, 3, 224, 224)).astype(np.float32)
    if name == "resnet":
        net = resnet_symbol()
        return net, random_params(net, batch), image
    net, params = (bert if name == "bert" else vit).get_workload(batch)
    data = rng.integers(0, 30522, (batch, 128)) if name == "bert" else image
    return net, {k: np.asarray(v.asnumpy()) for k, v in params.items()}, data


def torchvision_vit() -> nn.Module:
    from torchvision.models import vit_b_16  # no other network needs it

    return vit_b_16(weights=None)


MODULES: dict[str, Callable[[], nn.Module]] = {"resnet": ResNet, "bert": Bert, "vit": torchvision_vit}


def half(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16) if array.dtype == np.float32 else array


def check_and_time(name: str, batch: int, check: bool) -> None:
    net, params, data = network(name, batch)
    begun = time.perf_counter()
    dtypes = {k: half(v).dtype for k, v in {**params, "data": data}.items()}
    model = weft.compile(
        (net, {k: half(v) for k, v in params.items()}), shape={"data": data.shape}, dtype=dtypes, target="cuda"
    )
    built = time.perf_counter() - begun
    (got,) = model(half(data))
    line = f"{name} batch {batch}: built in {built:.1f} s"
    if check:
        (wanted,) = weft.compile((net, params), shape={"data": data.shape}, dtype={"data": data.dtype})(data)
        scale = np.abs(wanted).max()
        line += f", {np.abs(np.asarray(got, np.float64) - wanted).max() / scale:.1e} of float32's scale off"
    print(line, flush=True)
    x = to_device(half(data))
    held = model.run({"data": x}, out="cuda")
    runs: dict[str, Callable[[], Any]] = {"weft": lambda: model.run({"data": x}, out=held)}
    runs |= peers(name, data)
    show(runs)


def peers(name: str, data: np.ndarray) -> dict[str, Callable[[], Any]]:
    torch.backends.cudnn.benchmark = True
    module: nn.Module = MODULES[name]().eval().half().cuda()
    x = torch.from_numpy(half(data)).cuda()
    if name == "resnet":
        module, x = module.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return torch_runs(module, x)


def torch_runs(module: nn.Module, x: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """A module as it is, in a CUDA graph, and compiled."""
    with torch.no_grad():
        for _ in range(3):
            module(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            module(x)
    found: dict[str, Callable[[], Any]] = {"torch eager, graph": graph.replay}
    compiled = torch.compile(module, mode="reduce-overhead")

    def run() -> None:
        with torch.no_grad():
            compiled(x)

    try:
        for _ in range(4):
            run()
        found["torch.compile"] = run
    except Exception as error:  # it needs a C compiler
        print(f"  torch.compile: {type(error).__name__} {str(error)[:100]}")
    return found


def show(runs: dict[str, Callable[[], Any]]) -> None:
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            run()
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(REPEATS):
                run()
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - begun) * 1e6 / REPEATS)
    for name, found in times.items():
        print(f"  {name:20} {min(found):9.1f} {sorted(found)[len(found) // 2]:9.1f} us", flush=True)


def main(words: Sequence[str]) -> None:
    names = [word for word in words if not word.isdigit()] or list(MODULES)
    batches = [int(word) for word in words if word.isdigit()] or [1, 8, 32]
    for name in names:
        for batch in batches:
            check_and_time(name, batch, batch == min(batches))


if __name__ == "__main__":
    main(sys.argv[1:])

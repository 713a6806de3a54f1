"""resnet50_v1 in MXNet's files, as gluon's model zoo exports it, with random parameters.

MXNet is not needed: the symbol file is written node by node here, and the parameters in the binary
format of MXNet 1.x. `write(folder)` also writes the same network as ONNX, by `to_onnx`.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from weft.frontend import from_mxnet, to_onnx

BLOCKS = ((3, 256), (4, 512), (6, 1024), (3, 2048))  # blocks of a stage, and channels behind each
SHAPE = (1, 3, 224, 224)
Array = np.ndarray[Any, np.dtype[Any]]


class Network:
    """Nodes of a symbol file, and the parameters that they read."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.params: dict[str, Array] = {}
        self.rng = np.random.default_rng(seed)

    def variable(self, name: str, **attrs: str) -> int:
        self.nodes.append({"op": "null", "name": name, "attrs": attrs, "inputs": []})
        return len(self.nodes) - 1

    def stored(self, kind: str, name: str, value: Array) -> int:
        self.params[f"{kind}:{name}"] = value.astype("float32")
        return self.variable(name)

    def node(self, op: str, name: str, *inputs: int, **attrs: Any) -> int:
        texts = {key: str(value) for key, value in attrs.items()}
        entries = [[number, 0, 0] for number in inputs]
        self.nodes.append({"op": op, "name": name, "attrs": texts, "inputs": entries})
        return len(self.nodes) - 1

    def conv(self, x: int, name: str, ins: int, outs: int, size: int, stride: int = 1, bias: bool = False) -> int:
        scale = math.sqrt(2 / (ins * size * size))
        weight = scale * self.rng.standard_normal((outs, ins, size, size))
        inputs = [x, self.stored("arg", f"{name}_weight", weight)]
        if bias:
            inputs.append(self.stored("arg", f"{name}_bias", 0.1 * self.rng.standard_normal(outs)))
        return self.node(
            "Convolution",
            name,
            *inputs,
            kernel=(size, size),
            num_filter=outs,
            stride=(stride, stride),
            pad=(size // 2, size // 2),
            dilate=(1, 1),
            num_group=1,
            no_bias=not bias,
            layout="NCHW",
        )

    def norm(self, x: int, name: str, channels: int) -> int:
        values = {"gamma": (0.9, 1.1), "beta": (-0.1, 0.1), "running_mean": (-0.1, 0.1)}
        values["running_var"] = (0.8, 1.2)
        inputs = [x]
        for part, (low, high) in values.items():
            kind = "aux" if part.startswith("running") else "arg"
            inputs.append(self.stored(kind, f"{name}_{part}", self.rng.uniform(low, high, channels)))
        return self.node(
            "BatchNorm", name, *inputs, axis=1, eps=1e-5, fix_gamma=False, momentum=0.9, use_global_stats=False
        )

    def relu(self, x: int, name: str) -> int:
        return self.node("Activation", name, x, act_type="relu")

    def block(self, x: int, name: str, ins: int, outs: int, stride: int) -> int:
        """1x1, 3x3 and 1x1, beside a way that is as it is, or a convolution."""
        inner = outs // 4
        made = self.conv(x, f"{name}_conv0", ins, inner, 1, stride, bias=True)
        made = self.relu(self.norm(made, f"{name}_bn0", inner), f"{name}_relu0")
        made = self.conv(made, f"{name}_conv1", inner, inner, 3)
        made = self.relu(self.norm(made, f"{name}_bn1", inner), f"{name}_relu1")
        made = self.norm(self.conv(made, f"{name}_conv2", inner, outs, 1, bias=True), f"{name}_bn2", outs)
        if ins != outs:
            x = self.norm(self.conv(x, f"{name}_conv3", ins, outs, 1, stride), f"{name}_bn3", outs)
        return self.relu(self.node("elemwise_add", f"{name}_plus", made, x), f"{name}_out")


def resnet50_v1() -> Network:
    net = Network()
    x = net.variable("data", __shape__=str(SHAPE))
    x = net.relu(net.norm(net.conv(x, "conv0", 3, 64, 7, 2), "batchnorm0", 64), "relu0")
    x = net.node(
        "Pooling",
        "pool0",
        x,
        kernel=(3, 3),
        stride=(2, 2),
        pad=(1, 1),
        pool_type="max",
        global_pool=False,
        pooling_convention="valid",
    )
    channels = 64
    for stage, (count, outs) in enumerate(BLOCKS):
        for number in range(count):
            stride = 2 if stage and not number else 1
            x = net.block(x, f"stage{stage + 1}_{number}", channels, outs, stride)
            channels = outs
    x = net.node("Pooling", "pool1", x, kernel=(1, 1), global_pool=True, pool_type="avg", pooling_convention="valid")
    weight = net.stored("arg", "dense0_weight", 0.02 * net.rng.standard_normal((1000, channels)))
    bias = net.stored("arg", "dense0_bias", 0.02 * net.rng.standard_normal(1000))
    net.node("FullyConnected", "dense0", x, weight, bias, num_hidden=1000, flatten=True, no_bias=False)
    return net


def symbol_text(net: Network) -> str:
    arguments = [i for i, node in enumerate(net.nodes) if node["op"] == "null"]
    heads = [[len(net.nodes) - 1, 0, 0]]
    return json.dumps(
        {"nodes": net.nodes, "arg_nodes": arguments, "heads": heads, "attrs": {"mxnet_version": ["int", 10901]}}
    )


def params_bytes(params: dict[str, Array]) -> bytes:
    """u64 0x112, 0 and the count; the arrays; their names."""
    made = bytearray(struct.pack("<QQQ", 0x112, 0, len(params)))
    for array in params.values():
        made += struct.pack("<Iii", 0xF993FAC9, 0, array.ndim)
        made += struct.pack(f"<{array.ndim}qiii", *array.shape, 1, 0, 0) + array.tobytes()
    made += struct.pack("<Q", len(params))
    for name in params:
        made += struct.pack("<Q", len(name)) + name.encode()
    return bytes(made)


def write(folder: Path) -> tuple[Path, Path]:
    """The symbol file, with its parameters beside it, and the ONNX file."""
    net = resnet50_v1()
    symbol = folder / "resnet50_v1-symbol.json"
    symbol.write_text(symbol_text(net))
    (folder / "resnet50_v1-0000.params").write_bytes(params_bytes(net.params))
    made = folder / "resnet50_v1.onnx"
    to_onnx(*from_mxnet(symbol), made)
    return symbol, made

"""What is fuzzed: for each reader a function of bytes, seeds, and how its input is changed."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

import weft
from weft.base.param_dict import load_param_dict, save_param_dict
from weft.core.symbol import Symbol
from weft.frontend import from_mxnet, from_onnx, to_onnx
from weft.frontend.mxnet.params_file import SparseArray, read_params

FRONTEND_TESTS = Path(__file__).parent.parent / "tests" / "frontend"
sys.path[:0] = [str(FRONTEND_TESTS), str(FRONTEND_TESTS.parent)]

import mxnet_files  # noqa: E402

Change = Callable[[bytes, random.Random], bytes]
_LARGEST_ARRAY = 1 << 16
_INPUTS = ("x", "y", "z", "data")


class Target(NamedTuple):
    """A reader under test; `change` is None where bytes are changed as bytes."""

    read: Callable[[bytes], Any]
    seeds: Callable[[], Iterator[bytes]]
    change: Change | None


# MXNet: one text holds the graph, and the shapes of its variables as attributes.


def read_mxnet_symbol(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    from_mxnet("{" + text.partition("{")[2], _arrays(text))


def _arrays(text: str) -> dict[str, np.ndarray]:
    """Zeros for the variables that are not inputs, where the text says their shape."""
    made = {}
    for name, shape in _declared(text):
        if np.prod([max(dim, 1) for dim in shape], dtype=float) <= _LARGEST_ARRAY:
            made[name] = np.zeros(shape, "float32")
    return made


def _declared(text: str) -> Iterator[tuple[str, list[int]]]:
    try:
        for node in json.loads(text)["nodes"]:
            if node["op"] == "null" and str(node["name"]) not in _INPUTS:
                dims = [int(dim) for dim in node["attrs"]["__shape__"].strip("()").split(",") if dim]
                if all(0 <= dim <= _LARGEST_ARRAY for dim in dims) and len(dims) < 9:
                    yield str(node["name"]), dims
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return


def mxnet_symbol_seeds() -> Iterator[bytes]:
    with np.load(FRONTEND_TESTS / "mxnet_probes.npz") as probes:
        for key in [name for name in probes.files if name.endswith("/json")]:
            graph = json.loads(str(probes[key]))
            for node in graph["nodes"]:
                array = f"{key.removesuffix('json')}in/{node['name']}"
                if node["op"] == "null" and array in probes.files:
                    shape = tuple(map(int, probes[array].shape))
                    node.setdefault("attrs", {})["__shape__"] = str(shape)
            yield json.dumps(graph).encode()


def read_mxnet_params(data: bytes) -> None:
    for value in read_params(data).values():
        if isinstance(value, SparseArray):
            value.dense()


def mxnet_params_seeds() -> Iterator[bytes]:
    f = mxnet_files
    grid, ids = np.arange(6, dtype="float32").reshape(2, 3), np.array([0, 2])
    for write in (f.oldest, f.first, f.second, f.third):
        yield f.params([write(grid), write(np.zeros(3, "int8"))], ["arg:a", "aux:b"])
    yield f.params([f.sparse(1, (4, 3), grid, ids)], ["arg:a"])
    yield f.params([f.sparse(2, (2, 5), grid.reshape(-1), np.array([0, 3, 6]), np.arange(6) % 5)])


# Models and graphs of our own.


def _small_graphs() -> Iterator[tuple[Symbol, dict[str, Any]]]:
    sym, rng = weft.symbol, np.random.default_rng(0)
    x = sym.Variable("x", shape=(1, 3, 8, 8))
    y = sym.relu(sym.batch_norm(sym.conv2d(x, channels=4, kernel_size=(3, 3), name="c"), name="b"))
    params = {"c_weight": (4, 3, 3, 3), "c_bias": (4,)} | {
        f"b_{part}": (4,) for part in ("gamma", "beta", "moving_mean", "moving_var")
    }
    arrays = {name: np.abs(rng.standard_normal(dims)) for name, dims in params.items()}
    yield sym.flatten(sym.max_pool2d(y, pool_size=(2, 2))), _floats(arrays)
    x = sym.Variable("x", shape=(2, 6))
    y = sym.split(sym.transpose(sym.reshape(x, shape=(3, 4))), indices_or_sections=3)
    yield sym.softmax(sym.concatenate(y[0], y[1] * 2, axis=0)), {}
    ids = sym.Variable("ids", shape=(5,), dtype="int32")
    table = sym.Variable("table", shape=(7, 4))
    yield sym.sum(sym.take(table, ids, axis=0), axis=1), _floats({"table": np.ones((7, 4))})


def _floats(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value, "float32") for name, value in arrays.items()}


def onnx_seeds() -> Iterator[bytes]:
    for symbol, params in _small_graphs():
        yield to_onnx(symbol, params, shape={}).SerializeToString()


def graph_json_seeds() -> Iterator[bytes]:
    for symbol, _ in _small_graphs():
        yield weft.graph.create(symbol).json().encode()


def graph_text_seeds() -> Iterator[bytes]:
    for symbol, _ in _small_graphs():
        yield weft.graph.create(symbol).ir(full=True).encode()


def param_dict_seeds() -> Iterator[bytes]:
    for _, params in _small_graphs():
        yield bytes(save_param_dict(params))


# Changes of trees.

_TEXTS = (
    "0|-1|2|99999999999|-99999999|1e30|nan|inf|None|True|()|(0,0)|(-1,-1)|(1,2,3,4,5)|abc||"
    "(99999999,99999999)|float64|[1,None]|(1000000000,)|-4|(0,)|(3,)|(65536,65536)|1|3|full|same"
).split("|")
_VALUES = [0, 1, 2, -1, 10**6, 2**31, 2**63, 2**70, 1.5, None, True, [], {}, "", [[0, 0, 0]]]


def change_json(data: bytes, rng: random.Random) -> bytes:
    """One to three parts of the tree replaced, taken out, doubled or moved elsewhere."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return data
    for _ in range(rng.randint(1, 3)):
        places = list(_places(tree))
        if not places:
            break
        holder, key = rng.choice(places)
        _change_part(holder, key, places, rng)
    return json.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    pending = [tree]
    while pending:
        item = pending.pop()
        keys = item if isinstance(item, dict) else range(len(item))
        for key in list(keys):
            yield item, key
            if isinstance(item[key], (dict, list)):
                pending.append(item[key])


def _change_part(holder: Any, key: Any, places: list[Any], rng: random.Random) -> None:
    try:
        value = holder[key]
    except (KeyError, IndexError):
        return
    kind = rng.randrange(5)
    if isinstance(value, str) and kind < 3:
        other, place = rng.choice(places)
        near = other.get(place) if isinstance(other, dict) else None
        holder[key] = near if isinstance(near, str) and kind == 2 else rng.choice(_TEXTS)
    elif type(value) is int and kind < 3:
        holder[key] = value + rng.choice([-1, 1, 2, 7, 10**9])
    elif kind == 3:
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(key, json.loads(json.dumps(value)))
    else:
        holder[key] = rng.choice(_VALUES)


def change_onnx(data: bytes, rng: random.Random) -> bytes:
    """A field of a node, an attribute or a tensor replaced."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:
        return data
    graph = model.graph
    for _ in range(rng.randint(1, 3)):
        if graph.node:
            _change_node(rng.choice(graph.node), graph, rng)
        for tensor in list(graph.initializer)[: rng.randrange(2)]:
            tensor.dims[:] = [rng.choice([0, 1, 3, 2**31, -1]) for _ in range(rng.randrange(6))]
    return model.SerializeToString()


def _change_node(node: onnx.NodeProto, graph: onnx.GraphProto, rng: random.Random) -> None:
    kind = rng.randrange(4)
    names = [name for other in graph.node for name in other.output]
    names += [tensor.name for tensor in graph.initializer] + [item.name for item in graph.input]
    if kind == 0:
        node.op_type = rng.choice([schema.name for schema in onnx.defs.get_all_schemas()])
    elif kind == 1 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif kind == 2 and node.attribute:
        chosen = rng.choice(node.attribute)
        chosen.i, chosen.f = rng.choice([0, -1, 2**62]), float("nan")
        chosen.ints[:] = [rng.choice([0, 1, -1, 2**31, 2**62]) for _ in range(rng.randrange(5))]
    else:
        value = [rng.choice([0, 1, 5, -9, 2**33]) for _ in range(rng.randrange(4))]
        name = rng.choice(["axis", "axes", "perm", "kernel_shape", "pads", "group", "to", "k"])
        node.attribute.append(onnx.helper.make_attribute(name, value or 1))


TARGETS: dict[str, Target] = {
    "mxnet_symbol": Target(read_mxnet_symbol, mxnet_symbol_seeds, change_json),
    "mxnet_params": Target(read_mxnet_params, mxnet_params_seeds, None),
    "onnx": Target(from_onnx, onnx_seeds, change_onnx),
    "graph_json": Target(
        lambda data: weft.graph.load_json(data.decode("utf-8", "replace")), graph_json_seeds, change_json
    ),
    "graph_text": Target(lambda data: weft.graph.parse(data.decode("utf-8", "replace")), graph_text_seeds, None),
    "param_dict": Target(load_param_dict, param_dict_seeds, None),
}

"""Writes MXNet's file formats for tests, byte by byte, independently of the reader."""

import json
import struct

import numpy as np

CODES = {"float32": 0, "float64": 1, "float16": 2, "uint8": 3, "int32": 4, "int8": 5, "int64": 6}
CODES |= {"bool": 7, "int16": 8, "uint16": 9, "uint32": 10, "uint64": 11, "bfloat16": 12}


def dims(shape, form="q"):
    return struct.pack(f"<i{len(shape)}{form}", len(shape), *shape)


def tail(array):
    """Device, dtype and elements."""
    return struct.pack("<iii", 1, 0, CODES[array.dtype.name]) + array.tobytes()


def oldest(array):
    return struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape) + tail(array)


def first(array):
    return struct.pack("<I", 0xF993FAC8) + dims(array.shape) + tail(array)


def second(array):
    return struct.pack("<Ii", 0xF993FAC9, 0) + dims(array.shape) + tail(array)


def third(array):
    return struct.pack("<Ii", 0xF993FACA, 0) + dims(array.shape) + tail(array)


def sparse(kind, shape, data, *places, stored_shape=None):
    """kind 1 is row_sparse, 2 is csr."""
    head = struct.pack("<Ii", 0xF993FAC9, kind) + dims(stored_shape or data.shape) + dims(shape)
    head += struct.pack("<iii", 1, 0, CODES[data.dtype.name])
    for place in places:
        head += struct.pack("<i", CODES[place.dtype.name]) + dims(place.shape)
    return head + data.tobytes() + b"".join(place.tobytes() for place in places)


def params(arrays, names=None):
    names = [] if names is None else [name.encode() for name in names]
    made = struct.pack("<QQQ", 0x112, 0, len(arrays)) + b"".join(arrays)
    made += struct.pack("<Q", len(names))
    return made + b"".join(struct.pack("<Q", len(name)) + name for name in names)


def named(**arrays):
    return params([second(np.asarray(a)) for a in arrays.values()], list(arrays))


def node(op, name, inputs=(), **attrs):
    return {"op": op, "name": name, "attrs": attrs, "inputs": [list(entry) for entry in inputs]}


def graph(nodes, heads, version=10901):
    made = {"nodes": nodes, "arg_nodes": [i for i, item in enumerate(nodes) if item["op"] == "null"], "heads": heads}
    return made if version is None else {**made, "attrs": {"mxnet_version": ["int", version]}}


def text(nodes, heads, version=10901):
    return json.dumps(graph(nodes, heads, version))

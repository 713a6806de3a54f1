"""What probes are made with: arrays, and MXNet's answer about a graph."""

import mxnet as mx
import numpy as np

S = mx.sym
RNG = np.random.RandomState(11)
PROBES = {}


def floats(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype("float32")


def ints(high, *shape, low=0):
    return RNG.randint(low, high, shape).astype("float32")


def probe(name, symbol, **arrays):
    """Runs the graph and keeps everything."""
    assert name not in PROBES, name
    names = symbol.list_arguments()
    args = {key: mx.nd.array(arrays[key], dtype=arrays[key].dtype) for key in names}
    aux = {key: mx.nd.array(arrays[key]) for key in symbol.list_auxiliary_states()}
    made = symbol.bind(mx.cpu(), args, aux_states=aux).forward(is_train=False)
    row = {f"in/{key}": arrays[key] for key in (*names, *symbol.list_auxiliary_states())}
    row.update({f"out/{i}": item.asnumpy() for i, item in enumerate(made)})
    PROBES[name] = {"json": np.array(symbol.tojson()), **row}


def var(name, dtype=None):
    return S.Variable(name, dtype=dtype)

"""Graphs of single operators with parts that make no sense: an error of weft, or a symbol."""

import contextlib
import json

import numpy as np
import pytest
from bounds import ends
from test_mxnet_probes import INPUTS, PROBES

from weft.base.errors import Error
from weft.frontend import from_mxnet
from weft.frontend.mxnet.attributes import signature

VALUES = (
    "0|-1|2|99999999999|-99999999|1e30|nan|inf|None|True|()|(0,0)|(-1,-1)|(1,2,3,4,5)|abc||"
    "(99999999,99999999)|float64|[1,None]|(1000000000,)|-4"
).split("|")


def _damaged(rng, name):
    """The probe's graph with one attribute, input or operator replaced."""
    graph = json.loads(str(PROBES[name]["json"]))
    nodes = [item for item in graph["nodes"] if item["op"] != "null"]
    chosen = nodes[rng.integers(len(nodes))]
    keys = list(signature(chosen["op"]).attributes)
    kind = rng.integers(4) if keys else rng.integers(1, 4)
    if kind == 0:
        key = keys[rng.integers(len(keys))]
        chosen.setdefault("attrs", {})[key] = VALUES[rng.integers(len(VALUES))]
    elif kind == 1 and chosen["inputs"]:
        chosen["inputs"].pop()
    elif kind == 2 and chosen["inputs"]:
        chosen["inputs"][0][1] = int(rng.integers(3))
    else:
        chosen["op"] = _last_op(list(PROBES)[rng.integers(len(PROBES))])
    return graph


def _last_op(name):
    return json.loads(str(PROBES[name]["json"]))["nodes"][-1]["op"]


def _shape(rng, shape):
    """Mostly as it is, sometimes with another dimension."""
    made = list(shape)
    if made and rng.random() < 0.2:
        made[rng.integers(len(made))] = int(rng.integers(3))
    return tuple(made)


@pytest.mark.parametrize("name", PROBES)
def test_damaged_nodes_give_errors_and_nothing_else(name):
    rng = np.random.default_rng(len(name))
    arrays = {key[3:]: value for key, value in PROBES[name].items() if key.startswith("in/")}
    params = {key: value for key, value in arrays.items() if key not in INPUTS}
    for _ in range(12):
        shapes = {key: _shape(rng, value.shape) for key, value in arrays.items() if key in INPUTS}
        graph = _damaged(rng, name)
        with ends(), contextlib.suppress(Error):
            from_mxnet(graph, params, shape=shapes)

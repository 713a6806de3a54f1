"""Graphs far deeper than Python's stack: every step over them works, and pauses no collector."""

import copy
import gc
import threading

import numpy as np
import pytest
from bounds import PATIENCE
from core.core_ops import relu, total

from weft.core.bulk import collector_paused
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.ir import Fact
from weft.core.json_load import graph_from_json
from weft.core.symbol import Variable
from weft.core.verify import verify
from weft.core.walk import rewrite

DEPTH = 20_000


@pytest.fixture(scope="module")
def chain():
    symbol = Variable("x")
    for _ in range(DEPTH):
        symbol = relu()(symbol)
    return symbol


def test_structure(chain):
    assert chain.list_input_names() == ["x"]
    assert len(chain.get_internals()) == DEPTH + 1
    assert len(chain.list_attr(recursive=True)) == 0
    assert chain.debug_str().count("Op:t_relu") == DEPTH
    graph = Graph(chain.outputs)
    verify(graph)
    assert graph.ir().count("t_relu") == DEPTH
    assert graph.index.num_nodes == DEPTH + 1


def test_inference_both_ways(chain):
    last = chain.outputs[0].node
    forward = infer(Graph(chain.outputs), {"x": (2,)})
    assert forward.fact(forward.outputs[0]).shape == (2,)
    backward = infer(Graph(chain.outputs, facts={last: (Fact((2,)),)}))
    assert backward.facts[backward.indexed.nodes[0]][0].shape == (2,)


def test_copies_composition_json_values(chain):
    graph = Graph(chain.outputs)
    text = graph.json()
    assert graph_from_json(text).json() == text
    made = copy.deepcopy(chain)(x=relu()(Variable("y")))
    assert float(evaluate(made, {"y": np.array(-1.0)})[0]) == 0
    kept = rewrite(infer(graph, {"x": (2,)}), lambda w, n, i: w.make("t_relu", i) if n.op else None)
    assert kept.indexed.num_nodes == DEPTH + 1


def test_a_variable_that_everyone_reads():
    x = Variable("x")
    row = [relu()(x) for _ in range(DEPTH)]
    graph = infer(Graph(total()(*row).outputs), {"x": (3,)}, {"x": np.dtype("int8")})
    assert graph.fact(graph.outputs[0]) == Fact((3,), np.dtype("int8"))


def test_control_dependencies_along_a_chain():
    x = Variable("x")
    before = relu()(x)
    for _ in range(DEPTH):
        after = relu()(x)
        after._add_control_deps(before)
        before = after
    assert len(before.get_internals()) == DEPTH + 2


def test_the_collector_is_as_it_was_after_bulk_work():
    seen = []
    inner = collector_paused(lambda: seen.append(gc.isenabled()))
    nested = collector_paused(lambda: (inner(), seen.append(gc.isenabled())))
    nested()
    assert seen == [False, False]
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        collector_paused(lambda: 1 / 0)()
    assert gc.isenabled()
    gc.disable()
    try:
        nested()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_bulk_work_in_several_threads_at_once():
    meet = threading.Barrier(4)
    work = collector_paused(lambda: (meet.wait(timeout=PATIENCE), gc.isenabled())[1])
    results = []
    workers = [threading.Thread(target=lambda: results.append(work())) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not all(results)
    assert gc.isenabled()

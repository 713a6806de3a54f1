"""Writers of control flow: subgraphs become graphs inside a node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....base.dtype import BOOL, INT64
from ..writing import TensorType, Writing, writes


def _truth(w: Writing, name: str) -> str:
    """One number as a bool without axes."""
    return w.reshape(w.cast(name, BOOL), ())


@writes("cond")
def cond(w: Writing) -> None:
    branches = [w.body([], partial(w.subgraph, part, w.inputs, w.ins), w.outs) for part in w.source.subgraphs]
    w.give_all("If", _truth(w, w.inputs[0]), then_branch=branches[0], else_branch=branches[1])


@writes("scan")
def scan(w: Writing) -> None:
    """Scan has the states before the data, and before the outputs of all steps."""
    params, (body,) = w.params, w.source.subgraphs
    data, end = params.num_data, params.num_data + params.num_states
    items = [TensorType(kind.shape[1:], kind.dtype) for kind in w.ins[:data]]
    inner = [w.fresh("item") for _ in items] + [w.fresh("state") for _ in w.inputs[data:end]]
    types = [*items, *w.ins[data:end]]
    count = params.num_outputs

    def step() -> Sequence[str]:
        results = w.subgraph(body, [*inner, *w.inputs[end:]], [*types, *w.ins[end:]])
        return results[count:] + results[:count]

    steps = [TensorType(kind.shape[1:], kind.dtype) for kind in w.outs[:count]]
    rows = list(zip(inner, types))
    graph = w.body(rows[data:] + rows[:data], step, w.outs[count:] + steps)
    way = {"scan_input_directions": (1,) * data, "scan_output_directions": (1,) * count}
    way = {key: values for key, values in way.items() if params.reverse and values}
    inputs, results = w.inputs[data:end] + w.inputs[:data], w.outputs[count:] + w.outputs[:count]
    w.writer.append("Scan", inputs, results, w.name, {"num_scan_inputs": data, "body": graph, **way})


@writes("while_loop")
def while_loop(w: Writing) -> None:
    """Loop gives as many items as it took turns; what is missing is padded with 0."""
    params, (test, body) = w.params, w.source.subgraphs
    states, count = params.num_states, params.num_outputs
    rest, types = w.inputs[states:], w.ins

    def holds(values: Sequence[str]) -> str:
        return _truth(w, w.subgraph(test, [*values, *rest], types)[0])

    inner = [w.fresh("state") for _ in range(states)]

    def turn() -> Sequence[str]:
        results = w.subgraph(body, [*inner, *rest], types)
        return [holds(results[count:]), *results[count:], *results[:count]]

    first = [(w.fresh("turn"), TensorType((), INT64)), (w.fresh("more"), TensorType((), BOOL))]
    items = [TensorType(kind.shape[1:], kind.dtype) for kind in w.outs[:count]]
    graph = w.body(first + list(zip(inner, types)), turn, [TensorType((), BOOL), *w.outs[count:], *items])
    start = holds(w.inputs[:states])
    results = w.nodes("Loop", states + count, w.ints(params.max_iterations), start, *w.inputs[:states], body=graph)
    for index, name in enumerate(results[:states], count):
        w.give_value(name, index)
    for index, name in enumerate(results[states:]):
        w.give_value(_padded(w, name, w.outs[index]), index)


def _padded(w: Writing, name: str, kind: TensorType) -> str:
    rank = len(kind.shape)
    turns = w.node("Slice", w.node("Shape", name), w.ints([0]), w.ints([1]))
    missing = w.node("Sub", w.ints([kind.shape[0]]), turns)
    pads = w.node("Concat", w.ints([0] * rank), missing, w.ints([0] * (rank - 1)), axis=0)
    padded = w.node("Pad", name, pads, w.constant(0, kind.dtype))
    return w.reshape(padded, kind.shape)

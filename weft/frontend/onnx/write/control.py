"""Writers of control flow: subgraphs become graphs inside a node."""

from __future__ import annotations

from collections.abc import Sequence

from ....base.dtype import BOOL, INT64
from ....core.ir import Fact
from ..writing import Writing, writes


def _truth(w: Writing, name: str) -> str:
    """One number as a bool without axes."""
    return w.reshape(w.cast(name, BOOL), ())


@writes("cond")
def cond(w: Writing) -> None:
    branches = [w.body([], lambda part=part: w.subgraph(part, w.inputs, w.ins), w.outs) for part in w.source.subgraphs]
    w.give_all("If", _truth(w, w.inputs[0]), then_branch=branches[0], else_branch=branches[1])


@writes("scan")
def scan(w: Writing) -> None:
    """Scan has the states before the data, and before the outputs of all steps."""
    params, (body,) = w.params, w.source.subgraphs
    data, end = params.num_data, params.num_data + params.num_states
    items = [Fact(fact.shape[1:], fact.dtype) for fact in w.ins[:data]]
    inner = [w.fresh("item") for _ in items] + [w.fresh("state") for _ in w.inputs[data:end]]
    facts = [*items, *w.ins[data:end]]
    count = params.num_outputs

    def step() -> Sequence[str]:
        made = w.subgraph(body, [*inner, *w.inputs[end:]], [*facts, *w.ins[end:]])
        return made[count:] + made[:count]

    steps = [Fact(fact.shape[1:], fact.dtype) for fact in w.outs[:count]]
    rows = list(zip(inner, facts))
    graph = w.body(rows[data:] + rows[:data], step, w.outs[count:] + steps)
    way = {"scan_input_directions": (1,) * data, "scan_output_directions": (1,) * count}
    way = {key: values for key, values in way.items() if params.reverse and values}
    given, results = w.inputs[data:end] + w.inputs[:data], w.outputs[count:] + w.outputs[:count]
    w.writer.append("Scan", given, results, w.name, {"num_scan_inputs": data, "body": graph, **way})


@writes("while_loop")
def while_loop(w: Writing) -> None:
    """Loop gives as many items as it took turns; what is missing is padded with 0."""
    params, (test, body) = w.params, w.source.subgraphs
    states, count = params.num_states, params.num_outputs
    rest, facts = w.inputs[states:], w.ins

    def holds(values: Sequence[str]) -> str:
        return _truth(w, w.subgraph(test, [*values, *rest], facts)[0])

    inner = [w.fresh("state") for _ in range(states)]

    def turn() -> Sequence[str]:
        made = w.subgraph(body, [*inner, *rest], facts)
        return [holds(made[count:]), *made[count:], *made[:count]]

    first = [(w.fresh("turn"), Fact((), INT64)), (w.fresh("more"), Fact((), BOOL))]
    items = [Fact(fact.shape[1:], fact.dtype) for fact in w.outs[:count]]
    graph = w.body(first + list(zip(inner, facts)), turn, [Fact((), BOOL), *w.outs[count:], *items])
    start = holds(w.inputs[:states])
    made = w.nodes("Loop", states + count, w.ints(params.max_iterations), start, *w.inputs[:states], body=graph)
    for index, name in enumerate(made[:states], count):
        w.give_value(name, index)
    for index, name in enumerate(made[states:]):
        w.give_value(_padded(w, name, w.outs[index]), index)


def _padded(w: Writing, name: str, fact: Fact) -> str:
    rank = len(fact.shape)
    turns = w.node("Slice", w.node("Shape", name), w.ints([0]), w.ints([1]))
    missing = w.node("Sub", w.ints([fact.shape[0]]), turns)
    pads = w.node("Concat", w.ints([0] * rank), missing, w.ints([0] * (rank - 1)), axis=0)
    padded = w.node("Pad", name, pads, w.constant(0, fact.dtype))
    return w.reshape(padded, fact.shape)

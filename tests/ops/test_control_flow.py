"""scan, while_loop and cond: by reference and by machine code, their facts, gradients and files."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.base.cpu_target import host
from weft.base.errors import DTypeError, Error, GraphError, InvalidValue, ShapeError, Unsupported
from weft.compiler.control_flow import Subgraph
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.symbol import Group, Variable
from weft.ops import F
from weft.ops.control_flow import cond, control, scan, while_loop
from weft.passes.gradient import gradients
from weft.runtime.addresses import address_of
from weft.runtime.executor import Executor, Move


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def floats(rng, *shape):
    return rng.uniform(-1, 1, shape).astype("float32")


def both_ways(symbol, inputs):
    """What the reference gives, after machine code has given the same."""
    wanted = evaluate(symbol, inputs)
    shapes = {name: value.shape for name, value in inputs.items()}
    dtypes = {name: value.dtype for name, value in inputs.items()}
    model = weft.compile(symbol, shape=shapes, dtype=dtypes)
    for a, b in zip(model.run(inputs), wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=1e-5)
    return wanted


def recurrent(items, states, captures):
    new = F.tanh(F.matmul(items[0], captures[0]) + states[0])
    return [new * 2.0, items[0]], [new]


def a_scan(reverse=False):
    x, s, w = (Variable(name) for name in "xsw")
    return scan(recurrent, [x], [s], [w], reverse=reverse)


def scan_inputs(rng, steps=5):
    batch, size, wide = rng.integers(1, 5, 3)
    return {"x": floats(rng, steps, batch, size), "s": floats(rng, batch, wide), "w": floats(rng, size, wide)}


# Values


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_scan_is_a_loop(rng, steps, reverse):
    inputs = scan_inputs(rng, steps)
    outputs, items, last = both_ways(a_scan(reverse), inputs)
    state = inputs["s"]
    for step in reversed(range(steps)) if reverse else range(steps):
        state = np.tanh(inputs["x"][step] @ inputs["w"] + state)
        np.testing.assert_allclose(outputs[step], 2 * state, atol=1e-5)
    np.testing.assert_array_equal(items, inputs["x"])
    np.testing.assert_allclose(last, state, atol=1e-5)


def test_scan_of_nothing(rng):
    inputs = scan_inputs(rng, 0)
    outputs, items, last = both_ways(a_scan(), inputs)
    assert outputs.shape == (0, *inputs["s"].shape)
    assert items.shape == inputs["x"].shape
    np.testing.assert_array_equal(last, inputs["s"])


def test_states_may_change_places(rng):
    x, a, b = (Variable(name) for name in "xab")
    made = scan(lambda x, s, c: ([], [s[1], s[0] + x[0]]), [x], [a, b])
    inputs = {"x": floats(rng, 6, 3), "a": floats(rng, 3), "b": floats(rng, 3)}
    got = both_ways(made, inputs)
    one, two = inputs["a"], inputs["b"]
    for item in inputs["x"]:
        one, two = two, one + item
    np.testing.assert_allclose(got[0], one, atol=1e-6)
    np.testing.assert_allclose(got[1], two, atol=1e-6)


def test_scan_of_integers_and_scalars(rng):
    x, count = Variable("x"), Variable("n")
    made = scan(lambda x, s, c: ([s[0]], [s[0] + x[0]]), [x], [count])
    inputs = {"x": rng.integers(0, 9, 7).astype("int32"), "n": np.int32(3)}
    before, last = both_ways(made, {key: np.asarray(value) for key, value in inputs.items()})
    np.testing.assert_array_equal(before, 3 + np.cumsum([0, *inputs["x"][:-1]]))
    assert last == 3 + inputs["x"].sum()


def test_outputs_that_nobody_reads_are_left_out(rng):
    inputs = scan_inputs(rng)
    (last,) = both_ways(a_scan()[2], inputs)
    np.testing.assert_allclose(last, evaluate(a_scan(), inputs)[2], atol=1e-6)


@pytest.mark.parametrize("limit", [-1.0, 5.0, 1e9])
def test_while_loop_stops(rng, limit):
    a, top = Variable("a"), Variable("top")
    made = while_loop(
        lambda s, c: F.broadcast_less(F.sum(s[0]), c[0]),
        lambda s, c: ([s[0]], [s[0] * 2.0]),
        [a],
        [top],
        max_iterations=4,
    )
    start = rng.uniform(0.5, 1, 3).astype("float32")
    outputs, last = both_ways(made, {"a": start, "top": np.full(1, limit, "float32")})
    value, turns = start, 0
    while value.sum() < limit and turns < 4:
        np.testing.assert_allclose(outputs[turns], value, rtol=1e-6)
        value, turns = value * 2, turns + 1
    np.testing.assert_array_equal(outputs[turns:], 0)
    np.testing.assert_allclose(last, value, rtol=1e-6)


def a_cond():
    p, a, b = (Variable(name) for name in "pab")
    return cond(p, lambda c: [c[0] * c[1]], lambda c: [c[0] * 3.0], [a, b])


@pytest.mark.parametrize("answer", [0.0, 1.0, -2.0, np.nan])
def test_cond_chooses(rng, answer):
    a, b = floats(rng, 4), floats(rng, 4)
    (made,) = both_ways(a_cond(), {"p": np.full(1, answer, "float32"), "a": a, "b": b})
    np.testing.assert_allclose(made, a * b if answer != 0 else 3 * a, rtol=1e-6)


def test_loops_in_loops(rng):
    """Rows are summed up by an inner scan, where the outer one has a positive weight."""

    def row(items, states, captures):
        inner = scan(lambda x, s, c: ([], [s[0] + x[0] * c[0]]), [items[0]], [states[0]], captures)
        chosen = cond(items[1], lambda c: [c[0]], lambda c: [c[1]], [inner, states[0]])
        return [inner], [chosen]

    x, w, s, c = (Variable(name) for name in "xwsc")
    made = scan(row, [x, w], [s], [c])
    inputs = {
        "x": floats(rng, 4, 3),
        "w": np.array([[1], [0], [1], [0]], "float32"),
        "s": floats(rng, 1)[0],
        "c": floats(rng, 1)[0],
    }
    sums, last = both_ways(made, {key: np.asarray(value) for key, value in inputs.items()})
    state = inputs["s"]
    for item, weight, given in zip(inputs["x"], inputs["w"], sums, strict=True):
        total = state + (item * inputs["c"]).sum()
        np.testing.assert_allclose(given, total, atol=1e-5)
        state = total if weight else state
    np.testing.assert_allclose(last, state, atol=1e-5)


# Facts


def test_facts_go_through_subgraphs():
    graph = infer(Graph(a_scan().outputs), {"x": (7, 2, 3), "w": (3, 4), "s": (2, 4)}, dict.fromkeys("xsw", "float64"))
    facts = [graph.fact(entry) for entry in graph.outputs]
    assert [fact.shape for fact in facts] == [(7, 2, 4), (7, 2, 3), (2, 4)]
    assert {fact.dtype for fact in facts} == {np.dtype("float64")}


def test_facts_go_back_through_subgraphs():
    x, s = Variable("x"), Variable("s")
    made = scan(lambda x, s, c: ([x[0]], [F.elemwise_add(s[0], x[0])]), [x], [s])
    graph = infer(Graph(made.outputs), {"s": (2, 3)}, {"s": "float32"})
    assert graph.fact(x.outputs[0]).shape == (None, 2, 3)
    assert graph.fact(x.outputs[0]).dtype == np.dtype("float32")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda x: control("scan", [x], [], num_data=1, num_states=0, num_outputs=1), GraphError),
        (lambda x: control("scan", [x], [Variable("y")], num_data=1, num_states=0, num_outputs=1), GraphError),
        (lambda x: scan(lambda x, s, c: ([], [F.expand_dims(s[0], axis=0)]), [x], [x]), ShapeError),
        (lambda x: scan(lambda x, s, c: ([], [F.cast(s[0], dtype="int32")]), [x], [x]), DTypeError),
        (lambda x: control("scan", [x], [Variable("in0")], num_data=1, num_states=1, num_outputs=0), InvalidValue),
        (lambda x: while_loop(lambda s, c: s[0], lambda s, c: ([], s), [x], max_iterations=2), ShapeError),
        (lambda x: cond(F.sum(x), lambda c: [c[0]], lambda c: [F.sum(c[0])], [x]), ShapeError),
        (lambda x: cond(x, lambda c: [c[0]], lambda c: [c[0]], [x]), ShapeError),
        (lambda x: scan(lambda x, s, c: ([], []), [F.sum(x)], []), Error),
    ],
)
def test_what_does_not_fit_is_refused(make, error):
    made = make(Variable("x"))
    with pytest.raises(error):
        infer(Graph(made.outputs), {"x": (3, 2)}, {"x": "float32"})


def test_bodies_must_give_their_states():
    x = Variable("x")
    with pytest.raises(InvalidValue):
        scan(lambda x, s, c: ([], []), [x], [x])
    with pytest.raises(InvalidValue):
        while_loop(lambda s, c: s[0], lambda s, c: ([], []), [x], max_iterations=1)


# Gradients


@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_of_scan(rng, reverse):
    torch = oracle("torch")
    inputs = scan_inputs(rng)
    symbol = a_scan(reverse)
    variables = {node.name: node for node in Graph(symbol.outputs).indexed.nodes if not node.op}
    xs = [weft.core.symbol.Symbol([variables[name].entry()]) for name in "xsw"]
    heads = [Variable(f"h{i}") for i in range(3)]
    outs = evaluate(symbol, inputs)
    given = {f"h{i}": floats(rng, *out.shape) for i, out in enumerate(outs)}
    made = both_ways(Group(gradients(symbol, xs, heads)), {**inputs, **given})
    x, s, w = (torch.tensor(inputs[name], requires_grad=True) for name in "xsw")
    state, found = s, [None] * len(x)
    for step in reversed(range(len(x))) if reverse else range(len(x)):
        state = torch.tanh(x[step] @ w + state)
        found[step] = 2 * state
    heads = [torch.tensor(given[f"h{i}"]) for i in range(3)]
    wanted = torch.autograd.grad([torch.stack(found), x * 1, state], [x, s, w], heads)
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b.numpy(), atol=1e-5)


@pytest.mark.parametrize("answer", [0, 1])
def test_gradient_of_cond(rng, answer):
    symbol = a_cond()
    variables = {node.name: node for node in Graph(symbol.outputs).indexed.nodes if not node.op}
    xs = [weft.core.symbol.Symbol([variables[name].entry()]) for name in "ab"]
    a, b, head = floats(rng, 4), floats(rng, 4), floats(rng, 4)
    made = both_ways(
        Group(gradients(symbol, xs, Variable("h"))), {"p": np.full(1, answer, "float32"), "a": a, "b": b, "h": head}
    )
    wanted = (head * b, head * a) if answer else (3 * head, 0 * b)
    for x, y in zip(made, wanted, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_while_loop_has_no_gradient():
    a = Variable("a")
    made = while_loop(lambda s, c: F.sum(s[0]), lambda s, c: ([], s), [a], max_iterations=2)
    with pytest.raises(Unsupported, match="while_loop"):
        gradients(made, a)


# Files and machine code


def test_graphs_with_subgraphs_are_saved(rng):
    inputs = scan_inputs(rng)
    graph = Graph(a_scan().outputs)
    wanted = evaluate(graph, inputs)
    for again in (weft.graph.load_json(graph.json()), weft.graph.parse(graph.ir(full=True))):
        for a, b in zip(evaluate(again, inputs), wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_compiled_loops_are_saved(rng, tmp_path):
    inputs = scan_inputs(rng)
    model = weft.compile(a_scan(), shape={name: value.shape for name, value in inputs.items()})
    assert model.report().host_steps == ("scan",)
    model.save(tmp_path / "loop")
    loaded = weft.runtime.load(tmp_path / "loop")
    for a, b in zip(loaded.run(inputs), model.run(inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_stays_the_same_is_computed_once(rng):
    x, w = Variable("in0"), Variable("in1")
    graph = Graph(F.elemwise_mul(x, F.exp(w)).outputs)
    part = Subgraph(graph.json(), (((3,), "float32"),) * 2, 1, str(host())).compiled(((3,), (3,)))
    given = [floats(rng, 3), floats(rng, 3)]
    run, out = part.started(given, 1), part.buffers()
    before = given[1].copy()
    given[1][:] = np.nan  # read when it started, and not again
    run([address_of(given[0])], [address_of(out[0])])
    np.testing.assert_allclose(out[0], given[0] * np.exp(before), rtol=1e-5)


@pytest.mark.parametrize("how", ["native", "of all executors"])
def test_addresses_follow_from_turn_to_turn(rng, how):
    """A sum of rows: where it lies goes to and fro, rows lie one behind the other, and a byte may end it."""
    model = weft.compile(F.elemwise_add(Variable("a"), Variable("b")), shape={"a": (3,), "b": (3,)})
    rows, ends, goes_on = floats(rng, 5, 3), [floats(rng, 3), floats(rng, 3)], np.array([1, 1], np.uint8)
    model.run({"a": ends[0], "b": rows[0]})
    executor = model._schedule.whole.last
    assert [spec.name for spec in executor.program.inputs] == ["a", "b"]
    turning = type(executor).turning if how == "native" else Executor.turning
    one, other = map(address_of, ends)
    read, written = Move(one, other - one, returns=True), Move(other, one - other, returns=True)
    item, byte = Move(address_of(rows), rows.strides[0]), Move(address_of(goes_on), 1, returns=True)
    run = turning(executor, {}, [read, item, written], byte)
    first = ends[0].copy()
    assert run(3, {}) == 3
    np.testing.assert_allclose(ends[1], first + rows[:3].sum(0), rtol=1e-5)
    goes_on[0] = 0  # which the second of the next turns asks, as the third has asked the first byte
    assert run(3, {1: address_of(rows) + 4 * rows.strides[0]}) == 1
    np.testing.assert_allclose(ends[0], first + rows[:3].sum(0) + rows[4], rtol=1e-5)
    assert run(3, {}) == 0


def test_programs_run_on_addresses(rng):
    """By what executors of CPUs have of their own, and by what all have."""
    model = weft.compile(F.elemwise_add(Variable("a"), Variable("b")), shape={"a": (2, 3), "b": (2, 3)})
    given = [floats(rng, 2, 3), floats(rng, 2, 3)]
    model.run(dict(zip("ab", given)))
    executor = model._schedule.whole.last
    for run_at in (type(executor).run_at, Executor.run_at):
        out = np.zeros((2, 3), np.float32)
        run_at(executor, [*map(address_of, given)], [address_of(out)])
        np.testing.assert_array_equal(out, given[0] + given[1])


def test_threads_may_run_one_loop(rng):
    inputs = scan_inputs(rng)
    model = weft.compile(a_scan(), shape={name: value.shape for name, value in inputs.items()})
    many = [{**inputs, "x": floats(rng, *inputs["x"].shape)} for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(model.run, many))
    for given, made in zip(many, found, strict=True):
        for a, b in zip(made, evaluate(a_scan(), given), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)

"""Random operators: the interpreter, machine code and eager functions draw the same numbers, which
are PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle
from sample import all_samples
from samples_random import state, words_of
from scipy import stats

import weft
from weft import symbol as sym
from weft.base.bits import KEPT, POSITION, STATE_WORDS, WORDS, MersenneTwister, from_state
from weft.base.errors import Error
from weft.compiler.graph_util import gradients
from weft.core.interpret import evaluate, final_values
from weft.eager.random.generator import Generator
from weft.ops import F
from weft.ops.control_flow import scan
from weft.runtime.report import report_of
from weft.testing.op_check import run_sample
from weft.testing.training import RANDOM_STATE, training_step

OPERATORS = "random_uniform random_normal random_randint random_bernoulli dropout".split()


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def built(symbol, values, level=2):
    """A compiled module without host steps, its variables set."""
    shapes = {name: value.shape for name, value in values.items()}
    dtypes = {name: value.dtype for name, value in values.items()}
    with weft.compiler.build_config(opt_level=level):
        graph, library, _ = weft.compiler.build(symbol, "llvm", shapes, dtypes)
    assert report_of([library.program]).host_steps == ()
    module = weft.runtime.create(graph, library)
    module.set_input(**values)
    return module


def outputs(module):
    return [module.get_output(i).asnumpy() for i in range(module.get_num_outputs())]


def same_state(made, wanted):
    """The kept number comes from sines, of which the last bit may differ."""
    np.testing.assert_array_equal(made[: KEPT + 1], wanted[: KEPT + 1])
    a, b = from_state(made).kept, from_state(wanted).kept
    assert (a is None) == (b is None)
    assert a is None or a == pytest.approx(b, rel=1e-12)


@pytest.mark.parametrize("name", OPERATORS)
def test_machine_code_draws_the_numbers_of_the_reference(name):
    op = weft.Op.get(name)
    for sample in all_samples(name):
        if sample.inputs[-1].dtype != np.uint32 or not sample.inputs[0].size:
            continue
        names = ["x", "state"][-len(sample.inputs) :]
        symbol = op(*map(sym.Variable, names), **sample.attrs)
        module = built(symbol, dict(zip(names, sample.inputs)))
        inputs = list(sample.inputs)
        for _ in range(3):
            module.run()
            *wanted, moved = run_sample(op, _with_inputs(sample, inputs))
            tolerance = {"rtol": sample.rtol, "atol": sample.atol}
            got = module.get_output(0).asnumpy()
            np.testing.assert_allclose(got.astype(float), wanted[0].astype(float), **tolerance)
            inputs[-1] = module.get_input("state").asnumpy()
            same_state(inputs[-1], moved)


def _with_inputs(sample, inputs):
    return type(sample)(inputs, sample.attrs)


def several(state):
    x = sym.Variable("x")
    return sym.Group(
        [
            sym.random_uniform(state, shape=(1000,)),
            sym.random_normal(state, shape=(7,)),
            sym.random_randint(state, low=-5, high=50, shape=(30,)),
            sym.dropout(x, state, rate=0.3, training=True),
            sym.random_normal(state, shape=(2,)),
            sym.random_bernoulli(state, p=0.2, shape=(50,)),
            sym.random_normal(state, shape=(1001,)),
        ]
    )


def by_functions(m, x):
    """The same draws in PyTorch's words."""
    return [
        m.rand(1000),
        m.randn(7),
        m.randint(-5, 50, (30,)),
        m.nn.functional.dropout(x, 0.3),
        m.randn(2),
        m.empty(50).bernoulli_(0.2),
        m.randn(1001),
    ]


@pytest.mark.parametrize("level", [0, 2, 3])
def test_one_stream_in_a_graph_in_functions_and_in_pytorch(rng, level):
    torch = oracle("torch")
    x = rng.standard_normal((20, 30)).astype("float32")
    before = weft.get_rng_state()
    torch.manual_seed(level)
    generator = weft.manual_seed(level)
    values = {"x": x, "state": generator.graph_state().numpy()}
    network = several(sym.Variable("state"))
    module = built(network, values, level)
    for _ in range(2):
        module.run()
        drawn = [
            outputs(module),
            evaluate(network, values),
            [made.numpy() for made in by_functions(weft, weft.from_numpy(x))],
        ]
        values.update(final_values(network, values))
        wanted = [made.numpy() for made in by_functions(torch, torch.from_numpy(x))]
        for found in drawn:
            for a, b in zip(found[:-1], wanted[:-1], strict=True):
                np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(found[-1], wanted[-1], rtol=1e-6, atol=1e-6)
        for words in (module.get_input("state").asnumpy(), values["state"]):
            same_state(words, words_of(torch.default_generator))
            same_state(words, generator.graph_state().numpy())
    weft.set_rng_state(before)


def test_a_generator_goes_on_where_a_graph_stopped(rng):
    symbol = sym.random_normal(sym.Variable("state"), shape=(5,))
    ours, theirs = (Generator().manual_seed(3) for _ in range(2))
    module = built(symbol, {"state": ours.graph_state().numpy()})
    module.run()
    assert ours.set_graph_state(module.get_input("state").asnumpy()) is ours
    weft.randn(5, generator=theirs)
    for count in (2, 700):
        expected = weft.randn(count, generator=theirs).numpy()
        np.testing.assert_allclose(weft.randn(count, generator=ours).numpy(), expected, rtol=1e-6)
    with pytest.raises(TypeError, match="array of uint32, not of float32"):
        ours.set_graph_state(np.zeros(STATE_WORDS, np.float32))
    with pytest.raises(ValueError, match="shape"):
        ours.set_graph_state(weft.zeros(3, dtype=weft.uint32))
    with pytest.raises(TypeError, match="but got list"):
        ours.set_graph_state([1])


def test_a_state_holds_all_of_a_generator():
    for kept in (None, 0.0, -8.5, 1.1, 2.0**-40 * 1.3, -1e-9):
        made = MersenneTwister(9)
        made.words(1000)
        made.kept = kept
        back = from_state(made.state())
        assert back.kept == kept
        assert back.position == made.position
        assert back.words(900).tolist() == made.words(900).tolist()
    made.kept = float("inf")
    with pytest.raises(ValueError, match="kept is inf"):
        made.state()


def test_a_position_past_the_block_is_its_end():
    values = {"state": MersenneTwister(4).state()}
    wanted = MersenneTwister(4).words(3) & 0xFFFFFF
    values["state"][POSITION] = 2**32 - 1
    symbol = sym.random_uniform(sym.Variable("state"), shape=(3,))
    module = built(symbol, values)
    module.run()
    for got in (module.get_output(0).asnumpy(), evaluate(symbol, values)[0]):
        assert got.tolist() == (wanted / 2**24).tolist()
    assert int(module.get_input("state").asnumpy()[POSITION]) == 3


@pytest.mark.parametrize("count", [1, WORDS - 1, WORDS, WORDS + 1, 2 * WORDS, 5000])
def test_blocks_begin_when_a_word_of_them_is_drawn(rng, count):
    for used in (0, 1, WORDS - 1, WORDS):
        values = {"state": state(rng, drawn=WORDS + 1)}
        values["state"][POSITION] = used
        symbol = sym.random_uniform(sym.Variable("state"), shape=(count,))
        module = built(symbol, values)
        module.run()
        theirs = np.random.RandomState()
        theirs.set_state(("MT19937", values["state"][:WORDS], used))
        wanted = theirs.randint(0, 2**32, count, dtype=np.uint32) & 0xFFFFFF
        assert module.get_output(0).asnumpy().tolist() == (wanted / 2**24).tolist()
        _, words, position, *_ = theirs.get_state()
        after = module.get_input("state").asnumpy()
        assert after[:WORDS].tolist() == words.tolist()
        assert after[POSITION] == position


def test_masks_follow_elements_when_layouts_change(rng):
    """Between convolutions that work in blocks of channels."""
    x = sym.Variable("x")
    y = sym.conv2d(x, channels=32, kernel_size=(3, 3), name="a", use_bias=False)
    y = sym.dropout(y, sym.Variable("state"), rate=0.4, training=True)
    y = sym.conv2d(y, channels=16, kernel_size=(1, 1), name="b", use_bias=False)
    values = {
        "x": rng.standard_normal((1, 16, 8, 8)).astype("float32"),
        "a_weight": rng.standard_normal((32, 16, 3, 3)).astype("float32"),
        "b_weight": rng.standard_normal((16, 32, 1, 1)).astype("float32"),
        "state": state(rng),
    }
    module = built(y, values, 3)
    module.run()
    wanted = evaluate(y, values)[0]
    np.testing.assert_allclose(module.get_output(0).asnumpy(), wanted, rtol=1e-4, atol=1e-4)


def test_a_training_step_with_dropout_is_that_of_pytorch(rng):
    torch = oracle("torch")
    x = sym.Variable("data")
    hidden = sym.dropout(sym.relu(sym.dense(x, units=50, name="one")), rate=0.4)
    network = sym.softmax(sym.dense(sym.dropout(hidden, rate=0.2), units=6, name="two"))
    step = training_step(network, batch=8)
    assert step.names == ["one_weight", "one_bias", "two_weight", "two_bias"]
    generator = Generator().manual_seed(21)
    sizes = {"data": (8, 30), "one_weight": (50, 30), "one_bias": (50,), "two_weight": (6, 50), "two_bias": (6,)}
    values = {k: rng.standard_normal(v).astype("float32") for k, v in sizes.items()}
    label = np.eye(6, dtype="float32")[rng.integers(0, 6, 8)]
    module = built(step.symbol, {**values, "label": label, RANDOM_STATE: generator.graph_state().numpy()})
    torch.manual_seed(21)
    for _ in range(2):
        module.run()
        leaves = {k: torch.tensor(v, requires_grad=True) for k, v in values.items()}
        loss = _torch_loss(torch, torch.tensor(label), **leaves)
        loss.backward()
        found = outputs(module)
        assert found[0].item() == pytest.approx(loss.item(), rel=1e-5)
        for name, grad in zip(step.names, found[1:], strict=True):
            np.testing.assert_allclose(grad, leaves[name].grad.numpy(), rtol=1e-4, atol=1e-5)


def _torch_loss(torch, label, data, one_weight, one_bias, two_weight, two_bias):
    f = torch.nn.functional
    hidden = f.dropout(torch.relu(f.linear(data, one_weight, one_bias)), 0.4)
    return f.cross_entropy(f.linear(f.dropout(hidden, 0.2), two_weight, two_bias), label)


def test_gradients_pass_the_mask_and_end_at_draws(rng):
    x, words = sym.Variable("x"), sym.Variable("state")
    y = sym.sum(sym.dropout(x, words, rate=0.5, training=True))
    y = y + sym.sum(x * sym.random_uniform(words, shape=(6,)))
    values = {"x": np.ones(6, "float32"), "state": state(rng)}
    source = from_state(values["state"])
    kept = [2.0 * (int(word) & 2**53 - 1 < 2**52) for word in source.double_words(6)]
    factors = (source.words(6) & 0xFFFFFF) / 2**24
    (grad,) = evaluate(sym.Group(gradients(y, [x])), values)
    np.testing.assert_allclose(grad, kept + factors, rtol=1e-6)


def test_distributions(rng):
    words = sym.Variable("state")
    network = sym.Group(
        [
            sym.random_uniform(words, low=-1, high=3, shape=(20_000,)),
            sym.random_normal(words, mean=2, std=3, shape=(20_000,)),
            sym.random_randint(words, high=6, shape=(20_000,)),
            sym.random_bernoulli(words, p=0.3, shape=(20_000,)),
        ]
    )
    module = built(network, {"state": state(rng)})
    module.run()
    uniform, normal, whole, chosen = outputs(module)
    assert stats.kstest(uniform, stats.uniform(-1, 4).cdf).pvalue > 1e-4
    assert stats.kstest(normal, stats.norm(2, 3).cdf).pvalue > 1e-4
    assert stats.chisquare(np.bincount(whole, minlength=6)).pvalue > 1e-4
    assert stats.binomtest(int(chosen.sum()), 20_000, 0.3).pvalue > 1e-4


@pytest.mark.parametrize("name", OPERATORS)
def test_effects(name):
    needed = {"dropout": {"training": "True"}, "random_randint": {"shape": "(2,)", "high": "3"}}
    op = weft.Op.get(name)
    params = op.parse(needed.get(name, {"shape": "(2,)"}))
    assert op.effect_of(params) == "random"
    assert op.mutates_of(params) == ((1,) if name == "dropout" else (0,))


def test_two_equal_draws_stay_two(rng):
    """Nothing merges them, moves them past each other or computes them while building."""
    words = sym.Variable("state")
    first, second = (sym.random_uniform(words, shape=(4,)) for _ in range(2))
    values = {"state": state(rng)}
    symbol = sym.Group([second, first])
    module = built(symbol, values, 3)
    module.run()
    wanted = (from_state(values["state"]).words(8) & 0xFFFFFF) / 2**24
    assert np.concatenate(outputs(module)[::-1]).tolist() == wanted.tolist()
    module.run()
    assert not np.array_equal(np.concatenate(outputs(module)[::-1]), wanted)


@pytest.mark.parametrize(
    ("name", "attrs", "message"),
    [
        ("random_uniform", {"low": 2, "high": 1}, r"range \[2"),
        ("random_uniform", {"dtype": "int32"}, "int32 is no float"),
        ("random_uniform", {"low": -60000, "high": 60000, "dtype": "float16"}, "range"),
        ("random_normal", {"std": -1}, "std"),
        ("random_normal", {"dtype": "complex64"}, "complex64 is no float"),
        ("random_randint", {"low": 3, "high": 3}, r"range \[3, 3\)"),
        ("random_randint", {"high": 257, "dtype": "uint8"}, "from 0 to 255"),
        ("random_randint", {"high": 5, "dtype": "complex64"}, "complex64"),
        ("random_bernoulli", {"p": 1.5}, "p"),
        ("random_bernoulli", {"shape": (-1,)}, "shape"),
    ],
)
def test_attributes_that_are_refused(name, attrs, message):
    def build():
        symbol = weft.Op.get(name)(sym.Variable("state"), **{"shape": (2,), **attrs})
        weft.compiler.build(symbol, "llvm", {}, {})

    with pytest.raises(Error, match=message):
        build()


def test_states_that_are_refused():
    symbol = sym.random_uniform(sym.Variable("words"), shape=(2,))
    with pytest.raises(Error, match="629"):
        weft.compiler.build(symbol, "llvm", {"words": (625,)}, {})
    with pytest.raises(Error, match="uint32"):
        weft.compiler.build(symbol, "llvm", {}, {"words": "float32"})
    for wrong in (np.zeros(STATE_WORDS, "int64"), np.zeros(WORDS, "uint32")):
        with pytest.raises(Error, match=r"629|uint32"):
            evaluate(symbol, {"words": wrong})


def test_a_loop_that_carries_the_state(rng):
    """Each turn goes on where the one before stopped."""

    def body(items, states, captures):
        drawn = F.random_uniform(states[0], shape=(4,))
        return [items[0] + drawn], [F.copy(states[0])]

    symbol = scan(body, [sym.Variable("x")], [sym.Variable("state")])
    values = {"x": np.zeros((5, 4), "float32"), "state": state(rng)}
    source = from_state(values["state"])
    wanted = (source.words(20) & 0xFFFFFF) / 2**24
    model = weft.compile(symbol, shape={n: v.shape for n, v in values.items()}, dtype={"state": "uint32"})
    for drawn, words in (evaluate(symbol, values), model.run(values)):
        assert drawn.ravel().tolist() == wanted.tolist()
        assert np.asarray(words).tolist() == source.state().tolist()


def test_a_compiled_model_without_state_refuses_to_draw():
    symbol = sym.random_uniform(sym.Variable("words"), shape=(2,))
    with pytest.raises(Error, match="writes to its variable 'words'"):
        weft.compile(symbol, dtype={"words": "uint32"})


def test_a_generator_outside_of_a_loop_is_refused():
    """Every turn would draw the same numbers."""

    def body(items, states, captures):
        drawn = sym.random_uniform(captures[0], shape=(2,))
        return [items[0] + drawn], [states[0]]

    symbol = scan(body, *([sym.Variable(name)] for name in ("x", "s", "state")))
    with pytest.raises(Error, match="state of the loop"):
        weft.compile(symbol, shape={"x": (3, 2), "s": (1,)}, dtype={"state": "uint32"})

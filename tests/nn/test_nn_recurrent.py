"""Recurrent layers and cells against PyTorch's: padded, single and packed sequences, with and without states."""

import itertools

import numpy as np
import pytest
from oracles import oracle
from twin_modules import compare, made_alike, randomise, refused_by_weft, same_call, same_tensor

import weft

rng = np.random.default_rng(0)
STEPS, BATCH, FEATURES, SIZE = 4, 3, 2, 5
LAYERS = {
    "tanh": ("RNN", {}),
    "relu": ("RNN", {"nonlinearity": "relu", "bias": False, "num_layers": 2}),
    "both ways": ("RNN", {"bidirectional": True, "num_layers": 2, "dropout": 0.4}),
    "lstm": ("LSTM", {"num_layers": 2, "batch_first": True}),
    "lstm without bias": ("LSTM", {"bias": False, "bidirectional": True}),
    "projected": ("LSTM", {"proj_size": 3, "num_layers": 2, "bidirectional": True, "dropout": 0.3}),
    "projected batch first": ("LSTM", {"proj_size": 2, "batch_first": True, "bias": False}),
    "gru": ("GRU", {"batch_first": True}),
    "gru dropping": ("GRU", {"num_layers": 3, "dropout": 0.5, "bias": False}),
    "gru both ways": ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.2}),
    "in doubles": ("GRU", {"dtype": lambda lib: lib.float64}),
}
CELLS = {
    "tanh": ("RNNCell", {}),
    "relu": ("RNNCell", {"nonlinearity": "relu", "bias": False}),
    "lstm": ("LSTMCell", {}),
    "lstm without bias": ("LSTMCell", {"bias": False}),
    "gru": ("GRUCell", {}),
    "gru without bias": ("GRUCell", {"bias": False}),
}


def normal(*shape, double=False):
    return rng.normal(size=shape).astype("float64" if double else "float32")


def of_form(single, name, options):
    """An input, and states for it."""
    double = "dtype" in options
    count = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    lead = (count,) if single else (count, BATCH)
    states = [normal(*lead, options.get("proj_size", SIZE), double=double)]
    states += [normal(*lead, SIZE)] if name == "LSTM" else []
    turned = options.get("batch_first", False)
    shape = (STEPS,) if single else (BATCH, STEPS) if turned else (STEPS, BATCH)
    return normal(*shape, FEATURES, double=double), tuple(states) if name == "LSTM" else states[0]


@pytest.mark.parametrize("started", [False, True], ids=["from zeros", "from states"])
@pytest.mark.parametrize("single", [False, True], ids=["batch", "single"])
@pytest.mark.parametrize("case", LAYERS)
def test_layers(case, single, started):
    name, options = LAYERS[case]
    x, states = of_form(single, name, options)
    compare(name, FEATURES, SIZE, inputs=(x, states) if started else (x,), **options)


def packing(name, options, lengths):
    """Builds a module that packs its input, and gives packed results and padded ones."""

    def build(lib):
        class Packing(lib.nn.Module):
            def __init__(self):
                super().__init__()
                more = {key: value(lib) if callable(value) else value for key, value in options.items()}
                self.layers = getattr(lib.nn, name)(FEATURES, SIZE, **more)

            def forward(self, x, *states):
                rnn, turned = lib.nn.utils.rnn, self.layers.batch_first
                packed = rnn.pack_padded_sequence(x, lengths, turned, enforce_sorted=lengths == sorted(lengths)[::-1])
                out, last = self.layers(packed, *states)
                assert type(out) is rnn.PackedSequence
                return list(out), last, rnn.pad_packed_sequence(out, turned, total_length=STEPS)

        return Packing()

    return build


@pytest.mark.sampled(3)
@pytest.mark.parametrize("started", [False, True], ids=["from zeros", "from states"])
@pytest.mark.parametrize("lengths", [[4, 2, 1], [2, 4, 1], [1, 3, 3]], ids=str)
@pytest.mark.parametrize("case", LAYERS)
def test_packed_layers(case, lengths, started):
    name, options = LAYERS[case]
    x, states = of_form(False, name, options)
    compare(packing(name, options, lengths), inputs=(x, states) if started else (x,), pickled=False)


@pytest.mark.parametrize("started", [False, True], ids=["from zeros", "from states"])
@pytest.mark.parametrize("single", [False, True], ids=["batch", "single"])
@pytest.mark.parametrize("case", CELLS)
def test_cells(case, single, started):
    name, options = CELLS[case]
    lead = () if single else (BATCH,)
    state = (normal(*lead, SIZE), normal(*lead, SIZE)) if name == "LSTMCell" else normal(*lead, SIZE)
    x = normal(*lead, FEATURES)
    compare(name, FEATURES, SIZE, inputs=(x, state) if started else (x,), **options)


def test_empty_batches_and_lists_of_states():
    compare("RNN", FEATURES, SIZE, inputs=(normal(STEPS, 0, FEATURES),))
    states = [normal(1, BATCH, SIZE), normal(1, BATCH, SIZE)]
    compare("LSTM", FEATURES, SIZE, inputs=(normal(STEPS, BATCH, FEATURES), states))
    compare("LSTMCell", FEATURES, SIZE, inputs=(normal(BATCH, FEATURES), [state[0] for state in states]))


def test_layers_take_a_pack_that_was_made_before():
    def pack(lib):
        items = [lib.arange(length * FEATURES).reshape(length, FEATURES) / 7 for length in (2, 4, 1)]
        return lib.nn.utils.rnn.pack_sequence(items, enforce_sorted=False)

    compare("LSTM", FEATURES, SIZE, inputs=(pack,), num_layers=2, dropout=0.5)


def test_states_of_more_sequences_than_a_pack_has_are_refused():
    """PyTorch takes some of them where the pack was sorted."""
    pack = weft.nn.utils.rnn.pack_sequence([weft.ones(1, 2), weft.ones(3, 2)], enforce_sorted=False)
    with pytest.raises(weft.Error, match=r"Expected hidden size \(1, 2, 3\), got \[1, 5, 3\]"):
        weft.nn.GRU(2, 3)(pack, weft.ones(1, 5, 3))


def test_a_layer_of_any_mode_runs():
    """PyTorch's base class has no forward; the layers that inherit it say what it should give."""
    torch = oracle("torch")
    x = normal(STEPS, BATCH, FEATURES)
    for mode, name in {"LSTM": "LSTM", "GRU": "GRU", "RNN_TANH": "RNN"}.items():
        weft.manual_seed(0), torch.manual_seed(0)
        got, _ = weft.nn.RNNBase(mode, FEATURES, SIZE)(weft.from_numpy(x))
        same_tensor(got, getattr(torch.nn, name)(FEATURES, SIZE)(torch.from_numpy(x))[0], 1e-5, 1e-6)


def test_weights_by_layer_and_direction():
    torch = oracle("torch")
    options = {"num_layers": 2, "bidirectional": True, "proj_size": 3}
    ours, theirs = (lib.nn.LSTM(FEATURES, SIZE, **options) for lib in (weft, torch))
    mine, other = ours.all_weights, theirs.all_weights
    assert [[tuple(w.shape) for w in group] for group in mine] == [[tuple(w.shape) for w in group] for group in other]
    assert mine[1][4] is ours.weight_hr_l0_reverse
    ours.flatten_parameters()
    before = ours.weight_ih_l0.clone()
    ours.reset_parameters()
    assert not weft.equal(before, ours.weight_ih_l0)


def test_a_weight_that_is_put_in_is_used():
    layer, x = weft.nn.GRU(FEATURES, SIZE), weft.from_numpy(normal(STEPS, FEATURES))
    before = layer(x)[0]
    layer.weight_ih_l0 = weft.nn.Parameter(layer.weight_ih_l0.detach() + 1)
    assert not weft.allclose(before, layer(x)[0])


def test_one_layer_warns_of_dropout():
    with pytest.warns(UserWarning, match=r"dropout=0.5 and num_layers=1"):
        weft.nn.LSTM(2, 3, dropout=0.5)


X, ONE = np.ones((4, 1, 2), "float32"), np.ones((1, 1, 3), "float32")
REFUSED = {
    "nonlinearity": lambda lib: lib.nn.RNN(2, 3, nonlinearity="x"),
    "projected rnn": lambda lib: lib.nn.RNN(2, 3, proj_size=2),
    "projected gru": lambda lib: lib.nn.GRU(2, 3, proj_size=2),
    "wide projection": lambda lib: lib.nn.LSTM(2, 3, proj_size=3),
    "negative projection": lambda lib: lib.nn.LSTM(2, 3, proj_size=-1),
    "dropout": lambda lib: lib.nn.LSTM(2, 3, 2, dropout=2),
    "true dropout": lambda lib: lib.nn.LSTM(2, 3, 2, dropout=True),
    "text dropout": lambda lib: lib.nn.LSTM(2, 3, 2, dropout="a"),
    "a float size": lambda lib: lib.nn.LSTM(2, 3.0),
    "no size": lambda lib: lib.nn.LSTM(2, 0),
    "no features": lambda lib: lib.nn.LSTM(0, 3),
    "no layers": lambda lib: lib.nn.LSTM(2, 3, 0),
    "mode": lambda lib: lib.nn.RNNBase("XX", 2, 3),
    "features": lambda lib: lib.nn.RNN(2, 3)(lib.ones(4, 1, 3)),
    "rank": lambda lib: lib.nn.RNN(2, 3)(lib.ones(4, 1, 1, 2)),
    "rank of a gru": lambda lib: lib.nn.GRU(2, 3)(lib.ones(4)),
    "layers of states": lambda lib: lib.nn.RNN(2, 3)(lib.tensor(X), lib.ones(2, 1, 3)),
    "batch of states": lambda lib: lib.nn.GRU(2, 3)(lib.tensor(X), lib.ones(1, 2, 3)),
    "rank of states": lambda lib: lib.nn.GRU(2, 3)(lib.tensor(X), lib.ones(1, 3)),
    "rank of states of one": lambda lib: lib.nn.RNN(2, 3)(lib.ones(4, 2), lib.tensor(ONE)),
    "doubles": lambda lib: lib.nn.RNN(2, 3)(lib.tensor(X).double()),
    "whole numbers": lambda lib: lib.nn.GRU(2, 3)(lib.tensor(X).int()),
    "no steps": lambda lib: lib.nn.RNN(2, 3)(lib.ones(0, 1, 2)),
    "one state": lambda lib: lib.nn.LSTM(2, 3)(lib.tensor(X), lib.tensor(ONE)),
    "a tuple of one": lambda lib: lib.nn.LSTM(2, 3)(lib.tensor(X), (lib.tensor(ONE),)),
    "cells": lambda lib: lib.nn.LSTM(2, 3)(lib.tensor(X), (lib.tensor(ONE), lib.ones(1, 2, 3))),
    "rank of pairs": lambda lib: lib.nn.LSTM(2, 3)(lib.tensor(X), (lib.ones(1, 3), lib.ones(1, 3))),
    "packed features": lambda lib: lib.nn.RNN(2, 3)(lib.nn.utils.rnn.pack_sequence([lib.ones(3, 5)])),
    "packed rank": lambda lib: lib.nn.RNN(2, 3)(lib.nn.utils.rnn.pack_sequence([lib.ones(3)])),
    "packed states": lambda lib: lib.nn.RNN(2, 3)(lib.nn.utils.rnn.pack_sequence([lib.ones(3, 2)]), lib.ones(1, 3, 3)),
    "nonlinearity of a cell": lambda lib: lib.nn.RNNCell(2, 3, nonlinearity="x")(lib.ones(1, 2)),
    "state of a cell": lambda lib: lib.nn.LSTMCell(2, 3)(lib.ones(1, 2), (lib.ones(1, 3),)),
    "no pair of a cell": lambda lib: lib.nn.LSTMCell(2, 3)(lib.ones(3, 2), lib.ones(2, 3, 3)),
    **{
        f"{name} {shape} {state}": lambda lib, name=name, shape=shape, state=state: getattr(lib.nn, name)(2, 3)(
            lib.ones(shape), *([] if state is None else [lib.ones(state)])
        )
        for name, (shape, state) in itertools.product(
            ("RNNCell", "GRUCell"),
            [((1, 1, 2), None), ((1, 3), None), ((), None), ((2,), (1, 3)), ((1, 2), (3,)), ((1, 2), (1, 1, 3))]
            + [((1, 2), (2, 3)), ((1, 2), (1, 4))],
        )
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    refused_by_weft(REFUSED[case])


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_narrow_floats(name, kind):
    """Bounds of the initial weights are no numbers of these dtypes: what rounds to the upper one becomes the lower."""
    x = lambda lib: lib.arange(24.0).reshape(3, 2, 4).to(getattr(lib, kind)) / 10
    dtype = lambda lib: getattr(lib, kind)
    compare(name, 4, 6, inputs=(x,), num_layers=2, dtype=dtype, randomised=False, rtol=5e-2, atol=2e-2)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_weights_that_follow_from_others():
    ours, theirs = made_alike(lambda lib: lib.nn.utils.weight_norm(lib.nn.GRU(FEATURES, SIZE), "weight_hh_l0"))
    randomise(ours, theirs)
    same_call(ours, theirs, (normal(STEPS, BATCH, FEATURES),), {})


def test_gradients_of_gradients():
    layer = weft.nn.LSTM(FEATURES, 3, bidirectional=True, dtype=weft.float64)
    x = weft.from_numpy(normal(3, 2, FEATURES, double=True)).requires_grad_()
    assert weft.autograd.gradgradcheck(lambda x: layer(x)[0], (x,))

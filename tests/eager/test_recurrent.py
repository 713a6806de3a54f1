"""Recurrent layers and cells against PyTorch: values, gradients, gradients of gradients, errors."""

import itertools

import numpy as np
import pytest
from codegen.guard import guarded
from oracles import oracle

import weft
from weft.core.op import Op
from weft.core.schema import text_of
from weft.eager.native.generic import run_template
from weft.ops.nn.rnn import kept_names

CLASSES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
CELLS = {"lstm": "LSTMCell", "gru": "GRUCell", "rnn_tanh": "RNNCell", "rnn_relu": "RNNCell"}
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
LAYOUTS = [
    {"bias": bias, "layers": layers, "both": both, "form": form}
    for bias, layers, both, form in [
        (True, 1, False, "padded"),
        (False, 1, False, "padded"),
        (True, 2, True, "padded"),
        (True, 2, True, "packed"),
        (False, 2, False, "packed"),
        (True, 2, True, "batch first"),
    ]
]


@pytest.fixture(scope="module")
def torch():
    return oracle("torch")


def ours(tensor):
    made = weft.from_numpy(tensor.detach().numpy().copy())
    return made.requires_grad_() if tensor.requires_grad else made


def agree(a, b, tolerance=1e-9):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def call(torch, mode, bias, layers, both, form, projected=0, seed=0):
    """Arguments of a call as PyTorch takes them, and those of them that have gradients."""
    torch.manual_seed(seed)
    batch, features, size = 3, 2, 5
    more = {"nonlinearity": "relu"} if mode == "rnn_relu" else {}
    more |= {"proj_size": projected} if projected else {}
    layer = getattr(torch.nn, CLASSES[mode])(features, size, layers, bias=bias, bidirectional=both, **more).double()
    double = lambda *shape: torch.randn(*shape, dtype=torch.double, requires_grad=True)
    count = layers * (2 if both else 1)
    states = [double(count, batch, projected or size)]
    states += [double(count, batch, size)] if mode == "lstm" else []
    hx = tuple(states) if mode == "lstm" else states[0]
    weights = [weight.detach().requires_grad_() for weight in layer._flat_weights]
    rest = [hx, weights, bias, layers, 0.0, True, both]
    if form == "packed":
        x = double(7, features)
        return [x, torch.tensor([3, 2, 1, 1]), *rest], [x, *states, *weights]
    x = double(batch, 4, features) if form == "batch first" else double(4, batch, features)
    return [x, *rest, form == "batch first"], [x, *states, *weights]


def mirrored(torch, args, leaves):
    """The same arguments as weft's tensors, and the leaves among them."""
    made = {id(leaf): ours(leaf) for leaf in leaves}

    def turn(value):
        if isinstance(value, (tuple, list)):
            return type(value)(turn(item) for item in value)
        if not isinstance(value, torch.Tensor):
            return value
        return made[id(value)] if id(value) in made else ours(value)

    return [turn(value) for value in args], [made[id(leaf)] for leaf in leaves]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda kw: "-".join(map(str, kw.values())))
@pytest.mark.parametrize("mode", GATES)
def test_layers(torch, mode, layout):
    check_layers(torch, mode, *call(torch, mode, **layout))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("form", ["padded", "packed"])
def test_projections(torch, form):
    check_layers(torch, "lstm", *call(torch, "lstm", True, 2, True, form, projected=2))


def check_layers(torch, mode, args, leaves):
    theirs = getattr(torch, mode)(*args)
    own_args, own_leaves = mirrored(torch, args, leaves)
    made = getattr(weft, mode)(*own_args)
    assert len(made) == len(theirs)
    for a, b in zip(made, theirs):
        agree(a, b)
    heads = [torch.randn_like(out) for out in theirs]
    own_heads = [ours(head) for head in heads]
    first = torch.autograd.grad(theirs, leaves, heads, create_graph=True)
    for again in (False, True):
        own_first = weft.autograd.grad(made, own_leaves, own_heads, retain_graph=True, create_graph=again)
        for a, b in zip(own_first, first):
            agree(a, b)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), leaves)
    own_total = weft.stack([(g**2).sum() for g in own_first]).sum()
    for a, b in zip(weft.autograd.grad(own_total, own_leaves), second):
        agree(a, b, 1e-8)


@pytest.mark.parametrize("mode", GATES)
@pytest.mark.parametrize("bias", [True, False])
def test_cells(torch, mode, bias):
    torch.manual_seed(1)
    cell = getattr(torch.nn, CELLS[mode])(3, 5, bias=bias).double()
    double = lambda *shape: torch.randn(*shape, dtype=torch.double, requires_grad=True)
    states = [double(4, 5) for _ in range(2 if mode == "lstm" else 1)]
    weights = [weight.detach().requires_grad_() for weight in cell.parameters()]
    leaves = [double(4, 3), *states, *weights]
    args = [leaves[0], tuple(states) if mode == "lstm" else states[0], *weights]
    theirs = getattr(torch, f"{mode}_cell")(*args)
    own_args, own_leaves = mirrored(torch, args, leaves)
    made = getattr(weft, f"{mode}_cell")(*own_args)
    pairs = list(zip(made, theirs)) if mode == "lstm" else [(made, theirs)]
    for a, b in pairs:
        agree(a, b)
    first = torch.autograd.grad(sum((b**2).sum() for _, b in pairs), leaves)
    total = weft.stack([(a**2).sum() for a, _ in pairs]).sum()
    for a, b in zip(weft.autograd.grad(total, own_leaves), first):
        agree(a, b)


@pytest.mark.parametrize("mode", GATES)
def test_gradcheck(mode):
    rng = np.random.default_rng(0)
    wide = GATES[mode] * 2
    tensor = lambda *shape: weft.from_numpy(rng.uniform(-1, 1, shape)).requires_grad_()
    x, h, w, u, b = tensor(3, 2, 2), tensor(1, 2, 2), tensor(wide, 2), tensor(wide, 2), tensor(wide)

    def run(x, h, w, u, b):
        hx = (h, h * 0.5) if mode == "lstm" else h
        return getattr(weft, mode)(x, hx, [w, u, b, b], True, 1, 0.0, True, False, False)[0]

    assert weft.autograd.gradcheck(run, (x, h, w, u, b))
    assert weft.autograd.gradgradcheck(run, (x, h, w, u, b))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", GATES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 7, 19), (3, 13, 70)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_native_steps(mode, sizes, dtype):
    """All kernels on memory that ends at a guard page, against the reference."""
    rng = np.random.default_rng(0)
    steps, batch, size = sizes
    wide = GATES[mode] * size
    shapes = [(steps, batch, wide), (size, wide), (wide,), (batch, size), (batch, size)]
    for reverse, lengths in itertools.product([False, True], repeat=2):
        given = [rng.uniform(-1, 1, s).astype(dtype) for s in shapes]
        given[1] /= size**0.5
        given = given if mode == "lstm" else given[:4]
        given += [rng.integers(0, steps + 2, batch)] if lengths else []
        attrs = {"mode": mode, "reverse": reverse, "lengths": lengths, "kept": True}
        rnn, grad = Op.get("rnn"), Op.get("_rnn_grad")
        params = rnn.parse({key: text_of(value) for key, value in attrs.items()})
        wanted = Op.reference[rnn](params, *given)
        compare(run_template(rnn, params, on_guards(given)), wanted, dtype)
        count = len(wanted) - len(kept_names(params))
        heads = [rng.uniform(-1, 1, out.shape).astype(dtype) for out in wanted[:count]]
        inputs = [*heads, *given, wanted[0], *wanted[count:]]
        compare(run_template(grad, params, on_guards(inputs)), Op.reference[grad](params, *inputs), dtype)


def on_guards(arrays):
    return [guarded(array).reshape(array.shape) for array in arrays]


def compare(made, wanted, dtype):
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("batch", "size"), [(16, 70), (2, 600)])
def test_same_bits_for_any_threads(batch, size):
    rng = np.random.default_rng(0)
    array = lambda *shape: rng.uniform(-0.1, 0.1, shape).astype("float32")
    x, h = array(6, batch, 8), array(1, batch, size)
    weights = [array(4 * size, 8), array(4 * size, size)]
    found, before = [], weft.get_num_threads()
    for threads in (1, 2):
        weft.set_num_threads(threads)
        leaves = [weft.from_numpy(a).requires_grad_() for a in (x, *weights)]
        hx = (weft.from_numpy(h), weft.from_numpy(h))
        out = weft.lstm(leaves[0], hx, leaves[1:], False, 1, 0.0, True, False, False)[0]
        found.append([out, *weft.autograd.grad((out * out).sum(), leaves)])
    weft.set_num_threads(before)
    for a, b in zip(*found):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())


def test_dropout_stands_between_layers(torch):
    args, leaves = call(torch, "gru", True, 2, False, "padded")
    own, _ = mirrored(torch, args, leaves)
    quiet = weft.gru(*own)
    own[5] = 1.0
    dropped = weft.gru(*own)
    assert np.array_equal(quiet[1][0].detach().numpy(), dropped[1][0].detach().numpy())
    own[5], own[6] = 1.0, False
    agree(weft.gru(*own)[0], quiet[0])
    nothing = [weft.zeros_like(own[0]), own[1][1:], own[2][4:], True, 1, 0.0, True, False, False]
    nothing[0] = weft.zeros(4, 3, 5, dtype=weft.float64)
    agree(dropped[0], weft.gru(*nothing)[0])


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_gradients_of_some_inputs_only(torch, mode):
    args, leaves = call(torch, mode, True, 1, False, "padded")
    for number in range(len(leaves)):
        theirs = getattr(torch, mode)(*args)[0].sum()
        (wanted,) = torch.autograd.grad(theirs, leaves[number])
        own, own_leaves = mirrored(torch, args, leaves)
        for other, leaf in enumerate(own_leaves):
            leaf.requires_grad_(other == number)
        getattr(weft, mode)(*own)[0].sum().backward()
        agree(own_leaves[number].grad, wanted)
        assert sum(leaf.grad is not None for leaf in own_leaves) == 1


def test_results_that_gradients_read_must_stay():
    x, h = weft.ones(3, 2, 4, requires_grad=True), weft.zeros(1, 2, 5)
    weights = [weft.ones(15, 4), weft.ones(15, 5)]
    out = weft.gru(x, h, weights, False, 1, 0.0, True, False, False)[0]
    out.mul_(2)
    with pytest.raises(weft.Error, match="modified by an inplace operation"):
        out.sum().backward()


def test_no_sequences():
    x, h = weft.ones(3, 0, 4, requires_grad=True), weft.zeros(1, 0, 5)
    weights = [weft.ones(15, 4, requires_grad=True), weft.ones(15, 5)]
    out, last = weft.gru(x, h, weights, False, 1, 0.0, True, False, False)
    assert (out.shape, last.shape) == ((3, 0, 5), (1, 0, 5))
    out.sum().backward()
    assert x.grad.shape == x.shape
    assert not weights[0].grad.any()


def test_half_precision(torch):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s).astype("float16") for s in [(3, 2, 4), (1, 2, 5), (5, 4), (5, 5)]]
    own, theirs = ([L.from_numpy(a) for a in arrays] for L in (weft, torch))
    run = lambda of, x, h, *w: of.rnn_tanh(x, h, list(w), False, 1, 0.0, False, False, False)
    for a, b in zip(run(weft, *own), run(torch, *(t.float() for t in theirs))):
        assert a.dtype == weft.float16
        np.testing.assert_allclose(a.numpy().astype("f"), b.numpy(), atol=3e-3)


def change(args, position, value):
    return [*args[:position], value, *args[position + 1 :]]


@pytest.mark.parametrize(
    ("mode", "position", "value", "kind"),
    [
        ("gru", 0, lambda a: a[0][0], IndexError),
        ("lstm", 0, lambda a: a[0][:0], RuntimeError),
        ("lstm", 0, lambda a: a[0].float(), RuntimeError),
        ("lstm", 1, lambda a: a[1][:1], RuntimeError),
        ("lstm", 1, lambda a: a[1][0], TypeError),
        ("lstm", 2, lambda a: a[2][:3], RuntimeError),
        ("gru", 0, lambda a: a[0][:, :2], RuntimeError),
        ("gru", 0, lambda a: a[0][..., :1], RuntimeError),
        ("gru", 1, lambda a: a[1][:, :, :3], RuntimeError),
        ("gru", 1, lambda a: (a[1], a[1]), TypeError),
        ("gru", 2, lambda a: a[2][:2], RuntimeError),
        ("rnn_relu", 4, lambda a: 2, RuntimeError),
    ],
)
def test_errors(torch, mode, position, value, kind):
    args, leaves = call(torch, mode, True, 1, False, "padded")
    own, _ = mirrored(torch, args, leaves)
    for L, given in ((torch, args), (weft, own)):
        with pytest.raises(kind):
            getattr(L, mode)(*change(given, position, value(given)))


@pytest.mark.parametrize("sizes", [[1, 2, 3], [3, 2, 1, 0], [3, 2, 2, 2], []])
def test_wrong_batch_sizes(torch, sizes):
    args, leaves = call(torch, "gru", True, 1, False, "packed")
    own, _ = mirrored(torch, args, leaves)
    own[1] = weft.tensor(sizes, dtype=weft.int64)
    with pytest.raises(weft.Error):
        weft.gru(*own)


@pytest.mark.parametrize(("position", "shape"), [(0, (2, 9)), (0, (3,)), (1, (1, 4)), (1, (2, 5))])
def test_errors_of_cells(torch, position, shape):
    shapes = [(2, 3), (2, 4), (12, 3), (12, 4)]
    for L in (torch, weft):
        args = [L.zeros(*s) for s in shapes]
        args[position] = L.zeros(*shape)
        with pytest.raises(IndexError if len(shape) == 1 else RuntimeError):
            L.gru_cell(*args)

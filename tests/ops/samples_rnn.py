"""Samples of recurrent layers; PyTorch's, whose input matrix is the identity, are the oracle."""

import numpy as np
from sample import Sample, floats, samples

from weft.core.op import Op
from weft.core.schema import text_of

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _inputs(rng, mode, steps=4, batch=2, size=3, projected=0, lengths=None):
    wide, state = GATES[mode] * size, projected or size
    reach = 2 / state**0.5
    made = {
        "gates": floats(rng, (steps, batch, wide)),
        "weight": floats(rng, (state, wide), -reach, reach),
        "bias": floats(rng, (wide,), -1, 1),
        "state": floats(rng, (batch, state), -1, 1),
    }
    if mode == "lstm":
        made["cell"] = floats(rng, (batch, size), -1, 1)
    if projected:
        made["projection"] = floats(rng, (size, projected), -1, 1)
    if lengths is not None:
        made["length"] = np.array(lengths, "int32")
    return made


CASES = [
    ({}, {}),
    ({"batch": 3, "size": 5}, {"reverse": True}),
    ({"batch": 4, "size": 19}, {}),
    ({"lengths": [3, 1]}, {"lengths": True}),
    ({"lengths": [2, 4, 1], "batch": 3}, {"lengths": True, "reverse": True}),
]
PROJECTED = [
    ({"projected": 2}, {"projected": True}),
    ({"projected": 3, "size": 4, "lengths": [4, 2]}, {"projected": True, "lengths": True, "reverse": True}),
]
CLIPPED = [({}, {"clip_min": -0.3, "clip_max": 0.2})]


def _cases(mode):
    more = PROJECTED + CLIPPED if mode == "lstm" else []
    return [(sizes, {"mode": mode, **attrs}) for sizes, attrs in CASES + more]


def _layer(torch, given, mode, projected):
    """PyTorch's layer in both directions, of which only one is used in the end."""
    wide, state = given["gates"].shape[2], given["state"].shape[1]
    make = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode, torch.nn.RNN)
    kwargs = {"nonlinearity": mode[4:]} if mode.startswith("rnn") else {}
    kwargs |= {"proj_size": state} if projected else {}
    layer = make(wide, wide // GATES[mode], bidirectional=True, **kwargs)
    weights = [torch.eye(wide), given["weight"].T, torch.zeros(wide), given["bias"]]
    weights += [given["projection"].T] if projected else []
    names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0"]
    chosen = {f"{n}{way}": w for n, w in zip(names, weights) for way in ("", "_reverse")}
    return layer.to(given["gates"].dtype), chosen


def _by_torch(
    torch, names, arrays, mode, reverse=False, projected=False, lengths=False, clip_min=None, clip_max=None, kept=False
):
    given = dict(zip(names, arrays))
    if clip_min is not None:
        return _clipped(torch, given, clip_min, clip_max)
    layer, weights = _layer(torch, given, mode, projected)
    first = [torch.stack([given[n]] * 2) for n in ("state", "cell") if n in given]
    x, utils = given["gates"], torch.nn.utils.rnn
    if lengths:
        x = utils.pack_padded_sequence(x, given["length"], enforce_sorted=False)
    start = tuple(first) if mode == "lstm" else first[0]
    out, last = torch.func.functional_call(layer, weights, (x, start))
    if lengths:
        out, _ = utils.pad_packed_sequence(out, total_length=len(given["gates"]))
    last = last if mode == "lstm" else (last,)
    return out.chunk(2, 2)[int(reverse)], *(value[int(reverse)] for value in last)


def _clipped(torch, given, low, high):
    """An lstm whose cell is cut after every step."""
    h, c, outs = given["state"], given["cell"], []
    for x in given["gates"]:
        i, f, g, o = (x + h @ given["weight"] + given["bias"]).chunk(4, 1)
        c = (f.sigmoid() * c + i.sigmoid() * g.tanh()).clamp(low, high)
        h = o.sigmoid() * c.tanh()
        outs.append(h)
    return torch.stack(outs), h, c


def _kept(torch, given, mode):
    """One sequence after the other, those with lengths from their ends, and what a step leaves."""
    many, batch = given["gates"].shape[:2]
    made = [_sequence(torch, given, mode, n, many) for n in range(batch)]
    steps = [torch.stack(parts, 1) for parts in zip(*(one[0] for one in made))]
    last = [torch.stack(parts) for parts in zip(*(one[1] for one in made))]
    return steps[0], *last, *steps[1:]


def _sequence(torch, given, mode, n, many):
    """Outputs, gates and cells of all steps of sequence n, and its last state and cell."""
    state = [given[name][n] for name in ("state", "cell") if name in given]
    count = int(given["length"][n]) if "length" in given else many
    order = range(count - 1, -1, -1) if "length" in given else range(count)
    kept = [[None] * many for _ in range(3)]
    for t in order:
        own = given["weight"].T @ state[0] + given["bias"]
        gates, state = _step(torch, mode, given["gates"][t, n], own, state)
        for place, value in zip(kept, (state[0], gates, state[-1])):
            place[t] = value
    kept = [torch.stack([torch.zeros_like(p[order[0]]) if v is None else v for v in p]) for p in kept]
    return kept if mode == "lstm" else kept[:2], state


def _step(torch, mode, x, own, state):
    if mode == "lstm":
        i, f, g, o = (x + own).chunk(4)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        cell = f * state[1] + i * g
        return torch.cat([i, f, g, o]), [o * cell.tanh(), cell]
    if mode == "gru":
        (r, z, n), (own_r, own_z, own_n) = x.chunk(3), own.chunk(3)
        r, z = (r + own_r).sigmoid(), (z + own_z).sigmoid()
        n = (n + r * own_n).tanh()
        return torch.cat([r, z, n, own_n]), [(1 - z) * n + z * state[0]]
    new = (x + own).tanh() if mode == "rnn_tanh" else (x + own).relu()
    return new, [new]


@samples("rnn")
def rnn(rng, torch):
    for mode in GATES:
        for sizes, attrs in _cases(mode):
            given = _inputs(rng, mode, **sizes)
            oracle = lambda *a, n=list(given), kw=attrs: _by_torch(torch, n, a, **kw)
            yield Sample(list(given.values()), attrs, oracle, rtol=1e-4, atol=1e-5)
        given = _inputs(rng, mode, lengths=[0, 9])
        yield Sample(list(given.values()), {"mode": mode, "lengths": True}, rtol=1e-4, atol=1e-5)
        for sizes in ({}, {"lengths": [2, 4]}):
            given = _inputs(rng, mode, **sizes)
            attrs = {"mode": mode, "kept": True, "lengths": bool(sizes), "reverse": bool(sizes)}
            oracle = lambda *a, n=list(given), m=mode: _kept(torch, dict(zip(n, a)), m)
            yield Sample(list(given.values()), attrs, oracle, differentiable=False, rtol=1e-4, atol=1e-5)
    for sizes, attrs in CASES:
        given = _inputs(rng, "gru", **sizes)
        oracle = lambda *a, n=list(given), kw=attrs: _reset_first(torch, dict(zip(n, a)), kw.get("reverse"))
        attrs = {"mode": "gru", "reset_first": True, **attrs}
        yield Sample(list(given.values()), attrs, oracle, differentiable=False, rtol=1e-4, atol=1e-5)
    none = _inputs(rng, "gru", batch=0)
    yield Sample(list(none.values()), {"mode": "gru"})


def _reset_first(torch, given, reverse):
    """A gru whose r acts on the state, sequence by sequence and step by step."""
    steps, batch, wide = given["gates"].shape
    outputs, last = torch.zeros(steps, batch, wide // 3, dtype=given["gates"].dtype), []
    weights, biases = given["weight"].chunk(3, 1), given["bias"].chunk(3)
    for number in range(batch):
        h, count = given["state"][number], int(given["length"][number]) if "length" in given else steps
        for time in reversed(range(count)) if reverse else range(count):
            x = given["gates"][time, number].chunk(3)
            r, z = (torch.sigmoid(x[k] + h @ weights[k] + biases[k]) for k in range(2))
            n = torch.tanh(x[2] + (r * h) @ weights[2] + biases[2])
            h = outputs[time, number] = (1 - z) * n + z * h
        last.append(h)
    return outputs, torch.stack(last)


@samples("_packed_rnn")
def packed_rnn(rng, torch):
    for mode in GATES:
        for lanes, (sizes, attrs) in zip((16, 32, 64, 16, 32, 16, 64, 32), _cases(mode)):
            given = _inputs(rng, mode, **sizes)
            wide, names = given["weight"].shape[1], list(given)
            padded = np.pad(given["weight"], ((0, 0), (0, -wide % lanes)))
            given["weight"] = np.stack(np.split(padded, padded.shape[1] // lanes, 1))

            def oracle(*a, n=names, kw=attrs, wide=wide):
                gates, panels, *rest = a
                return _by_torch(torch, n, (gates, torch.cat(list(panels), 1)[:, :wide], *rest), **kw)

            yield Sample(list(given.values()), attrs, oracle, rtol=1e-4, atol=1e-5)
    none = _inputs(rng, "gru", batch=0)
    none["weight"] = np.zeros((1, 3, 16), "float32")
    yield Sample(list(none.values()), {"mode": "gru"})


@samples("_rnn_grad")
def rnn_grad(rng, torch):
    for mode in GATES:
        for sizes, attrs in _cases(mode):
            given = _inputs(rng, mode, **sizes)
            names = list(given)
            state = given["state"].shape
            heads = [floats(rng, (*given["gates"].shape[:1], *state)), floats(rng, state)]
            heads += [floats(rng, given["cell"].shape)] if mode == "lstm" else []

            def oracle(*arrays, n=names, given_heads=heads, kw=attrs):
                count = len(given_heads)
                arrays = [a.clone() for a in arrays]
                inputs = arrays[count : count + len(n)]
                inputs[0].requires_grad_()
                outs = _by_torch(torch, n, inputs, **kw)
                return torch.autograd.grad(outs, inputs[0], arrays[:count])

            attrs = {**attrs, "kept": True}
            op = Op.get("rnn")
            params = op.parse({key: text_of(value) for key, value in attrs.items()})
            made = Op.reference[op](params, *given.values())
            kept = made[-2:] if mode == "lstm" else made[-1:]
            yield Sample(
                [*heads, *given.values(), made[0], *kept], attrs, oracle, differentiable=False, rtol=1e-4, atol=1e-5
            )

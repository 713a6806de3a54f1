"""Samples of connectionist temporal classification; PyTorch's loss is the oracle."""

import numpy as np
from sample import Sample, floats, samples

CASES = [
    ((5, 2, 4), 2, [5, 5], [2, 1], {}),
    ((7, 3, 6), 3, [7, 4, 2], [3, 2, 0], {"blank": 5}),
    ((9, 2, 3), 4, [9, 8], [4, 3], {"blank": 1}),
    ((40, 2, 5), 19, [40, 39], [19, 3], {}),
    ((1, 1, 2), 1, [1], [1], {}),
]
UNREACHABLE = [((3, 3, 4), 3, [2, 3, 0], [3, 3, 0], {}), ((3, 3, 4), 3, [2, 3, 0], [3, 2, 2], {"zero_infinity": True})]


def _inputs(rng, shape, most, steps, count, blank=0):
    raw = floats(rng, shape)
    data = raw - np.log(np.exp(raw).sum(2, keepdims=True))
    labels = rng.integers(0, shape[2] - 1, (shape[1], most))
    labels = np.where(labels >= blank, labels + 1, labels)
    labels[:, 1:2] = labels[:, :1]  # a label twice, which needs a blank between
    return [data.astype("float32"), labels, np.array(steps, "int32"), np.array(count)]


def _by_torch(torch, data, labels, steps, count, blank=0, zero_infinity=False, **more):
    return torch.nn.functional.ctc_loss(data, labels.long(), steps.long(), count.long(), blank, "none", zero_infinity)


@samples("ctc_loss")
def ctc_loss(rng, torch):
    for shape, most, steps, count, attrs in CASES:
        given = _inputs(rng, shape, most, steps, count, attrs.get("blank", 0))
        loss = lambda *a, kw=attrs: _by_torch(torch, *a, **kw)
        yield Sample(given, attrs, loss, rtol=1e-5, atol=1e-5)
        full = [len(given[0])] * shape[1], [most] * shape[1]
        if shape[0] > 2 * most:
            both = lambda x, y, *_, kw=attrs, full=full: torch.ops.aten._ctc_loss(
                x, y.long(), *full, kw.get("blank", 0)
            )
            whole = [*given[:2], *(np.array(n) for n in full)]
            yield Sample(whole, {**attrs, "kept": True}, both, differentiable=False, rtol=1e-5, atol=1e-5)
    for shape, most, steps, count, attrs in UNREACHABLE:
        loss = lambda *a, kw=attrs: _by_torch(torch, *a, **kw)
        yield Sample(_inputs(rng, shape, most, steps, count), attrs, loss, differentiable=False)
    none = _inputs(rng, (3, 2, 4), 0, [3, 2], [0, 0])
    yield Sample(none, {}, lambda *a: _by_torch(torch, *a), rtol=1e-5, atol=1e-5)


@samples("_ctc_loss_grad")
def ctc_loss_grad(rng, torch):
    for shape, most, steps, count, attrs in [*CASES, *UNREACHABLE]:
        given = _inputs(rng, shape, most, steps, count, attrs.get("blank", 0))
        g = floats(rng, (shape[1],))
        aten = torch.ops.aten
        lengths = [given[2].tolist(), given[3].tolist()]
        blank, zero = attrs.get("blank", 0), attrs.get("zero_infinity", False)
        data, labels = torch.tensor(given[0]), torch.tensor(given[1])
        loss, alpha = aten._ctc_loss(data, labels, *lengths, blank, zero)
        kept = _alpha_where_it_is(alpha.numpy(), *lengths)

        def oracle(g, x, y, s, c, a, loss=loss, alpha=alpha, lengths=lengths, rest=(blank, zero)):
            return torch.ops.aten._ctc_loss_backward(g, x, y, *lengths, loss, alpha, *rest)

        attrs = {**attrs, "kept": True, "normalized": True}
        yield Sample([g, *given, kept], attrs, oracle, differentiable=False, rtol=1e-4, atol=1e-5)
    given = _inputs(rng, (3, 0, 4), 2, [], [])
    alpha = np.zeros((0, 3, 5), "float32")
    lengths = [values.astype("int64") for values in given[2:]]
    empty = [floats(rng, (0,)), *given[:2], *lengths, alpha]
    yield Sample(empty, {"kept": True}, differentiable=False)


@samples("_ctc_loss_second")
def ctc_loss_second(rng, torch):
    for shape, most, steps, count, attrs in CASES[:3]:
        given = _inputs(rng, shape, most, steps, count, attrs.get("blank", 0))
        v, g = floats(rng, shape), floats(rng, (shape[1],))
        alpha = torch.ops.aten._ctc_loss(torch.tensor(given[0]), torch.tensor(given[1]), steps, count, **attrs)[1]
        kept = _alpha_where_it_is(alpha.numpy(), steps, count)

        def oracle(v, g, x, y, s, c, a, attrs=attrs):
            loss = lambda x: (g.double() * _stepwise(torch, x, y, s, c, attrs.get("blank", 0))).sum()
            return torch.autograd.functional.hvp(loss, x.double(), v.double())[1].float()

        yield Sample([v, g, *given, kept], {**attrs, "kept": True}, oracle, differentiable=False, rtol=1e-3, atol=1e-4)
    lost = _inputs(rng, (3, 2, 4), 3, [2, 0], [3, 1])
    alpha = np.full((2, 3, 7), -np.inf, "float32")
    for zero in (True, False):
        gone = lambda v, *_, zero=zero: v * 0 if zero else v * np.nan
        attrs = {"kept": True, "normalized": True, "zero_infinity": zero}
        yield Sample([floats(rng, (3, 2, 4)), floats(rng, (2,)), *lost, alpha], attrs, gone, differentiable=False)
    none = [
        floats(rng, (0, 1, 4)),
        floats(rng, (1,)),
        *_inputs(rng, (0, 1, 4), 1, [0], [1]),
        np.zeros((1, 0, 3), "float32"),
    ]
    yield Sample(none, {"kept": True}, differentiable=False)


def _stepwise(torch, x, labels, steps, count, blank):
    """The losses, state by state, which PyTorch can differentiate twice."""
    losses = []
    for n, (end, own) in enumerate(zip(steps.tolist(), count.tolist())):
        kinds = [blank, *(kind for label in labels[n, :own].tolist() for kind in (label, blank))]
        row = [x[0, n, kind] if state < 2 else None for state, kind in enumerate(kinds)]
        for step in range(1, end):
            before = row
            row = []
            for state, kind in enumerate(kinds):
                skips = state > 1 and kind not in (blank, kinds[state - 2])
                parts = [before[at] for at in range(max(state - 1 - skips, 0), state + 1) if before[at] is not None]
                row.append(torch.stack(parts).logsumexp(0) + x[step, n, kind] if parts else None)
        losses.append(-torch.stack([part for part in row[-2:] if part is not None]).logsumexp(0))
    return torch.stack(losses)


def _alpha_where_it_is(alpha, steps, count):
    """PyTorch leaves the rest of its memory as it was."""
    made = np.full_like(alpha, -np.inf)
    for n, (end, own) in enumerate(zip(steps, count)):
        made[n, :end, : 2 * own + 1] = alpha[n, :end, : 2 * own + 1]
    return made

"""Samples of dense, softmax, pad, activations, norms and attention."""

from __future__ import annotations

import numpy as np
from sample import Sample, floats, samples


@samples("dense")
def dense(rng, torch):
    linear = torch.nn.functional.linear
    for shape in ((2, 5), (5,), (2, 3, 4), (0, 3)):
        k = shape[-1]
        weight, bias = floats(rng, (3, k)), floats(rng, (3,))
        yield Sample([floats(rng, shape), weight, bias], {"units": 3}, linear, atol=1e-5)
        yield Sample([floats(rng, shape), weight], {"units": 3, "use_bias": False}, linear, atol=1e-5)


@samples("_as_rows")
def as_rows(rng, torch):
    for shape in ((4,), (2, 3), (2, 3, 4), (2, 0, 3)):
        yield Sample([floats(rng, shape)], {}, lambda x: x.flatten(0, -2) if x.ndim > 1 else x[None])


@samples("softmax")
def softmax(rng, torch):
    for shape, axis in (((5,), -1), ((3, 4), 0), ((2, 3, 4), 1), ((2, 1, 3), -1), ((0, 3), 1)):
        yield Sample([floats(rng, shape, -20, 20)], {"axis": axis}, lambda x, a=axis: torch.softmax(x, a))


CLASS_SAMPLES = (
    ((3, 4), 1, "none"),
    ((4, 3), 1, "mean"),
    ((2, 3, 4), 1, "none"),
    ((2, 3, 2, 2), -1, "sum"),
    ((5, 2, 3), 1, "mean"),
    ((5,), 0, "none"),
    ((0, 3), 1, "none"),
    ((0, 3), 1, "sum"),
)


def _classes(rng, shape, axis):
    """Some of them count nothing."""
    axis %= len(shape)
    rows = (*shape[:axis], *shape[axis + 1 :])
    return np.asarray(rng.integers(-1, shape[axis], rows))


def _class_losses(torch, name, x, classes, axis, **options):
    scores = x.movedim(axis, -1).reshape(-1, x.shape[axis])
    losses = getattr(torch.nn.functional, name)(scores, classes.reshape(-1).long(), ignore_index=-1, **options)
    return losses.reshape(classes.shape) if losses.ndim else losses


def _loss_samples(op_name, name, smoothings):
    """Samples of an operator and of its gradient, which PyTorch has under a name."""
    cases = [(*sample, smoothing) for smoothing in smoothings for sample in CLASS_SAMPLES]

    def options(axis, how, smoothing):
        ours, theirs = {"axis": axis, "reduction": how}, {"axis": axis, "reduction": how}
        if smoothing:
            ours["smoothing"] = theirs["label_smoothing"] = smoothing
        return ours, theirs

    @samples(op_name)
    def losses(rng, torch):
        for shape, *case in cases:
            ours, theirs = options(*case)
            yield Sample(
                [floats(rng, shape, -5, 5), _classes(rng, shape, case[0])],
                ours,
                lambda x, classes, given=theirs: _class_losses(torch, name, x, classes, **given),
            )

    @samples(f"_{op_name}_grad")
    def gradients(rng, torch):
        def run(g, x, classes, given):
            own = x.detach().clone().requires_grad_()
            return torch.autograd.grad(_class_losses(torch, name, own, classes, **given), own, g)[0]

        for shape, *case in cases:
            ours, theirs = options(*case)
            classes = _classes(rng, shape, case[0])
            g = floats(rng, classes.shape if case[1] == "none" else ())
            yield Sample(
                [g, floats(rng, shape, -5, 5), classes],
                ours,
                lambda g, x, classes, given=theirs: run(g, x, classes, given),
            )


_loss_samples("softmax_cross_entropy", "cross_entropy", (0.0, 0.25))
_loss_samples("nll_loss", "nll_loss", (0.0,))


@samples("log_softmax")
def log_softmax(rng, torch):
    for shape, axis in (((5,), -1), ((3, 4), 0), ((2, 3, 4), 1), ((2, 1, 3), -1), ((0, 3), 1)):
        yield Sample(
            [floats(rng, shape, -20, 20)], {"axis": axis}, lambda x, a=axis: torch.log_softmax(x, a), atol=1e-5
        )


@samples("pad")
def pad(rng, torch):
    fn = torch.nn.functional.pad
    names = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}
    for mode, name in names.items():
        for widths in (((0, 0), (0, 0), (1, 2), (2, 0)), ((0, 0), (0, 0), (0, 0), (0, 1))):
            flat = [n for pair in widths[:1:-1] for n in pair]
            extra = {"value": 1.5} if mode == "constant" else {}
            yield Sample(
                [floats(rng, (1, 2, 3, 4))],
                {"pad_width": widths, "mode": mode, "pad_value": 1.5},
                lambda x, flat=flat, name=name, extra=extra: fn(x, flat, mode=name, **extra),
            )
    yield Sample([floats(rng, (2, 0))], {"pad_width": ((1, 0), (1, 1))}, lambda x: fn(x, (1, 1, 1, 0)))
    yield Sample([floats(rng, (3,))], {"pad_width": ((2, 1),)}, lambda x: fn(x, (2, 1)))


@samples("_pad_grad")
def pad_grad(rng, torch):
    fn = torch.nn.functional.pad
    names = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}
    for mode, name in names.items():
        for widths in (((0, 0), (0, 0), (1, 2), (2, 1)), ((0, 0), (0, 0), (0, 1), (3, 0))):
            flat = [n for pair in widths[:1:-1] for n in pair]

            def transposed(g, flat=flat, name=name, widths=widths):
                shape = [extent - sum(pair) for extent, pair in zip(g.shape, widths)]
                x = torch.zeros(shape, requires_grad=True)
                fn(x, flat, mode=name).backward(g)
                return x.grad

            shape = [n + sum(pair) for n, pair in zip((1, 2, 4, 4), widths)]
            yield Sample([floats(rng, shape)], {"pad_width": widths, "mode": mode}, transposed, atol=1e-5)


# Activations


def activation(name, attrs, oracle_name, **kwargs):
    @samples(name)
    def maker(rng, torch):
        fn = getattr(torch.nn.functional, oracle_name)
        for shape in ((), (7,), (3, 5), (2, 0)):
            data = floats(rng, shape, -5, 5, gap=0.01)
            yield Sample([data], attrs, lambda x: fn(x, **kwargs))
        edge = np.array([-40, -3.5, 3.5, 40, 90, -90], np.float32)
        yield Sample([edge], attrs, lambda x: fn(x, **kwargs), differentiable=False)


activation("leaky_relu", {"alpha": 0.1}, "leaky_relu", negative_slope=0.1)
activation("elu", {"alpha": 1.5}, "elu", alpha=1.5)
activation("selu", {}, "selu")
activation("gelu", {}, "gelu")
activation("gelu", {"approximate": "tanh"}, "gelu", approximate="tanh")
activation("silu", {}, "silu")
activation("softplus", {}, "softplus")
activation("softsign", {}, "softsign")
activation("mish", {}, "mish")
activation("hard_sigmoid", {"alpha": 1 / 6, "beta": 0.5}, "hardsigmoid")
activation("hard_swish", {}, "hardswish")


@samples("prelu")
def prelu(rng, torch):
    fn = torch.nn.functional.prelu
    for shape in ((2, 3), (2, 3, 4), (1, 2, 3, 2)):
        data = floats(rng, shape, gap=0.01)
        yield Sample([data, floats(rng, (shape[1],))], {}, fn)
    yield Sample(
        [floats(rng, (2, 4, 3), gap=0.01), floats(rng, (3,))],
        {"axis": -1},
        lambda x, a: fn(x.movedim(-1, 1), a).movedim(1, -1),
    )


# Norms


@samples("batch_norm")
def batch_norm(rng, torch):
    def statistics(count):
        return [floats(rng, (count,)), floats(rng, (count,)), floats(rng, (count,)), floats(rng, (count,), 0.2, 2)]

    def oracle(axis, training, epsilon, scale=True, center=True):
        def run(x, gamma, beta, mean, var):
            moved = torch.nn.functional.batch_norm(
                x.movedim(axis, 1),
                mean,
                var,
                gamma if scale else None,
                beta if center else None,
                training,
                0.2,
                epsilon,
            )
            if not training:
                return moved.movedim(1, axis), mean, var
            flat = x.movedim(axis, 0).flatten(1)
            batch = flat.mean(1), flat.var(1, unbiased=False)
            return moved.movedim(1, axis), *batch, mean, var

        return run

    for axis, shape in ((1, (3, 2, 4)), (-1, (2, 3, 2, 2)), (1, (4, 3)), (1, (2, 3, 1, 2))):
        for training in (False, True):
            attrs = {"axis": axis, "training": training, "epsilon": 1e-3, "momentum": 0.8, "unbiased": True}
            yield Sample(
                [floats(rng, shape), *statistics(shape[axis])],
                attrs,
                oracle(axis, training, 1e-3),
                rtol=1e-4,
                atol=1e-5,
            )
    for training in (False, True):
        attrs = {"scale": False, "center": False, "training": training, "momentum": 0.8}
        yield Sample(
            [floats(rng, (3, 2, 2)), *statistics(2)],
            {**attrs, "unbiased": True},
            oracle(1, training, 1e-5, scale=False, center=False),
            rtol=1e-4,
            atol=1e-5,
        )


@samples("layer_norm")
def layer_norm(rng, torch):
    fn = torch.nn.functional.layer_norm
    for shape, axis in (((3, 5), -1), ((2, 3, 4), -2), ((2, 3, 4), 1), ((3, 4), 0), ((0, 3), -1)):
        own = shape[axis:]
        yield Sample(
            [floats(rng, shape), floats(rng, own), floats(rng, own)],
            {"axis": axis, "epsilon": 1e-3},
            lambda x, gamma, beta: fn(x, gamma.shape, gamma, beta, 1e-3),
            rtol=1e-4,
            atol=1e-5,
        )


@samples("rms_norm")
def rms_norm(rng, torch):
    fn = torch.nn.functional.rms_norm
    for shape, axis in (((3, 5), -1), ((2, 3, 4), -2), ((2, 3, 4), 1), ((3, 4), 0)):
        yield Sample(
            [floats(rng, shape), floats(rng, shape[axis:])],
            {"axis": axis, "epsilon": 1e-3},
            lambda x, gamma: fn(x, gamma.shape, gamma, 1e-3),
            rtol=1e-4,
            atol=1e-5,
        )


@samples("instance_norm")
def instance_norm(rng, torch):
    for shape in ((2, 3, 4), (1, 2, 3, 2)):
        yield Sample(
            [floats(rng, shape), floats(rng, (shape[1],)), floats(rng, (shape[1],))],
            {"epsilon": 1e-3},
            lambda x, g, b: torch.nn.functional.instance_norm(x, weight=g, bias=b, eps=1e-3),
            rtol=1e-4,
            atol=1e-5,
        )


@samples("group_norm")
def group_norm(rng, torch):
    for shape, groups in (((2, 6, 2), 3), ((1, 4, 3, 2), 1), ((2, 4), 2)):
        yield Sample(
            [floats(rng, shape), floats(rng, (shape[1],)), floats(rng, (shape[1],))],
            {"num_groups": groups, "epsilon": 1e-3},
            lambda x, g, b, n=groups: torch.nn.functional.group_norm(x, n, g, b, 1e-3),
            rtol=1e-4,
            atol=1e-5,
        )


# Gradients of norms


def _pulled(torch, forward, inputs, g, outputs=3):
    """The gradients of the first inputs of a call, as PyTorch gives them."""
    own = [x.detach().clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(forward(*own), own[:outputs], g)


@samples("_layer_norm_grad")
def layer_norm_grad(rng, torch):
    fn = torch.nn.functional.layer_norm
    for shape, axis in (((3, 5), -1), ((2, 3, 4), -2), ((2, 3, 4), 1), ((3, 4), 0), ((0, 3), -1)):
        own = shape[axis:]
        run = lambda x, gamma, beta: fn(x, gamma.shape, gamma, beta, 1e-3)
        yield Sample(
            [floats(rng, shape), floats(rng, shape), floats(rng, own)],
            {"axis": axis, "epsilon": 1e-3},
            lambda g, x, gamma, run=run: _pulled(torch, run, [x, gamma, torch.zeros_like(gamma)], g),
            rtol=1e-4,
            atol=1e-5,
        )


@samples("_rms_norm_grad")
def rms_norm_grad(rng, torch):
    fn = torch.nn.functional.rms_norm
    for shape, axis in (((3, 5), -1), ((2, 3, 4), -2), ((2, 3, 4), 1), ((3, 4), 0)):
        run = lambda x, gamma: fn(x, gamma.shape, gamma, 1e-3)
        yield Sample(
            [floats(rng, shape), floats(rng, shape), floats(rng, shape[axis:])],
            {"axis": axis, "epsilon": 1e-3},
            lambda g, x, gamma, run=run: _pulled(torch, run, [x, gamma], g),
            rtol=1e-4,
            atol=1e-5,
        )


def _channel_gradients(rng, torch, shape, attrs, run):
    return Sample(
        [floats(rng, shape), floats(rng, shape), floats(rng, (shape[1],))],
        {"epsilon": 1e-3, **attrs},
        lambda g, x, gamma: _pulled(torch, run, [x, gamma, torch.zeros_like(gamma)], g),
        rtol=1e-4,
        atol=1e-5,
    )


@samples("_instance_norm_grad")
def instance_norm_grad(rng, torch):
    run = lambda x, g, b: torch.nn.functional.instance_norm(x, weight=g, bias=b, eps=1e-3)
    for shape in ((2, 3, 4), (1, 2, 3, 2)):
        yield _channel_gradients(rng, torch, shape, {}, run)


@samples("_group_norm_grad")
def group_norm_grad(rng, torch):
    for shape, groups in (((2, 6, 2), 3), ((1, 4, 3, 2), 1), ((2, 6), 1)):
        run = lambda x, g, b, n=groups: torch.nn.functional.group_norm(x, n, g, b, 1e-3)
        yield _channel_gradients(rng, torch, shape, {"num_groups": groups}, run)


@samples("_batch_norm_moments")
def batch_norm_moments(rng, torch):
    def oracle(axis):
        def run(x, gamma, beta):
            flat = x.movedim(axis, 0).flatten(1)
            made = torch.nn.functional.batch_norm(x.movedim(axis, 1), None, None, gamma, beta, True, 0.1, 1e-3)
            return made.movedim(1, axis), flat.mean(1), flat.var(1, unbiased=False)

        return run

    for axis, shape in ((1, (3, 2, 4)), (-1, (2, 3, 2, 2)), (1, (4, 3))):
        inputs = [floats(rng, shape), floats(rng, (shape[axis],)), floats(rng, (shape[axis],))]
        attrs = {"axis": axis, "epsilon": 1e-3, "training": True}
        yield Sample(inputs, attrs, oracle(axis), rtol=1e-4, atol=1e-5)


@samples("_batch_norm_grad")
def batch_norm_grad(rng, torch):
    def oracle(axis, scale):
        """dmean and dvar reach the data through the moments, which are taken to be its own."""

        def run(g, x, gamma, mean, var, to_mean, to_var):
            def outputs(x, gamma, beta):
                dims = [d for d in range(x.ndim) if d != axis % x.ndim]

                means, squares = x.mean(dims), x.var(dims, unbiased=False)
                made = torch.nn.functional.batch_norm(
                    x.movedim(axis, 1), None, None, gamma if scale else None, beta, True, 0.1, 1e-3
                ).movedim(1, axis)
                return (made * g).sum() + (means * to_mean).sum() + (squares * to_var).sum()

            own = [v.detach().clone().requires_grad_() for v in (x, gamma, torch.zeros_like(gamma))]
            grads = torch.autograd.grad(outputs(*own), own, allow_unused=True)
            if scale:
                return grads
            unit = torch.nn.functional.batch_norm(x.movedim(axis, 1), None, None, None, None, True, 0.1, 1e-3).movedim(
                1, axis
            )
            dims = [d for d in range(x.ndim) if d != axis % x.ndim]
            return grads[0], (g * unit).sum(dims), grads[2]

        return run

    for axis, shape, scale in ((1, (3, 2, 4), True), (-1, (2, 3, 2, 2), True), (1, (4, 3), False)):
        x = floats(rng, shape)
        axes = tuple(d for d in range(len(shape)) if d != axis % len(shape))
        vectors = [floats(rng, (shape[axis],)) for _ in range(3)]
        inputs = [floats(rng, shape), x, vectors[0], x.mean(axes), x.var(axes), *vectors[1:]]
        yield Sample(
            inputs,
            {"axis": axis, "epsilon": 1e-3, "scale": scale, "training": True},
            oracle(axis, scale),
            rtol=1e-4,
            atol=1e-5,
        )


@samples("lrn")
def lrn(rng, torch):
    fn = torch.nn.functional.local_response_norm
    for size in (1, 2, 5):
        yield Sample(
            [floats(rng, (2, 6, 3))],
            {"size": size, "axis": 1, "alpha": 0.3, "beta": 0.75, "bias": 2.0},
            lambda x, size=size: fn(x, size, 0.3, 0.75, 2.0),
        )
    yield Sample(
        [floats(rng, (2, 3, 6))],
        {"size": 3, "axis": -1, "alpha": 0.3, "beta": 0.75, "bias": 2.0},
        lambda x: fn(x.movedim(-1, 1), 3, 0.3, 0.75, 2.0).movedim(1, -1),
    )


@samples("_window_sum", system="numpy")
def window_sum(rng, numpy):
    for size, before in ((1, 0), (3, 0), (3, 2), (4, 2)):
        yield Sample(
            [floats(rng, (2, 5))],
            {"size": size, "before": before, "axis": 1},
            lambda x, n=size, b=before: numpy.stack(
                [x[:, max(0, i - b) : max(0, i - b + n)].sum(1) for i in range(5)], axis=1
            ),
            atol=1e-5,
        )


@samples("l2_normalize")
def l2_normalize(rng, torch):
    fn = torch.nn.functional.normalize
    for shape, axis in (((3, 4), (1,)), ((2, 3, 4), (-3,)), ((2, 3, 4), (1, -1))):
        yield Sample(
            [floats(rng, shape)],
            {"eps": 1e-12, "axis": axis},
            lambda x, axis=axis: x / torch.linalg.vector_norm(x, dim=axis, keepdim=True),
        )
    yield Sample([floats(rng, (3, 4)) * 1e-3], {"eps": 0.25, "axis": (1,)}, lambda x: fn(x, dim=1, eps=0.5))


# Attention


def attention_samples(rng):
    batch, length, sources, width, values = (2, 1), 3, 4, 5, 2
    arrays = [
        floats(rng, (*batch, length, width)),
        floats(rng, (*batch, sources, width)),
        floats(rng, (*batch, sources, values)),
    ]
    seen = rng.random((length, sources)) > 0.4
    seen[1], seen[0] = False, True  # one query sees nothing
    return arrays, [
        ({}, [], {}),
        ({"is_causal": True}, [], {"is_causal": True}),
        ({"scale": 0.3}, [], {"scale": 0.3}),
        ({"mask": "boolean"}, [seen], {}),
        ({"mask": "additive"}, [floats(rng, (2, 1, length, sources))], {}),
        ({"mask": "additive", "scale": 0.5}, [floats(rng, (length, 1))], {"scale": 0.5}),
    ]


@samples("scaled_dot_product_attention")
def attention(rng, torch):
    fn = torch.nn.functional.scaled_dot_product_attention
    arrays, cases = attention_samples(rng)
    for attrs, mask, options in cases:
        yield Sample(
            [*arrays, *mask],
            attrs,
            lambda q, k, v, m=None, options=options: fn(q, k, v, attn_mask=m, **options),
            rtol=1e-4,
            atol=1e-5,
        )
    yield Sample([a[0, 0] for a in arrays], {}, lambda q, k, v: fn(q, k, v), rtol=1e-4, atol=1e-5)


@samples("_scaled_dot_product_attention_grad")
def attention_grad(rng, torch):
    fn = torch.nn.functional.scaled_dot_product_attention
    arrays, cases = attention_samples(rng)
    grad = floats(rng, (2, 1, 3, 2))
    for attrs, mask, options in cases:

        def backward(g, q, k, v, m=None, options=options):
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            fn(*leaves, attn_mask=m, **options).backward(g)
            return [leaf.grad for leaf in leaves]

        yield Sample([grad, *arrays, *mask], attrs, backward, rtol=1e-4, atol=1e-5)

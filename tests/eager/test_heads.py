"""Attention of many heads with all its options, bags of rows, random choices with gradients, with
PyTorch as the witness."""

import itertools

import numpy as np
import pytest
from twins import agree, outcome, refuse

import weft

TARGETS, SOURCES, ITEMS, WIDTH, HEADS = 3, 4, 2, 6, 3


def options_of(seed):
    """Options drawn at random, and the arrays that go with them."""
    rng = np.random.default_rng(seed)
    flags = dict(zip("batched separate weights average bias zero causal static".split(), rng.random(8) < 0.5))
    flags["causal"] &= not flags["static"]
    normal = lambda *shape: rng.standard_normal(shape)
    wide = (5, 4) if flags["separate"] else (WIDTH, WIDTH)
    items = ITEMS if flags["batched"] else 1
    sized = lambda n, width: (n, ITEMS, width) if flags["batched"] else (n, width)
    arrays = {
        "query": normal(*sized(TARGETS, WIDTH)),
        "key": normal(*sized(SOURCES, wide[0])),
        "value": normal(*sized(SOURCES, wide[1])),
        "in_proj_bias": normal(3 * WIDTH),
        "out_proj_weight": normal(WIDTH, WIDTH),
        "out_proj_bias": normal(WIDTH),
        "in_proj_weight": None,
        "bias_k": None,
        "bias_v": None,
    }
    if flags["separate"]:
        arrays |= {f"{n}_proj_weight": normal(WIDTH, w) for n, w in zip("qkv", (WIDTH, *wide))}
    else:
        arrays["in_proj_weight"] = normal(3 * WIDTH, WIDTH)
    if flags["static"]:
        arrays |= {name: normal(items * HEADS, 7, WIDTH // HEADS) for name in ("static_k", "static_v")}
    else:
        if flags["bias"]:
            arrays |= {name: normal(1, 1, WIDTH) for name in ("bias_k", "bias_v")}
        arrays |= masks(rng, items, flags)
    return flags, arrays


def masks(rng, items, flags):
    made, kind = {}, rng.integers(4)
    padding = rng.random((items, SOURCES)) < 0.3
    padding[:, 0] = False
    if kind:
        shown = padding if kind == 1 else np.where(padding, -1.5, 0.25)
        made["key_padding_mask"] = shown if flags["batched"] else shown[0]
    kind = rng.integers(4)
    if kind or flags["causal"]:
        mask = ~np.tri(TARGETS, SOURCES, dtype=bool)
        if kind == 3:
            mask = np.broadcast_to(mask, (items * HEADS, TARGETS, SOURCES)).copy()
        made["attn_mask"] = np.where(mask, -np.inf, 0.3) if kind == 2 else mask
    return made


def attended(m, flags, arrays):
    tensors = {name: None if x is None else m.tensor(x) for name, x in arrays.items()}
    inputs = [x for x in tensors.values() if x is not None and x.is_floating_point()]
    inputs = [x.requires_grad_() for x in inputs]
    made, shares = m.nn.functional.multi_head_attention_forward(
        **tensors,
        embed_dim_to_check=WIDTH,
        num_heads=HEADS,
        dropout_p=0.4,
        training=False,
        add_zero_attn=bool(flags["zero"]),
        need_weights=bool(flags["weights"]),
        average_attn_weights=bool(flags["average"]),
        is_causal=bool(flags["causal"]),
        use_separate_proj_weight=bool(flags["separate"]),
    )
    loss = (made * made).sum() + (0 if shares is None else (shares**3).sum())
    grads = m.autograd.grad(loss, inputs, allow_unused=True)
    zeros = [m.zeros_like(x) if g is None else g for g, x in zip(grads, inputs)]
    finite = [g for g in zeros if bool(m.isfinite(g).all())]  # not those of infinite masks
    return [made, shares, *finite]


@pytest.mark.parametrize("seed", range(60))
def test_multi_head_attention(seed):
    flags, arrays = options_of(seed)
    agree(lambda m: attended(m, flags, arrays), 1e-8, 1e-9)


def attention(m, **changes):
    given = {
        "query": m.ones(3, 2, 6),
        "key": m.ones(4, 2, 6),
        "value": m.ones(4, 2, 6),
        "embed_dim_to_check": 6,
        "num_heads": 3,
        "in_proj_weight": m.ones(18, 6),
        "in_proj_bias": None,
        "bias_k": None,
        "bias_v": None,
        "add_zero_attn": False,
        "dropout_p": 0.0,
        "out_proj_weight": m.ones(6, 6),
        "out_proj_bias": None,
        **changes,
    }
    return m.nn.functional.multi_head_attention_forward(**given)


ATTENTION_ERRORS = {
    "rank": lambda m: attention(m, query=m.ones(6)),
    "ranks": lambda m: attention(m, key=m.ones(4, 6)),
    "width": lambda m: attention(m, embed_dim_to_check=7),
    "heads": lambda m: attention(m, num_heads=4),
    "no weight": lambda m: attention(m, in_proj_weight=None),
    "no weights": lambda m: attention(m, use_separate_proj_weight=True),
    "causal": lambda m: attention(m, is_causal=True),
    "mask of integers": lambda m: attention(m, attn_mask=m.ones(3, 4, dtype=m.int64)),
    "small mask": lambda m: attention(m, attn_mask=m.ones(3, 3)),
    "flat mask": lambda m: attention(m, attn_mask=m.ones(3)),
    "small padding": lambda m: attention(m, key_padding_mask=m.ones(2, 3)),
    "one bias": lambda m: attention(m, bias_k=m.ones(1, 1, 6)),
    "static": lambda m: attention(m, static_k=m.ones(5, 4, 2)),
    "values": lambda m: attention(m, value=m.ones(3, 2, 6)),
}


@pytest.mark.parametrize("name", ATTENTION_ERRORS)
def test_attention_refused(name):
    refuse(ATTENTION_ERRORS[name])


# Bags.

BAGS = list(itertools.product(["sum", "mean", "max"], [None, 2, -4], [False, True]))


@pytest.mark.parametrize(("mode", "padding", "last"), BAGS)
def test_embedding_bag(mode, padding, last):
    rng = np.random.default_rng(0)
    weight, own = rng.standard_normal((6, 3)), rng.standard_normal(9)
    places = rng.integers(0, 6, 9)
    starts = np.array([0, 2, 2, 6, 9] if last else [0, 2, 2, 6])

    def program(m):
        w, s = m.tensor(weight, requires_grad=True), m.tensor(own, requires_grad=True)
        made = m.nn.functional.embedding_bag(
            m.tensor(places),
            w,
            m.tensor(starts),
            mode=mode,
            padding_idx=padding,
            include_last_offset=last,
            per_sample_weights=s if mode == "sum" else None,
        )
        loss = (made * m.arange(12).reshape(4, 3)).sum()
        grads = m.autograd.grad(loss, [w, s] if mode == "sum" else [w])
        return [made, *grads, m.nn.functional.embedding_bag(m.tensor(places).view(3, 3), w)]

    agree(program, 1e-9, 1e-9)


def test_embedding_bag_by_frequency():
    """PyTorch divides by the count of another index; its other functions by that of the own."""
    places, weight = weft.tensor([[5, 1, 5], [5, 0, 1]]), weft.ones(6, 2, requires_grad=True)
    for options in ({}, {"scale_grad_by_freq": True}):
        made = weft.nn.functional.embedding_bag(places, weight, mode="sum", **options)
        (dw,) = weft.autograd.grad((made * weft.tensor([[1.0, 2], [3, 4]])).sum(), weight)
        often = 1 if not options else np.array([1, 2, 1, 1, 1, 3])[:, None]
        sums = np.array([[3, 4], [4, 6], [0, 0], [0, 0], [0, 0], [5, 8]])
        np.testing.assert_allclose(dw, sums / often, rtol=1e-6)


def test_embedding_bag_shortens_rows():
    def program(m):
        weight = m.arange(12.0).reshape(6, 2)
        made = m.nn.functional.embedding_bag(m.tensor([[1, 5]]), weight, max_norm=3.0)
        return [made, weight]

    agree(program)


def test_embedding_bag_of_the_core():
    def program(m):
        made = m.embedding_bag(m.arange(12.0).reshape(6, 2), m.tensor([0, 2, 2, 5, 1]), m.tensor([0, 2, 2]), False, 2)
        return [made[0], made[1], made[2], made[3]]

    agree(program)


def bag(m, places=(0, 2, 2, 5), starts=(0, 2), **options):
    given = m.tensor(list(places)), options.pop("weight", m.ones(6, 3)), m.tensor(list(starts))
    return m.nn.functional.embedding_bag(*given, **options)


BAG_ERRORS = {
    "index": lambda m: bag(m, (0, 6)),
    "negative index": lambda m: bag(m, (0, -1, 1)),
    "floating index": lambda m: bag(m, (0.0, 1.0)),
    "first offset": lambda m: bag(m, starts=(1, 2)),
    "last offset": lambda m: bag(m, starts=(0, 9)),
    "order": lambda m: bag(m, starts=(0, 3, 1)),
    "padding": lambda m: bag(m, padding_idx=6),
    "mode": lambda m: bag(m, mode="median"),
    "weights": lambda m: bag(m, per_sample_weights=m.ones(4)),
    "sizes of weights": lambda m: bag(m, mode="sum", per_sample_weights=m.ones(3)),
    "dtypes of weights": lambda m: bag(m, mode="sum", per_sample_weights=m.ones(4).double()),
    "frequency": lambda m: bag(m, mode="max", scale_grad_by_freq=True),
    "vector": lambda m: bag(m, weight=m.ones(3)),
    "integers": lambda m: bag(m, weight=m.ones(6, 3).int()),
    "no offsets": lambda m: m.nn.functional.embedding_bag(m.tensor([0]), m.ones(2, 2)),
    "offsets of rows": lambda m: m.nn.functional.embedding_bag(m.tensor([[0]]), m.ones(2, 2), m.tensor([0])),
}


@pytest.mark.parametrize("name", BAG_ERRORS)
def test_embedding_bag_refused(name):
    refuse(BAG_ERRORS[name])


# Random choices.


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("dim", [-1, 0])
def test_gumbel_softmax(hard, dim):
    def program(m):
        x = m.arange(12.0).reshape(3, 4).mul(0.1).requires_grad_()
        made = m.nn.functional.gumbel_softmax(x, 0.7, hard, dim=dim)
        loss = (made * m.arange(12).reshape(3, 4)).sum()
        return [made, *m.autograd.grad(loss, x)]

    agree(program, 1e-4, 1e-5)


def test_gumbel_softmax_draws_by_probability():
    x = weft.tensor([0.5, 0.3, 0.2], dtype=weft.float64).log().expand(4000, 3)
    made = outcome(weft, lambda m: m.nn.functional.gumbel_softmax(x, hard=True))
    np.testing.assert_allclose(made.mean(0), [0.5, 0.3, 0.2], atol=0.03)


def test_gumbel_softmax_refused():
    refuse(lambda m: m.nn.functional.gumbel_softmax(m.ones(2, dtype=m.int64)))
    refuse(lambda m: m.nn.functional.gumbel_softmax(m.ones(2), dim=3))

"""Attention of many heads and transformers against PyTorch's: masks, dropout from one seed, training and use."""

import numpy as np
import pytest
from oracles import oracle
from twin_modules import compare, refused_by_weft

import weft

rng = np.random.default_rng(0)
TARGETS, SOURCES, BATCH, WIDTH = 4, 5, 3, 8


def normal(*shape):
    return rng.normal(size=shape).astype("float32")


def mask(*shape):
    """True where a key is hidden; one of them at least is seen."""
    hidden = rng.random(shape) < 0.3
    hidden[..., 0] = False
    return hidden


def fixed(array):
    """A mask of numbers, without a gradient."""
    return lambda lib: lib.tensor(array.astype("float32"))


def causal(size):
    return lambda lib: lib.nn.Transformer.generate_square_subsequent_mask(size)


def of_form(length, width, single=False, batch_first=False):
    return normal(*((length,) if single else (BATCH, length) if batch_first else (length, BATCH)), width)


ATTENTIONS = {
    "plain": ({}, {}),
    "batch first": ({"batch_first": True}, {"average_attn_weights": False}),
    "without weights": ({"bias": False}, {"need_weights": False}),
    "other widths": ({"kdim": 3, "vdim": 6}, {"need_weights": False}),
    "other widths without bias": ({"kdim": 3, "bias": False, "batch_first": True}, {}),
    "more keys": ({"add_bias_kv": True, "add_zero_attn": True}, {"key_padding_mask": mask(BATCH, SOURCES)}),
    "more keys, masked": ({"add_bias_kv": True, "kdim": 4}, {"attn_mask": mask(TARGETS, SOURCES)}),
    "zeros without weights": ({"add_zero_attn": True}, {"attn_mask": normal(TARGETS, SOURCES), "need_weights": False}),
    "dropping": ({"dropout": 0.4}, {"attn_mask": fixed(normal(TARGETS, SOURCES))}),
    "dropping without weights": ({"dropout": 0.4, "batch_first": True}, {"need_weights": False}),
    "padding": ({}, {"key_padding_mask": mask(BATCH, SOURCES), "need_weights": False}),
    "padding by numbers": ({"batch_first": True}, {"key_padding_mask": fixed(normal(BATCH, SOURCES))}),
    "two masks": ({}, {"key_padding_mask": mask(BATCH, SOURCES), "attn_mask": mask(TARGETS, SOURCES)}),
    "a mask for each head": ({}, {"attn_mask": mask(BATCH * 2, TARGETS, SOURCES), "need_weights": False}),
    "numbers for each head": ({}, {"attn_mask": fixed(normal(BATCH * 2, TARGETS, SOURCES))}),
}
SINGLE = {
    "plain": ({"batch_first": True}, {}),
    "without weights": ({"dropout": 0.3}, {"need_weights": False, "attn_mask": mask(TARGETS, SOURCES)}),
    "padding": ({}, {"key_padding_mask": mask(SOURCES), "average_attn_weights": False}),
    "a mask for each head": ({"add_bias_kv": True}, {"attn_mask": mask(2, TARGETS, SOURCES)}),
}


def attend(single, options, named):
    first = options.get("batch_first", False)
    kdim = options.get("kdim", WIDTH)
    widths = ((TARGETS, WIDTH), (SOURCES, kdim), (SOURCES, options.get("vdim", WIDTH)))
    inputs = tuple(of_form(length, width, single, first) for length, width in widths)
    compare("MultiheadAttention", WIDTH, 2, inputs=inputs, named_inputs=named, **options)


@pytest.mark.parametrize("case", ATTENTIONS)
def test_attention(case):
    attend(False, *ATTENTIONS[case])


@pytest.mark.parametrize("case", SINGLE)
def test_attention_of_one_sequence(case):
    attend(True, *SINGLE[case])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_causal_attention(need_weights, padded):
    named = {"attn_mask": causal(TARGETS), "is_causal": True, "need_weights": need_weights}
    named |= {"key_padding_mask": fixed(np.where(mask(BATCH, TARGETS), -np.inf, 0))} if padded else {}
    inputs = [normal(TARGETS, BATCH, WIDTH) for _ in range(3)]
    compare("MultiheadAttention", WIDTH, 2, inputs=inputs, named_inputs=named)


LAYERS = {
    "plain": {"dropout": 0.0},
    "dropping": {},
    "norm first": {"norm_first": True, "batch_first": True, "dropout": 0.3},
    "gelu without bias": {"activation": "gelu", "bias": False, "layer_norm_eps": 1e-3},
    "an activation": {"activation": lambda lib: lib.tanh, "batch_first": True},
}
MASKS = {"none": False, "masked": True}


def hidden_ends(length):
    hidden = np.zeros((BATCH, length), bool)
    hidden[1:, -1] = True
    return hidden


def layer_of(name, options):
    """Builds a layer of 8 features in 2 heads."""

    def build(lib):
        more = {key: value(lib) if callable(value) else value for key, value in options.items()}
        return getattr(lib.nn, name)(WIDTH, 2, dim_feedforward=6, **more)

    return build


@pytest.mark.parametrize("masked", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("case", LAYERS)
def test_encoders(case, masked):
    options = LAYERS[case]
    x = of_form(SOURCES, WIDTH, batch_first=options.get("batch_first"))
    named = {"src_key_padding_mask": hidden_ends(SOURCES)} if masked else {}
    layer = layer_of("TransformerEncoderLayer", options)
    compare(layer, inputs=(x,), named_inputs=named | ({"src_mask": mask(SOURCES, SOURCES)} if masked else {}))

    def layers(lib):
        return lib.nn.TransformerEncoder(layer(lib), 2, norm=lib.nn.LayerNorm(WIDTH), enable_nested_tensor=False)

    compare(layers, inputs=(x,), named_inputs=named | ({"mask": mask(SOURCES, SOURCES)} if masked else {}))
    compare(layers, inputs=(x,), named_inputs={"mask": causal(SOURCES)})


@pytest.mark.parametrize("masked", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("case", LAYERS)
def test_decoders(case, masked):
    options = LAYERS[case]
    first = options.get("batch_first")
    inputs = of_form(TARGETS, WIDTH, batch_first=first), of_form(SOURCES, WIDTH, batch_first=first)
    named = {
        "tgt_mask": mask(TARGETS, TARGETS),
        "memory_mask": fixed(normal(TARGETS, SOURCES)),
        "tgt_key_padding_mask": hidden_ends(TARGETS),
        "memory_key_padding_mask": fixed(np.where(hidden_ends(SOURCES), -np.inf, 0)),
    }
    layer = layer_of("TransformerDecoderLayer", options)
    compare(layer, inputs=inputs, named_inputs=named if masked else {})
    layers = lambda lib: lib.nn.TransformerDecoder(layer(lib), 2)
    compare(layers, inputs=inputs, named_inputs=named if masked else {"tgt_mask": causal(TARGETS)})


@pytest.mark.parametrize("single", [False, True], ids=["batch", "single"])
@pytest.mark.parametrize("case", LAYERS)
def test_transformers(case, single):
    options = LAYERS[case]
    first = options.get("batch_first")
    inputs = [of_form(length, WIDTH, single, first) for length in (SOURCES, TARGETS)]
    named = {"tgt_mask": causal(TARGETS)}
    named |= {} if single else {"src_key_padding_mask": hidden_ends(SOURCES)}
    transformer = layer_of("Transformer", {"num_encoder_layers": 2, "num_decoder_layers": 1, **options})
    compare(transformer, inputs=inputs, named_inputs=named, rtol=1e-3, atol=1e-4)


def test_encoders_without_gradients_are_dense():
    """PyTorch leaves padded places at zero there, which weft computes as it does while training."""
    layer = weft.nn.TransformerEncoderLayer(WIDTH, 2, 6, batch_first=True).eval()
    layers = weft.nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    x, hidden = weft.from_numpy(normal(BATCH, SOURCES, WIDTH)), weft.from_numpy(hidden_ends(SOURCES))
    recorded = layers(x, src_key_padding_mask=hidden)
    with weft.no_grad():
        np.testing.assert_array_equal(layers(x, src_key_padding_mask=hidden).numpy(), recorded.detach().numpy())


def test_parts_of_a_transformer_may_be_the_callers():
    class Half(weft.nn.Module):
        def forward(self, x, *args, **kwargs):
            return x / 2

    model = weft.nn.Transformer(WIDTH, 2, 1, 1, 6, custom_encoder=Half(), custom_decoder=Half())
    x = weft.from_numpy(normal(SOURCES, WIDTH))
    assert weft.equal(model(x, x), x / 2)


def test_layers_of_a_stack_are_copies():
    layer = weft.nn.TransformerEncoderLayer(WIDTH, 2, 6)
    first, second = weft.nn.TransformerEncoder(layer, 2).layers
    assert weft.equal(first.linear1.weight, layer.linear1.weight)
    assert first.linear1.weight is not second.linear1.weight is not layer.linear1.weight


@pytest.mark.parametrize("size", [0, 1, 4])
def test_causal_masks(size):
    theirs = oracle("torch").nn.Transformer.generate_square_subsequent_mask(size, dtype=oracle("torch").float64)
    ours = weft.nn.Transformer.generate_square_subsequent_mask(size, dtype=weft.float64)
    assert ours.dtype == weft.float64
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_kernels_that_are_wished_for():
    attention = weft.nn.attention
    backends = oracle("torch").nn.attention.SDPBackend
    assert {b.name: int(b) for b in attention.SDPBackend} == {k: int(v) for k, v in backends.__members__.items()}
    assert [str(b) for b in attention.SDPBackend] == [str(b) for b in backends.__members__.values()]
    x = weft.from_numpy(normal(1, 2, 3, 4))
    plain = weft.nn.functional.scaled_dot_product_attention(x, x, x)
    flash = attention.SDPBackend.FLASH_ATTENTION
    with attention.sdpa_kernel([flash, attention.SDPBackend.MATH], set_priority=True):
        assert weft.equal(weft.nn.functional.scaled_dot_product_attention(x, x, x), plain)
    assert weft.equal(attention.sdpa_kernel(flash)(weft.nn.functional.scaled_dot_product_attention)(x, x, x), plain)
    with pytest.raises(AssertionError, match="SDPBackend"), attention.sdpa_kernel("flash"):
        pass


def attend_to(lib, *shapes, **options):
    return lib.nn.MultiheadAttention(WIDTH, 2)(*[lib.ones(shape) for shape in shapes], **options)


X = (3, 2, WIDTH)
REFUSED = {
    "heads": lambda lib: lib.nn.MultiheadAttention(8, 3),
    "no width": lambda lib: lib.nn.MultiheadAttention(0, 2),
    "no heads": lambda lib: lib.nn.MultiheadAttention(8, 0),
    "activation": lambda lib: lib.nn.TransformerEncoderLayer(8, 2, activation="x"),
    "a hint without a mask": lambda lib: attend_to(lib, X, X, X, is_causal=True),
    "width": lambda lib: attend_to(lib, (3, 2, 7), X, X),
    "rank": lambda lib: attend_to(lib, (WIDTH,), X, X),
    "ranks": lambda lib: attend_to(lib, X, (3, 8), X),
    "mask": lambda lib: attend_to(lib, X, X, X, attn_mask=lib.ones(2, 2)),
    "kind of mask": lambda lib: attend_to(lib, X, X, X, attn_mask=lib.ones(3, 3).int()),
    "padding": lambda lib: attend_to(lib, X, X, X, key_padding_mask=lib.ones(3, 3)),
    "rank of padding": lambda lib: attend_to(lib, X, X, X, key_padding_mask=lib.ones(3)),
    "batches": lambda lib: lib.nn.Transformer(8, 2, 1, 1, 6)(lib.ones(3, 2, 8), lib.ones(3, 1, 8)),
    "features": lambda lib: lib.nn.Transformer(8, 2, 1, 1, 6)(lib.ones(3, 2, 8), lib.ones(3, 2, 7)),
    "a causal source": lambda lib: lib.nn.Transformer(8, 2, 1, 1, 6)(lib.ones(X), lib.ones(X), src_is_causal=True),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    refused_by_weft(REFUSED[case])

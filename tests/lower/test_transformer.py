"""A transformer's encoder composed of operators, at several batch sizes: few kernels, no copies,
and the values that PyTorch's own encoder gives."""

import numpy as np
import pytest
from lower.accuracy import agrees
from oracles import oracle

import weft

HEADS, WIDTH, HIDDEN = 3, 16, 80
SIZE = HEADS * WIDTH
rng = np.random.default_rng(17)


def parameters():
    shapes = {
        "qkv_weight": (3 * SIZE, SIZE),
        "qkv_bias": (3 * SIZE,),
        "out_weight": (SIZE, SIZE),
        "out_bias": (SIZE,),
        "up_weight": (HIDDEN, SIZE),
        "up_bias": (HIDDEN,),
        "down_weight": (SIZE, HIDDEN),
        "down_bias": (SIZE,),
        "first_gamma": (SIZE,),
        "first_beta": (SIZE,),
        "second_gamma": (SIZE,),
        "second_beta": (SIZE,),
    }
    return {name: (rng.standard_normal(s) * 0.2).astype("f") for name, s in shapes.items()}


def encoder(x):
    """One layer, normalisation first: 7 kernels."""
    sym = weft.symbol
    y = sym.layer_norm(x, name="first")
    y = sym.dense(y, name="qkv", units=3 * SIZE)
    y = sym.transpose(sym.reshape(y, shape=(0, 0, 3, HEADS, WIDTH)), axes=(2, 0, 3, 1, 4))
    parts = sym.split(y, indices_or_sections=3, axis=0)
    q, k, v = (sym.squeeze(parts[n], axis=(0,)) for n in range(3))
    p = sym.softmax(sym.batch_matmul(q, k, transpose_b=True) * (WIDTH**-0.5))
    y = sym.transpose(sym.batch_matmul(p, v), axes=(0, 2, 1, 3))
    y = sym.dense(sym.reshape(y, shape=(0, 0, -1)), name="out", units=SIZE)
    x = x + y
    y = sym.gelu(sym.dense(sym.layer_norm(x, name="second"), name="up", units=HIDDEN))
    return x + sym.dense(y, name="down", units=SIZE)


def torch_encoder(torch, values):
    made = torch.nn.TransformerEncoderLayer(
        SIZE, HEADS, HIDDEN, dropout=0, activation="gelu", batch_first=True, norm_first=True
    ).double()
    names = {
        "self_attn.in_proj_weight": "qkv_weight",
        "self_attn.in_proj_bias": "qkv_bias",
        "self_attn.out_proj.weight": "out_weight",
        "self_attn.out_proj.bias": "out_bias",
        "linear1.weight": "up_weight",
        "linear1.bias": "up_bias",
        "linear2.weight": "down_weight",
        "linear2.bias": "down_bias",
        "norm1.weight": "first_gamma",
        "norm1.bias": "first_beta",
        "norm2.weight": "second_gamma",
        "norm2.bias": "second_beta",
    }
    made.load_state_dict({key: torch.tensor(values[name]) for key, name in names.items()})
    return made.eval()


@pytest.mark.parametrize("batch", [1, 2, 8])
@pytest.mark.parametrize("length", [9, 37, 197])
def test_an_encoder_layer_agrees_with_torch(batch, length):
    torch = oracle("torch")
    values = parameters()
    x = rng.standard_normal((batch, length, SIZE)).astype("f")
    model = weft.compile((encoder(weft.symbol.Variable("x")), values), shape={"x": x.shape})
    operators = [kernel.operators[0] for kernel in model.report().kernels]
    assert operators == [
        "layer_norm",
        "_packed_matmul",
        "_strided_attention",
        "_packed_matmul",
        "layer_norm",
        "_packed_matmul",
        "_packed_matmul",
    ]
    expected = torch_encoder(torch, values)(torch.tensor(x).double()).detach().numpy()
    agrees(model.run({"x": x})[0], expected)

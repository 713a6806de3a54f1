"""The Transformer and its parts."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar

from ...base.dtype import is_float
from ...base.errors import RunError
from ...eager.functions.all import FUNCTIONS
from ...eager.functions.create.create import full
from ...eager.tensor.tensor import Tensor
from .. import init
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = str | Callable[[Tensor], Tensor]
relu: Callable[[Tensor], Tensor] = FUNCTIONS["weft.nn.functional"]["relu"]
gelu: Callable[[Tensor], Tensor] = FUNCTIONS["weft.nn.functional"]["gelu"]


class _Layer(Module):
    """Attentions and two linear maps, each added to its input, with a norm after the sum or (`norm_first`) before the
    block."""

    _attentions: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        for name in self._attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **made))
        self.linear1 = Linear(d_model, dim_feedforward, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **made)
        self.norm_first = norm_first
        blocks = range(1, len(self._attentions) + 2)
        for block in blocks:
            setattr(self, f"norm{block}", LayerNorm(d_model, eps=layer_norm_eps, **made))
        for block in blocks:
            setattr(self, f"dropout{block}", Dropout(dropout))
        self.activation = _activation(activation) if isinstance(activation, str) else activation

    def _added(self, x: Tensor, norm: Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x + block(norm(x))
        added: Tensor = norm(x + block(x))
        return added

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        return self._attended(self.self_attn, self.dropout1, x, x, attn_mask, key_padding_mask, is_causal)

    def _attended(
        self,
        attention: Module,
        dropout: Module,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None,
        padding: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        options = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": is_causal, "need_weights": False}
        found: Tensor = dropout(attention(x, memory, memory, **options)[0])
        return found

    def _ff_block(self, x: Tensor) -> Tensor:
        last = getattr(self, f"dropout{len(self._attentions) + 1}")
        found: Tensor = last(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        return found


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    known = {"relu": relu, "gelu": gelu}
    if name not in known:
        raise RunError(f"activation should be relu/gelu, not {name}", hint="a function of tensors")
    return known[name]


class TransformerEncoderLayer(_Layer):
    """Self-attention, then two linear maps with an activation between them.

    >>> import weft
    >>> layer = weft.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> layer(weft.randn(3, 5, 8)).shape
    weft.Size([3, 5, 8])
    """

    _attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = self._added(src, self.norm1, lambda x: self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self._added(x, self.norm2, self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Self-attention of targets, attention of them to an encoder's results, then two linear maps with an activation
    between them.

    >>> import weft
    >>> layer = weft.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> layer(weft.randn(4, 3, 8), memory=weft.randn(5, 3, 8)).shape
    weft.Size([4, 3, 8])
    """

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = self._added(tgt, self.norm1, lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        options = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        x = self._added(x, self.norm2, lambda x: self._mha_block(x, *options))
        return self._added(x, self.norm3, self._ff_block)

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        return self._attended(self.multihead_attn, self.dropout2, x, mem, attn_mask, key_padding_mask, is_causal)


class _Stack(Module):
    """Copies of one layer, and a norm after the last."""

    norm: Module | None

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def _run(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *args, **options)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Layers of a transformer's encoder, one after the other.

    Results are dense whatever `enable_nested_tensor` says: padded places are computed like the others.

    >>> import weft
    >>> layer = weft.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> weft.nn.TransformerEncoder(layer, num_layers=2)(weft.randn(5, 3, 8)).shape
    weft.Size([5, 3, 8])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor, self.use_nested_tensor, self.mask_check = enable_nested_tensor, False, mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        causal = _is_causal(mask, is_causal)
        return self._run(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=causal)


class TransformerDecoder(_Stack):
    """Layers of a transformer's decoder, one after the other.

    >>> import weft
    >>> layer = weft.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> weft.nn.TransformerDecoder(layer, num_layers=2)(weft.randn(4, 3, 8), weft.randn(5, 3, 8)).shape
    weft.Size([4, 3, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        return self._run(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=_is_causal(tgt_mask, tgt_is_causal),
            memory_is_causal=memory_is_causal,
        )


def _causal_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
    mask: Tensor = full((sz, sz), -math.inf, dtype=dtype, device=device).triu(1)
    return mask


def _is_causal(mask: Tensor | None, told: bool | None) -> bool:
    """Whether a mask hides what comes later, and nothing else: as the caller says, or as it looks."""
    if told is not None or mask is None:
        return bool(told)
    if mask.ndim != 2 or mask.shape[0] != mask.shape[1] or not is_float(mask.dtype.numpy):
        return False
    return bool(mask.equal(_causal_mask(len(mask), mask.device, mask.dtype)))


class Transformer(Module):
    """An encoder of source sequences, and a decoder of targets that attends to what it found.

    >>> import weft
    >>> model = weft.nn.Transformer(8, 2, 1, 1, 16)
    >>> mask = model.generate_square_subsequent_mask(4)
    >>> model(weft.randn(5, 3, 8), weft.randn(4, 3, 8), tgt_mask=mask).shape
    weft.Size([4, 3, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        shape = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first)
        if custom_encoder is None:
            layer = TransformerEncoderLayer(*shape, **made)
            norm = LayerNorm(d_model, eps=layer_norm_eps, **made)
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        self.encoder = custom_encoder
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(*shape, **made)
            norm = LayerNorm(d_model, eps=layer_norm_eps, **made)
            custom_decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm)
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for weight in self.parameters():
            if weight.ndim > 1:
                init.xavier_uniform_(weight)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RunError("the batch number of src and tgt must be equal", why=f"{src.shape} and {tgt.shape}")
        if not src.shape[-1] == tgt.shape[-1] == self.d_model:
            raise RunError(
                "the feature number of src and tgt must be equal to d_model",
                why=f"d_model is {self.d_model}, the shapes are {src.shape} and {tgt.shape}",
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, is_causal=src_is_causal)
        decoded: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return decoded

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """A mask that hides what comes later: minus infinity above the diagonal, zeros elsewhere.

        >>> import weft
        >>> weft.nn.Transformer.generate_square_subsequent_mask(3)
        tensor([[0., -inf, -inf],
                [0., 0., -inf],
                [0., 0., 0.]])
        """
        return _causal_mask(sz, device, dtype)

"""Rows: recurrent layers and cells. Padded sequences are (steps, batch, features); packed ones are
rows of data, step after step, with how many sequences take part in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import INT64, is_float
from ....base.errors import InvalidType, InvalidValue, RunError
from ....core.op import Op
from ....ops.nn._rnn_kernels import GATES
from ....ops.nn.rnn import RnnAttrs
from ...dispatch import apply
from ...tensor.memory import Array, array_of
from ...tensor.tensor import DimensionError, Tensor, wrap
from ..math.arithmetic import add
from ..shape.join import cat, stack, taken
from ..shape.parts import unbind
from ..shape.shape import reshape, t, transpose, unsqueeze
from ..table import named, row
from . import composed_recurrent  # noqa: F401  gradients of gradients
from .dropout import dropout as dropped
from .linear_maps import linear

_RNN = Op.get("rnn")


class _Weights(NamedTuple):
    """What a layer has in one direction; biases may be missing, most have no projection."""

    of_input: Tensor
    of_state: Tensor
    input_bias: Tensor | None
    state_bias: Tensor | None
    projection: Tensor | None = None


class _Packed(NamedTuple):
    """Where the rows of packed data are among those of padded ones, and the other way round."""

    steps: int
    batch: int
    lengths: Tensor
    inside: Array
    rows: Array


def _packed(data: Tensor, batch_sizes: Tensor) -> _Packed:
    sizes = array_of(batch_sizes)
    if sizes.dtype != INT64:
        raise RunError(f"expected scalar type Long but found {batch_sizes.dtype.title}")
    if sizes.ndim != 1 or not sizes.size or sizes.min() < 1 or (np.diff(sizes) > 0).any():
        raise RunError("batch_sizes must be positive and must not grow")
    if sizes.sum() != len(data):
        raise RunError(f"batch_sizes add up to {sizes.sum()}, but data has {len(data)} rows")
    steps, batch = len(sizes), int(sizes[0])
    live = np.arange(batch) < sizes[:, None]
    rows = np.flatnonzero(live)
    inside = np.zeros(steps * batch, np.int64)
    inside[rows] = np.arange(len(rows))
    return _Packed(steps, batch, wrap(live.sum(0)), inside, rows)


class _Layers:
    """A call of one of the functions of layers."""

    def __init__(
        self,
        mode: str,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        hx: Sequence[Tensor],
    ) -> None:
        self.mode, self.dropout = mode, dropout if train else 0.0
        self.ways = 2 if bidirectional else 1
        self.projected = len(hx) == 2 and hx[0]._shape[2:] != hx[1]._shape[2:]
        self.weights = self._weights(list(params), has_biases)
        if len(self.weights) < num_layers * self.ways:
            raise RunError("got an incorrect number of RNN parameters")
        self.weights = self.weights[: num_layers * self.ways]
        for state in hx:
            if state.ndim != 3 or len(state) != len(self.weights):
                raise RunError(f"Expected hidden size ({len(self.weights)}, batch, cells), got {state.shape}")
        self.states = list(zip(*[unbind(state) for state in hx]))

    def _weights(self, params: list[Tensor], has_biases: bool) -> list[_Weights]:
        count = (4 if has_biases else 2) + self.projected
        if not params or len(params) % count:
            raise RunError("got an incorrect number of RNN parameters")
        result = []
        for group in (params[i : i + count] for i in range(0, len(params), count)):
            b, own = (group[2], group[3]) if has_biases else (None, None)
            result.append(_Weights(group[0], group[1], b, own, group[-1] if self.projected else None))
        return result

    def run(self, x: Tensor, packed: _Packed | None) -> tuple[Tensor, ...]:
        """The outputs of the last layer, then the last states of all."""
        last = []
        layers = range(0, len(self.weights), self.ways)
        for first in layers:
            result = [self._direction(x, first + way, way == 1, packed) for way in range(self.ways)]
            outs = [outputs for outputs, *_ in result]
            x = outs[0] if self.ways == 1 else cat(outs, -1)
            last += [state for _, *state in result]
            if self.dropout and first != layers[-1]:
                x = dropped(x, self.dropout, True)
        if len(last) == 1:
            return x, *[unsqueeze(state, 0) for state in last[0]]
        return x, *[stack(states) for states in zip(*last)]

    def _direction(self, x: Tensor, number: int, back: bool, packed: _Packed | None) -> Any:
        return _steps(self.mode, x, self.states[number], self.weights[number], back, packed)


def _steps(
    mode: str, x: Tensor, states: Sequence[Tensor], weights: _Weights, reverse: bool, packed: _Packed | None = None
) -> list[Tensor]:
    """One layer in one direction: the outputs, and the last state (and cell)."""
    _check(mode, x, states, weights)
    gates, bias = _gates(mode, x, weights)
    if packed is not None:
        padded = taken(gates, 0, packed.inside)
        gates = reshape(padded, (packed.steps, packed.batch, -1))
    if gates._shape[1] != len(states[0]):
        raise RunError(f"Expected hidden size of batch {gates.shape[1]}, got {list(states[0].shape)}")
    inputs = [gates, t(weights.of_state), bias, *states]
    inputs += [] if weights.projection is None else [t(weights.projection)]
    recorded = any([tensor._followed() for tensor in inputs])
    params = RnnAttrs(
        mode=mode, reverse=reverse, projected=weights.projection is not None, lengths=packed is not None, kept=recorded
    )
    inputs += [] if packed is None else [packed.lengths]
    out, *last = apply(_RNN, params, inputs)[: 1 + len(states)]
    if packed is not None:
        out = taken(reshape(out, (-1, out._shape[2])), 0, packed.rows)
    return [out, *last]


def _gates(mode: str, x: Tensor, weights: _Weights) -> tuple[Tensor, Tensor]:
    """What inputs add to the gates, and the bias of states. But for gru they are summed, so both
    may be one."""
    b, own = weights.input_bias, weights.state_bias
    nothing = wrap(np.zeros(len(weights.of_state), weights.of_state._dtype))
    if mode != "gru" and b is not None and own is not None:
        b, own = add(b, own), None
    *lead, features = x._shape
    flat = linear(reshape(x, (prod(lead), features)), weights.of_input, b)
    return reshape(flat, (*lead, len(nothing))), nothing if own is None else own


class MixedTypes(RunError, InvalidValue):
    """Inputs, states and weights of several dtypes."""


def _check(mode: str, x: Tensor, states: Sequence[Tensor], weights: _Weights) -> None:
    dtype = x._dtype
    for other in (*states, *weights):
        if other is not None and other._dtype != dtype:
            raise MixedTypes(
                f"mat1 and mat2 must have the same dtype, but got {x.dtype} and {other.dtype}",
                hint=f"input.to({other.dtype}), or weights of {x.dtype}",
            )
    if not is_float(dtype):
        raise RunError(f"a recurrent layer is not implemented for {x.dtype}")
    wide = GATES[mode] * states[-1]._shape[-1]
    shapes = {
        "weight_ih": (weights.of_input, (wide, x._shape[-1])),
        "weight_hh": (weights.of_state, (wide, states[0]._shape[-1])),
        "bias_ih": (weights.input_bias, (wide,)),
        "bias_hh": (weights.state_bias, (wide,)),
        "weight_hr": (weights.projection, tuple(s._shape[-1] for s in states)),
    }
    for name, (tensor, shape) in shapes.items():
        if tensor is not None and tensor._shape != shape:
            raise RunError(f"{name} has shape {list(tensor.shape)}, expected {list(shape)}")


# Layers


def _padded(layers: _Layers, input: Tensor, batch_first: bool) -> tuple[Tensor, ...]:
    if input.ndim != 3:
        raise DimensionError(f"Dimension out of range (input has {input.ndim} dimensions, expected 3)")
    x = transpose(input, 0, 1) if batch_first else input
    if not len(x):
        raise RunError("Expected sequence length to be larger than 0 in RNN")
    out, *last = layers.run(x, None)
    return transpose(out, 0, 1) if batch_first else out, *last


_PADDED = ["input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first"]
_DATA = ["data", "batch_sizes", *_PADDED[1:-1]]


def _arguments(mode: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of either form by name: those of packed data have batch_sizes."""
    state = 1 if mode == "lstm" else 2  # where only packed data have a tensor
    is_packed = "batch_sizes" in kwargs or (
        len(args) > state and isinstance(args[1], Tensor) and isinstance(args[state], Tensor)
    )
    names = _DATA if is_packed else _PADDED
    given = {**dict(zip(names, args)), **kwargs}
    hx = given.get("hx")
    fits = isinstance(hx, (tuple, list)) if mode == "lstm" else isinstance(hx, Tensor)
    fits = fits and isinstance(given.get("params"), (tuple, list))
    if len(args) + len(kwargs) != len(names) or set(given) != set(names) or not fits:
        kinds = ", ".join(type(value).__name__ for value in (*args, *kwargs.values()))
        raise InvalidType(f"{mode}() received an invalid combination of arguments - got ({kinds})")
    return given


def _call(mode: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
    given = _arguments(mode, args, kwargs)
    hx = given.pop("hx")
    states = hx if mode == "lstm" else [hx]
    if mode == "lstm" and len(states) != 2:
        raise RunError("lstm expects two hidden states")
    data, sizes = given.pop("data", None), given.pop("batch_sizes", None)
    input, batch_first = given.pop("input", None), given.pop("batch_first", False)
    layers = _Layers(mode, hx=states, **given)
    if data is not None:
        return layers.run(data, _packed(data, sizes))
    return _padded(layers, input, batch_first)


def _layers(name: str, doc: str) -> None:
    def call(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        return _call(name, args, kwargs)

    row(named(call, name, doc), method=False)


_layers("lstm", "Layers of long short-term memory: outputs, the last states, and the last cells")
_layers("gru", "Layers of gated recurrent units: outputs and the last states")
_layers("rnn_tanh", "Recurrent layers with tanh: outputs and the last states")
_layers("rnn_relu", "Recurrent layers with max(x, 0): outputs and the last states")


# Cells


def _cell(mode: str, x: Tensor, states: Sequence[Tensor], weights: _Weights) -> list[Tensor]:
    """One step."""
    if x.ndim < 2:
        raise DimensionError(
            f"Dimension out of range (expected to be in range of [-{x.ndim}, {x.ndim - 1}], but got 1)"
        )
    features, wide = weights.of_input._shape[1], weights.of_state._shape[1]
    if x._shape[1] != features:
        raise RunError(f"input has inconsistent input_size: got {x.shape[1]} expected {features}")
    for number, state in enumerate(states):
        if state._shape[:1] != x._shape[:1]:
            raise RunError(f"Input batch size {len(x)} doesn't match hidden{number} batch size {len(state)}")
        if state._shape[1:] != (wide,):
            raise RunError(f"hidden{number} has inconsistent hidden_size: got {state.shape[-1]}, expected {wide}")
    return _steps(mode, unsqueeze(x, 0), states, weights, False)[1:]


@row(method=False)
def lstm_cell(
    input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One step of long short-term memory: the state and the cell"""
    if len(hx) != 2:
        raise RunError("lstm_cell expects two hidden states")
    state, cell = _cell("lstm", input, hx, _Weights(w_ih, w_hh, b_ih, b_hh))
    return state, cell


def _plain_cell(mode: str, doc: str) -> Callable[..., Tensor]:
    def call(
        input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
    ) -> Tensor:
        return _cell(mode, input, [hx], _Weights(w_ih, w_hh, b_ih, b_hh))[0]

    return row(named(call, f"{mode}_cell", doc), method=False)


gru_cell = _plain_cell("gru", "One step of gated recurrent units")
rnn_tanh_cell = _plain_cell("rnn_tanh", "tanh(x W' + b + h U' + c)")
rnn_relu_cell = _plain_cell("rnn_relu", "max(x W' + b + h U' + c, 0)")

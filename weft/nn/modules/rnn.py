"""Recurrent layers and their cells."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ...base.errors import InvalidType, InvalidValue, RunError
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from .. import init
from ..utils.rnn import PackedSequence
from ._making import parameter, zeros
from .module import Module

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

Shape = tuple[int, ...]
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_LAYERS: dict[str, Callable[..., tuple[Tensor, ...]]] = {mode: FUNCTIONS["weft"][mode.lower()] for mode in _GATES}
_CELLS: dict[str, Callable[..., Any]] = {mode: FUNCTIONS["weft"][f"{mode.lower()}_cell"] for mode in _GATES}
# What a text tells of layers, unless it is as here.
_USUAL = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}


def _draw_uniform(module: Module, width: int) -> None:
    """Fills all parameters uniformly in +-1/sqrt(width)."""
    bound = 1 / math.sqrt(width) if width > 0 else 0
    for weight in module.parameters():
        init.uniform_(weight, -bound, bound)


class RNNBase(Module):
    """Layers of recurrent steps over sequences, in one direction or both; `mode` says which step: RNN_TANH, RNN_RELU,
    LSTM or GRU.

    Inputs are (steps, batch, features), (batch, steps, features) with `batch_first`, (steps, features) or a
    `PackedSequence`; outputs are of the same form, with the last states of every layer and direction. Between layers,
    while training, elements are left out with probability `dropout`.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_settings(mode, input_size, hidden_size, num_layers, dropout, proj_size)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.proj_size = proj_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for end in ("", "_reverse") if bidirectional else ("",):
                shapes = self._shapes_of(layer)
                for name, shape in shapes.items():
                    self.register_parameter(f"{name}_l{layer}{end}", parameter(shape, device, dtype))
                self._all_weights.append([f"{name}_l{layer}{end}" for name in shapes])
        self.reset_parameters()

    def _shapes_of(self, layer: int) -> dict[str, Shape]:
        """The weights of one direction of a layer, in the order that the functions take them in."""
        out, wide = self.proj_size or self.hidden_size, _GATES[self.mode] * self.hidden_size
        features = out * (2 if self.bidirectional else 1) if layer else self.input_size
        shapes: dict[str, Shape] = {"weight_ih": (wide, features), "weight_hh": (wide, out)}
        shapes |= {"bias_ih": (wide,), "bias_hh": (wide,)} if self.bias else {}
        return shapes | ({"weight_hr": (self.proj_size, self.hidden_size)} if self.proj_size else {})

    def reset_parameters(self) -> None:
        """Draws all weights anew, uniformly in +-1/sqrt(hidden_size)."""
        _draw_uniform(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Nothing: weights are read where they are."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of every layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [weight for weights in self.all_weights for weight in weights]

    # Checks

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Refuses data of another shape than the weights are for."""
        rank = 3 if batch_sizes is None else 2
        if input.ndim != rank:
            raise RunError(f"input must have {rank} dimensions, got {input.ndim}")
        if input.shape[-1] != self.input_size:
            raise RunError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )

    def _state_shapes(self, input: Tensor, batch_sizes: Tensor | None) -> list[Shape]:
        """The shape of states, and of the cells of an LSTM."""
        batch = input.shape[0 if self.batch_first else 1] if batch_sizes is None else int(batch_sizes[0])
        widths = [self.proj_size or self.hidden_size, self.hidden_size][: 2 if self.mode == "LSTM" else 1]
        return [(len(self._all_weights), batch, width) for width in widths]

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> Shape:
        """The shape that states must have for an input."""
        return self._state_shapes(input, batch_sizes)[0]

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: Shape, msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Refuses a state of another shape."""
        if tuple(hx.shape) != expected_hidden_size:
            raise RunError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Refuses inputs and states that fit neither the weights nor each other."""
        self.check_input(input, batch_sizes)
        states = self._listed(hidden)
        for number, (state, shape) in enumerate(zip(states, self._state_shapes(input, batch_sizes))):
            which = "" if len(states) == 1 else f"[{number}]"
            self.check_hidden_size(state, shape, f"Expected hidden{which} size {{}}, got {{}}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """States with their sequences in another order."""
        if permutation is None:
            return hx
        return self._as_given([state.index_select(1, permutation) for state in self._listed(hx)])

    # Calls

    def _listed(self, hx: Any) -> list[Tensor]:
        return list(_pair(hx)) if self.mode == "LSTM" else [hx]

    def _as_given(self, states: Sequence[Tensor]) -> Any:
        return tuple(states) if self.mode == "LSTM" else states[0]

    def forward(self, input: Any, hx: Any = None) -> Any:
        packed = isinstance(input, PackedSequence)
        data, sizes, order, back = input if packed else (input, None, None, None)
        if not packed:
            self._check_ranks(data, [] if hx is None else self._listed(hx))
        single = not packed and data.ndim == 2
        if single:
            data = data.unsqueeze(0 if self.batch_first else 1)
            hx = None if hx is None else self._as_given([state.unsqueeze(1) for state in self._listed(hx)])
        if hx is None:
            shapes = self._state_shapes(data, sizes)
            hx = self._as_given([zeros(shape, dtype=data.dtype, device=data.device) for shape in shapes])
        self.check_forward_args(data, hx, sizes)
        out, *states = self._run(data, sizes, self.permute_hidden(hx, order))
        if single:
            out, *states = out.squeeze(0 if self.batch_first else 1), *[state.squeeze(1) for state in states]
        result = PackedSequence(out, sizes, order, back) if packed else out
        return result, self.permute_hidden(self._as_given(states), back)

    def _check_ranks(self, input: Tensor, states: Sequence[Tensor]) -> None:
        rank = input.ndim
        if rank not in (2, 3):
            raise InvalidValue(f"{type(self).__name__}: Expected input to be 2D or 3D, got {rank}D tensor instead")
        for state in states:
            if state.ndim != rank:
                kind = "batched" if rank == 3 else "unbatched"
                raise RunError(f"For {kind} {rank}-D input, hx should also be {rank}-D but got {state.ndim}-D tensor")

    def _run(self, data: Tensor, sizes: Tensor | None, hx: Any) -> tuple[Tensor, ...]:
        settings = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        if sizes is None:
            return _LAYERS[self.mode](data, hx, *settings, self.batch_first)
        return _LAYERS[self.mode](data, sizes, hx, *settings)

    def extra_repr(self) -> str:
        values = {name: getattr(self, name) for name in _USUAL}
        parts = [f"{name}={value}" for name, value in values.items() if value != _USUAL[name]]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *parts])


def _check_settings(
    mode: str, input_size: int, hidden_size: int, num_layers: int, dropout: float, proj_size: int
) -> None:
    if mode not in _GATES:
        raise InvalidValue(f"Unrecognized RNN mode: {mode}", hint=" ".join(_GATES))
    if isinstance(dropout, (bool, str)) or not 0 <= dropout <= 1:
        raise InvalidValue(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout and num_layers == 1:
        warnings.warn(
            "dropout is applied between layers, so that one layer has none of it: "
            f"got dropout={dropout} and num_layers=1",
            stacklevel=4,
        )
    for name, value in {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}.items():
        if not isinstance(value, int):
            raise InvalidType(f"{name} should be of type int, got: {type(value).__name__}")
        if value <= 0:
            raise InvalidValue(f"{name} must be greater than zero")
    if proj_size < 0:
        raise InvalidValue("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise InvalidValue("proj_size has to be smaller than hidden_size")
    if proj_size and mode != "LSTM":
        raise InvalidValue("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """h = tanh(x W' + b + h U' + c) in each step, or max(., 0) with `nonlinearity="relu"`.

    >>> import weft
    >>> layers = weft.nn.RNN(10, 20, num_layers=2)
    >>> out, last = layers(weft.randn(5, 3, 10), weft.zeros(2, 3, 20))
    >>> out.shape, last.shape
    (weft.Size([5, 3, 20]), weft.Size([2, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        proj_size: int = 0,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidValue(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        settings = (num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, *settings)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory. With i, f, g, o the four parts of x W' + b + h U' + c, each step makes the cell
    sigmoid(f) cell + sigmoid(i) tanh(g) and the state sigmoid(o) tanh(cell), times R' if `proj_size` is given.

    >>> import weft
    >>> layers = weft.nn.LSTM(10, 20, bidirectional=True, batch_first=True)
    >>> out, (state, cell) = layers(weft.randn(3, 5, 10))
    >>> out.shape, state.shape
    (weft.Size([3, 5, 40]), weft.Size([2, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)
        super().__init__("LSTM", input_size, hidden_size, *settings)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> Shape:
        """The shape that cells must have for an input."""
        return self._state_shapes(input, batch_sizes)[1]


def _pair(hx: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(hx, (tuple, list)) or len(hx) != 2:
        raise _NoPair("the states of an LSTM are a pair (h_0, c_0)", why=f"hx is a {type(hx).__name__}")
    return hx[0], hx[1]


class _NoPair(InvalidType, RunError, IndexError):
    """Not a state and a cell."""


class GRU(RNNBase):
    """Gated recurrent units. With r, z, n the parts of x W' + b and p, q, m those of h U' + c, each step makes the
    state (1 - u) tanh(n + sigmoid(r + p) m) + u h, where u = sigmoid(z + q).

    >>> import weft
    >>> out, last = weft.nn.GRU(10, 20)(weft.randn(5, 10))
    >>> out.shape, last.shape
    (weft.Size([5, 20]), weft.Size([1, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        proj_size: int = 0,
    ) -> None:
        settings = (num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)
        super().__init__("GRU", input_size, hidden_size, *settings)


# Cells


class RNNCellBase(Module):
    """One step of a recurrent layer, with `num_chunks` gates; inputs are (batch, features) or (features)."""

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        wide = num_chunks * hidden_size
        self.weight_ih = parameter((wide, input_size), device, dtype)
        self.weight_hh = parameter((wide, hidden_size), device, dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, parameter((wide,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all weights anew, uniformly in +-1/sqrt(hidden_size)."""
        _draw_uniform(self, self.hidden_size)

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        parts += [] if self.bias is True else [f"bias={self.bias}"]
        kind = getattr(self, "nonlinearity", "tanh")
        return ", ".join(parts if kind == "tanh" else [*parts, f"nonlinearity={kind}"])

    def _step(self, mode: str, input: Tensor, states: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
        """The states after one step, from zeros if there are none yet."""
        for name, value in zip(("input", *names), (input, *states)):
            if value.ndim not in (1, 2):
                raise InvalidValue(f"{type(self).__name__}: Expected {name} to be 1D or 2D, got {value.ndim}D instead")
        single = input.ndim == 1
        x, *states = (value.unsqueeze(0) if single else value for value in (input, *states))
        if not states:
            states = [zeros(len(x), self.hidden_size, dtype=x.dtype, device=x.device) for _ in names]
        hx = states[0] if len(names) == 1 else tuple(states)
        made = _CELLS[mode](x, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        made = [made] if len(names) == 1 else made
        return [state.squeeze(0) if single else state for state in made]


class RNNCell(RNNCellBase):
    """h = tanh(x W' + b + h U' + c), or max(., 0) with `nonlinearity="relu"`.

    >>> import weft
    >>> weft.nn.RNNCell(10, 20)(weft.randn(3, 10)).shape
    weft.Size([3, 20])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RunError(f"Unknown nonlinearity: {self.nonlinearity}", hint="tanh or relu")
        mode = f"RNN_{self.nonlinearity.upper()}"
        return self._step(mode, input, [] if hx is None else [hx], ["hidden"])[0]


class LSTMCell(RNNCellBase):
    """One step of long short-term memory: the state and the cell.

    >>> import weft
    >>> state, cell = weft.nn.LSTMCell(10, 20)(weft.randn(3, 10))
    >>> state.shape, cell.shape
    (weft.Size([3, 20]), weft.Size([3, 20]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        state, cell = self._step("LSTM", input, () if hx is None else _pair(hx), ["hx[0]", "hx[1]"])
        return state, cell


class GRUCell(RNNCellBase):
    """One step of gated recurrent units.

    >>> import weft
    >>> weft.nn.GRUCell(10, 20)(weft.randn(3, 10), weft.zeros(3, 20)).shape
    weft.Size([3, 20])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("GRU", input, [] if hx is None else [hx], ["hidden"])[0]

"""What modules of `weft.nn` compute, as source of programs, where their own is none: most call the function that their
class names with what they were made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_CELLS = {"GRUCell": "gru_cell", "RNNCell": "rnn_{}_cell"}  # operators of cells
_SEQUENTIAL = """
def forward(self, input):
    for module in self:
        input = module(input)
    return input
"""
_CONVOLUTION = """
def forward(self, input: Tensor) -> Tensor:
    if self.padding_mode != "zeros":
        padded = pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return FUNCTION(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
    return FUNCTION(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
"""
_TRANSPOSED = """
def forward(self, input: Tensor) -> Tensor:
    more = self.output_padding
    return FUNCTION(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)
"""
_RECURRENT = """
def forward(self, input: Tensor, hx: Optional[Tensor] = None):
    single = input.dim() == 2
    if single:
        input = input.unsqueeze({batch})
        if hx is not None:
            hx = hx.unsqueeze(1)
    if hx is None:
        hx = torch.zeros([{states}, input.size({batch}), {hidden}], dtype=input.dtype, device=input.device)
    out, state = torch.{name}(input, hx, [{weights}], {settings})
    if single:
        out = out.squeeze({batch})
        state = state.squeeze(1)
    return out, state
"""
_LSTM = """
def forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None):
    single = input.dim() == 2
    if single:
        input = input.unsqueeze({batch})
    if hx is None:
        h = torch.zeros([{states}, input.size({batch}), {hidden}], dtype=input.dtype, device=input.device)
        c = h
    else:
        h, c = hx
        if single:
            h = h.unsqueeze(1)
            c = c.unsqueeze(1)
    out, h, c = torch.lstm(input, [h, c], [{weights}], {settings})
    if single:
        out = out.squeeze({batch})
        h = h.squeeze(1)
        c = c.squeeze(1)
    return out, (h, c)
"""
_CELL = """
def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
    single = input.dim() == 1
    if single:
        input = input.unsqueeze(0)
        if hx is not None:
            hx = hx.unsqueeze(0)
    if hx is None:
        hx = torch.zeros([input.size(0), {hidden}], dtype=input.dtype, device=input.device)
    state = torch.{name}(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return state.squeeze(0) if single else state
"""
_LSTM_CELL = """
def forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
    single = input.dim() == 1
    if single:
        input = input.unsqueeze(0)
    if hx is None:
        h = torch.zeros([input.size(0), {hidden}], dtype=input.dtype, device=input.device)
        c = h
    else:
        h, c = hx
        if single:
            h = h.unsqueeze(0)
            c = c.unsqueeze(0)
    h, c = torch.lstm_cell(input, [h, c], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if single:
        h = h.squeeze(0)
        c = c.squeeze(0)
    return h, c
"""
_BATCH_NORM = """
def forward(self, input: Tensor) -> Tensor:
    factor = 0.0
    if self.momentum is not None:
        factor = self.momentum
    if self.num_batches_tracked is not None:
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
    if self.running_mean is None:
        return batch_norm(input, None, None, self.weight, self.bias, True, factor, self.eps)
    mean, var = self.running_mean, self.running_var
    return batch_norm(input, mean, var, self.weight, self.bias, self.training, factor, self.eps)
"""
_SOURCES = {  # by the name of a class that others inherit from
    "Sequential": _SEQUENTIAL,
    "_Conv": _CONVOLUTION,
    "_ConvTransposeNd": _TRANSPOSED,
    "_BatchNorm": _BATCH_NORM,
}


def forward_source(python: type[Any], constants: Mapping[str, Any], parameters: Sequence[str]) -> str | None:
    """The source of the forward of a class of `weft.nn`, for modules with some constants and parameters; None if its
    own is one of a program."""
    owner = next(each for each in python.__mro__ if "forward" in vars(each))
    if not owner.__module__.startswith("weft.nn."):
        return None
    bases = {each.__name__ for each in python.__mro__}
    for name, source in _SOURCES.items():
        if name in bases:
            return source.lstrip()
    if "RNNBase" in bases and not constants["proj_size"]:
        return _recurrent(python.__name__, constants, parameters).lstrip()
    if python.__name__ == "LSTMCell":
        return _LSTM_CELL.format(hidden=constants["hidden_size"]).lstrip()
    if python.__name__ in _CELLS:
        name = _CELLS[python.__name__].format(constants.get("nonlinearity", ""))
        return _CELL.format(name=name, hidden=constants["hidden_size"]).lstrip()
    if "_Loss" in bases:
        settings = "".join([f"{name}=self.{name}, " for name in python._settings])
        call = f"FUNCTION(input, target, {settings}reduction=self.reduction)"
        return f"def forward(self, input: Tensor, target: Tensor) -> Tensor:\n    return {call}\n"
    if "_Dropout" in bases:
        given = ["self.p", "self.training", "self.inplace"]
    elif hasattr(python, "_settings"):
        given = [f"{name}=self.{name}" for name in python._settings]
    elif hasattr(python, "_arguments"):
        given = [f"self.{name}" for name in python._arguments]
    else:
        return None
    return f"def forward(self, input: Tensor):\n    return FUNCTION({', '.join(['input', *given])})\n"


def _recurrent(name: str, constants: Mapping[str, Any], parameters: Sequence[str]) -> str:
    directions = 2 if constants["bidirectional"] else 1
    flags = [constants[each] for each in ("bias", "num_layers", "dropout")]
    settings = [
        *map(repr, flags),
        "self.training",
        *[repr(constants[each]) for each in ("bidirectional", "batch_first")],
    ]
    operator = {"LSTM": "lstm", "GRU": "gru"}.get(name) or f"rnn_{constants['mode'].rpartition('_')[2].lower()}"
    return (_LSTM if name == "LSTM" else _RECURRENT).format(
        name=operator,
        batch=0 if constants["batch_first"] else 1,
        states=constants["num_layers"] * directions,
        hidden=constants["hidden_size"],
        weights=", ".join([f"self.{each}" for each in parameters]),
        settings=", ".join(settings),
    )

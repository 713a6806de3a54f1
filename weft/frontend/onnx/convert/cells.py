"""Cells of recurrent layers, with every activation that they may have, as bodies of loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ....base.errors import Unsupported
from ....core.symbol import Group, Variable
from ....ops._families import F
from ....ops.control_flow import input_name
from ...emitter import Value
from ..call import OnnxCall


class Activation(NamedTuple):
    """A function between parts of a cell, with its numbers."""

    name: str
    alpha: float
    beta: float

    def __call__(self, x: Any) -> Any:
        return _ACTIVATIONS[self.name].function(x, self.alpha, self.beta)


class _Known(NamedTuple):
    function: Callable[[Any, float, float], Any]
    alpha: float | None = None  # its default; None: it has none
    beta: float | None = None


def _thresholded(x: Any, alpha: float, beta: float) -> Any:
    """x where x >= alpha, else 0."""
    below = F.less(x, F.full_like(x, fill_value=alpha))
    return F.where(below, F.zeros_like(x), x)


_ACTIVATIONS = {
    "affine": _Known(lambda x, alpha, beta: x * alpha + beta, 1.0, 0.0),
    "elu": _Known(lambda x, alpha, _: F.elu(x, alpha=alpha), 1.0),
    "hardsigmoid": _Known(lambda x, alpha, beta: F.hard_sigmoid(x, alpha=alpha, beta=beta), 0.2, 0.5),
    "leakyrelu": _Known(lambda x, alpha, _: F.leaky_relu(x, alpha=alpha), 0.01),
    "relu": _Known(lambda x, *_: F.relu(x)),
    "scaledtanh": _Known(lambda x, alpha, beta: F.tanh(x * beta) * alpha, 1.0, 1.0),
    "sigmoid": _Known(lambda x, *_: F.sigmoid(x)),
    "softplus": _Known(lambda x, *_: F.softplus(x)),
    "softsign": _Known(lambda x, *_: F.softsign(x)),
    "tanh": _Known(lambda x, *_: F.tanh(x)),
    "thresholdedrelu": _Known(_thresholded, 1.0),
}


def activation(name: str, alphas: list[float], betas: list[float]) -> Activation:
    """The activation of a name, whose case does not count; it takes its numbers off the lists.

    >>> activation("LeakyRelu", [0.1, 0.2], [])
    Activation(name='leakyrelu', alpha=0.1, beta=0.0)
    """
    known = _ACTIVATIONS.get(name.lower())
    if known is None:
        raise Unsupported(f"a recurrent layer with activation {name!r}", hint=f"there are {sorted(_ACTIVATIONS)}")
    numbers = [
        0.0 if default is None else given.pop(0) if given else default
        for default, given in ((known.alpha, alphas), (known.beta, betas))
    ]
    return Activation(name.lower(), *numbers)


# cell(data, states, fixed) -> states: a step, from what the inputs add to the gates, the states
# before it, and the weight, bias and peepholes of the states. The first state is the output.

Cell = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]
Options = Mapping[str, Any]


def _limit(options: Options) -> Callable[[Any], Any]:
    """What goes into the activation of a gate, between limits if there are some."""
    limit = options["clip"]
    return (lambda x: x) if limit is None else (lambda x: F.clip(x, a_min=-limit, a_max=limit))


def _own(state: Any, fixed: Sequence[Any]) -> Any:
    """What the state adds to the gates."""
    return F.broadcast_add(F.matmul(state, fixed[0]), fixed[1])


def _rnn(functions: Sequence[Activation], options: Options) -> Cell:
    """h' = f(x + h R + b)"""
    limit = _limit(options)
    return lambda data, states, fixed: [functions[0](limit(data[0] + _own(states[0], fixed)))]


def _gru(functions: Sequence[Activation], options: Options) -> Cell:
    """h' = (1 - z) n + z h, where r acts on the state before it is multiplied by the weights of n,
    or behind that with linear_before_reset."""
    (f, g), limit = functions, _limit(options)

    def cell(data: Sequence[Any], states: Sequence[Any], fixed: Sequence[Any]) -> list[Any]:
        (h,), parts = states, F.split(data[0], indices_or_sections=3, axis=1)
        weights = F.split(fixed[0], indices_or_sections=3, axis=1)
        biases = F.split(fixed[1], indices_or_sections=3, axis=0)
        pairs = list(zip(weights, biases))
        z, r = (f(limit(parts[which] + _own(h, pairs[which]))) for which in range(2))
        last = r * _own(h, pairs[2]) if options["linear_before_reset"] else _own(r * h, pairs[2])
        n = g(limit(parts[2] + last))
        return [n + z * (h - n)]

    return cell


def _lstm(functions: Sequence[Activation], options: Options) -> Cell:
    step = lstm_step(functions, options)
    return lambda data, states, fixed: step(data[0] + _own(states[0], fixed), states[1], fixed[2:])


def lstm_step(functions: Sequence[Activation], options: Options) -> Callable[[Any, Any, Sequence[Any]], list[Any]]:
    """c' = f c + i g, h' = o h(c'), from whole gates, c and the peepholes if there are some, which show c to i and f,
    and c' to o. With input_forget f is 1 - i."""
    (f, g, h), limit = functions, _limit(options)

    def step(gates: Any, c: Any, peepholes: Sequence[Any]) -> list[Any]:
        parts = F.split(gates, indices_or_sections=4, axis=1)
        shown = F.split(peepholes[0], indices_or_sections=3, axis=0) if peepholes else None

        def gate(which: int, seen: Any) -> Any:
            part = parts[which]
            part = part if shown is None else part + F.broadcast_mul(seen, shown[which])
            return f(limit(part))

        i = gate(0, c)
        forget = 1 - i if options["input_forget"] else gate(2, c)
        c = forget * c + i * g(limit(parts[3]))
        return [gate(1, c) * h(c), c]

    return step


CELLS: dict[str, Callable[[Sequence[Activation], Options], Cell]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


def scanned_cell(
    call: OnnxCall,
    cell: Cell,
    data: Sequence[Value],
    states: Sequence[Value],
    fixed: Sequence[Value],
    reverse: bool = False,
    live: Value | None = None,
) -> list[Value]:
    """The outputs of all steps of a cell, and the last states. The data are what a cell takes of each
    step; `live` tells whether sequences still have a step, where they have lengths."""
    items = [*data] if live is None else [*data, live]
    inputs = [*items, *states, *fixed]
    variables: list[Any] = [Variable(input_name(place)) for place in range(len(inputs))]
    old = variables[len(items) :][: len(states)]
    new = cell(variables[: len(data)], old, variables[len(items) + len(states) :])
    output = new[0]
    if live is not None:
        goes_on = variables[len(data)]
        output = F.broadcast_where(goes_on, output, F.zeros_like(output))
        new = [F.broadcast_where(goes_on, *pair) for pair in zip(new, old)]
    attrs = {"num_data": len(items), "num_states": len(states), "num_outputs": 1, "reverse": reverse}
    return call.emitter.control("scan", f"{call.name}_scan", inputs, [Group([output, *new])], attrs)

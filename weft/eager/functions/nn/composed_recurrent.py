"""The gradient of a recurrent layer where it will be differentiated again: the layer is composed of
functions of one step each, and the engine goes back through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.op import Op
from ....ops.nn._rnn_kernels import limited
from ....ops.nn.rnn import RnnAttrs, grad_names, grad_results, input_names
from ...autograd.backward import grad
from ...dispatch import COMPOSED
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..linalg.matmul import matmul
from ..math.arithmetic import add, mul, sub
from ..math.compare import where
from ..math.pairs import clamp
from ..math.unary import relu, sigmoid, tanh
from ..shape.join import stack
from ..shape.parts import chunk, unbind


class _Taken:
    """A layer while its steps are taken: what the gradient is asked of, by steps."""

    def __init__(self, params: RnnAttrs, given: dict[str, Tensor]) -> None:
        self.params, self.given = params, given
        self.h, self.c = given["state"], given.get("cell")
        steps: list[list[Any]] = [[None] * len(given["gates"]) for _ in range(5)]
        self.own, self.before, self.raw, self.new, self.out = steps

    def run(self, length: Tensor | None) -> list[Tensor]:
        """Outputs, and what is there after the last step."""
        steps = list(enumerate(unbind(self.given["gates"])))
        for time, x in reversed(steps) if self.params.reverse else steps:
            live = None if length is None else wrap((array_of(length) > time)[:, None])
            self._step(time, x, live)
        last = [self.h] if self.c is None else [self.h, self.c]
        return [stack(self.out), *last]

    def _step(self, time: int, x: Tensor, live: Tensor | None) -> None:
        h, zero = self.h, wrap(np.zeros((), x._dtype))
        own = self.own[time] = add(matmul(h, self.given["weight"]), self.given["bias"])
        new, cell = self._cell(x, own)
        self.before[time], self.raw[time] = h, new
        if self.params.projected:
            new = matmul(new, self.given["projection"])
        self.new[time] = self.out[time] = new
        if live is not None:
            self.before[time], self.raw[time] = (where(live, v, zero) for v in (h, self.raw[time]))
            self.out[time], new = where(live, new, zero), where(live, new, h)
            cell = None if self.c is None else where(live, cell, self.c)
        self.h, self.c = new, cell

    def _cell(self, x: Tensor, own: Tensor) -> tuple[Any, Any]:
        """What the state becomes before it is projected, and the cell."""
        mode, c = self.params.mode, self.c
        if mode == "lstm":
            i, f, g, o = chunk(add(x, own), 4, 1)
            c = self._limited(add(mul(sigmoid(f), c), mul(sigmoid(i), tanh(g))))
            return mul(sigmoid(o), tanh(c)), c
        if mode == "gru":
            (r, z, n), (own_r, own_z, own_n) = chunk(x, 3, 1), chunk(own, 3, 1)
            r, z = sigmoid(add(r, own_r)), sigmoid(add(z, own_z))
            n = tanh(add(n, mul(r, own_n)))
            return add(n, mul(z, sub(self.h, n))), None
        total = add(x, own)
        return tanh(total) if mode == "rnn_tanh" else relu(total), None

    def _limited(self, cell: Tensor) -> Tensor:
        params = self.params
        if not limited(params):
            return cell
        if params.clip_nan:
            low = wrap(np.full((), params.clip_min, cell._dtype))
            cell = where(wrap(np.isnan(array_of(cell))), low, cell)
        return clamp(cell, params.clip_min, params.clip_max)


def _rnn_grad(params: RnnAttrs, inputs: Sequence[Tensor]) -> list[Tensor]:
    """What _rnn_grad gives, in a way that knows how it was made."""
    named = dict(zip(grad_names(params), inputs))
    count = 3 if params.mode == "lstm" else 2
    given = {n: _recorded(named[n]) for n in input_names(params) if n != "length"}
    layer = _Taken(params, given)
    outputs = layer.run(named.get("length"))
    asked = [given["gates"], given["state"], *([given["cell"]] if "cell" in given else [])]
    steps = len(layer.own)
    asked += [*layer.own, *layer.new]
    found = grad(outputs, asked, inputs[:count], create_graph=True, materialize_grads=True)
    made = {
        "gates": found[0],
        "state": found[1],
        "cell": found[2],
        "before": stack(layer.before),
        "raw": stack(layer.raw),
        "hidden": stack(found[count : count + steps]),
        "output": stack(found[count + steps :]),
    }
    return [made[name] for name in grad_results(params)]


def _recorded(tensor: Tensor) -> Tensor:
    return tensor if tensor.requires_grad else tensor.detach().requires_grad_()


COMPOSED[Op.get("_rnn_grad")] = _rnn_grad

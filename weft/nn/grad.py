"""Gradients of convolutions, asked for by the sizes of what they are with respect to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..eager.autograd.backward import grad
from ..eager.autograd.modes import enable_grad
from ..eager.functions.all import FUNCTIONS
from ..eager.tensor.tensor import Tensor

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _gradients(rank: int) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The gradients of a convolution over so many dimensions, which is linear in either of its arguments: it does not
    matter where they are taken."""
    convolve = FUNCTIONS["weft.nn.functional"][f"conv{rank}d"]

    def taken(size: Sequence[int], like: Tensor, call: Callable[[Tensor], Tensor], grad_output: Tensor) -> Tensor:
        with enable_grad():
            start = like.new_zeros(tuple(size)).requires_grad_()
            made: Tensor = grad(call(start), start, grad_output)[0]
        return made

    def of_input(
        input_size: Sequence[int],
        weight: Tensor,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return taken(input_size, weight, lambda x: convolve(x, weight.detach(), **options), grad_output)

    def of_weight(
        input: Tensor,
        weight_size: Sequence[int],
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return taken(weight_size, input, lambda w: convolve(input.detach(), w, **options), grad_output)

    for function, what in ((of_input, "input"), (of_weight, "weight")):
        function.__name__ = function.__qualname__ = f"conv{rank}d_{what}"
        function.__doc__ = f"The gradient of `conv{rank}d` with respect to its {what}, of which only the size is given."
    return of_input, of_weight


conv1d_input, conv1d_weight = _gradients(1)
conv2d_input, conv2d_weight = _gradients(2)
conv3d_input, conv3d_weight = _gradients(3)

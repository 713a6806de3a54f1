"""Leading axes that are arguments, as one: (batch, sequence, 768) is computed as (batch * sequence, 768) where every
tensor of a group walks through both in one go. Strides inside are constants then, and code is as that of one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..te.expr import Load, Var
from ..te.extents import is_open, is_same
from ..te.tensor import Tensor
from ..te.visit import masked_load, parts, postorder, rewrite
from .stages import topological


def with_joined_axes(inputs: Sequence[Tensor], outputs: Sequence[Tensor], apart: int = 0) -> dict[Tensor, Tensor]:
    """What stands for the inputs and for the outputs: tensors of fewer axes, or they themselves. So many of the last
    axes of the outputs stay by themselves."""
    now = {tensor: tensor for tensor in (*inputs, *outputs)}
    while True:
        joins = now[outputs[0]].rank - apart >= 2
        made = _joined_once([now[t] for t in inputs], [now[t] for t in outputs]) if joins else None
        if made is None:
            return now
        now = {tensor: made[stands] for tensor, stands in now.items()}


def _joined_once(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[Tensor, Tensor] | None:
    """The tensors with their first two axes as one; None where that cannot be."""
    first = outputs[0].shape[:2]
    if len(first) < 2 or not is_open(first[1]) or not all(_begins(t, first) for t in outputs):
        return None
    order = topological(outputs, set(inputs))
    if not all(_walks_in_one_go(tensor, first) for tensor in order):
        return None
    made: dict[Tensor, Tensor] = {}
    for tensor in (*inputs, *order):
        made[tensor] = _rebuilt(tensor, made, _begins(tensor, first))
    return made


def _begins(tensor: Tensor, first: Sequence[Any]) -> bool:
    return tensor.rank >= 2 and all(map(is_same, tensor.shape, first))


def _walks_in_one_go(tensor: Tensor, first: Sequence[Any]) -> bool:
    """Whether all that a body does with its first two indices is to read elements that have the same two."""
    assert tensor.body is not None
    own: tuple[Var, ...] = tensor.axes[:2] if _begins(tensor, first) else ()
    nodes = list(postorder((tensor.body,)))
    used = 0
    for node in nodes:
        if isinstance(node, Load) and isinstance(node.source, Tensor) and _begins(node.source, first):
            if not own or node.indices[0] is not own[0] or node.indices[1] is not own[1]:
                return False
            used += 2
    return used == sum(part is var for node in nodes for part in parts(node) for var in own)


def _rebuilt(tensor: Tensor, made: Mapping[Tensor, Tensor], joins: bool) -> Tensor:
    """A tensor over what its inputs have become, its first two axes as one if it has them."""
    shape = (tensor.shape[0] * tensor.shape[1], *tensor.shape[2:]) if joins else tensor.shape
    if tensor.body is None:
        return Tensor(tensor.name, shape, tensor.dtype) if joins else tensor

    def read(node: Any) -> Any:
        if not isinstance(node, Load) or not isinstance(node.source, Tensor):
            return node
        source = made[node.source]
        return masked_load(source, node.indices[node.source.rank - source.rank :], node.mask)

    axes = tensor.axes[1:] if joins else tensor.axes
    return Tensor(tensor.name, shape, tensor.dtype, axes, rewrite(tensor.body, read))

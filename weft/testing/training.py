"""A network for training: comes in a network as it is used, goes out the same with batch norms and
dropout in training, its loss, and the gradients of its parameters."""

from __future__ import annotations

from typing import NamedTuple

from .. import symbol as sym
from ..base.errors import GraphError
from ..compiler.graph_util import gradients
from ..core.ir import Node, topo_order
from ..core.symbol import Group, Symbol

RANDOM_STATE = "random_state"  # the one variable from which all dropouts draw


class TrainingStep(NamedTuple):
    """`symbol` gives the loss, then the gradients of `names`, in order."""

    symbol: Symbol
    names: list[str]


def in_training(network: Symbol) -> Symbol:
    """A copy of the network whose operators that can be in training are. Those that are random take
    their numbers from one stream, whose state is the variable `random_state`.

    >>> x = sym.Variable("x")
    >>> trained = in_training(sym.relu(sym.batch_norm(x, name="bn")))
    >>> trained.list_attr(recursive=True)["bn$training"]
    'True'
    """
    copy_of: dict[Node, Node] = {}
    random_state = sym.Variable(RANDOM_STATE)
    for node in topo_order(network.outputs):
        if node.op is None:
            copy_of[node] = sym.Variable(node.name, **node.attrs).outputs[0].node
            continue
        inputs = [Symbol([copy_of[entry.node].entry(entry.index)]) for entry in node.inputs]
        attrs = dict(node.attrs)
        if hasattr(node.params, "training"):
            attrs["training"] = "True"
            if node.op.effect_of(node.op.parse(attrs)) == "random":
                inputs.append(random_state)
        copy_of[node] = node.op(*inputs, name=node.name, **attrs).outputs[0].node
    return Symbol([copy_of[node].entry(index) for node, index, _ in network.outputs])


def training_step(network: Symbol, batch: int, data: str = "data", label: str = "label") -> TrainingStep:
    """The mean cross entropy of a network that ends in a softmax, against a variable of one-hot
    rows, and its gradients for all that is learned: every input but the data."""
    net = in_training(network)
    last = net.outputs[0].node
    if last.op_name != "softmax":
        raise GraphError(f"the network ends in {last.op_name}, not in softmax")
    scores = sym.log_softmax(Symbol([last.inputs[0]]), **last.attrs)
    loss = sym.sum(scores * sym.Variable(label)) * (-1 / batch)
    variables = dict(zip(net.list_input_names(), net.list_input_variables()))
    written = {data, *net.list_input_names("aux_state")}  # which no gradient teaches
    names = [name for name in variables if name not in written]
    return TrainingStep(Group([loss, *gradients(loss, [variables[name] for name in names])]), names)

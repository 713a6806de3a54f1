"""PlaceDevice: groups of nodes go to devices, and values that cross get a copy."""

from __future__ import annotations

from ..base.errors import GraphError, NotFound
from ..core.graph import Graph
from ..core.graph_attrs import JsonAttr
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite
from ._moves import Moves

UNPLACED = -1


@register_pass(
    "PlaceDevice", requires=("device_group_attr_key", "device_assign_map", "device_copy_op"), provides=("device",)
)
def place_device(graph: Graph) -> Graph:
    """A device for each node, in attribute `device`.

    A node's attribute `device_group_attr_key` names its group, `device_assign_map` the group's
    device. Others go where their inputs are, else where their first placed consumer is, else to 0.
    """
    devices = dict(zip(graph.indexed.nodes, _devices(graph)))
    copies: dict[tuple[NodeEntry, int], NodeEntry] = {}
    copy_op, moves = graph.attr("device_copy_op"), Moves()

    def arrive(walker: Walker, node: Node, position: int, entry: NodeEntry) -> NodeEntry:
        """An input, on the device of the node that reads it."""
        here = devices[node]
        if devices[entry.node] == here:
            return entry
        assert node.op is not None
        if position in node.op.mutates_of(node.params):
            raise GraphError(
                f"node {node.name!r} on device {here} mutates a variable on another device",
                where=f"variable {entry.node.name!r} on device {devices[entry.node]}",
            )
        if (entry, here) not in copies:
            name = f"{entry.node.name}_{entry.index}_copy"
            made = walker.make(copy_op, [entry], name=name)
            devices[made.node] = here
            copies[entry, here] = made
        return copies[entry, here]

    def place(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        arrived = [arrive(walker, node, i, entry) for i, entry in enumerate(inputs)]
        kept = moves.keep(walker, node, arrived)
        devices[moves.node(node)] = devices[node]
        return kept

    placed = rewrite(graph.replace(attrs={}), place)
    placed.attrs["device"] = JsonAttr("list_int", [devices[n] for n in placed.indexed.nodes])
    return placed


def _devices(graph: Graph) -> list[int]:
    """The device of each node, by group, then from inputs, then from consumers."""
    key, assigned = graph.attr("device_group_attr_key"), graph.attr("device_assign_map")
    nodes, ids = graph.indexed.nodes, graph.indexed.node_id
    devices = list(graph.attr("device") or [UNPLACED] * len(nodes))
    for number, node in enumerate(nodes):
        group = node.attrs.get(key)
        if group is not None:
            if group not in assigned:
                raise NotFound(
                    f"the device assignment not found for group {group}",
                    where=f"node {node.name!r}",
                    why="assigned groups: " + (", ".join(sorted(assigned)) or "none"),
                )
            devices[number] = assigned[group]
        elif devices[number] == UNPLACED:
            known = (devices[ids[entry.node]] for entry in node.inputs)
            devices[number] = next((device for device in known if device != UNPLACED), UNPLACED)
    for number in reversed(range(len(nodes))):
        if devices[number] != UNPLACED:
            for entry in nodes[number].inputs:
                source = ids[entry.node]
                devices[source] = devices[number] if devices[source] == UNPLACED else devices[source]
    return [0 if device == UNPLACED else device for device in devices]

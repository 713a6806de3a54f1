"""Walks over the nodes of a graph, in the order in which they run, that bear with edits on the way."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import Graph
from ..nodes import Block, Node


def in_order(block: Block) -> Iterator[Node | Block]:
    """Each node before those in its blocks, and each inner block when all in it has been given. The node that was given
    last may be taken out of its block: the walk goes on with what stands in its place."""
    open_blocks = [block]
    node = block.paramNode()
    while open_blocks:
        node = node._next  # type: ignore[assignment]
        block = open_blocks[-1]
        if node is not block.returnNode():
            before = node.prev()
            yield node
            if node.owningBlock() is not block:
                node = before
            elif node._blocks:
                open_blocks.append(node._blocks[0])
                node = node._blocks[0].paramNode()
            continue
        open_blocks.pop()
        owner = block.owningNode()
        if owner is None or not open_blocks:
            return
        place, before = owner._blocks.index(block) + 1, owner.prev()
        yield block
        if owner.owningBlock() is not open_blocks[-1]:
            node = before
        elif place < len(owner._blocks):
            open_blocks.append(owner._blocks[place])
            node = owner._blocks[place].paramNode()
        else:
            node = owner


def ends(block: Block) -> bool:
    """Whether a block is the last of its node."""
    owner = block.owningNode()
    return owner is not None and owner._blocks[-1] is block


def take_out_block(block: Block, before: Node) -> list[Node]:
    """Moves the nodes of a block, which takes no inputs, in front of a node that is not in it; gives them."""
    nodes = list(block.nodes())
    for node in nodes:
        node.moveBefore(before)
    return nodes


def subgraphs_of(node: Node) -> list[Graph]:
    """The graphs that are attributes of a node."""
    found: list[Graph] = []
    for kind, value in node._attributes.values():
        found += [value] if kind == "g" else value if kind == "gs" else []
    return found

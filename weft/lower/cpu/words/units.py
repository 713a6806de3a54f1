"""Which unit multiplies words: tiles where the target has them and a product fits, else vectors."""

from __future__ import annotations

from math import prod

from ....base.cpu_target import CpuTarget
from ....base.dtype import INT32
from ....core.fused import FusedGroup
from ....core.ir import Node, NodeEntry
from ...epilogue import static_spec
from ...group import Facts, LoweredKernel
from ..stage import lower_group
from .pair_product import pair_product_kernels
from .tile_product import TileProduct, tile_feature
from .word_product import WordProduct

BYTE_FEATURES = ("avx512vnni", "avxvnni", "i8mm")
PAIR_FEATURES = ("avx512bf16", "bf16")


def word_product_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of a group whose master is a product of words; the generic ones for other vectors than panels are made
    for, and for nothing at all. Rows of pairs are those of a product of floats, but for tiles."""
    node = group.anchor
    tiles = tile_feature(node, fact, target) is not None
    if node.op_name == "_pair_matmul" and (not tiles or len(group.outputs) > 1):
        return pair_product_kernels(group, fact, target)
    data, panels, made = (static_spec(fact(entry))[0] for entry in (*node.inputs[:2], NodeEntry(node)))
    if panels[2] != target.lanes(INT32) or len(group.outputs) > 1 or not prod(data) or not prod(made):
        return lower_group(group, fact, target)
    writer = TileProduct if tiles else WordProduct
    return [writer(group, fact, target, data, panels, made).lowered()]


def word_unit(node: Node, fact: Facts, target: CpuTarget) -> str:
    """The feature whose instruction multiplies words; without one, bytes are multiplied as pairs of 16 bits, and pairs
    one by one."""
    features = PAIR_FEATURES if node.op_name.startswith("_pair") else BYTE_FEATURES
    vectors = next((feature for feature in features if target.has(feature)), target.isa)
    return tile_feature(node, fact, target) or vectors

"""What a node does besides giving values: whether it may be left out, run twice, or run earlier."""

from __future__ import annotations

from ..nodes import Node
from ..schema import FunctionSchema
from .schemas import schema_of

# Kinds that no schema describes, since what they take and give depends on the node, and which do nothing but give it.
STRUCTURAL = frozenset(
    f"prim::{name}"
    for name in (
        "Constant If Loop ListConstruct ListUnpack TupleConstruct TupleUnpack TupleIndex TupleSlice DictConstruct "
        "DictIndex GetAttr Uninitialized AutogradZero AutogradAdd AutogradAnyNonZero AutogradAllZero "
        "AutogradAllNonZero GradOf FusionGroup DifferentiableGraph ConstantChunk FusedConcat ChunkSizes "
        "BroadcastSizes unchecked_cast NumToTensor Guard profile CreateObject FunctionalGraph isinstance"
    ).split()
)
# What has effects that no schema tells.
EFFECTS = frozenset(
    (
        "prim::Print prim::RaiseException prim::SetAttr prim::PythonOp prim::CallFunction prim::CallMethod prim::fork "
        "prim::BailOut prim::BailoutTemplate prim::Enter prim::Exit prim::AddStatValue prim::TimePoint "
        "aten::warn aten::wait aten::save aten::manual_seed aten::set_grad_enabled aten::is_grad_enabled"
    ).split()
)


# What draws random numbers, besides the operators of which `isNondeterministic` tells.
_RANDOM = frozenset(("aten::alpha_dropout", "aten::feature_dropout", "aten::feature_alpha_dropout"))


def is_known(node: Node) -> bool:
    """Whether there is something that tells what a node does; what is not known may do anything."""
    return node.kind() in STRUCTURAL or schema_of(node) is not None


def has_side_effects(node: Node) -> bool:
    """Whether it is seen that a node has run, besides by what it gives and by what it writes to its inputs. Those of
    nodes in its blocks do not count."""
    return node.kind() in EFFECTS or not is_known(node)


def writes_inputs(node: Node) -> bool:
    schema: FunctionSchema | None = schema_of(node)
    return schema is not None and schema.is_mutable


def has_effect(node: Node) -> bool:
    """Whether it is seen that a node has run, by something other than what it gives."""
    return has_side_effects(node) or writes_inputs(node)


def is_pure(node: Node) -> bool:
    """Whether it gives the same for the same inputs, and does nothing else."""
    return not (node._blocks or has_effect(node) or node.isNondeterministic() or node.kind() in _RANDOM)

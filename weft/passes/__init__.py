"""Graph passes: functions Graph -> Graph. Importing this registers all of them, by NNVM's names
where NNVM has them."""

from .. import ops as ops  # passes name operators and give them columns of their own
from . import (
    algebra,
    alter_op_layout,
    common_subexpr,
    correct_layout,
    fold_constants,
    fold_scale_axis,
    fuse,
    fuse_attention,
    fuse_norm,
    gradient,
    infer,
    nest_concatenates,
    order_mutation,
    pipeline,
    place_device,
    plan_memory,
    precompute_prune,
    serialize,
    settle,
    simplify_inference,
)

__all__ = [
    "algebra",
    "alter_op_layout",
    "common_subexpr",
    "correct_layout",
    "fold_constants",
    "fold_scale_axis",
    "fuse",
    "fuse_attention",
    "fuse_norm",
    "gradient",
    "infer",
    "nest_concatenates",
    "order_mutation",
    "pipeline",
    "place_device",
    "plan_memory",
    "precompute_prune",
    "serialize",
    "settle",
    "simplify_inference",
]

"""Every operator and alias of NNVM's table is there, with its support level.

Left out: tvm_op, which holds generated code of TVM, and the four convolutions that are internals of
its Winograd and NNPACK schedules."""

import pytest

import weft.ops  # noqa: F401
from weft.core.op import Op

LEVELS = {
    1: "sigmoid tanh exp log sqrt relu elemwise_add elemwise_sub elemwise_mul elemwise_div "
    "elemwise_mod elemwise_pow _max_mask _min_mask flatten concatenate expand_dims cast squeeze "
    "strided_slice matmul __layout_transform__ dense dropout batch_norm softmax log_softmax "
    "leaky_relu pad lrn l2_normalize",
    2: "conv2d _contrib_conv2d_NCHWc conv2d_transpose max_pool2d avg_pool2d global_max_pool2d "
    "global_avg_pool2d upsampling resize",
    3: "floor ceil trunc round abs negative copy __add_scalar__ __sub_scalar__ __rsub_scalar__ "
    "__mul_scalar__ __div_scalar__ __rdiv_scalar__ __pow_scalar__ __rpow_scalar__ "
    "__lshift_scalar__ __rshift_scalar__ split reshape take gather_nd",
    4: "logical_not block_grad zeros_like ones_like full_like logical_and logical_or greater less "
    "elemwise_sum full zeros ones broadcast_to expand_like reshape_like transpose flip slice_like "
    "where clip prelu multibox_prior multibox_transform_loc non_max_suppression",
    5: "yolo_reorg",
    10: "__undef__ broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_mod "
    "broadcast_max broadcast_min broadcast_pow broadcast_left_shift broadcast_right_shift "
    "broadcast_greater broadcast_less broadcast_equal broadcast_not_equal broadcast_greater_equal "
    "broadcast_less_equal _assign sum max min mean prod argmax argmin collapse_sum _conv2d_grad "
    "_max_pool2d_grad",
}
ALIASED = (
    "add sub mul div mod max min pow left_shift right_shift greater less equal not_equal greater_equal less_equal"
).split()
TABLE = [(name, level) for level, names in LEVELS.items() for name in names.split()]


def test_the_table_is_whole():
    """120 operators, of which tvm_op and four internals of other schedules are left out."""
    counts = {level: len(names.split()) for level, names in LEVELS.items()}
    assert counts == {1: 31, 2: 9, 3: 21, 4: 25, 5: 1, 10: 28}
    assert len(set(TABLE)) == len(TABLE) == 120 - 1 - 4


@pytest.mark.parametrize(("name", "level"), TABLE)
def test_operator(name, level):
    op = Op.get(name)
    assert (op.name, op.support_level) == (name, level)


@pytest.mark.parametrize("name", ALIASED)
def test_alias(name):
    assert Op.get(f"__{name}_symbol__") is Op.get(f"broadcast_{name}")

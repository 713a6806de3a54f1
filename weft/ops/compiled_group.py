"""The operator of compiled graphs: a node of it is a group of operators that became code."""

from __future__ import annotations

from ..core.op import Op
from ..core.schema import BOOL, INT, STR, attr, schema


@schema
class GroupAttrs:
    func_name: str = attr(STR, "the kernel")
    flatten_data: bool = attr(BOOL, "whether every operator in it is element-wise", default=False)
    num_inputs: int = attr(INT, "how many inputs there are", default=1, low=0)
    num_outputs: int = attr(INT, "how many outputs there are", default=1, low=0)


group_operator = (
    Op.register("tvm_op")  # the name that NNVM's graph runtime knows
    .describe("A compiled group of operators.")
    .set_attr_parser(GroupAttrs)
    .set_num_inputs(lambda params: params.num_inputs)
    .set_num_outputs(lambda params: params.num_outputs)
)

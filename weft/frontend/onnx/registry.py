"""The table of ONNX's operators, and what its converters and host steps register with."""

from __future__ import annotations

from ..building import alike_rows
from ..converters import ConverterTable
from .alike import SAME
from .call import OnnxCall

_ALIKE = {
    **SAME,
    **alike_rows("""
        BitwiseAnd bitwise_and
        BitwiseNot bitwise_not
        BitwiseOr bitwise_or
        BitwiseXor bitwise_xor
        Ceil ceil
        Floor floor
        Gelu gelu approximate
        MaxRoiPool roi_pool pooled_shape=pooled_size spatial_scale
        Mish mish
        Round round
    """),
}
# What ONNX Runtime writes into ONNX's own domain, in opsets that have no schema of it.
GUESTS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})

TABLE: ConverterTable[OnnxCall] = ConverterTable(_ALIKE)
converter, host_step = TABLE.converter, TABLE.host_step

"""The domain of ONNX Runtime's own operators. It has no schemas: converters say what attributes are by default."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ....converters import Made
from ...call import OnnxCall
from ...registry import converter

MICROSOFT = "com.microsoft"


def microsoft(
    *op_types: str, decides: tuple[int, ...] = (), **defaults: Any
) -> Callable[[Callable[[OnnxCall], Made]], Callable[[OnnxCall], Made]]:
    """Registers a converter of operators of the domain, with the defaults of their attributes."""

    def register(convert: Callable[[OnnxCall], Made]) -> Callable[[OnnxCall], Made]:
        @wraps(convert)
        def with_defaults(call: OnnxCall) -> Made:
            call.assume(**defaults)
            return convert(call)

        converter(*op_types, domain=MICROSOFT, decides=decides)(with_defaults)
        return convert

    return register

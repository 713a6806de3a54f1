"""The domain of ONNX Runtime's own operators. It has no schemas: converters say what attributes are by default."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ...call import OnnxCall
from ...registry import AnyConverter, converter

MICROSOFT = "com.microsoft"


def microsoft(*op_types: str, decides: tuple[int, ...] = (), **defaults: Any) -> Callable[[AnyConverter], AnyConverter]:
    """Registers a converter of operators of the domain, with the defaults of their attributes."""

    def register(convert: AnyConverter) -> AnyConverter:
        @wraps(convert)
        def with_defaults(call: OnnxCall) -> Any:
            call.assume(**defaults)
            return convert(call)

        converter(*op_types, domain=MICROSOFT, decides=decides)(with_defaults)
        return convert

    return register

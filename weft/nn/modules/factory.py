"""What functions that make tensors are told, from the options of a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.errors import InvalidType

__all__ = ["factory_kwargs"]

_OPTIONS = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The device, dtype and memory format among options, given as they are or in a dict called `factory_kwargs`; other
    options are refused.

    >>> factory_kwargs({"dtype": "float64", "factory_kwargs": {"device": "cpu"}})
    {'device': 'cpu', 'dtype': 'float64'}
    """
    given = dict(kwargs or {})
    found = dict(given.pop("factory_kwargs", {}))
    if unknown := given.keys() - set(_OPTIONS):
        raise InvalidType(f"unexpected kwargs {unknown}")
    if twice := given.keys() & found.keys():
        raise InvalidType(f"{', '.join(sorted(twice))} specified twice, in **kwargs and in factory_kwargs")
    return found | given

"""PyTorch's own operator samples: its database of operators, and values of it as values of weft."""

from __future__ import annotations

import importlib
import sys
import types
import unittest
import warnings
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import torch

from weft.base.dtype import DTYPES
from weft.eager.tensor.device import device
from weft.eager.tensor.tensor import Tensor, wrap
from weft.eager.tensor.types import as_dtype, as_memory_format, strided

BFLOAT16 = DTYPES["bfloat16"]
WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}

__all__ = ["Converter", "database", "plain", "samples_of", "torch"]


@cache
def database() -> dict[str, list[Any]]:
    """The entries of `op_db` by name; variants of one function share it."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        # The database is in a file of PyTorch's test-suite, which wants a base class from here.
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    with warnings.catch_warnings(action="ignore"):
        invocations = importlib.import_module("torch.testing._internal.common_methods_invocations")
    made: dict[str, list[Any]] = {}
    for info in invocations.op_db:
        made.setdefault(info.name, []).append(info)
    return made


def samples_of(info: Any, kind: torch.dtype, many: bool = False, first: int | None = None) -> list[Any]:
    """The seeded samples of an entry in a dtype, or its many more for comparisons with numpy; only the first ones
    where a number of them is given; none if PyTorch has no kernel for it."""
    if kind not in info.supported_dtypes("cpu"):
        return []
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  which some samples draw from
    gradient = kind.is_floating_point or kind in info.supported_backward_dtypes("cpu")
    gradient = gradient and info.supports_autograd and not many
    with warnings.catch_warnings(action="ignore"):
        make = info.reference_inputs if many else info.sample_inputs
        return list(islice(make("cpu", kind, requires_grad=gradient), first))


class Converter:
    """Pairs of equal values, one for each system. Tensors keep their strides, and become leaves;
    PyTorch's are in double precision if `wide`."""

    def __init__(self, wide: bool = False) -> None:
        self.wide = wide
        self.known: dict[int, tuple[torch.Tensor, Tensor]] = {}
        self.leaves: list[tuple[torch.Tensor, Tensor]] = []
        self._kept: list[Any] = []
        self._memories: dict[int, Tensor] = {}  # by address of the storage

    def __call__(self, value: Any) -> tuple[Any, Any]:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            pairs = {key: self(item) for key, item in value.items()}
            return {k: p[0] for k, p in pairs.items()}, {k: p[1] for k, p in pairs.items()}
        if isinstance(value, torch.Size):
            return value, tuple(value)
        if isinstance(value, (list, tuple)):
            both = [self(item) for item in value]
            return type(value)(p[0] for p in both), type(value)(p[1] for p in both)
        return value, _constant(value)

    def _tensor(self, value: torch.Tensor) -> tuple[torch.Tensor, Tensor]:
        if id(value) in self.known:
            return self.known[id(value)]
        if value.layout != torch.strided:
            raise Foreign(f"a tensor of layout {value.layout}")
        if value.device.type != "cpu":
            raise Foreign(f"a tensor on device {value.device}")
        if value.ndim > 64:
            raise Foreign("more dimensions than an array of numpy has")
        plain_value = value.detach().resolve_conj().resolve_neg()
        self._kept.append(plain_value)  # or its address could become another one's
        ours = self._same_memory(plain_value)
        if value.requires_grad:
            ours.requires_grad_(True)
        theirs = value.detach()
        if self.wide and value.dtype in WIDER:
            theirs = theirs.to(WIDER[value.dtype])
        theirs.requires_grad_(value.requires_grad)
        self._kept.append(value)
        self.known[id(value)] = (theirs, ours)
        if value.requires_grad:
            self.leaves.append((theirs, ours))
        return theirs, ours

    def _same_memory(self, value: torch.Tensor) -> Tensor:
        """A tensor over a copy of the whole memory; those that share theirs share it, too."""
        held = value.untyped_storage()
        if held.data_ptr() not in self._memories or not held.nbytes():
            flat = _array(torch.empty(0, dtype=value.dtype).set_(held)).copy()
            self._memories[held.data_ptr()] = wrap(flat)
        root = self._memories[held.data_ptr()]
        flat = root._array.view(as_dtype(str(value.dtype).removeprefix("torch.")).numpy)
        strides = [stride * flat.itemsize for stride in value.stride()]
        start = flat[value.storage_offset() :] if value.numel() else flat[:0]
        made = wrap(np.lib.stride_tricks.as_strided(start, tuple(value.shape), strides))
        made._root = root
        return made


class Foreign(Exception):
    """A value that weft has nothing for."""


def _constant(value: Any) -> Any:
    if isinstance(value, torch.nn.Module):
        raise Foreign("a module of PyTorch")
    if isinstance(value, torch.dtype):
        return as_dtype(str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return device(str(value))
    if isinstance(value, torch.memory_format):
        return as_memory_format(str(value).removeprefix("torch."))
    if isinstance(value, torch.layout):
        if value != torch.strided:
            raise Foreign(f"layout {value}")
        return strided
    return value


def _array(value: torch.Tensor) -> np.ndarray[Any, Any]:
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(BFLOAT16)
    return value.numpy(force=True)


def plain(value: Any) -> Any:
    """A result of either system as numpy arrays, numbers and lists."""
    if isinstance(value, Tensor):
        return value._array
    if isinstance(value, torch.Tensor):
        return _array(value.detach().resolve_conj().resolve_neg())
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value

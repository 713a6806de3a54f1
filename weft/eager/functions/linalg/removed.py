"""Rows: functions that PyTorch has no more; each says what takes its place."""

from __future__ import annotations

from typing import Any

from ....base.errors import RunError
from ...tensor.tensor import Tensor
from ..table import named, row


def _removed(name: str, instead: str, note: str) -> None:
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RunError(
            "This function was deprecated since version 1.9 and is now removed. "
            f"`torch.{name}` is deprecated in favor of `torch.linalg.{instead}`. {note}"
        )

    row(named(function, name, f"Removed: `linalg.{instead}` takes its place"))


_removed("solve", "solve", "It has its arguments reversed and does not return the factors.")
_removed("lstsq", "lstsq", "It has its arguments reversed and does not return the QR factors.")
_removed("matrix_rank", "matrix_rank", "Its parameter 'symmetric' is called 'hermitian' there.")
_removed("symeig", "eigh", "It reads the lower triangle by default, with UPLO='U' the upper one.")
_removed("eig", "eig", "It returns complex tensors rather than pairs of real numbers.")

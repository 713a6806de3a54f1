"""A program with its memory: it reads and writes the same arrays in every call, and makes none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..base.dtype import dtype_name
from ..base.errors import DTypeError, InvalidType, InvalidValue, RunError
from ..base.forks import renewed_lock
from .inputs import Spec
from .program import Array
from .shared import REFUSALS, refused, shared_array


class BoundStep:
    """What `bind` gives: `step()` reads the memory of `step.inputs` as it is at that moment, writes that of
    `step.outputs`, and returns those. One thread at a time may call it: another gets a RunError. It has all that
    it needs: models may be closed, or gone."""

    def __init__(
        self, call: Callable[[], object], inputs: Mapping[str, Any], outputs: Sequence[Any], memory: Sequence[Array]
    ) -> None:
        self.inputs: Mapping[str, Any] = MappingProxyType(dict(inputs))
        self.outputs: tuple[Any, ...] = tuple(outputs)
        self._call = call
        self._memory = memory  # whose addresses native code has
        turn = renewed_lock()
        self._begin, self._end = turn.acquire, turn.release

    def __call__(self) -> tuple[Any, ...]:
        """One run, on what the inputs hold now."""
        if not self._begin(False):
            raise RunError(
                "the bound step is running in another thread",
                why="it has one set of buffers",
                hint="bind a step for each thread",
            )
        try:
            self._call()
        finally:
            self._end()
        return self.outputs

    def __repr__(self) -> str:
        return f"BoundStep({', '.join(self.inputs)} -> {len(self.outputs)} output{'s' * (len(self.outputs) != 1)})"


def bound_input(value: Any, spec: Spec) -> Array:
    """The memory of an array that kernels read where it is; its shape is not looked at."""
    what = f"input {spec.name!r}"
    try:
        array: Array | None = shared_array(value)
    except REFUSALS as error:
        raise refused(value, what, spec, error) from None
    if array is None:
        raise InvalidType(
            f"{what} is a {type(value).__name__}",
            why="what is bound is memory, of an array of numpy or of a library that exports DLPack",
            hint="np.asarray(x)",
        )
    assert spec.dtype is not None
    if array.dtype != spec.dtype:
        raise DTypeError(
            f"{what} is of {array.dtype}",
            why=f"expected {spec}, and what is bound is not copied",
            hint=f'bind x.astype("{dtype_name(spec.dtype)}")',
        )
    if not array.flags.c_contiguous or not array.flags.aligned:
        lack = "dense" if not array.flags.c_contiguous else "aligned to its elements"
        raise InvalidValue(
            f"{what} is not {lack}",
            why=f"{spec} is read row by row, and what is bound is not copied; strides here are {array.strides} bytes",
            hint="bind np.ascontiguousarray(x), or call run, which copies",
        )
    return array

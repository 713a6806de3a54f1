"""Parameters that runs write to: the states of random generators, one copy of each for all code of a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...base.forks import renewed_lock
from ...runtime.executor import Executor
from ...runtime.program import Array


class States:
    """What runs have written, by the names of variables. One run at a time moves them on."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.lock = renewed_lock()

    def bound(self, executor: Executor, params: Mapping[str, Array]) -> Executor:
        """The executor with what it writes to, which begins with the parameters."""
        written = executor.program.written
        if not written:
            return executor
        with self.lock:
            for name in written:
                self.arrays.setdefault(name, params[name].copy())
        return _Bound(executor, self)


class _Bound(Executor):
    """An executor that takes states of its own beside its inputs, and leaves there what it writes."""

    def __init__(self, executor: Executor, states: States) -> None:
        super().__init__(executor.program)
        self._executor = executor
        self._states = states

    def run_arrays(self, inputs: Mapping[str, Array], keep: bool = False) -> list[Array]:
        with self._states.lock:
            return self._executor.run_arrays({**inputs, **self._states.arrays}, keep=True)

    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        self._executor.run_into(inputs, outputs)

"""A module that runs as native programs, and is a module itself: parts of others, states, modes and devices see it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ...base.errors import NoAttribute
from ...nn.modules.module import Module
from .compiled import Compiled, Explanation


class CompiledModule(Module):
    """What `weft.compile` gives for a module, which it holds under the name that PyTorch has: keys of its state begin
    with `_orig_mod.`

    >>> import weft
    >>> net = weft.nn.Sequential(weft.compile(weft.nn.Linear(2, 3)), weft.nn.ReLU())
    >>> list(net.state_dict())
    ['0._orig_mod.weight', '0._orig_mod.bias']
    """

    def __init__(
        self, module: Module, fullgraph: bool = False, dynamic: bool | None = None, precision: str = "fp32"
    ) -> None:
        super().__init__()
        self._orig_mod = module
        self._compiled = Compiled(module.__call__, fullgraph, dynamic, precision)
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except NoAttribute:
            if "_orig_mod" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(super().__getattr__("_orig_mod"), name)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        """The module is copied, and has plans of its own."""
        return CompiledModule(deepcopy(self._orig_mod, memo), *self._options())

    def __reduce__(self) -> Any:
        """Plans stay behind."""
        return CompiledModule, (self._orig_mod, *self._options())

    def explain(self) -> Explanation:
        """What became of the calls so far."""
        return self._compiled.explain()

    def _options(self) -> tuple[bool, bool | None, str]:
        programs = self._compiled.programs
        return self._compiled.fullgraph, programs.dynamic, programs.precision

"""`weft profile`: a model comes in; how long each of its kernels takes goes out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..compiler.model import CompiledModel
from ..runtime.profile import PROFILE_ROUNDS, Profile
from .model_files import ReadyModel, Shapes
from .progress import Stages


def profile_model(
    model: Any,
    inputs: Mapping[str, Any] | None = None,
    *,
    shape: Shapes | None = None,
    params: Path | str | None = None,
    threads: int | None = None,
    opt_level: int = 3,
    precision: str = "fp32",
    rounds: int = PROFILE_ROUNDS,
    seed: int = 0,
    stages: Stages | None = None,
    target: str = "cpu",
) -> Profile:
    """How long each kernel of a model takes, on given or random inputs.

    >>> import weft
    >>> y = weft.symbol.relu(weft.symbol.Variable("x", shape=(2, 8)), name="y")
    >>> [step.sources for step in profile_model(y).steps]
    [('y',)]
    """
    ready = ReadyModel(model, inputs, shape, params, threads, opt_level, seed, stages, target, precision)
    if stages is None or not isinstance(ready.model, CompiledModel):
        return ready.model.profile(rounds=rounds, **ready.inputs)
    stages.begin("profile")
    with ready.model.profiling(rounds, stages.progress) as found:
        ready.model.run(ready.inputs)
    return found.profile

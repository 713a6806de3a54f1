"""Seeds that are drawn from a generator, for generators of another order or another process."""

from __future__ import annotations

from ...eager.functions.create.create import scalar_tensor
from ...eager.functions.random.fill import random_
from ...eager.random.generator import Generator
from ...eager.tensor.types import int64


def draw_seed(generator: Generator | None) -> int:
    """The next seed: any non-negative number of 63 bits, of the default generator if none is named.

    >>> draw_seed(Generator().manual_seed(0))
    900450186894289455
    """
    return int(random_(scalar_tensor(0, dtype=int64), generator=generator).item())

"""What one core of a CPU can do, as far as it decides how kernels are written: rates by instruction set and by the
width of its units, costs of threads, and bytes that follow from its caches.

Rates are the best that weft's own kernels reached (`benchmarks/peak.py` measures them on any machine and prints those
below beside them); they are the same on every machine of a row, so that equal machines make equal code.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import NamedTuple


class ThreadFacts(NamedTuple):
    """What threads cost, in nanoseconds of work: measured on Linux, where a thread sleeps in a futex."""

    wake: float = 50_000.0  # below this, waking a thread costs more than it saves
    share: float = 8_000.0  # the same of a thread that is awake
    spin: int = 200_000  # so long a thread stays awake without work


THREADS = ThreadFacts()


class ElementCosts(NamedTuple):
    """Nanoseconds that one thread takes for an element, by what is done with it: what decides whether threads share a
    call, so a factor of two matters little. Timed on one core of Zen 4, arrays in the second cache."""

    copied: float = 0.3  # moved to where its order is another
    moved: float = 0.25  # read and written in order
    computed: float = 0.5  # with a function of it
    loaded: float = 0.15  # read once more, in loops made from a compute
    called: float = 1.0  # with a function, in those
    scanned: float = 0.4
    scanned_by_functions: float = 5.0
    tap: float = 1.0  # of a window that is pooled
    indexed: float = 1.0
    eliminated: float = 0.1  # with a row subtracted from it
    number: float = 0.5  # drawn evenly
    normal: float = 2.0  # drawn from the normal distribution


COSTS = ElementCosts()


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """Facts with their units. Rates are of one core, in float32."""

    flops: float  # a second, of sums of products in register tiles
    pair_flops: float  # the same of pairs of bfloat16 by one instruction; 0 where there is none
    nanoseconds_per_operation: float  # of an element, in kernels at their best
    near_rate: float  # bytes a second, read and written in the second cache
    last_rate: float  # bytes a second, read from the last cache
    far_rate: float  # bytes a second, read once from beyond the caches
    caches: tuple[int, int, int]  # bytes of L1 data, L2, L3

    threads: ThreadFacts = THREADS
    line_bytes: int = 64  # that come into a cache together
    function_operations: int = 16  # that an exponential or the like takes
    move_operations: int = 8  # that moving an element through memory takes


@dataclass(frozen=True, slots=True)
class _Rates:
    """Of `CpuFacts`. Bytes a second as a Xeon of 2.6 GHz (Sapphire Rapids) has them, where a row says nothing else."""

    flops: float
    nanoseconds_per_operation: float
    near_rate: float = 60e9
    last_rate: float = 20e9
    far_rate: float = 15e9


# LLVM's name of a CPU whose rates are others than those of its instruction set and units.
_RATES_OF_CPU = {
    # Two units of 512 bits, which the caches and memory feed: benchmarks/peak.py on Zen 5.
    "znver5": _Rates(275e9, 0.012, near_rate=130e9, last_rate=100e9, far_rate=43e9)
}

# (instruction set, bits of a unit) -> rates. How each was found:
_RATES = {
    # Two units of 512 bits: 3x3 convolutions on that Xeon.
    ("avx512", 512): _Rates(165e9, 0.02),
    # Two of 256, which take a vector in halves: benchmarks/peak.py on Zen 4, of the last cache a product with one row.
    ("avx512", 256): _Rates(118e9, 0.02, last_rate=45e9, far_rate=35e9),
    # Two of 256: benchmarks/peak.py on Zen 4, held to AVX2; of memory as on older machines.
    ("avx2", 256): _Rates(118e9, 0.04),
    # Two of 128 at 3 GHz, from the maker's tables (Zen 1).
    ("avx2", 128): _Rates(48e9, 0.08),
    # Four of 128 at 3 GHz, and two, from the maker's tables (Neoverse V1 and N1).
    ("neon", 256): _Rates(96e9, 0.04),
    ("neon", 128): _Rates(48e9, 0.08),
    # A product and a sum are two instructions: 3x3 convolutions on Zen 4, held to SSE.
    ("sse", 128): _Rates(29e9, 0.08),
    # The same at 3 GHz.
    ("generic", 128): _Rates(24e9, 0.08),
}


@lru_cache(256)
def facts_of(
    isa: str, unit_bits: int, caches: tuple[int, int, int], pair_gain: float = 0.0, cpu: str | None = None
) -> CpuFacts:
    """The facts of a core with these instructions, units and caches, that sums pairs of bfloat16 so many times as fast
    as floats; of a CPU by its name, where that is known.

    >>> facts_of("avx512", 256, (32768, 1 << 20, 32 << 20)).flops / 1e9
    118.0
    """
    fitting = [rates for (name, bits), rates in _RATES.items() if name == isa and bits <= unit_bits]
    rates = _RATES_OF_CPU.get(cpu or "") or (fitting[0] if fitting else _RATES["generic", 128])
    return CpuFacts(**asdict(rates), pair_flops=pair_gain * rates.flops, caches=caches)

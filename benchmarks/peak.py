"""What one core of the machine can do: multiply-adds in registers, and bytes from each cache and from beyond. Beside it
stands what the table of facts (`weft/base/cpu_facts.py`) tells of machines like it.

    python benchmarks/peak.py
    WEFT_ISA=avx2 python benchmarks/peak.py     the same held to AVX2, or to sse

Cost models read the table, not this machine: what differs much from it is a row that should be measured anew.
"""

from __future__ import annotations

from weft.base.cpu_target import host
from weft.tools.peak import measured_rates


def main() -> None:
    """One core: what it does, and what the table of facts says of machines like it."""
    target = host()
    print(f"{target.cpu}, {target.isa}, units of {target.unit_bits} bits, caches {target.caches}")
    for what, measured, told in measured_rates():
        print(f"{what:<42} {measured:6.0f}, told {told:.0f}")


if __name__ == "__main__":
    main()

"""Products of numbers that lie several in 32 bits: bytes by fours, bfloat16 by pairs."""

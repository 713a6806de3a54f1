"""Where the parts of the thread pool's state lie. Generated code that reads it is written with the
names of the parts, such as POOL.TURN, in the places of their offsets.

The parts are a cache line apart where different threads write them:

    LOCK      1 while a job runs            KERNEL, BUFFERS, SCALARS, EXTENT, THREADS: the job
    TURN      number of the job in          WORKERS  workers there are
              the low 32 bits, threads in   ASLEEP   workers asleep
              the high 32 bits              CALLER   1 when the caller sleeps
                                            STOP     1 when the workers are to end
                                            PULSE    changes while a program is busy
    GATE      the job's number in the high 32 bits, then a bit that closes it, then the workers
              inside
    TAKEN     turns taken from the front in the low 32 bits, from the back in the high ones; where
              so many turns do not fit, some of them count as one
"""

from __future__ import annotations

import re

STATE_BYTES = 384
OFFSETS = {
    "LOCK": 0,
    "TURN": 64,
    "KERNEL": 128,
    "BUFFERS": 136,
    "SCALARS": 144,
    "EXTENT": 152,
    "THREADS": 160,
    "WORKERS": 192,
    "ASLEEP": 196,
    "CALLER": 200,
    "STOP": 204,
    "PULSE": 208,
    "GATE": 256,
    "TAKEN": 320,
}


def with_offsets(ir: str) -> str:
    """LLVM IR with numbers in the places of names.

    >>> with_offsets("getelementptr i8, ptr %pool, i64 POOL.TURN")
    'getelementptr i8, ptr %pool, i64 64'
    """
    return re.sub(r"\bPOOL\.([A-Z]+)", lambda part: str(OFFSETS[part[1]]), ir)

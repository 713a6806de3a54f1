"""Where the parts of the thread pool's state lie. Generated code that reads it is written with the
names of the parts, such as POOL.TURN, in the places of their offsets.

The parts are a cache line apart where different threads write them:

    PARALLEL  address of weft_parallel      KERNEL, BUFFERS, SCALARS, EXTENT, PIECES: the job
    LOCK      1 while a job runs            WORKERS  workers there are
    TURN      number of the job in          ASLEEP   workers asleep
              the low 32 bits, threads in   CALLER   1 when the caller sleeps
              the high 32 bits              STOP     1 when the workers are to end
                                            PULSE    changes while a program is busy
    GATE      the job's number in the high 32 bits, then a bit that closes it, then the workers
              inside
    TAKEN     pieces taken from the front in the low 32 bits, from the back in the high ones
"""

from __future__ import annotations

import re

STATE_BYTES = 448
OFFSETS = {
    "PARALLEL": 0,
    "LOCK": 64,
    "TURN": 128,
    "KERNEL": 192,
    "BUFFERS": 200,
    "SCALARS": 208,
    "EXTENT": 216,
    "PIECES": 224,
    "WORKERS": 256,
    "ASLEEP": 260,
    "CALLER": 264,
    "STOP": 268,
    "PULSE": 272,
    "GATE": 320,
    "TAKEN": 384,
}


def with_offsets(ir: str) -> str:
    """LLVM IR with numbers in the places of names.

    >>> with_offsets("getelementptr i8, ptr %pool, i64 POOL.TURN")
    'getelementptr i8, ptr %pool, i64 128'
    """
    return re.sub(r"\bPOOL\.([A-Z]+)", lambda part: str(OFFSETS[part[1]]), ir)

"""What a call may cost, said so that it holds anywhere: calls are counted, a clock only tells an end from a hang."""

import contextlib
import sys
import time

FOREVER = 60  # seconds of this process: thousands of times what any of these takes
PATIENCE = 600  # seconds on the clock, after which a process or thread counts as hanging on however busy a machine


@contextlib.contextmanager
def ends():
    """What is inside comes to an end, where a mistake would have it run for minutes or for ever."""
    start = time.process_time()
    yield
    assert time.process_time() - start < FOREVER


def calls_of(function):
    """How many calls, of Python's functions and of C's, it takes to run this."""
    count = 0

    def seen(_frame, event, _given):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count

"""Times of what runs in a block, by the names that `autograd` has for it."""

from ..eager.profiling.events import EventList, FunctionEvent, FunctionEventAvg
from ..eager.profiling.profile import PlainProfile as profile
from ..eager.profiling.recorder import record_function

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]

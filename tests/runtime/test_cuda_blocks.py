"""Memory that streams keep and are given again: who gets it, what it waits for, and when it goes back. The driver of
Python finds memory that two streams use in no order, and what is left over at the end."""

import gc
import threading

import numpy as np
import pytest
from runtime import fake_cuda
from runtime.test_cuda_executor import fake, fake_driver, given  # noqa: F401

from weft.base.errors import OutOfMemory
from weft.eager.torch_core.cuda_devices import ExternalStream
from weft.runtime.cuda import blocks
from weft.runtime.cuda.array import device_empty, to_device
from weft.runtime.cuda.blocks import Blocks
from weft.runtime.cuda.context import platform
from weft.runtime.cuda.stream import Stream, current_stream


def freed(n=5, stream=None):
    """Where an array was that is gone."""
    return device_empty((n,), "float32", stream).address


def allocations(fake):  # noqa: F811
    return fake.calls.count("cuMemAllocAsync")


def test_a_stream_is_given_what_it_freed(fake):  # noqa: F811
    first = freed()
    calls = len(fake.calls)
    again = device_empty((5,), "float32")
    assert (again.address, len(fake.calls)) == (first, calls)  # without a call of the driver
    assert device_empty((5,), "float32").address != first
    assert device_empty((6,), "float32").address != first  # sizes are exact, so what is beyond them is found
    del again
    assert freed() == first


def test_other_streams_are_not_given_it(fake):  # noqa: F811
    side = Stream()
    first = freed()
    assert freed(stream=side) != first
    assert freed(stream=side) != first
    assert allocations(fake) == 2


def test_it_waits_for_what_other_streams_do_with_it(fake):  # noqa: F811
    side, x, y = Stream(), to_device(given()), to_device(given())
    place, values = x.address, x.numpy()
    with side:
        y.copyfrom(x)
    waits = fake.calls.count("cuStreamWaitEvent")
    del x
    assert fake.calls.count("cuStreamWaitEvent") == waits + 1
    z = to_device(given())
    assert z.address == place
    np.testing.assert_array_equal(y.numpy(), values)
    assert fake.wrong == []


def test_other_libraries_are_done_with_it(fake):  # noqa: F811
    side = Stream()
    for stream, name in ((1, "cuStreamWaitEvent"), (side.handle, "cuCtxSynchronize")):
        x = to_device(given())
        place, capsule = x.address, x.__dlpack__(stream=stream, max_version=(1, 0))
        del x
        assert freed() != place
        calls = len(fake.calls)
        del capsule
        assert name in fake.calls[calls:]
        assert device_empty((5,), "float32").address == place
        platform().context().trim()


def test_threads_free_it_without_a_context(fake):  # noqa: F811
    held = [device_empty((5,), "float32")]
    place, calls = held[0].address, len(fake.calls)
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert len(fake.calls) == calls
    assert freed() == place


def test_it_goes_back_when_asked(fake):  # noqa: F811
    context = platform().context()
    kept = [device_empty((n,), "float32") for n in (5, 6, 7)]
    del kept[1:]
    assert (context.allocated, context.reserved()) == (20, 72)
    context.trim()
    assert (context.allocated, context.reserved(), fake.taken) == (20, 20, 20)


@pytest.mark.parametrize("fake", [{"memory": 4096}], indirect=True)
def test_it_goes_back_when_there_is_no_more(fake):  # noqa: F811
    side = Stream()
    freed(700), freed(600, side)
    assert device_empty((900,), "float32").nbytes == 3600
    with pytest.raises(OutOfMemory, match="cannot allocate 4400 bytes"):
        device_empty((1100,), "float32")


def test_there_is_a_bound(fake, monkeypatch):  # noqa: F811
    monkeypatch.setattr(blocks, "MOST_BYTES", 64)
    monkeypatch.setattr(blocks, "MOST_OF_A_SIZE", 100)
    monkeypatch.setattr(blocks, "MOST_SIZES", 3)
    kept = current_stream().blocks
    freed(17)
    assert kept.nbytes == 0  # 68 bytes are no small block
    together = [device_empty((10,), "float32") for _ in range(5)]
    together.clear()
    assert kept.nbytes == 120  # three of 40 bytes
    for n in (1, 2, 3):
        freed(n)
    assert kept.nbytes == 24  # the size that was freed first has gone


def test_it_goes_with_its_stream(fake):  # noqa: F811
    side = Stream()
    freed(stream=side)
    assert fake.taken == 20
    del side
    platform().context().synchronize()
    assert fake.taken == 0


@pytest.mark.parametrize("turned", [False, True])
def test_garbage_goes_in_any_order(fake, turned):  # noqa: F811
    class Both:
        pass

    both, side = Both(), Stream()
    parts = [("stream", side), ("array", device_empty((5,), "float32", side))]
    both.__dict__.update(parts[::-1] if turned else parts)
    side.itself, both.itself = both, both
    del both, side, parts
    gc.collect()
    platform().context().synchronize()
    assert (fake.taken, fake.wrong) == (0, [])


def test_a_stream_that_goes_keeps_nothing_more(fake):  # noqa: F811
    side = Stream()
    x = device_empty((5,), "float32", side)
    side.blocks.close()
    del x
    assert fake.calls[-2:] == ["cuMemFree_v2", "cuCtxPopCurrent_v2"]  # the stream may be no more


def test_streams_of_others_keep_nothing(fake):  # noqa: F811
    side = Stream()
    theirs = ExternalStream(side.cuda_stream)
    freed(stream=theirs)
    assert fake.calls.count("cuMemFreeAsync") == 1


@pytest.mark.parametrize("closes", [False, True])
def test_what_is_given_while_all_goes_is_not_lost(fake, closes):  # noqa: F811
    """Another thread lets a size go, or closes, between the look for it and the block's arrival."""
    kept = Blocks(platform().context(), 0)

    class Meanwhile(dict):
        def get(self, key):
            found = super().get(key)
            if closes:
                kept.is_closed = True
            else:
                self.pop(key, None)
            return found

    kept._by_size = Meanwhile({20: []})
    assert kept.give(4096, 20) == 4096
    assert kept.nbytes == 0


def test_a_forked_child_calls_nothing(fake, monkeypatch):  # noqa: F811
    x, y, side = to_device(given()), to_device(given()), Stream()
    with side:
        y.copyfrom(x)
    calls, events = len(fake.calls), x.memory.uses  # those that the parent has
    with monkeypatch.context() as patched:
        patched.setattr("weft.runtime.cuda.context.os.getpid", lambda: -1)
        del x
        gc.collect()
        assert len(fake.calls) == calls
    assert len(events) == 1


def test_nothing_is_kept_without_a_pool(monkeypatch):
    monkeypatch.setitem(fake_cuda.ATTRIBUTES, 115, 0)
    with fake_driver() as fake:  # noqa: F811
        freed()
        assert (fake.calls.count("cuMemFree_v2"), fake.taken) == (1, 0)

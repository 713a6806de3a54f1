"""weft.cuda with a device, on a driver of Python. What it answers without one is in test_cuda_names.py."""

import subprocess
import sys

import pytest
from runtime.test_cuda_executor import fake  # noqa: F401

import weft
from weft.base.errors import InvalidValue, NoDevice

cuda = weft.cuda
TWO = pytest.mark.parametrize("fake", [{"devices": 2}], indirect=True)


@TWO
def test_questions_are_answered_by_the_driver(fake):  # noqa: F811
    assert (cuda.is_available(), cuda.device_count(), cuda.is_initialized()) == (True, 2, True)
    assert [cuda.get_device_name(), cuda.get_device_name("cuda:1"), cuda.get_device_name(weft.device("cuda", 1))] == [
        "Fake 0",
        "Fake 1",
        "Fake 1",
    ]
    assert cuda.get_device_capability(1) == (9, 0)
    found = cuda.get_device_properties(0)
    assert (found.name, found.major, found.multi_processor_count, found.total_memory) == ("Fake 0", 9, 132, 1 << 30)
    assert (found.shared_memory_per_block_optin, found.L2_cache_size, found.warp_size) == (232448, 62914560, 32)
    assert cuda.get_arch_list() == ["sm_90"]
    assert cuda.is_bf16_supported()
    with pytest.raises(NoDevice, match="no device cuda:2"):
        cuda.get_device_name(2)
    for wrong in ("cpu", "cuda:x", 1.5):
        with pytest.raises(InvalidValue, match="no CUDA device"):
            cuda.get_device_name(wrong)


@TWO
def test_the_device_of_a_thread(fake):  # noqa: F811
    assert cuda.current_device() == 0
    with cuda.device(1):
        assert cuda.current_device() == 1
        assert str(cuda.device_empty((2,)).device) == "cuda(1)"
        with cuda.device(-1):
            assert cuda.current_device() == 1
    assert cuda.current_device() == 0
    cuda.set_device("cuda:1")
    assert cuda.get_device_name() == "Fake 1"
    with pytest.raises(NoDevice, match="no device cuda:5"), cuda.device(5):
        pass
    assert cuda.current_device() == 1


def test_memory_is_told(fake):  # noqa: F811
    free, total = cuda.mem_get_info()
    assert free == total == 1 << 30
    array = cuda.device_empty((1024,), "float32")
    other = cuda.device_empty((1024,), "float32")
    del other
    assert (cuda.memory_allocated(), cuda.max_memory_allocated(), cuda.mem_get_info()[0]) == (4096, 8192, free - 8192)
    cuda.reset_peak_memory_stats()
    assert cuda.memory_stats()["allocated_bytes.all.peak"] == 4096
    cuda.empty_cache()
    assert cuda.memory_reserved() == 4096
    assert array.nbytes == 4096


def test_streams_and_events(fake):  # noqa: F811
    stream, other = cuda.Stream(), cuda.Stream(priority=-1)
    assert stream != other
    assert cuda.current_stream() == cuda.default_stream()
    with cuda.stream(stream):
        assert cuda.current_stream() == stream
        with cuda.stream(None):
            assert cuda.current_stream() == stream
        array = cuda.device_empty((4,), "bool")
        start = cuda.Event(enable_timing=True)
        start.record()
    assert not stream.query()
    assert not start.query()
    end = stream.record_event(cuda.Event(enable_timing=True))
    other.wait_stream(stream)
    other.synchronize()  # waits for the other too
    assert start.query()
    assert start.elapsed_time(end) == 1.5
    assert cuda.Event().query()
    with pytest.raises(InvalidValue, match="tell no time"):
        cuda.Event().elapsed_time(end)
    with pytest.raises(InvalidValue, match="recorded before"):
        start.elapsed_time(cuda.Event(enable_timing=True))
    outside = cuda.ExternalStream(stream.cuda_stream)
    assert outside == stream
    cuda.set_stream(outside)
    assert cuda.current_stream().cuda_stream == stream.cuda_stream
    with pytest.raises(InvalidValue, match="no stream"), cuda.stream("one"):
        pass
    cuda.synchronize()
    assert not array.numpy().any()


def test_names_that_weft_has_not_say_so(fake):  # noqa: F811
    with pytest.raises(NoDevice, match="CUDAGraph is none of weft's"):
        cuda.CUDAGraph()


QUIET = """
import ctypes, sys
real = ctypes.CDLL
ctypes.CDLL = lambda name, *a, **k: (sys.exit(f"{name} is loaded") if "cuda" in str(name) else real(name, *a, **k))
import weft
weft.cuda, weft.runtime.load, weft.device("cuda")
x = weft.symbol.Variable("x", shape=(2,))
import numpy as np
weft.compile(weft.symbol.relu(x)).run({"x": np.ones(2, "float32")})
weft.ones(3) + 1
"""


def test_nothing_of_the_driver_is_touched_before_it_is_needed():
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

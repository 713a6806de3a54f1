"""Programs on a GPU, by the driver alone: graphs, memory, copies and streams, run on a driver of Python that checks
each call. Values are numpy's."""

import gc
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from runtime.fake_cuda import FakeCuda, ptx

from weft.base import config
from weft.base.device import Device
from weft.base.errors import Error, InvalidValue, NoDevice, NotFound, OutOfMemory, RunError, ShapeError, Unsupported
from weft.base.plan import At, BufferRef, ExecPlan, HostStep, KernelStep, Launch, Slot, TensorMap
from weft.base.sizes import NUMBER, SIZE, Guard, Row, SizeTable
from weft.runtime.cuda import context as contexts
from weft.runtime.cuda.array import DeviceArray, device_empty, to_device
from weft.runtime.cuda.context import platform, using
from weft.runtime.cuda.driver import CudaError, DeviceLost, Driver
from weft.runtime.cuda.executor import CudaExecutor
from weft.runtime.cuda.stream import Stream, current_stream
from weft.runtime.functions import register_func
from weft.runtime.loading import load_executor, profiled
from weft.runtime.program import KernelInfo, Program, TensorSpec

TARGET = "cuda -arch=sm_90a"
F32 = np.dtype("float32")
ON_GPU = Device("cuda")
rng = np.random.default_rng(11)


def add(fake, launched):
    """p2 = p0 + p1, for so many elements."""
    a, b, c, n = launched.parameters
    count = fake.word(n)
    fake.array(c, F32, count, write=True)[:] = fake.array(a, F32, count) + fake.array(b, F32, count)


def accumulate(fake, launched):
    """p0 += p1"""
    a, b, n = launched.parameters
    fake.array(a, F32, fake.word(n), write=True)[:] += fake.array(b, F32, fake.word(n))


@register_func("test.cuda_reverse", override=True)
def reverse(tensors, attrs):
    tensors[1][...] = tensors[0][::-1]


@contextmanager
def fake_driver(**how):
    """A driver of Python in place of this machine's; at the end nothing is left over, and nothing was wrong."""
    fake = FakeCuda(**how)
    fake.kernels |= {"add": add, "accumulate": accumulate}
    with using(Driver(fake)), config.override(cache=False):
        yield fake
        gc.collect()
        for context in platform().contexts:
            with context:
                fake.drain_all()
    gc.collect()
    assert fake.wrong == []
    assert fake.released() == []


@pytest.fixture
def fake(request):
    with fake_driver(**getattr(request, "param", {})) as made:
        yield made


def sums(n=5, host=False, dependent=True, shape=None):
    """y = ((x + c) + c) by two kernels, with the order turned between them if a host step is wanted."""
    size, c = 4 * n, rng.standard_normal(n).astype("float32")
    slots = (
        Slot("input", size, 0, "x", ON_GPU),
        Slot("constant", size, 0, "c", ON_GPU),
        Slot("arena", size, 0, "", ON_GPU),
        Slot("arena", size, 256, "", ON_GPU),
        Slot("output", size, 0, "y", ON_GPU),
    )
    launch = Launch((1, 1, 1), (128, 1, 1), dependent=dependent)
    first = KernelStep("add", (BufferRef(0), BufferRef(1), BufferRef(2)), (n,), launch, 10.0)
    turn = HostStep(
        "test.cuda_reverse", (BufferRef(2), BufferRef(3)), {"tensors": [([n], "float32")] * 2, "outputs": [0]}
    )
    last = KernelStep("add", (BufferRef(3 if host else 2), BufferRef(1), BufferRef(4)), (n,), launch, 10.0)
    steps = (first, turn, last) if host else (first, last)
    specs = [TensorSpec(name, shape or (n,), F32) for name in ("x", "y")]
    infos = tuple(KernelInfo(f"add{i}", "add", ("add",), (f"node{i}",), "sm_90a") for i in range(2))
    plan = ExecPlan(steps, slots, 256 + size)
    return Program(plan, (ptx("add", parameters=4),), (specs[0],), (specs[1],), (c,), TARGET, infos)


def wanted(program, x, host=False):
    c = program.constants[0]
    return (x + c)[::-1] + c if host else x + c + c


def given(n=5):
    return rng.standard_normal(n).astype("float32")


@pytest.mark.parametrize("host", [False, True])
def test_arrays_of_the_host(fake, host):
    program = sums(host=host)
    executor = load_executor(program)
    assert isinstance(executor, CudaExecutor)
    for _ in range(3):
        x = given()
        (y,) = executor.run({"x": x})
        np.testing.assert_array_equal(y, wanted(program, x, host))
    assert fake.calls.count("cuGraphInstantiateWithFlags") == 1 + host
    assert fake.calls.count("cuGraphLaunch") == 3 * (1 + host)
    assert "cuGraphExecKernelNodeSetParams_v2" not in fake.calls


def test_kernels_that_wait_themselves_start_early(fake):
    executors = [CudaExecutor(sums(dependent=early)) for early in (True, False)]
    for executor in executors:
        executor.run({"x": given()})
    early = [what["early"] for kind, _, what in fake.alive.values() if kind == "exec"]
    assert early == [[True], [False]]


@pytest.mark.parametrize("fake", [{"without": ["cuGraphAddDependencies_v2"], "version": 12000}], indirect=True)
def test_a_driver_without_early_edges(fake):
    program, x = sums(), given()
    np.testing.assert_array_equal(CudaExecutor(program).run({"x": x})[0], wanted(program, x))
    assert "cuGraphAddDependencies" in fake.calls


def test_arrays_of_the_device_are_read_and_written_where_they_are(fake):
    program = sums()
    executor = CudaExecutor(program)
    x = given()
    on_device = to_device(x)
    copies = fake.calls.count("cuMemcpyHtoDAsync_v2")
    (y,) = executor.run({"x": on_device}, out="cuda")
    assert isinstance(y, DeviceArray)
    assert str(y.device) == "cuda(0)"
    assert fake.calls.count("cuMemcpyHtoDAsync_v2") == copies
    assert "cuMemcpyDtoDAsync_v2" not in fake.calls
    assert current_stream().query() is False  # it was not waited for
    np.testing.assert_array_equal(y.numpy(), wanted(program, x))
    out = device_empty((5,), "float32")
    found = executor.run({"x": y}, out=[out])
    assert found[0] is out
    np.testing.assert_array_equal(out.numpy(), wanted(program, wanted(program, x)))
    assert fake.calls.count("cuGraphInstantiateWithFlags") == 1
    assert fake.calls.count("cuGraphExecKernelNodeSetParams_v2") == 2
    np.testing.assert_array_equal(executor.run({"x": x})[0], wanted(program, x))


def test_outputs_that_share_memory_are_computed_apart(fake):
    program = sums(host=True)
    executor = CudaExecutor(program)
    x = given()
    on_device = to_device(x)
    executor.run({"x": on_device}, out=[on_device])
    np.testing.assert_array_equal(on_device.numpy(), wanted(program, x, host=True))


def test_a_bound_step(fake):
    program = sums()
    executor = CudaExecutor(program)
    x = np.zeros(5, "float32")
    step = executor.bind({"x": x})
    x[:] = given()
    np.testing.assert_array_equal(step()[0], wanted(program, x))
    y = device_empty((5,), "float32")
    step = executor.bind({"x": to_device(x)}, out=[y])
    step()
    np.testing.assert_array_equal(y.numpy(), wanted(program, x))


def test_many_sizes_share_code_constants_and_memory(fake):
    rows = (Row(SIZE, 0), Row(NUMBER, 4), Row("mul", 0, 1), Row(NUMBER, 0))
    slots = (Slot("input", At(2)), Slot("arena", At(2)), Slot("output", At(2)))
    launch = Launch((At(0), 1, 1), (32, 1, 1))
    first = KernelStep("add", (BufferRef(0), BufferRef(0), BufferRef(1)), (At(0),), launch)
    last = KernelStep("add", (BufferRef(1), BufferRef(0), BufferRef(2)), (At(0),), launch)
    plan = ExecPlan((first, last), slots, At(2), SizeTable(rows, (Guard("ne", 0, 1, True),)))
    spec = (At(0, "n"),)
    program = Program(
        plan,
        (ptx("add", parameters=4),),
        (TensorSpec("x", spec, F32),),
        (TensorSpec("y", spec, F32),),
        (),
        TARGET,
        open_sizes=((0, 0),),
    )
    executor = CudaExecutor(program)
    for n in (3, 700, 1, 0, 3, 700):
        x = given(n)
        np.testing.assert_array_equal(executor.run({"x": x})[0], 3 * x)
    assert fake.assembled == 1
    assert executor.workspace_bytes == 2800
    with pytest.raises(ShapeError, match="does not take input"):
        executor.run({"x": given(4)})


def test_inputs_that_a_run_writes_to(fake):
    first = KernelStep("accumulate", (BufferRef(0), BufferRef(1)), (4,))
    last = KernelStep("add", (BufferRef(0), BufferRef(0), BufferRef(2)), (4,))
    plan = ExecPlan((first, last), (Slot("input", 16), Slot("input", 16), Slot("output", 16)))
    specs = [TensorSpec(name, (4,), F32) for name in "sxy"]
    objects = (ptx("accumulate"), ptx("add", parameters=4))
    program = Program(plan, objects, tuple(specs[:2]), (specs[2],), (), TARGET, written=("s",))
    executor = CudaExecutor(program)
    state, x = given(4), given(4)
    before = state.copy()
    np.testing.assert_array_equal(executor.run({"s": state, "x": x})[0], 2 * (before + x))
    np.testing.assert_array_equal(state, before)
    on_device = to_device(state)
    executor.run({"s": on_device, "x": x}, out="cuda")
    np.testing.assert_array_equal(on_device.numpy(), before)
    executor.run_arrays({"s": state, "x": x}, keep=True)
    np.testing.assert_array_equal(state, before + x)
    executor.run_arrays({"s": on_device, "x": x}, keep=True)
    np.testing.assert_array_equal(on_device.numpy(), before + x)


def test_tensor_maps_follow_their_buffers(fake):
    seen = []
    fake.kernels["mapped"] = lambda fake, launched: seen.append((launched, fake.map_of(launched.parameters[-1])))
    tiled = TensorMap(0, "float16", (8, 4), (16,), (8, 2), 64, 16)
    images = TensorMap(1, "bfloat16", (8, 4, 4, 2), (16, 64, 256), (8, 64), 0, 0, (1, 2, 2, 1), ((-1, -1), (0, 0)))
    launch = Launch((4, 1, 1), (128, 1, 1), 100_000, 2)
    step = KernelStep("mapped", (BufferRef(0), BufferRef(1)), (), launch, maps=(tiled, images))
    program = Program(
        ExecPlan((step,), (Slot("input", 256), Slot("output", 512))),
        (ptx("mapped", parameters=2, maps=2),),
        (TensorSpec("x", (128,), np.dtype("float16")),),
        (TensorSpec("y", (256,), np.dtype("float16")),),
        (),
        TARGET,
    )
    executor = CudaExecutor(program)
    x = rng.standard_normal(128).astype("float16")
    executor.run({"x": x})
    launched, last = seen[-1]
    address = fake.word(launched.parameters[0])
    first = fake.map_of(launched.parameters[2])
    assert launched[1:4] == ((4, 1, 1), (128, 1, 1), 100_000)
    assert launched.cluster == 2
    assert first == ("tiled", 6, address + 16, (8, 4), (16,), ((8, 2), (1, 1), (0, 2, 3, 0)))
    assert last.kind == "im2col"
    assert last[1:5] == (9, fake.word(launched.parameters[1]), (8, 4, 4, 2), (16, 64, 256))
    assert last.more == ((-1, -1), (0, 0), 8, 64, (1, 2, 2, 1), (0, 0, 3, 0))
    on_device = to_device(x)
    executor.run({"x": on_device})
    assert fake.map_of(seen[-1][0].parameters[2]).address == on_device.address + 16
    wrong = replace(step, maps=(tiled._replace(strides=(12,)),))
    with pytest.raises(InvalidValue, match="does not fit a tensor map"):
        CudaExecutor(replace(program, plan=replace(program.plan, steps=(wrong,)))).run({"x": x})


def test_what_is_launched_over_no_blocks_does_not_run(fake):
    program = sums()
    none = [replace(step, launch=Launch((0, 1, 1))) for step in program.plan.steps]
    executor = CudaExecutor(replace(program, plan=replace(program.plan, steps=(none[0], program.plan.steps[1]))))
    executor.run({"x": given()})
    assert "add" in [what["name"] for kind, _, what in fake.alive.values() if kind == "function"]
    CudaExecutor(replace(program, plan=replace(program.plan, steps=tuple(none)))).run({"x": given()})


# Streams


def test_runs_are_on_the_callers_stream(fake):
    program = sums()
    executor = CudaExecutor(program)
    one, other = Stream(), Stream()
    x = [given() for _ in range(3)]
    with one:
        first = executor.run({"x": to_device(x[0])}, out="cuda")[0]
        assert current_stream() == one
    assert current_stream().handle == 0
    with other:  # the same graph and arena on another stream: it waits
        second = executor.run({"x": to_device(x[1])}, out="cuda")[0]
        third = executor.run({"x": first}, out="cuda")[0]
    assert not one.query()
    np.testing.assert_array_equal(third.numpy(), wanted(program, wanted(program, x[0])))
    np.testing.assert_array_equal(second.numpy(), wanted(program, x[1]))
    np.testing.assert_array_equal(first.numpy(), wanted(program, x[0]))


def test_each_stream_waits_for_what_it_shares_with_others(fake):
    """Arenas, homes and graphs with runs on other streams; arrays with other programs."""
    one, other = Stream(), Stream()
    first, second = sums(), sums()
    executors = [CudaExecutor(first), CudaExecutor(second)]
    x = [given(), given()]
    on_device = [to_device(each) for each in x]
    current_stream().synchronize()
    for stream, array in zip((one, other), on_device):  # one arena
        with stream:
            executors[0].run({"x": array}, out="cuda")
    with one:
        y = executors[0].run({"x": on_device[0]}, out="cuda")[0]
    with other:  # another arena, and an array of the other stream
        z = executors[1].run({"x": y}, out="cuda")[0]
    np.testing.assert_array_equal(z.numpy(), wanted(second, wanted(first, x[0])))
    sizes = CudaExecutor(first).bind({"x": on_device[0]}, out=[z])
    for stream in (one, other, one):
        with stream:
            sizes()


def test_siblings_on_two_streams_share_an_arena(fake):
    first = CudaExecutor(sums())
    second = CudaExecutor(first.program, None, first.loaded)
    one, other = Stream(), Stream()
    x = [to_device(given()) for _ in range(3)]
    current_stream().synchronize()
    for array, stream, executor in zip(x, (one, other, one), (first, second, second)):
        with stream:
            executor.run({"x": array}, out="cuda")


@pytest.mark.parametrize("fake", [{"devices": 2}], indirect=True)
def test_another_librarys_context_stays_the_current_one(fake):
    """Within a block of another device, work on the first is in its own context, and the other comes back."""
    program, x = sums(), given()
    executor = CudaExecutor(program)
    with platform().context(1) as there:
        np.testing.assert_array_equal(executor.run({"x": x})[0], wanted(program, x))
        assert fake.context == there.pointer


def test_outputs_that_share_memory_with_each_other(fake):
    step = KernelStep("add", (BufferRef(0), BufferRef(0), BufferRef(1)), (4,))
    last = KernelStep("add", (BufferRef(0), BufferRef(1), BufferRef(2)), (4,))
    specs = [TensorSpec(name, (4,), F32) for name in "xyz"]
    slots = (Slot("input", 16), Slot("output", 16), Slot("output", 16))
    objects = (ptx("add", parameters=4),)
    executor = CudaExecutor(Program(ExecPlan((step, last), slots), objects, (specs[0],), tuple(specs[1:]), (), TARGET))
    x = given(4)
    shared = to_device(x)
    executor.run({"x": shared}, out=[shared, None])  # the second kernel still reads what the first would overwrite
    np.testing.assert_array_equal(shared.numpy(), 2 * x)
    again = to_device(x)
    (_, z) = executor.run({"x": again}, out=[again, None])
    np.testing.assert_array_equal(z, 3 * x)


def test_staged_arrays_are_not_changed_under_a_run(fake):
    program = sums()
    executor = CudaExecutor(program)
    x = [given() for _ in range(4)]
    found = [executor.run({"x": each}, out="cuda")[0] for each in x]
    for each, y in zip(x, found):
        np.testing.assert_array_equal(y.numpy(), wanted(program, each))


def test_memory_goes_when_the_streams_are_done_with_it(fake):
    executor = CudaExecutor(sums())
    side = Stream()
    x = to_device(given())
    with side:
        y = executor.run({"x": x}, out="cuda")[0]
    del x  # freed in the order of stream 0, which waits for the other
    current_stream().synchronize()
    assert y.numpy().shape == (5,)


def test_many_threads(fake):
    program = sums(64)
    executor = CudaExecutor(program)
    wrong = []

    def work(number):
        values = np.random.default_rng(number)
        for turn in range(10):
            x = values.standard_normal(64).astype("float32")
            found = executor.run({"x": x}, out=None if turn % 2 else "cuda")[0]
            array = found if turn % 2 else found.numpy()
            if not np.array_equal(array, wanted(program, x)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Code


def test_assembled_code_is_kept_on_disk(fake, tmp_path):
    program, x = sums(), given()
    with config.override(cache=True, cache_dir=str(tmp_path)):
        for _ in range(3):
            executor = CudaExecutor(program)
            np.testing.assert_array_equal(executor.run({"x": x})[0], wanted(program, x))
            del executor
            gc.collect()
            assert fake.assembled == 1
        fake.version = 12040  # another driver assembles anew
        with using(Driver(fake)):
            CudaExecutor(program)
        gc.collect()
    assert fake.assembled == 2


def test_equal_code_is_one_module(fake):
    program = sums()
    executors = [CudaExecutor(program) for _ in range(3)]
    assert [kind for kind, _, _ in fake.alive.values()].count("module") == 1
    assert executors[0].loaded.functions["add"].facts().registers == 32


def test_several_modules_are_assembled_by_threads(fake):
    names = [f"k{n}" for n in range(9)]
    steps = tuple(KernelStep(name, ()) for name in names)
    fake.kernels |= {name: lambda fake, launched: None for name in names}
    objects = tuple(ptx(name, parameters=0) for name in names)
    executor = CudaExecutor(Program(ExecPlan(steps, ()), objects, (), (), (), TARGET))
    executor.run({})
    assert fake.assembled == 9


def test_code_that_cannot_be_had(fake):
    program = sums()
    with pytest.raises(RunError, match="does not assemble the code of add") as caught:
        CudaExecutor(replace(program, objects=(ptx("add").replace(b".version", b"version"),)))
    assert "no .version" in str(caught.value)
    with pytest.raises(NotFound, match="no code for kernel 'add'"):
        CudaExecutor(replace(program, objects=(ptx("other"),)))
    for arch in ("sm_80a", "sm_100", "sm_100a"):
        with pytest.raises((Unsupported, InvalidValue)):
            CudaExecutor(replace(program, target=f"cuda -arch={arch}"))
    CudaExecutor(replace(program, target="cuda -arch=sm_80"))


# What is wrong


def test_arrays_that_do_not_fit(fake):
    executor = CudaExecutor(sums())
    with pytest.raises(ShapeError, match=r"input 'x' has shape \(6,\)"):
        executor.run({"x": to_device(given(6))})
    with pytest.raises(TypeError, match="float64"):
        executor.run({"x": to_device(given().astype("float64"))})
    with pytest.raises(ShapeError, match="out for 'y'"):
        executor.run({"x": given()}, out=[device_empty((6,))])
    wide = to_device(given(10))
    strided = DeviceArray(wide.memory, wide.address, (5,), F32, (8,))
    with pytest.raises(InvalidValue, match="not dense"):
        executor.run({"x": strided})
    constant = to_device(given())
    constant.read_only = True
    with pytest.raises(InvalidValue, match="read-only"):
        executor.run({"x": given()}, out=[constant])


@pytest.mark.parametrize("fake", [{"devices": 2}], indirect=True)
def test_arrays_of_another_device(fake):
    executor = CudaExecutor(sums())
    there = device_empty((5,), "float32", current_stream(1))
    with pytest.raises(InvalidValue, match=r"input 'x' is on cuda\(1\)"):
        executor.run({"x": there})
    with pytest.raises(InvalidValue, match=r"asked for on cuda\(1\)"):
        executor.run({"x": given()}, out="cuda:1")
    with pytest.raises(NoDevice, match="no device cuda:2"):
        device_empty((5,), "float32", current_stream(2))
    platform().local.device = 1
    program, x = sums(), given()
    other = CudaExecutor(program)
    assert other.device == Device("cuda", 1)
    np.testing.assert_array_equal(other.run({"x": x})[0], wanted(program, x))
    assert fake.retained == {0: 1, 1: 1}


def test_an_alignment_that_kernels_do_not_read(fake):
    program = sums()
    executor = CudaExecutor(program)
    wide = to_device(given(6))
    behind = DeviceArray(wide.memory, wide.address + 4, (5,), F32)
    np.testing.assert_array_equal(executor.run({"x": behind})[0], wanted(program, wide.numpy()[1:]))
    assert "cuMemcpyDtoDAsync_v2" in fake.calls


@pytest.mark.parametrize("fake", [{"memory": 4096}], indirect=True)
def test_too_little_memory(fake):
    executor = CudaExecutor(sums())
    with pytest.raises(OutOfMemory, match="cannot allocate 8000 bytes") as caught:
        device_empty((2000,), "float32")
    assert "on the device are free" in str(caught.value)
    assert isinstance(caught.value, MemoryError)
    with pytest.raises(OutOfMemory):
        CudaExecutor(sums(500)).run({"x": given(500)})
    assert executor.run({"x": given()})[0].shape == (5,)


def test_a_device_that_is_lost(fake):
    executor = CudaExecutor(sums())
    executor.run({"x": given()})
    fake.code_of["cuGraphLaunch", 0] = 719
    with pytest.raises(DeviceLost, match="cuGraphLaunch failed") as caught:
        executor.run({"x": given()})
    assert caught.value.code == 719
    assert "another process" in str(caught.value)
    fake.code_of["cuStreamSynchronize", 0] = 999
    with pytest.raises(CudaError, match="cuStreamSynchronize"):
        executor.run({"x": given()})


UNDOING = ("Destroy", "Free", "Unload", "Release", "Pop", "GetError")


def test_whatever_fails_leaves_nothing_behind():
    """Each call of a load and two runs fails once: there is one typed error, nothing is left, and it can go on."""

    def scene(fake):
        program, x = sums(host=True), given()
        executor = CudaExecutor(program)
        on_device = to_device(x)
        executor.run({"x": on_device}, out="cuda")
        with Stream():
            found = executor.run({"x": x})[0]
        return np.array_equal(found, wanted(program, x, host=True))

    with fake_driver() as fake:
        assert scene(fake)
        calls, undoing = list(fake.calls), set(fake.undoing)
    gc.collect()
    gc.freeze()  # what other tests left need not be looked at hundreds of times
    for number, name in enumerate(calls):
        if number in undoing or any(word in name for word in UNDOING):
            continue
        code = 2 if "Alloc" in name else 1
        with fake_driver() as fake:
            begun = len(fake.calls)
            if number < begun:
                continue
            fake.code_at[number] = code
            with pytest.raises(Error):
                scene(fake)
            gc.collect()
            assert fake.code_at == {}
            assert scene(fake), name


def test_a_driver_that_does_not_begin():
    for how in ({"devices": 0}, {}):
        fake = FakeCuda(**how)
        if how == {}:
            fake.code_of["cuInit", 0] = 100
        with pytest.raises(NoDevice, match="there is none"), using(Driver(fake)):
            pass
        assert fake.released() == []


def test_a_forked_child_says_that_it_cannot(fake, monkeypatch):
    executor = CudaExecutor(sums())
    array = to_device(given())
    calls = len(fake.calls)
    with monkeypatch.context() as patched:
        patched.setattr(contexts.os, "getpid", lambda: -1)
        for act in (lambda: executor.run({"x": array}), array.numpy, platform):
            with pytest.raises(RunError, match="forked process cannot use CUDA"):
                act()
        other = DeviceArray(array.memory, array.address, (5,), F32)
        del other
        gc.collect()
        assert len(fake.calls) == calls
    assert array.numpy().shape == (5,)


def test_a_profile_has_every_step(fake):
    program = sums(host=True)
    executor = load_executor(program)
    found = profiled(executor, {"x": given()}, 3)
    assert [(step.name, step.native) for step in found.steps] == [
        ("add0", True),
        ("test.cuda_reverse", False),
        ("add1", True),
    ]
    assert [step.seconds for step in found.steps if step.native] == [0.0015] * 2
    assert found.total > 0
    assert "Fake 0" in found.machine.target

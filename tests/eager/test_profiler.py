"""The profiler: what it records of calls, backward passes and named blocks, and how it shows it."""

import gzip
import json
import threading

import pytest
from oracles import oracle

import weft
from weft.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule


def _work():
    w = weft.randn(3, 4, requires_grad=True)
    weft.nn.functional.linear(weft.ones(2, 4), w).relu().sum().backward()


def _recorded(**options):
    with profile(**options) as prof:
        _work()
    return prof


def test_calls_and_steps_back_are_recorded():
    names = [event.name for event in _recorded().events()]
    for name in ("randn", "ones", "nn.functional.linear", "relu", "sum", "SumBackward0", "ReluBackward0"):
        assert name in names
    assert names.index("relu") < names.index("sum") < names.index("SumBackward0") < names.index("ReluBackward0")


def test_operators_of_python_are_recorded():
    x = weft.ones(2, 2)
    with profile() as prof:
        ~((-x * x + 1)[0] < 2)
    assert [
        event.name for event in prof.events() if event.cpu_parent is None
    ] == "neg mul add getitem lt inverted".split()


def test_nothing_is_recorded_outside():
    prof = _recorded()
    count = len(prof.events())
    _work()
    assert len(prof.events()) == count
    assert weft.eager.functions.around.LAYERS == []


def test_times_nest():
    with profile() as prof, record_function("outer"):
        _work()
        with record_function("inner"):
            weft.ones(3)
    events = {event.name: event for event in prof.events()}
    outer, inner, made = events["outer"], events["inner"], [e for e in prof.events() if e.name == "ones"][-1]
    assert inner.cpu_parent is outer
    assert made.cpu_parent is inner
    assert outer.is_user_annotation
    assert not made.is_user_annotation
    assert outer.start_ns <= inner.start_ns <= made.start_ns <= made.end_ns <= inner.end_ns <= outer.end_ns
    assert outer.self_cpu_time_total == pytest.approx(
        outer.cpu_time_total - sum(child.cpu_time_total for child in outer.cpu_children)
    )
    assert prof.events().self_cpu_time_total == pytest.approx(outer.cpu_time_total)


def test_sums_by_name_and_by_shape():
    with profile(record_shapes=True) as prof:
        for size in (2, 3, 3):
            weft.zeros(size, size).matmul(weft.zeros(size, size))
    (found,) = [event for event in prof.key_averages() if event.key == "matmul"]
    assert (found.count, found.input_shapes) == (3, [])
    assert found.cpu_time == pytest.approx(found.cpu_time_total / 3)
    apart = [event for event in prof.key_averages(group_by_input_shape=True) if event.key == "matmul"]
    assert sorted((event.input_shapes, event.count) for event in apart) == [
        ([[2, 2], [2, 2]], 1),
        ([[3, 3], [3, 3]], 2),
    ]
    assert prof.key_averages().total_average().count == len(prof.events())


def test_calls_within_calls_of_their_name_count_once():
    @record_function("again")
    def again(depth):
        return again(depth - 1) if depth else weft.ones(1)

    with profile() as prof:
        again(3)
    (found,) = [event for event in prof.key_averages() if event.key == "again"]
    outermost = next(event for event in prof.events() if event.name == "again")
    assert found.count == 4
    assert found.cpu_time_total == outermost.cpu_time_total


def test_lists_of_tensors_have_shapes():
    with profile(record_shapes=True) as prof:
        weft.cat([weft.zeros(2), weft.zeros(3)], 0)
    (found,) = [event for event in prof.events() if event.name == "cat"]
    assert found.input_shapes == [[[2], [3]], []]


def test_table():
    text = _recorded(record_shapes=True).key_averages().table(sort_by="cpu_time_total", row_limit=3)
    lines = text.splitlines()
    titles = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls"]
    assert [title for title in titles if title in lines[1]] == titles
    assert len(lines) == 3 + 3 + 2
    assert lines[-1].startswith("Self CPU time total: ")
    assert "Input Shapes" in _recorded(record_shapes=True).key_averages(group_by_input_shape=True).table()
    with pytest.raises(ValueError, match="not sorted by 'beauty'"):
        _recorded().key_averages().table(sort_by="beauty")


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_chrome_traces(tmp_path, name):
    prof = _recorded(record_shapes=True)
    prof.export_chrome_trace(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    events = json.loads(gzip.decompress(data) if name.endswith("gz") else data)["traceEvents"]
    assert [event["name"] for event in events] == [event.name for event in prof.events()]
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)
    assert next(e for e in events if e["name"] == "nn.functional.linear")["args"]["Input Dims"][0] == [2, 4]


PLANS = [
    {"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1},
    {"wait": 0, "warmup": 1, "active": 1},
    {"wait": 2, "warmup": 0, "active": 3, "repeat": 1},
    {"wait": 3, "warmup": 1, "active": 2, "skip_first": 2, "skip_first_wait": 1},
    {"wait": 3, "warmup": 1, "active": 2, "repeat": 2, "skip_first_wait": 1},
]


@pytest.mark.parametrize("plan", PLANS)
def test_schedules(plan):
    torch = oracle("torch")
    mine, theirs = schedule(**plan), torch.profiler.schedule(**plan)
    assert [mine(step).name for step in range(30)] == [theirs(step).name for step in range(30)]


def test_wrong_schedules():
    with pytest.raises(ValueError, match="schedule"):
        schedule(wait=0, warmup=0, active=0)


def test_steps_of_a_schedule():
    ready = []
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=lambda p: ready.append((p.step_num, p.events()))) as prof:
        for turn in range(10):
            weft.ones(turn + 1)
            prof.step()
    assert [step for step, _ in ready] == [4, 8]
    for (_, events), first in zip(ready, (2, 6)):
        names = [event.name for event in events]
        assert names == [f"ProfilerStep#{first}", "ones", f"ProfilerStep#{first + 1}", "ones"]
    assert prof.current_action is ProfilerAction.NONE


def test_what_is_ready_at_the_end(tmp_path):
    handler = weft.profiler.tensorboard_trace_handler(str(tmp_path / "logs"), worker_name="one")
    _recorded(on_trace_ready=handler)
    (written,) = (tmp_path / "logs").iterdir()
    assert written.name.startswith("one.")
    assert json.loads(written.read_text())["traceEvents"]


def test_threads_are_apart():
    with profile() as prof, record_function("main"):
        thread = threading.Thread(target=lambda: weft.zeros(3))
        thread.start()
        thread.join()
    main, made = (next(e for e in prof.events() if e.name == name) for name in ("main", "zeros"))
    assert made.cpu_parent is None
    assert made.thread != main.thread


def test_errors_end_calls():
    with profile() as prof:
        with pytest.raises(RuntimeError):
            weft.ones(2, 3) @ weft.ones(2, 3)
        weft.zeros(1)
    (failed,) = [event for event in prof.events() if event.name == "matmul"]
    (after,) = [event for event in prof.events() if event.name == "zeros"]
    assert failed.end_ns <= after.start_ns
    assert after.cpu_parent is None


def test_with_autocast():
    with profile() as prof, weft.autocast("cpu"):
        assert (weft.ones(2, 2) @ weft.ones(2, 2)).dtype is weft.bfloat16
    assert "matmul" in [event.name for event in prof.events()]


def test_what_is_not_recorded_is_told():
    with pytest.warns(UserWarning, match="profile_memory"):
        profile(profile_memory=True)
    with pytest.raises(AssertionError):
        profile(activities=[])
    assert weft.profiler.supported_activities() == {ProfilerActivity.CPU}
    with profile() as prof, pytest.raises(AssertionError, match="stopped"):
        prof.events()


def test_autograds_profiler():
    with weft.autograd.profiler.profile(record_shapes=True) as prof:
        weft.ones(2).exp()
    assert [event.key for event in prof.key_averages()] == ["ones", "exp"]
    assert prof.total_average().count == 2
    assert "exp" in str(prof)
    assert prof.self_cpu_time_total > 0
    with weft.autograd.profiler.profile(enabled=False) as off:
        weft.ones(2)
    assert off.function_events == []

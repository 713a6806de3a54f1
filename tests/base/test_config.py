import contextvars
import threading

import pytest
from bounds import PATIENCE

from weft.base import config
from weft.base.errors import InvalidValue, NotFound


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for setting in config.SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)


@pytest.mark.parametrize(
    ("name", "value"), [("debug", frozenset()), ("verify", True), ("threads", None), ("isa", None), ("cache", True)]
)
def test_defaults(name, value):
    assert config.get(name) == value


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("WEFT_VERIFY", "0", "verify", False),
        ("WEFT_VERIFY", " Off ", "verify", False),
        ("WEFT_VERIFY", "", "verify", False),
        ("WEFT_VERIFY", "yes", "verify", True),
        ("WEFT_NUM_THREADS", "3", "threads", 3),
        ("WEFT_DEBUG", "llvm, asm,", "debug", frozenset({"llvm", "asm"})),
        ("WEFT_DEBUG", "1", "debug", frozenset({"summary"})),
        ("WEFT_DEBUG", "1,asm", "debug", frozenset({"summary", "asm"})),
        ("WEFT_DEBUG", "0", "debug", frozenset()),
        ("WEFT_ISA", "avx2", "isa", "avx2"),
        ("WEFT_CACHE_DIR", "/a b", "cache_dir", "/a b"),
        ("WEFT_KERNEL_SECONDS", "60", "kernel_seconds", 60),
    ],
)
def test_environment(monkeypatch, variable, text, name, value):
    monkeypatch.setenv(variable, text)
    assert config.get(name) == value


@pytest.mark.parametrize(
    ("variable", "text", "name", "why"),
    [
        ("WEFT_VERIFY", "maybe", "verify", "expected 1 or 0"),
        ("WEFT_NUM_THREADS", "0", "threads", "expected a positive number"),
        ("WEFT_NUM_THREADS", "many", "threads", "expected a positive number"),
        ("WEFT_DEBUG", "llvm,moon", "debug", "no stage 'moon'"),
        ("WEFT_DEBUG", "llvm,moon", "debug", "summary, passes, loops, llvm, asm, dispatch"),
    ],
)
def test_environment_that_makes_no_sense(monkeypatch, variable, text, name, why):
    monkeypatch.setenv(variable, text)
    with pytest.raises(InvalidValue, match=f"{variable}='{text}' is not understood") as caught:
        config.get(name)
    assert why in caught.value.why


def test_override_wins_over_environment_and_nests(monkeypatch):
    monkeypatch.setenv("WEFT_NUM_THREADS", "3")
    with config.override(threads=5, verify=False):
        with config.override(threads=7):
            assert (config.get("threads"), config.get("verify")) == (7, False)
        assert config.get("threads") == 5
    assert (config.get("threads"), config.get("verify")) == (3, True)


def test_override_ends_with_an_exception():
    with pytest.raises(RuntimeError, match="stop"), config.override(threads=5):
        raise RuntimeError("stop")
    assert config.get("threads") is None


@pytest.mark.parametrize("name", ["thread", "", "WEFT_ISA"])
def test_unknown_names(name):
    with pytest.raises(NotFound, match=f"no setting '{name}'") as caught:
        config.get(name)
    assert "threads" in caught.value.why
    with pytest.raises(NotFound), config.override(**{name: 1}):
        pass


def _in_thread(function):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]


def test_override_follows_the_context_into_a_thread():
    with config.override(threads=5):
        context = contextvars.copy_context()
    assert _in_thread(lambda: context.run(config.get, "threads")) == 5


def test_override_of_a_thread_is_its_own():
    inside, outside = threading.Event(), threading.Event()

    def override_and_wait():
        with config.override(threads=9):
            inside.set()
            assert outside.wait(PATIENCE)
            return config.get("threads")

    answers = []
    thread = threading.Thread(target=lambda: answers.append(override_and_wait()))
    thread.start()
    assert inside.wait(PATIENCE)
    seen_here = config.get("threads")
    outside.set()
    thread.join()
    assert (seen_here, answers) == (None, [9])

"""Loading and releasing object code."""

from __future__ import annotations

import ctypes
import resource
import threading
from pathlib import Path

import numpy as np
import pytest

from weft.base.cpu_target import host
from weft.base.errors import NotFound, RunError
from weft.codegen.cpu.object import compile_object
from weft.runtime.cpu.jit import load_ir, load_object

Unary = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def adder(name: str, number: int) -> str:
    return f"define i64 @{name}(i64 %x) {{\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"


def code(text: str) -> bytes:
    return compile_object(text, host())


def call(address: int, value: int) -> int:
    return Unary(address)(value)


def test_objects_of_one_library_call_each_other():
    first = code(adder("one_more", 1))
    second = code(
        "declare i64 @one_more(i64)\ndefine i64 @two_more(i64 %x) {\n"
        "  %y = call i64 @one_more(i64 %x)\n  %z = call i64 @one_more(i64 %y)\n  ret i64 %z\n}\n"
    )
    library = load_object([first, second], ["two_more"])
    assert call(library.address("two_more"), 40) == 42
    with pytest.raises(NotFound, match="one_more"):
        library.address("one_more")


def test_the_same_symbol_in_two_libraries():
    numbers = np.random.default_rng(0).integers(1, 1000, 2).tolist()
    libraries = [load_object(code(adder("same", number)), ["same"]) for number in numbers]
    assert [call(lib.address("same"), 5) for lib in libraries] == [n + 5 for n in numbers]


def test_process_symbols_are_found_and_missing_ones_reported():
    libm = "declare double @erf(double)\ndefine double @f(double %x) {\n"
    libm += "  %y = call double @erf(double %x)\n  ret double %y\n}\n"
    library = load_object(code(libm), ["f"])
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library.address("f"))
    assert function(0.5) == pytest.approx(0.5204998778130465)
    with pytest.raises(RunError, match="link"):
        load_object(code(libm.replace("erf", "no_such_function")), ["f"])
    with pytest.raises(RunError):
        load_object(b"this is no object file", ["f"])
    with pytest.raises(RunError):
        load_ir("define void @f( {", ["f"])


def test_a_closed_library_gives_no_addresses():
    library = load_object(code(adder("f", 1)), ["f"])
    library.close()
    library.close()
    with pytest.raises(RunError, match="closed"):
        library.address("f")


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_load_and_close_give_memory_back():
    table = ", ".join(f"i64 {n}" for n in range(8192))
    big = f"@t = constant [8192 x i64] [{table}]\n" + adder("f", 1)
    image = code(big)
    assert len(image) > 60_000

    def cycle(count: int) -> None:
        for _ in range(count):
            library = load_object(image, ["f"])
            assert call(library.address("f"), 1) == 2
            library.close()

    cycle(100)
    before = resident_bytes()
    cycle(1000)
    assert resident_bytes() - before < 4 << 20


def test_libraries_outlive_the_replacement_of_the_jit():
    image = code(adder("f", 7))
    kept = [load_object(image, ["f"]) for _ in range(3)]
    for _ in range(600):
        load_object(image, ["f"])
    assert [call(library.address("f"), 1) for library in kept] == [8, 8, 8]


def test_loading_from_several_threads():
    results: list[int] = []

    def work(number: int) -> None:
        for step in range(10):
            library = load_object(code(adder("f", number)), ["f"])
            results.append(call(library.address("f"), step) - step - number)
            library.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0] * 40

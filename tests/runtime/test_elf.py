"""Object files of x86-64 in memory."""

from __future__ import annotations

import ctypes
import platform
import random
import subprocess
import sys

import pytest

from weft.base.cpu_target import host
from weft.base.errors import RunError
from weft.codegen.cpu.object import compile_object
from weft.runtime.cpu.elf import PlacedObjects, is_placeable
from weft.runtime.cpu.jit import load_object
from weft.runtime.cpu.lljit import LIBRARIES_PER_JIT, LinkedObjects

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="this machine's objects are of another format"
)

Unary = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def code(text: str) -> bytes:
    return compile_object(text, host())


def adder(name: str, number: int, linkage: str = "") -> str:
    return f"define {linkage} i64 @{name}(i64 %x) {{\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"


def test_constants_variables_zeros_and_tables_of_addresses():
    text = (
        adder("one", 1)
        + adder("nine", 9)
        + """
@constants = private constant [3 x i64] [i64 11, i64 22, i64 33]
@seen = global [3 x i64] [i64 1, i64 2, i64 3]
@calls = global i64 0
@functions = constant [2 x ptr] [ptr @one, ptr @nine]
define i64 @f(i64 %i) {
  %p = getelementptr i64, ptr @constants, i64 %i
  %constant = load i64, ptr %p
  %q = getelementptr i64, ptr @seen, i64 %i
  %old = load i64, ptr %q
  store i64 %constant, ptr %q
  %count = load i64, ptr @calls
  %more = add i64 %count, 1000
  store i64 %more, ptr @calls
  %parity = and i64 %i, 1
  %r = getelementptr ptr, ptr @functions, i64 %parity
  %function = load ptr, ptr %r
  %sum = add i64 %old, %more
  %result = call i64 %function(i64 %sum)
  ret i64 %result
}
"""
    )
    library = load_object(code(text), ["f"])
    f = Unary(library.address("f"))
    assert [f(0), f(1), f(1), f(0)] == [1001 + 1, 2002 + 9, 3022 + 9, 4011 + 1]


def test_what_is_elsewhere_is_called_and_read():
    text = """
declare double @erf(double)
declare i64 @other(i64)
@environ = external global ptr
define i64 @f(i64 %x) {
  %d = sitofp i64 %x to double
  %e = call double @erf(double %d)
  %s = fmul double %e, 1.0e6
  %i = fptosi double %s to i64
  %y = call i64 @other(i64 %i)
  ret i64 %y
}
define i64 @where(i64 %x) {
  %p = ptrtoint ptr @environ to i64
  ret i64 %p
}
"""
    library = load_object([code(text), code(adder("other", 5))], ["f", "where"])
    assert Unary(library.address("f"))(1) == 842700 + 5
    exported = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ")
    assert Unary(library.address("where"))(0) == ctypes.addressof(exported)


def test_of_two_definitions_the_strong_one_counts():
    caller = "declare i64 @g(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @g(i64 %x)\n  ret i64 %y\n}\n"
    weak, strong = code(adder("g", 1, "weak")), code(adder("g", 2))
    for images in ([code(caller), weak, strong], [code(caller), strong, weak]):
        assert Unary(load_object(images, ["f"]).address("f"))(0) == 2
    with pytest.raises(RunError, match="g is defined twice"):
        load_object([strong, strong], ["g"])
    with pytest.raises(RunError, match="nothing defines h"):
        load_object([strong], ["h"])


FAR_APART = """
import ctypes, mmap
from weft.base.cpu_target import host
from weft.codegen.cpu.object import compile_object
from weft.runtime.cpu.jit import load_object

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def reserve(size):
    return libc.mmap(None, size, 0, 0x4022, -1, 0)  # private, of no file, of no memory

ir = "define double @f(double %x) {\\n  %y = fadd double %x, 0x400921FB54442D18\\n  ret double %y\\n}\\n"
code = compile_object(ir, host())
libraries = []
reserved = [reserve(mmap.PAGESIZE) for _ in range(3000)]
reserve(1 << 36)
for address in reserved[::7]:
    libc.munmap(address, mmap.PAGESIZE)  # a hole for one section, and room for the next below all of the above
    libraries.append(load_object(code, ["f"]))
    f = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(libraries[-1].address("f"))
    assert abs(f(1.0) - 4.141592653589793) < 1e-12
print("fine")
"""


def test_a_process_whose_memory_has_small_holes_far_apart():
    """A linker that asks memory for one section after the other cannot reach across 64 GiB."""
    done = subprocess.run([sys.executable, "-c", FAR_APART], capture_output=True, text=True, timeout=120)
    assert done.stdout == "fine\n", done.stderr


def test_damaged_files_are_refused():
    text = adder("f", 1) + "@t = constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0]\n"
    text += "define double @g(i64 %i) {\n  %p = getelementptr double, ptr @t, i64 %i\n  %v = load double, ptr %p\n"
    text += "  %w = fmul double %v, 0x400921FB54442D18\n  ret double %w\n}\n"
    image, draw = code(text), random.Random(3)
    assert is_placeable(image)
    refused = 0
    for number in range(600):
        changed = bytearray(image)
        for _ in range(draw.randrange(1, 4)):
            changed[draw.randrange(len(image))] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        data = bytes(changed[: draw.randrange(len(image))]) if number % 5 == 0 else bytes(changed)
        if not is_placeable(data):
            continue
        try:
            PlacedObjects([data]).close()
        except RunError:
            refused += 1
    assert refused > 50


def test_objects_that_llvm_links():
    image = code(adder("f", 7))
    kept = [LinkedObjects([image], ["f"]) for _ in range(3)]
    for _ in range(2 * LIBRARIES_PER_JIT):
        LinkedObjects([image], ["f"])
    assert [Unary(objects["f"])(1) for objects in kept] == [8, 8, 8]
    kept[0].close()
    with pytest.raises(RunError, match="link"):
        LinkedObjects(
            [
                code(
                    "declare i64 @no_such_function(i64)\n"
                    + adder("f", 1).replace("add i64 %x, 1", "call i64 @no_such_function(i64 %x)")
                )
            ],
            ["f"],
        )

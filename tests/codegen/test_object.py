"""Object code for other machines, and after a fork while another thread has LLVM compile."""

import gc
import os
import select
import signal
import threading
from dataclasses import replace

import pytest
from bounds import PATIENCE

from weft.base.cpu_target import CpuTarget, host
from weft.base.errors import Unsupported
from weft.codegen.cpu.object import compile_assembly, compile_object
from weft.core.bulk import collector_paused
from weft.runtime.cpu.jit import load_ir

ELF, MACHINES = b"\x7fELF", {"aarch64": 183, "riscv64": 243, "x86_64": 62}


def ir(number: int) -> str:
    return f"define i64 @f(i64 %x) {{\n  %y = mul i64 %x, {number}\n  ret i64 %y\n}}\n"


def cross(arch: str) -> CpuTarget:
    return replace(host(), triple=f"{arch}-unknown-linux-gnu", cpu="generic", features="")


@pytest.mark.parametrize("arch", ["aarch64", "riscv64"])
def test_code_for_another_machine(arch):
    code = compile_object(ir(3), cross(arch))
    assert code[:4] == ELF
    assert int.from_bytes(code[18:20], "little") == MACHINES[arch]  # e_machine


def test_assembly_for_aarch64_is_its_own():
    assert "ret" in compile_assembly(ir(12345), cross("aarch64"))
    assert "madd" in compile_assembly(
        "define i64 @g(i64 %a, i64 %b, i64 %c) {\n  %p = mul i64 %a, %b\n  %s = add i64 %p, %c\n  ret i64 %s\n}\n",
        cross("aarch64"),
    )


def test_a_machine_that_nobody_has():
    with pytest.raises(Unsupported, match="no code can be made for 'abacus") as caught:
        compile_object(ir(3), cross("abacus"))
    assert "aarch64" in str(caught.value)


# Forks


def in_child(work) -> bool:
    """Whether a forked child gets something done, and in time."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        done = b"0"
        try:
            done = b"1" if work() else b"0"
        finally:
            os.write(writer, done)
            os._exit(0)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], PATIENCE)
        if not ready:
            os.kill(child, signal.SIGKILL)
        return bool(ready) and os.read(reader, 1) == b"1"
    finally:
        os.close(reader)
        os.waitpid(child, 0)


class Busy(threading.Thread):
    """Does something again and again."""

    def __init__(self, work) -> None:
        super().__init__(daemon=True)
        self.work, self.stopped, self.turns = work, threading.Event(), 0
        self.begun = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            self.begun.set()
            self.work(self.turns)
            self.turns += 1

    def __enter__(self):
        self.start()
        assert self.begun.wait(PATIENCE)
        return self

    def __exit__(self, *exc) -> None:
        self.stopped.set()
        self.join(PATIENCE)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
forks_beside_threads = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@needs_fork
@forks_beside_threads
def test_a_child_compiles_while_a_thread_of_its_parent_did():
    def compiled(number: int) -> bytes:
        return compile_object(ir(1000 + number), host())

    with Busy(compiled) as busy:
        for number in range(8):
            assert in_child(lambda number=number: compiled(-number)[:4] == ELF)
        assert busy.turns > 0


@needs_fork
@forks_beside_threads
def test_a_child_links_while_a_thread_of_its_parent_did():
    def address(number: int) -> int:
        return load_ir(ir(5000 + number), ["f"]).address("f")

    with Busy(address):
        assert all(in_child(lambda number=number: address(-number) != 0) for number in range(4))


@needs_fork
@forks_beside_threads
def test_a_child_collects_garbage_though_a_thread_of_its_parent_had_that_paused():
    inside, leave = threading.Event(), threading.Event()

    @collector_paused
    def paused(turn: int) -> None:
        inside.set()
        leave.wait(PATIENCE)

    with Busy(paused) as busy:
        assert inside.wait(PATIENCE)
        assert not gc.isenabled()
        assert in_child(gc.isenabled)
        busy.stopped.set()
        leave.set()
    assert gc.isenabled()

"""Code for CPUs refuses what only kernels with a grid have, by name."""

import pytest

from weft.base.cpu_target import CpuTarget
from weft.base.errors import Unsupported
from weft.codegen.cpu.emit import emit_kernel
from weft.te.expr import Var, as_expr
from weft.te.loops import Alloc, Barrier, For, Kernel, Seq, buffer

REFUSED = [
    ("loop i, bound to block.x,", For(Var("i"), as_expr(4), Seq(()), "block.x")),
    ("loop j, bound to thread.y,", For(Var("j"), as_expr(4), Seq(()), "thread.y")),
    ("shared memory s", Alloc(buffer("s", "float32", (8,), scope="shared"), Seq(()))),
    ("a barrier", Seq((Barrier(),))),
]


@pytest.mark.parametrize(("what", "body"), REFUSED)
def test_refused(what, body):
    with pytest.raises(Unsupported, match=f"^{what} in code for a CPU") as caught:
        emit_kernel(Kernel("k", (), body), CpuTarget.create("llvm -mcpu=x86-64-v3"))
    assert caught.value.where == "kernel k"

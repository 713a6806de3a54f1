"""What the loops of a kernel tell of the decisions behind it: threads, vectors, register tiles, memory of its own."""

from __future__ import annotations

from ...te.expr import Const, Expr
from ...te.loops import Alloc, Buffer, For, Kernel
from ...te.visit import postorder


def kernel_shape(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """(what, how) of a kernel, as its loops say.

    >>> from weft.te.build import KernelBuilder
    >>> b = KernelBuilder("twice")
    >>> x, y = b.arg("x", "float32", (4, 8)), b.arg("y", "float32", (4, 8))
    >>> with b.parallel("i", 4) as i, b.vector("j", 8) as j:
    ...     b.store(y, (i, j), x[i, j] * 2.0)
    >>> kernel_shape(b.finish())
    (('turns for threads', '4'), ('vector lanes', '8'))
    """
    nodes = list(postorder((kernel.body,)))
    loops = [node for node in nodes if isinstance(node, For)]
    buffers = [node.buffer for node in nodes if isinstance(node, Alloc)]
    found = {
        "turns for threads": _number(kernel.parallel.extent) if kernel.parallel is not None else "one thread alone",
        "grid": ", ".join(f"{loop.kind} {_number(loop.extent)}" for loop in loops if loop.is_bound),
        "vector lanes": _listed({_number(loop.extent) for loop in loops if loop.kind == "vector"} | _lanes(buffers)),
        "register tiles": _listed({_size(b) for b in buffers if b.scope == "register"}),
        "unrolled": _listed({_number(loop.extent) for loop in loops if loop.kind == "unroll"}),
        "memory on the stack": _listed({_size(b) for b in buffers if b.scope in ("scratch", "shared")}),
    }
    return tuple((what, how) for what, how in found.items() if how)


def _lanes(buffers: list[Buffer]) -> set[str]:
    return {str(buffer.lanes) for buffer in buffers if buffer.lanes > 1}


def _size(buffer: Buffer) -> str:
    dims = " x ".join(map(_number, buffer.shape)) or "1"
    return f"{dims} of {buffer.lanes} lanes" if buffer.lanes > 1 else dims


def _number(extent: Expr) -> str:
    return str(extent.value) if isinstance(extent, Const) else "open"


def _listed(texts: set[str], most: int = 6) -> str:
    ordered = sorted(texts, key=lambda text: (len(text), text))
    return ", ".join(ordered[:most]) + (f" and {len(ordered) - most} more" if len(ordered) > most else "")

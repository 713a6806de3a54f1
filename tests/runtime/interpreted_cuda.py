"""A driver of Python whose kernels run as their loops do in the interpreter: whole programs for GPUs without one."""

import gc
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import prod

import numpy as np
from codegen.cuda.ptx_machine import run_ptx

from weft.base.errors import InvalidValue, OutOfRange
from weft.codegen.generator import Codegen
from weft.compiler import backends
from weft.compiler.backends.cuda import CUDA
from weft.compiler.groups import forget_groups
from weft.eager import devices
from weft.eager.functions.around import ALWAYS, LAYERS
from weft.te.interpret import run_kernel
from weft.te.steps import Frame, evaluate
from weft.te.tensor_cores.warp_attention import WarpAttention
from weft.te.tensor_cores.warp_product import WarpProduct


class Recording(Codegen):
    """Code generation that remembers what each kernel was made from."""

    kernels = {}  # by name, with their maps: one text may be that of several kernels, which declare buffers otherwise
    codes = {}

    def code(self, kernel, code):
        made = super().code(kernel, code)
        self.kernels.setdefault(kernel.name, []).append((kernel, made.maps))
        self.codes[kernel.name] = code.decode()
        return made


class Interpreted(dict):
    """Kernels by name, which run as their loops do; `by_threads`: those of single warps as their PTX does."""

    def __init__(self, by_threads=False):
        super().__init__()
        self.by_threads = by_threads

    def __missing__(self, name):
        def run(fake, launched):
            kernel = Recording.kernels[name][-1][0]
            if self.by_threads and isinstance(kernel.body, (WarpProduct, WarpAttention)):
                return _by_threads(kernel, Recording.codes[name], fake, launched)
            *others, last = [k for k, maps in Recording.kernels[name] if _shown(k, maps, fake, launched)]
            for kernel in others:
                with suppress(InvalidValue, OutOfRange):
                    return _interpret(kernel, fake, launched)
            return _interpret(last, fake, launched)

        return run


def _shown(kernel, maps, fake, launched):
    """Whether the tensor maps of a launch show what a kernel reads by them."""
    given = launched.parameters[len(kernel.buffers) + len(kernel.scalars) :]
    pairs = [(fake.map_of(one).dims, other.dims) for one, other in zip(given, maps, strict=True)]
    return all(type(b) is not int or a == b for one, other in pairs for a, b in zip(one, other))


def _interpret(kernel, fake, launched):
    count = len(kernel.buffers)
    places, scalars = launched.parameters[:count], launched.parameters[count : count + len(kernel.scalars)]
    memories = [fake.view(fake.word(place)) for place in places]
    fitting = [len(m) // b.dtype.itemsize * b.dtype.itemsize for m, b in zip(memories, kernel.buffers)]
    arrays = [m[:size].view(b.dtype) for m, size, b in zip(memories, fitting, kernel.buffers)]
    before = [array.copy() for array in arrays]
    try:
        run_kernel(kernel, arrays, [fake.word(scalar) for scalar in scalars])
    except (InvalidValue, OutOfRange):  # another kernel of this text runs from the start: some write what they read
        for array, values in zip(arrays, before):
            array[:] = values
        raise


def _by_threads(kernel, text, fake, launched):
    count = len(kernel.buffers)
    scalars = [fake.word(scalar) for scalar in launched.parameters[count:]]
    known = Frame(kernel.name, dict(zip(kernel.scalars, map(np.int64, scalars))))
    sizes = [prod(int(evaluate(extent, known)) for extent in buffer.shape) for buffer in kernel.buffers]
    arrays = [
        fake.view(fake.word(place), size * buffer.dtype.itemsize, write=buffer is kernel.body.store.buffer)
        for place, size, buffer in zip(launched.parameters, sizes, kernel.buffers)
    ]
    assert launched.grid[1:] == (1, 1)
    run_ptx(text, arrays, launched.grid[0], launched.shared, scalars)


@contextmanager
def interpreted(fake, by_threads=False):
    """Has the kernels of a fake driver interpreted, for a block."""
    fields = {name: getattr(CUDA.codegen, name) for name in CUDA.codegen.__dataclass_fields__}
    before = backends._backends.get("cuda")
    backends._backends["cuda"] = replace(CUDA, codegen=Recording(**fields))
    fake.kernels = Interpreted(by_threads)
    forget_groups()
    try:
        yield fake
    finally:
        forget_groups()
        if before is None:
            del backends._backends["cuda"]
        else:
            backends._backends["cuda"] = before


@contextmanager
def tensors_there(fake):
    """The same for tensors: at the end nothing is left of them on the device, and calls no longer look for it."""
    with interpreted(fake):
        try:
            yield fake
        finally:
            gc.collect()
            devices.forget()
            LAYERS[:] = [layer for layer in LAYERS if layer not in ALWAYS]
            ALWAYS.clear()
            gc.collect()

"""A driver of Python whose kernels run as their loops do in the interpreter: whole programs for GPUs without one."""

import gc
from contextlib import contextmanager, suppress
from dataclasses import replace

from weft.base.errors import InvalidValue, OutOfRange
from weft.codegen.generator import Codegen
from weft.compiler import backends
from weft.compiler.backends.cuda import CUDA
from weft.compiler.groups import forget_groups
from weft.eager import devices
from weft.eager.functions.around import ALWAYS, LAYERS
from weft.te.interpret import run_kernel


class Recording(Codegen):
    """Code generation that remembers what each kernel was made from."""

    kernels = {}  # by name: one text may be that of several kernels, whose buffers are declared otherwise

    def code(self, kernel, code):
        self.kernels.setdefault(kernel.name, []).append(kernel)
        return super().code(kernel, code)


class Interpreted(dict):
    """Kernels by name, which run as their loops do."""

    def __missing__(self, name):
        def run(fake, launched):
            for kernel in Recording.kernels[name][:-1]:
                with suppress(InvalidValue, OutOfRange):
                    return _interpret(kernel, fake, launched)
            return _interpret(Recording.kernels[name][-1], fake, launched)

        return run


def _interpret(kernel, fake, launched):
    count = len(kernel.buffers)
    places, scalars = launched.parameters[:count], launched.parameters[count : count + len(kernel.scalars)]
    memories = [fake.view(fake.word(place)) for place in places]
    fitting = [len(m) // b.dtype.itemsize * b.dtype.itemsize for m, b in zip(memories, kernel.buffers)]
    arrays = [m[:size].view(b.dtype) for m, size, b in zip(memories, fitting, kernel.buffers)]
    run_kernel(kernel, arrays, [fake.word(scalar) for scalar in scalars])


@contextmanager
def interpreted(fake):
    """Has the kernels of a fake driver interpreted, for a block."""
    fields = {name: getattr(CUDA.codegen, name) for name in CUDA.codegen.__dataclass_fields__}
    before = backends._backends.get("cuda")
    backends._backends["cuda"] = replace(CUDA, codegen=Recording(**fields))
    fake.kernels = Interpreted()
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

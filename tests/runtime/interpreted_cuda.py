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

    kernels = {}  # by name, with their maps: one text may be that of several kernels, which declare buffers otherwise

    def code(self, kernel, code):
        made = super().code(kernel, code)
        self.kernels.setdefault(kernel.name, []).append((kernel, made.maps))
        return made


class Interpreted(dict):
    """Kernels by name, which run as their loops do."""

    def __missing__(self, name):
        def run(fake, launched):
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

"""A driver of Python whose kernels run as their loops do in the interpreter: whole programs for GPUs without one."""

from contextlib import contextmanager
from dataclasses import replace

from runtime.test_cuda_executor import fake_driver

from weft.codegen.generator import Codegen
from weft.compiler import backends
from weft.compiler.backends.cuda import CUDA
from weft.compiler.groups import forget_groups
from weft.te.interpret import run_kernel


class Recording(Codegen):
    """Code generation that remembers what each kernel was made from."""

    kernels = {}

    def code(self, kernel, code):
        self.kernels[kernel.name] = kernel
        return super().code(kernel, code)


class Interpreted(dict):
    """Kernels by name, which run as their loops do."""

    def __missing__(self, name):
        kernel = Recording.kernels[name]

        def run(fake, launched):
            count = len(kernel.buffers)
            places, scalars = launched.parameters[:count], launched.parameters[count : count + len(kernel.scalars)]
            memories = [fake.view(fake.word(place)) for place in places]
            fitting = [len(m) // b.dtype.itemsize * b.dtype.itemsize for m, b in zip(memories, kernel.buffers)]
            arrays = [m[:size].view(b.dtype) for m, size, b in zip(memories, fitting, kernel.buffers)]
            run_kernel(kernel, arrays, [fake.word(scalar) for scalar in scalars])

        return run


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

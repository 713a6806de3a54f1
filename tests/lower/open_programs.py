"""Programs whose sizes are arguments, for tests: on arrays that end at guard pages, with results that begin as NaN."""

from functools import partial

import numpy as np
from codegen.guard import guarded

from weft.compiler.open.calls import lower_compute
from weft.compiler.open.programs import assembled
from weft.core.op import Op
from weft.runtime.cpu.open_program import OpenProgram


class Programs:
    """A computation as programs whose sizes are arguments, made where none serves a call yet."""

    def __init__(self, name, target, compute, kernels=1):
        self.name, self.target, self.compute, self.kernels, self.made = name, target, compute, kernels, []

    @classmethod
    def of(cls, name, target, kernels=1, **attrs):
        """Those of an operator."""
        op = Op.get(name)
        return cls(name, target, partial(op.call_with, Op.compute[op], op.parser(**attrs)), kernels)

    def run(self, *arrays, in_place=False):
        """The outputs; the only one is written where the first of the arrays is."""
        sizes = tuple(n for array in arrays for n in array.shape if n != 1)
        bound = next((b for p in self.made if (b := p.at(sizes)) is not None), None)
        if bound is None:
            call = lower_compute(self.name, self.compute, [(a.shape, a.dtype) for a in arrays], self.target)
            assert len(call.kernels) == self.kernels
            self.made.append(OpenProgram(assembled(call, self.target)))
            bound = self.made[-1].at(sizes)
        given = [guarded(array) for array in arrays]
        outputs = [guarded(np.full(spec.extents, np.nan, spec.dtype)) for spec in bound.outputs]
        outputs = given[:1] if in_place else outputs
        bound.run([*given, *outputs])
        return outputs

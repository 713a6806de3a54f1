"""Every operator on inputs without elements, where its rules allow them: as machine code, at levels
0 and 3, against the reference."""

import warnings

import numpy as np
import pytest
from sample import all_samples
from test_suite import OPS

import weft
from weft.base.errors import Error
from weft.compiler.mutation import written_variables
from weft.compiler.prepare import typed_graph
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.core.symbol import Symbol, Variable, apply_op

SAMPLES, CASES = 6, 14  # at most, of an operator


def emptied(sample):
    """The inputs with all axes of one extent empty, for every extent there is."""
    inputs = [np.asarray(x) for x in sample.inputs]
    for extent in sorted({dim for x in inputs for dim in x.shape if dim}):
        shapes = [tuple(0 if dim == extent else dim for dim in x.shape) for x in inputs]
        yield [x if x.shape == s else np.zeros(s, x.dtype) for x, s in zip(inputs, shapes)]


def cases(op):
    """(symbol, inputs, outputs) of what is allowed."""
    for sample in all_samples(op.name)[:SAMPLES]:
        for inputs in emptied(sample):
            names = [f"x{i}" for i in range(len(inputs))]
            given = dict(zip(names, inputs))
            try:
                symbol = apply_op(Symbol, op, op.name, tuple(map(Variable, names)), dict(sample.attrs))
                if list(written_variables(typed_graph(symbol, given, {}, {}))):
                    continue  # a compiled model has no state
                expected = evaluate(symbol, given)
            except Error:
                continue
            read = set(symbol.list_input_names())
            yield symbol, {name: x for name, x in given.items() if name in read}, expected


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_inputs_without_elements(name):
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        for symbol, given, expected in list(cases(Op.get(name)))[:CASES]:
            shapes = {key: x.shape for key, x in given.items()}
            dtypes = {key: x.dtype for key, x in given.items()}
            for level in (0, 3):
                compiled = weft.compile(symbol, shape=shapes, dtype=dtypes, opt_level=level)
                for made, wanted in zip(compiled.run(given), expected, strict=True):
                    assert made.shape == wanted.shape
                    assert made.dtype == wanted.dtype
                    np.testing.assert_allclose(made.astype(complex), wanted.astype(complex), 1e-5)

"""What register tiles of convolutions and products ask for ahead: all panels of weights but the first, each by the
tiles of the one before it; and which axis vectors are along, counted in the loops."""

import numpy as np
import pytest
from lower.accuracy import targets

from weft.core.fused import FusedGroup
from weft.core.ir import NodeEntry
from weft.core.op import Op
from weft.lower.cpu.dispatch import LOWERING
from weft.te.expr import Ramp, as_expr
from weft.te.interpret import run_kernel
from weft.te.loops import If, Kernel, Prefetch, Store, buffer
from weft.te.simplify_loops import statements
from weft.te.visit import rewrite
from weft.testing.op_check import Sample, _typed_node

WIDE = [target for target in targets() if target.lanes("float32") > 4]  # whose innermost loops are cut
on_wide_ones = pytest.mark.parametrize("target", WIDE, ids=lambda target: target.isa)


def convolution(target, shape, filters, layouts, **attrs):
    """The kernel of a convolution in blocks, and its arrays, of random numbers."""
    rng = np.random.default_rng(len(shape))
    arrays = [rng.standard_normal(s).astype("f") for s in (shape, filters)]
    layout = dict(zip(("layout", "kernel_layout", "out_layout"), layouts))
    return lowered("conv2d", arrays, {**attrs, **layout, "use_bias": False}, target)


def lowered(op, arrays, attrs, target):
    """The kernel of an operator, and its arrays."""
    node, fact = _typed_node(Op.get(op), Sample(arrays, attrs, None))
    group = FusedGroup((node,), tuple(node.inputs), (NodeEntry(node),), node)
    kernel, places, _ = LOWERING.lower(group, fact, target)[-1]
    memory = dict(zip(node.inputs, arrays))
    made = np.zeros(fact(NodeEntry(node)).shape, "f")
    return kernel, [memory.get(place, made) for place in places]


def asked_of(kernel, number, size):
    """The kernel with a store of one where it asks for an element of an argument: into one array more."""
    source = kernel.buffers[number]
    asked = buffer("asked", "float32", (size,))

    def noted(node):
        if not isinstance(node, Prefetch) or node.buffer is not source:
            return node
        at = sum((i * s for i, s in zip(node.indices, source.strides)), as_expr(0))
        return If(at < size, Store(asked, (at,), as_expr(1.0, asked.dtype)))

    body = rewrite(kernel.body, noted)
    return Kernel(kernel.name, (*kernel.buffers, asked), body, kernel.parallel, kernel.scalars)


@on_wide_ones
@pytest.mark.parametrize(("size", "window", "outputs"), [(7, 1, 12), (5, 3, 9), (12, 1, 8)])
def test_every_panel_but_the_first_is_asked_for(target, size, window, outputs):
    lanes = target.lanes("float32")
    small = target.changed(caches=(256, 1 << 13, 1 << 20))
    shape, filters = (1, 2, size, size, lanes), (outputs, 2, window, window, lanes, lanes)
    names = f"NCHW{lanes}c", f"OIHW{lanes}i{lanes}o", f"NCHW{lanes}c"
    attrs = {"channels": outputs * lanes, "kernel_size": (window, window)}
    kernel, arrays = convolution(small, shape, filters, names, **attrs)
    number = next(i for i, array in enumerate(arrays) if array.shape == filters)
    lines = np.zeros(np.prod(filters), "f")
    run_kernel(asked_of(kernel, number, lines.size), [*(a.reshape(-1) for a in arrays), lines])
    panels = lines.reshape(outputs, -1, 64 // lines.itemsize).any(-1)  # the lines of memory of each vector of columns
    first = int(panels.any(-1).argmax())
    assert 0 < first <= 4  # vectors of the first panel, which nobody asks for
    assert panels[first:].all()


@on_wide_ones
@pytest.mark.parametrize(("rows", "depth"), [(9, 64), (20, 48), (100, 36), (12, 1600)])
def test_every_panel_of_a_product_but_the_first_is_asked_for(target, rows, depth):
    """Of few rows as well, and where sums are cut: then the first panels are those of the first part."""
    rng = np.random.default_rng(rows)
    lanes, vectors = target.lanes("float32"), 13
    small = target.changed(caches=(256, 1 << 13, 1 << 20))
    shape = (vectors, depth, lanes)
    arrays = [rng.standard_normal(s).astype("f") for s in ((rows, depth), shape)]
    kernel, arrays = lowered("_packed_matmul", arrays, {"units": vectors * lanes}, small)
    number = next(i for i, array in enumerate(arrays) if array.shape == shape)
    asked = np.zeros(np.prod(shape), "f")
    run_kernel(asked_of(kernel, number, asked.size), [*(a.reshape(-1) for a in arrays), asked])
    lines = asked.reshape(vectors, -1, 64 // asked.itemsize).any(-1)
    first = int(lines[:, 0].argmax())
    assert 0 < first <= 8
    assert lines[first:].all()
    assert depth < 1000 or lines[:first, 600:].all()


def test_vectors_are_along_what_is_stored_side_by_side():
    """Of 3 channels and a width of whole vectors, both axes can be vectors; results have their channels inside."""
    target = targets()[-1]
    lanes = target.lanes("float32")
    names = "NCHW", f"OIHW{lanes}o", f"NCHW{lanes}c"
    shape, filters = (1, 3, 6, 2 + 2 * lanes), (2, 3, 3, 3, lanes)
    kernel, arrays = convolution(target, shape, filters, names, channels=2 * lanes, kernel_size=(3, 3))
    out = kernel.buffers[[array.shape for array in arrays].index((1, 2, 4, 2 * lanes, lanes))]
    stores = [node for node in statements(kernel.body) if isinstance(node, Store) and node.buffer is out]
    assert stores
    for store in stores:
        (ramp,) = [index for index in store.indices if isinstance(index, Ramp)]
        assert ramp.stride.value == 1

"""Attributes and small methods of tensors, in-place views, and switches of the process, with
PyTorch as the witness."""

import numpy as np
import pytest
from twins import agree, agree_or_refuse

import weft

FLAGS = (
    "is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_nested is_quantized "
    "is_sparse is_sparse_csr is_vulkan is_xla is_xpu name"
).split()


@pytest.mark.parametrize("name", FLAGS)
def test_flag(name):
    agree(lambda m: getattr(m.ones(2), name))


@pytest.mark.parametrize("name", "cuda ipu mtia xpu".split())
def test_other_devices_are_refused(name):
    with pytest.raises(RuntimeError, match=name):
        getattr(weft.ones(2), name)()


QUESTIONS = {
    "cpu": lambda m: m.ones(2).cpu(),
    "get_device": lambda m: [m.get_device(m.ones(2)), m.ones(2).get_device()],
    "is_distributed": lambda m: m.is_distributed(m.ones(2)),
    "is_inference": lambda m: m.is_inference(m.ones(2)),
    "is_nonzero": lambda m: [m.is_nonzero(m.tensor([2])), m.tensor(0.0).is_nonzero()],
    "is_nonzero of many": lambda m: m.is_nonzero(m.ones(2)),
    "is_nonzero of none": lambda m: m.is_nonzero(m.ones(0)),
    "is_same_size": lambda m: [m.ones(2).is_same_size(m.ones(n)) for n in (2, 3)],
    "is_signed": lambda m: [m.is_signed(m.ones(1, dtype=k)) for k in (m.uint8, m.int8, m.bool)],
    "numel": lambda m: m.numel(m.ones(2, 3)),
    "detach": lambda m: m.detach(m.ones(2, requires_grad=True)).requires_grad,
    "const_data_ptr": lambda m: (x := m.ones(2)).const_data_ptr() == x.data_ptr(),
    "dense_dim": lambda m: [m.ones(2, 3).dense_dim(), m.ones(2, 3).sparse_dim()],
    "to_dense": lambda m: [m.ones(2).to_dense(), m.ones(2).to_dense(m.float64)],
    "fill_": lambda m: [m.fill_(m.ones(2), 3), m.zero_(m.ones(2))],
    "resize_as_": lambda m: m.resize_as_(m.ones(2), m.ones(3, 1)).shape,
    "dim_order": lambda m: [
        m.ones(2, 3).dim_order(),
        m.ones(2, 3).t().dim_order(),
        m.ones(3).expand(2, 3).dim_order(),
        m.ones(2, 3, 4, 5).to(memory_format=m.channels_last).dim_order(),
        m.ones(2, 3, 4, 5).dim_order(ambiguity_check=True),
    ],
    "dim_order is ambiguous": lambda m: m.ones(2, 1, 4).dim_order(ambiguity_check=True),
    "dim_order of formats": lambda m: m.ones(2, 1, 4, 5).dim_order(
        ambiguity_check=[m.contiguous_format, m.channels_last]
    ),
    "dim_order of numbers": lambda m: m.ones(2).dim_order(ambiguity_check=3),
    "is_contiguous": lambda m: [
        x.is_contiguous(memory_format=f)
        for x in (m.ones(2, 3, 4, 5), m.empty(2, 4, 5, 3).permute(0, 3, 1, 2), m.ones(2))
        for f in (m.contiguous_format, m.channels_last)
    ],
    "new": lambda m: [
        m.ones(1).new(2, 3).shape,
        m.ones(1).new([1, 2]),
        m.ones(1).new((1, 2)),
        m.ones(1).new(),
        m.ones(1).new(m.Size([2])).shape,
        m.ones(1, dtype=m.int8).new([3]),
    ],
    "new of a number": lambda m: m.ones(1).new(2.5),
    "new elsewhere": lambda m: m.ones(1).new(device="cuda"),
    "nonzero_static": lambda m: [m.nonzero_static(m.tensor([[1, 0], [2, 3]]), size=n, fill_value=9) for n in (0, 2, 5)],
    "nonzero_static of a negative size": lambda m: m.nonzero_static(m.ones(2), size=-1),
    "unsafe_split_with_sizes": lambda m: m.unsafe_split_with_sizes(m.arange(5), [2, 3]),
}


WRONG_QUESTIONS = (
    "is_nonzero of many",
    "is_nonzero of none",
    "dim_order is ambiguous",
    "dim_order of formats",
    "dim_order of numbers",
    "new of a number",
    "new elsewhere",
    "nonzero_static of a negative size",
)


@pytest.mark.parametrize("name", QUESTIONS)
def test_question(name):
    agree_or_refuse(name in WRONG_QUESTIONS, QUESTIONS[name])


def test_is_set_to():
    def program(m):
        x = m.ones(2, 3)
        others = (x.view(2, 3), x.t(), x[1:], m.ones(2, 3), x.view(3, 2))
        return [x.is_set_to(other) for other in others]

    agree(program)


# Views that a tensor becomes.

VIEWS = {
    "squeeze_": ((2, 1, 3, 1), ()),
    "squeeze_ one": ((2, 1, 3, 1), (1,)),
    "unsqueeze_": ((2, 3), (-1,)),
    "transpose_": ((2, 3, 4), (0, 2)),
    "swapaxes_": ((2, 3, 4), (1, 2)),
    "swapdims_": ((2, 3, 4), (1, 0)),
    "t_": ((2, 3), ()),
    "as_strided_": ((2, 3), ((3, 2), (1, 3))),
    "as_strided_ later": ((2, 3), ((2,), (2,), 1)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_inplace_view(name):
    shape, arguments = VIEWS[name]
    values = np.random.default_rng(0).standard_normal(shape)
    weights = np.random.default_rng(1).standard_normal(values.size)

    def program(m):
        x = m.tensor(values, requires_grad=True)
        y = x * 2
        before = y._version
        seen = getattr(y, name.split()[0])(*arguments)
        loss = (y.reshape(-1) * m.tensor(weights)[: y.numel()]).sum()
        (dx,) = m.autograd.grad(loss, x)
        return [seen is y, y._version - before, y, y.stride(), y.storage_offset(), dx]

    agree(program)


def test_inplace_view_of_a_view():
    def program(m):
        x = m.arange(6.0).reshape(2, 3).requires_grad_()
        y = x * 1
        part = y[0]
        part.unsqueeze_(0)
        part.mul_(m.tensor([[2.0, 3, 4]]))
        (dx,) = m.autograd.grad((y * y).sum(), x)
        return [part, y, part.shape, dx, part._base is y]

    agree(program)


def test_views_see_the_base_after_it_became_another():
    def program(m):
        x = m.arange(6.0).reshape(2, 3).requires_grad_()
        y = x * 1
        row = y[1]
        y.t_()
        y.mul_(3)
        (dx,) = m.autograd.grad((row * m.tensor([1.0, 2, 3])).sum(), x)
        return [row, y, dx]

    agree(program)


REFUSED = {
    "leaf": lambda m: m.ones(2, 3, requires_grad=True).t_(),
    "leaf without grad": lambda m: _unrecorded(m, m.ones(2, 3, requires_grad=True)),
    "axis": lambda m: m.ones(2, 3).unsqueeze_(4),
    "matrix": lambda m: m.ones(2, 3, 4).t_(),
    "saved": lambda m: _saved(m),
    "outside": lambda m: m.ones(2).as_strided_((5,), (1,)),
}


def _unrecorded(m, x):
    with m.no_grad():
        x.t_()
    return [x.shape, x.is_leaf, x._version]


def _saved(m):
    x = m.ones(2, 3, requires_grad=True)
    y = x * 2
    z = y * y
    y.t_()
    z.sum().backward()


@pytest.mark.parametrize("name", REFUSED)
def test_inplace_view_refused(name):
    agree_or_refuse(name != "leaf without grad", REFUSED[name])


# Elements that are changed.

CHANGES = {
    "diagonal": lambda m: m.zeros(3, 4).fill_diagonal_(2),
    "diagonal of a high matrix": lambda m: m.zeros(8, 3).fill_diagonal_(2),
    "wrapped": lambda m: m.zeros(8, 3).fill_diagonal_(2, wrap=True),
    "wrapped, wide": lambda m: m.zeros(3, 8).fill_diagonal_(2, wrap=True),
    "diagonal of a cube": lambda m: m.zeros(3, 3, 3).fill_diagonal_(2),
    "diagonal of a view": lambda m: m.zeros(4, 6)[1:, ::2].fill_diagonal_(2),
    "diagonal of a vector": lambda m: m.zeros(3).fill_diagonal_(2),
    "diagonal of a box": lambda m: m.zeros(2, 3, 4).fill_diagonal_(2),
    "apply_": lambda m: m.arange(4.0).apply_(lambda v: v * v),
    "apply_ to integers": lambda m: m.arange(4).apply_(lambda v: v + 1.5),
    "apply_ to a view": lambda m: [x := m.arange(6.0).reshape(2, 3), x.t()[1:].apply_(abs)],
    "apply_ to a parameter": lambda m: m.ones(2, requires_grad=True).apply_(abs),
    "apply_ of text": lambda m: m.ones(2).apply_(lambda v: "x"),
    "map_": lambda m: m.arange(4.0).map_(m.full((4,), 2.0), lambda a, b: a - b),
    "map_ of one": lambda m: m.arange(4.0).map_(m.ones(1), lambda a, b: a - b),
    "map_ of others": lambda m: m.arange(4.0).map_(m.ones(3), lambda a, b: a),
    "map_ of another dtype": lambda m: m.arange(4.0).map_(m.ones(4).double(), lambda a, b: a),
    "map2_": lambda m: m.ones(3).map2_(m.arange(3.0), m.ones(3), lambda a, b, c: a + 2 * b - c),
}


WRONG_CHANGES = (
    "diagonal of a vector",
    "diagonal of a box",
    "apply_ to a parameter",
    "apply_ of text",
    "map_ of others",
    "map_ of another dtype",
)


@pytest.mark.parametrize("name", CHANGES)
def test_change(name):
    agree_or_refuse(name in WRONG_CHANGES, CHANGES[name])


def test_gradient_of_a_filled_diagonal():
    def program(m):
        x = m.arange(9.0).reshape(3, 3).requires_grad_()
        y = x * x
        y.fill_diagonal_(5.0)
        return [y, m.autograd.grad((y * y).sum(), x)]

    agree(program)


# The process.

SWITCHES = {
    "precision": lambda m: [
        m.get_float32_matmul_precision(),
        m.set_float32_matmul_precision("high"),
        m.get_float32_matmul_precision(),
        m.set_float32_matmul_precision("other"),
        m.get_float32_matmul_precision(),
        m.set_float32_matmul_precision("highest"),
    ],
    "precision of a number": lambda m: m.set_float32_matmul_precision(1),
    "deterministic": lambda m: [
        m.use_deterministic_algorithms(True, warn_only=True),
        m.get_deterministic_debug_mode(),
        m.are_deterministic_algorithms_enabled(),
        m.is_deterministic_algorithms_warn_only_enabled(),
        m.set_deterministic_debug_mode("error"),
        m.get_deterministic_debug_mode(),
        m.set_deterministic_debug_mode(0),
        m.are_deterministic_algorithms_enabled(),
    ],
    "deterministic by a number": lambda m: m.use_deterministic_algorithms(1),
    "debug mode by another name": lambda m: m.set_deterministic_debug_mode("other"),
    "debug mode by another number": lambda m: m.set_deterministic_debug_mode(7),
    "debug mode by a float": lambda m: m.set_deterministic_debug_mode(1.0),
    "warnings": lambda m: [
        m.is_warn_always_enabled(),
        m.set_warn_always(True),
        m.is_warn_always_enabled(),
        m.set_warn_always(False),
    ],
    "warnings by a number": lambda m: m.set_warn_always(1),
    "device": lambda m: [
        m.get_default_device(),
        m.set_default_device("cpu:0"),
        m.get_default_device(),
        m.set_default_device(None),
        m.get_default_device(),
    ],
    "no device": lambda m: m.set_default_device("abacus"),
    "threads": lambda m: m.set_num_interop_threads(0),
    "threads by a float": lambda m: m.set_num_interop_threads(2.0),
}


WRONG_SWITCHES = (
    "precision of a number",
    "deterministic by a number",
    "debug mode by another name",
    "debug mode by another number",
    "debug mode by a float",
    "warnings by a number",
    "no device",
    "threads",
    "threads by a float",
)


@pytest.mark.parametrize("name", SWITCHES)
def test_switch(name):
    agree_or_refuse(name in WRONG_SWITCHES, SWITCHES[name])


def test_number_of_forked_functions():
    assert weft.get_num_interop_threads() >= 1
    weft._C.wait(weft._C.fork(pow, 2, 3))
    with pytest.raises(RuntimeError, match="after parallel work"):
        weft.set_num_interop_threads(2)

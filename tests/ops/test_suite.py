"""Every registered operator, with its samples, through every check; what lacks fails by name."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sample import RECORDED, all_samples, oracle_module, sampled_ops

import weft.ops  # noqa: F401
from weft.base.dtype import FLOAT32, as_dtype
from weft.base.errors import DTypeError
from weft.core.infer import same_dtype
from weft.core.op import Op, list_ops
from weft.core.schema import fields_of, text_of
from weft.lower.cpu.dispatch import LOWERING
from weft.testing import op_check

for _path in sorted(Path(__file__).parent.glob("samples_*.py")):
    importlib.import_module(_path.stem)

# Stand for an output that was removed and for a derivative that nobody has: they have no value, so
# there is nothing to check.
VALUELESS = {"__undef__", "_no_derivative"}
# Samples are arrays and attributes; these need subgraphs, and are checked in test_control_flow.py.
WITH_SUBGRAPHS = {"scan", "while_loop", "cond"}
# Operators that have no gradient, and why.
WITHOUT_GRADIENT = {
    "_pack_panels": "put in place when a model is built, after gradients are taken",
    "_packed_matmul": "put in place when a model is built, after gradients are taken",
    "_packed_rnn": "put in place when a model is built, after gradients are taken",
    "_winograd_weight": "put in place when a model is built, after gradients are taken",
    "_winograd_conv2d": "put in place when a model is built, after gradients are taken",
    "_strided_attention": "put in place when a model is built, after gradients are taken",
    **dict.fromkeys(
        (
            "_word_panels",
            "_word_image",
            "_byte_matmul",
            "_byte_conv2d",
            "_byte_depthwise",
            "_narrow_dense",
            "_pair_matmul",
            "_pair_conv2d",
            "_bilinear",
        ),
        "put in place when a model is built, after gradients are taken",
    ),
    **dict.fromkeys(
        ("_level_panels", "_row_levels", "_level_matmul"),
        "put in place when a model is built, after gradients are taken",
    ),
    "cached_attention": "of decoders that write text, which are run and not trained",
    "_halo": "put in place when a model is built, after gradients are taken",
    **dict.fromkeys(
        (
            "_patches",
            "_pixel_products",
            "_filter_sums",
            "_channel_moments",
            "_channel_slopes",
            "_channel_scaled",
            "_channel_tilted",
        ),
        "put in place when a model is built for a GPU, after gradients are taken",
    ),
    **dict.fromkeys(
        ("quantize", "dequantize", "requantize", "integer_matmul", "integer_conv", "dense_levels"),
        "of quantised networks, which are run and not trained",
    ),
    "multibox_transform_loc": "chooses and orders boxes after a network has run",
    "non_max_suppression": "chooses and orders boxes after a network has run",
    "proposal": "chooses and orders boxes",
    "pairwise_coupling": "ends its steps where they are small, after a network has run",
    "tree_ensemble": "constant wherever it has a derivative",
    "_rnn_grad": "part of a gradient, which is differentiable once",
    "_ctc_loss_second": "part of a gradient, which is differentiable twice",
    "bitcast": "neighbours in value are no neighbours in bits",
    "scatter_nd_reduce": "comes from models that have been trained",
    "ldl_factor": "PyTorch has none",
    "ldl_solve": "PyTorch has none",
    "geqrf": "PyTorch has none; qr has one",
    "airy_ai": "PyTorch has none",
    "_correlation_grad": "part of a gradient, which is differentiable once",
    "_grid_sample_grad": "part of a gradient, which is differentiable once",
    "_grid_sample_grad_grid": "part of a gradient, which is differentiable once",
    "_deformable_psroi_pool_grad": "part of a gradient, which is differentiable once",
    "_deformable_psroi_pool_grad_trans": "part of a gradient, which is differentiable once",
}
# Operators whose body is a template of the lowering.
BY_TEMPLATE = {"_winograd_conv2d", "_strided_attention"}
# Operators whose rows are of float32, whatever their weights are.
FLOAT32_ONLY = {"_narrow_dense", "dense_levels", "_row_levels", "_level_matmul", "_bilinear"}
# Operators without a body: LAPACK does the work, or numbers are complex, or loops end when all
# elements are exact, or the memory is only named otherwise.
ON_HOST = {
    "bitcast",
    "inverse",
    "solve",
    "det",
    "_cofactors",
    "_ctc_loss_second",
    "slogdet",
    "cholesky",
    "eigh",
    "qr",
    "svd",
    "svdvals",
    "pinv",
    "conj",
    "real",
    "imag",
    "angle",
    "sgn",
    "complex",
    "view_as_real",
    "view_as_complex",
    "lu_factor",
    "row_swaps",
    "ldl_factor",
    "ldl_solve",
    "geqrf",
    "eig",
    "eigvals",
    "matrix_exp",
    "lstsq",
    "igamma",
    "igammac",
    "fft",
    "rfft",
    "irfft",
}


def _is_ours(op):
    """Other tests register operators of their own; ours have a rule from weft.ops."""
    columns = ("shape", "layout", "reference", "compute", "gradient", "dtype")
    rules = [op_check.column_of(op, column) for column in columns]
    return any(getattr(rule, "__module__", "").startswith("weft.ops") for rule in rules)


OPS = [op.name for op in list_ops() if _is_ours(op) and op.name not in VALUELESS | WITH_SUBGRAPHS]


@pytest.fixture(params=OPS)
def op(request):
    return Op.get(request.param)


@pytest.mark.parametrize("column", ["pattern", "shape", "layout", "reference"])
def test_column(op, column):
    assert op_check.column_of(op, column) is not None, f"operator {op.name} has no {column}"


def test_body(op):
    if op.name in BY_TEMPLATE:
        assert op.name in LOWERING.templates, f"operator {op.name} has no template"
    elif op.name in ON_HOST:
        assert op_check.runs_on_host(op), f"operator {op.name} has a body"
    else:
        op_check.check_body(op)


def test_doc(op):
    assert len(op.description) > 1, f"operator {op.name} has no doc"
    for argument in op.arguments:
        assert argument.doc, f"argument {argument.name} of operator {op.name} has no doc"


def test_gradient_rule(op):
    has = op_check.column_of(op, "gradient") is not None
    assert has or op.name in WITHOUT_GRADIENT, f"operator {op.name} has no gradient"


def test_has_samples(op):
    has = op.name in sampled_ops()
    assert has, f"operator {op.name} has no samples"


# Operators that neither numpy, scipy nor PyTorch has: a system that has them was asked.
FROM_ELSEWHERE = {
    "multibox_prior",
    "multibox_transform_loc",
    "non_max_suppression",
    "roi_align",
    "_roi_align_grad",
    "yolo_reorg",
    "_yolo_reorg_grad",
}


def test_oracle_is_named(op):
    systems = {sample.system for sample in all_samples(op.name) if sample.oracle}
    assert systems, f"operator {op.name} has no oracle"
    if op.name in FROM_ELSEWHERE:
        assert systems & RECORDED.keys(), f"operator {op.name} has no witness but PyTorch scalars"


def test_bad_attributes(op):
    op_check.check_attributes(op)


def test_bad_inputs(op):
    for sample in all_samples(op.name)[:2]:
        with warnings.catch_warnings(action="ignore"):
            op_check.check_bad_inputs(op, sample)


@pytest.mark.parametrize("check", op_check.SAMPLE_CHECKS, ids=lambda check: check.__name__)
def test_samples(op, check):
    samples = all_samples(op.name)
    assert samples, f"operator {op.name} has no samples"
    assert any(sample.oracle for sample in samples), f"operator {op.name} has no oracle"
    for sample in samples:
        if check is op_check.check_oracle:
            oracle_module(sample.system)
        check(op, sample)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats(op, dtype):
    if op.name in BY_TEMPLATE | FLOAT32_ONLY:
        return
    wide = [s for s in all_samples(op.name) if any(x.dtype == FLOAT32 for x in s.inputs)]
    for sample in wide[:3]:
        narrow = op_check.narrowed(sample, as_dtype(dtype))
        op_check.check_inference(op, narrow)
        op_check.check_compute(op, narrow)


def test_machine_code(op):
    for sample in all_samples(op.name)[1:3]:
        op_check.check_native(op, sample)


DTYPES = "float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool".split()
NARROW = ("float16", "bfloat16")
# Operators that read a result of another one, which must belong to the data.
READS_A_RESULT = {"_max_pool2d_grad", "_max_pool2d_pick", "_global_max_pool2d_grad", "_global_max_pool2d_pick"}
# Operators that multiply some elements, or the padding, by 0: an infinite factor makes NaN of it.
MIXES = {"_winograd_weight", "conv2d", "_conv2d_transpose_grad_data"}


def _small_sample(op):
    """One with float32 inputs that are not empty, if there is one."""
    floating = [s for s in all_samples(op.name) if any(x.dtype == FLOAT32 for x in s.inputs)]
    small = [s for s in floating if 0 < sum(x.size for x in s.inputs) < 600]
    return small[min(1, len(small) - 1)] if small and op.name not in BY_TEMPLATE else None


def _takes(op, sample):
    """Whether an operator takes the dtypes of a sample; if not, it says so by a typed error."""
    params = op.parse({key: text_of(value) for key, value in sample.attrs.items()})
    rule = op_check.column_of(op, "dtype") or same_dtype
    try:
        rule(params, [x.dtype for x in sample.inputs], [None] * op.outputs_of(params))
    except DTypeError:
        return False
    return True


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(op, dtype):
    sample = _small_sample(op)
    if sample is None or op.name in READS_A_RESULT:
        return
    cast = op_check.in_dtype(sample, as_dtype(dtype))
    if _takes(op, cast):
        op_check.check_inference(op, cast)
        op_check.check_compute(op, cast)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [*DTYPES, *NARROW])
def test_dtypes_in_machine_code(op, dtype):
    sample = _small_sample(op)
    if sample is None or op.name in READS_A_RESULT:
        return
    change = op_check.narrowed if dtype in NARROW else op_check.in_dtype
    cast = change(sample, as_dtype(dtype))
    if _takes(op, cast):
        op_check.check_native(op, cast)


def test_special_values(op):
    sample = _small_sample(op)
    if sample is not None and op.name not in READS_A_RESULT | MIXES:
        with np.errstate(all="ignore"):
            op_check.check_compute(op, op_check.with_special_values(sample, len(op.name)))


# Inputs that share the first axis of the data, where their shapes do not tell.
BATCHED = {
    "_contrib_conv2d_NCHWc": (0,),
    "conv2d_transpose": (0,),
    "_conv2d_grad_data": (0, 1),
    "_conv2d_grad": (0, 1),
    "_conv2d_transpose_grad_data": (0,),
    "prelu": (0,),
    "lrn": (0,),
    "batch_norm": (0,),
    "proposal": (0, 1, 2),
    "_level_matmul": (0, 1, 2),
    "cached_attention": (0, 1, 2),
}
# The first axis is reduced, indexed or packed, and cannot be empty, or that is sampled elsewhere.
NEVER_EMPTY = {
    "argmax",
    "argmin",
    "min",
    "_tile_grad",
    "_repeat_grad",
    "_roi_align_grad",
    "_matmul_grad_rhs",
    "_pack_panels",
    "_winograd_weight",
    "_winograd_conv2d",
    "_strided_attention",
    "random_uniform",
    "random_normal",
    "random_randint",
    "random_bernoulli",
}


def test_empty_batch(op):
    """Without a sample that is empty, the first one is cut down to nothing."""
    samples = [s for s in all_samples(op.name) if s.inputs]
    if op.name in NEVER_EMPTY or any(not x.size for s in samples for x in s.inputs):
        return
    for sample in [s for s in samples if s.inputs[0].ndim][:1]:
        x = sample.inputs[0]
        batched = BATCHED.get(op.name) or [
            i for i, y in enumerate(sample.inputs) if y.ndim == x.ndim and len(y) == len(x)
        ]
        inputs = [y[:0] if i in batched else y for i, y in enumerate(sample.inputs)]
        empty = replace(sample, inputs=inputs, oracle=None)
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            for check in (op_check.check_inference, op_check.check_compute, op_check.check_native):
                check(op, empty)


def test_negative_axes_are_sampled(op):
    fields = fields_of(op.parser) if isinstance(op.parser, type) else ()
    for field in fields:
        if field.name in ("axis", "axes") and not op.name.startswith("_"):
            given = [s.attrs.get(field.name, field.default) for s in all_samples(op.name)]
            values = [v for v in given if isinstance(v, (int, tuple))]
            has = any(np.any(np.asarray(value) < 0) for value in values)
            assert has, f"operator {op.name} has no sample with a negative {field.name}"


def test_samples_name_operators():
    assert sampled_ops() <= {op.name for op in list_ops()}


def test_samples_are_seeded():
    first = all_samples("relu")
    all_samples.cache_clear()
    for a, b in zip(first, all_samples("relu"), strict=True):
        np.testing.assert_array_equal(a.inputs[0], b.inputs[0])

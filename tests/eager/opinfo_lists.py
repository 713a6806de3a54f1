"""What the comparison with PyTorch's database treats apart, by function, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.eager.functions.table import FUNCTIONS


def _nn(name: str) -> Callable[..., Any]:
    return FUNCTIONS["weft.nn.functional"][name]


def _drawn(name: str) -> Callable[..., Any]:
    """A function that has only a form in place."""
    return lambda x, *args, **options: getattr(x.clone(), f"{name}_")(*args, **options)


# Functions of the database that are not compared.
LEFT_OUT: dict[str, str] = {
    "nextafter": "PyTorch's result requires a gradient that it then cannot give; ours has none",
    "logcumsumexp": "exp of numbers near 1000 in float32: gradients of both are off by 1e-4",
    "bernoulli": "PyTorch's random result requires a gradient, which is zero",
    "imag": "its samples are complex only",
    "as_strided_scatter": "PyTorch gives a gradient to elements that were overwritten",
    "normal": "its entries call four functions with different arguments",
    "svd_lowrank": "samples with M have more ranks than it finds, and draws decide what it does",
}

# Functions that PyTorch has for complex numbers, and whose complex samples are not compared.
COMPLEX_LEFT_OUT: dict[str, str] = {
    "as_strided_scatter": "PyTorch gives a gradient to elements that were overwritten",
    "logcumsumexp": "only of real numbers",
    "normal": "its entries call four functions with different arguments",
    "svd_lowrank": "samples with M have more ranks than it finds, and draws decide what it does",
}

# Functions some of whose complex samples differ; at least 95% of them pass.
COMPLEX_EXCEPTIONS: dict[str, str] = {
    "linalg.norm": "PyTorch's second derivatives at zero are NaN",
    "linalg.pinv": "with hermitian=True PyTorch's gradient is that of a matrix it did not read",
}

# Functions that give vectors with a sign, or an angle, that nothing decides: these are columns of the results beside
# the values, or rows of those called h. Of as many as there are values, the magnitudes are compared.
UNDECIDED = {"linalg.eigh": "v", "linalg.eig": "v", "linalg.svd": "u h", "svd": "u v", "pca_lowrank": "u v"}

# Functions of which PyTorch has complex values, and no gradients of them; ours are linear maps.
BEYOND = {"nn.functional.bilinear", "nn.functional.embedding", "select_scatter", "slice_scatter"}

# Functions of Hermitian matrices, of which they read one triangle: of gradients, the Hermitian part
# is compared, as the rest moves the matrix away from those that there are.
OF_HERMITIAN = {"cholesky", "linalg.cholesky", "linalg.cholesky_ex", "linalg.eigh", "linalg.eigvalsh"}

# Functions of which one triangle of a matrix is read: PyTorch's gradient of the other is not zero,
# and is not compared.
OF_TRIANGLES = {"cholesky_inverse", "cholesky_solve"}

# Entries of the database beside the main one of a function, which are not compared.
VARIANTS_LEFT_OUT: dict[tuple[str, str], str] = {("linalg.lstsq", "grad_oriented"): "gives two of the four results"}

# Functions some of whose samples differ; at least 95% of them pass.
EXCEPTIONS: dict[str, str] = {
    "linalg.pinv": "with hermitian=True PyTorch's gradient is that of a matrix it did not read"
}

# In-place forms that are not compared.
NOT_IN_PLACE = {"addbmm": "PyTorch gives the tensor another shape"}

COMPLEX_NOT_IN_PLACE = {"renorm": "PyTorch's gradient by the infinite norm is NaN"}

# Functions whose values are arbitrary or random: shapes and dtypes are compared.
ANY_VALUES = {
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
    "randn",
    "randn_like",
    "rand_like",
    "randint",
    "randint_like",
    "bernoulli",
    "multinomial",
    "normal",
    "uniform",
    "exponential",
    "cauchy",
    "geometric",
    "log_normal",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.alpha_dropout",
    "nn.functional.feature_alpha_dropout",
    "nn.functional.rrelu",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
}

# Functions that choose one of several equal elements, where PyTorch leaves open which.
TIED = {"topk", "kthvalue", "sort", "argsort"}

# Functions that may name any of several equal elements: of indices, shapes and dtypes are compared.
ANY_INDICES = {"mode", "median", "nanmedian"}

# Entries that call a function or method in a way of their own: what must exist, and the call.
ADAPTED: dict[str, tuple[str, Callable[..., Any]]] = {
    "_segment_reduce": (
        "segment_reduce",
        lambda *args, **options: FUNCTIONS["weft"]["segment_reduce"](*args, **options),
    ),
    "where": ("isnan", lambda x, c, other: FUNCTIONS["weft"]["where"](c, x, other)),
    "polygamma": ("digamma", lambda x, n: x.polygamma(n)),
    "special.polygamma": ("special.i1", lambda x, n: FUNCTIONS["weft.special"]["polygamma"](n, x)),
    "zero_": ("zeros_like", lambda x: x.clone().zero_()),
    **{name: ("zeros_like", _drawn(name)) for name in "cauchy exponential geometric log_normal uniform".split()},
    "nn.functional.embedding": (
        "nn.functional.one_hot",
        lambda weight, places, **options: _nn("embedding")(places, weight, **options),
    ),
    "nn.functional.embedding_bag": (
        "segment_reduce",
        lambda weight, places, *args, **options: _nn("embedding_bag")(places, weight, *args, **options),
    ),
    "linalg.pinv": (
        "linalg.svdvals",
        lambda a, *b, **options: FUNCTIONS["weft.linalg"]["pinv"](a @ b[0].mT if b else a, **options),
    ),
    "pca_lowrank": ("svd", lambda a, b, **options: FUNCTIONS["weft"]["pca_lowrank"](a @ b.mT, **options)),
    "einsum": ("tensordot", lambda tensors, text: FUNCTIONS["weft"]["einsum"](text, *tensors)),
}

# Functions whose samples take more than a few seconds.
SLOW = {
    "linalg.pinv",
    "linalg.solve_triangular",
    "linspace",
    "logspace",
    "multinomial",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.max_pool1d",
    "nn.functional.max_pool2d",
    "nn.functional.max_pool3d",
    "nn.functional.max_unpool1d",
    "nn.functional.max_unpool2d",
    "nn.functional.unfold",
    "pca_lowrank",
    "scatter_reduce",
    "unique",
}

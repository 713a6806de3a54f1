"""Calls of every operator that runs natively: attributes, and arrays of given sizes.

`sizes` are those that one kernel must serve; `others` may take another: extents of 1, and images
at whose end windows stick out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.core.op import Op
from weft.eager.autograd.derivative import params_of
from weft.eager.dispatch import kernel_of

Array = np.ndarray
Make = Callable[..., list[Array]]
Sizes = list[tuple[int, ...]]

MATRICES: Sizes = [(7, 33), (3, 17), (65, 5), (12, 200), (2, 3)]
CUBES: Sizes = [(5, 7, 9), (2, 33, 17), (4, 3, 65), (17, 2, 2)]
IMAGES: Sizes = [(2, 3, 14, 18), (3, 5, 34, 10), (4, 2, 22, 40), (2, 17, 8, 6)]
ONE_CUBE: Sizes = [(1, 7, 9), (5, 1, 9), (5, 7, 1)]
ONE_IMAGE: Sizes = [(1, 3, 14, 17), (3, 1, 9, 12), (1, 1, 8, 8), (2, 3, 33, 17)]


class Case(NamedTuple):
    name: str
    attrs: dict[str, Any]
    make: Make
    sizes: Sizes
    others: Sizes = []

    @property
    def op(self) -> Op:
        return Op.get(self.name)

    def arrays(self, sizes: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> list[Array]:
        rng = np.random.default_rng([seed, *sizes])

        def floats(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(dtype)

        return self.make(floats, *sizes)

    def native(self, arrays: list[Array]) -> list[Array]:
        """The results of native code, however small the arrays."""
        made = kernel_of(self.op).native(params_of(self.op, self.attrs), arrays)
        assert made is not None, f"{self.name} {self.attrs} is not native"
        return as_list(made)

    def reference(self, arrays: list[Array]) -> list[Array]:
        params = params_of(self.op, self.attrs)
        return as_list(self.op.call_with(Op.reference[self.op], params, *arrays))


def as_list(made: Any) -> list[Array]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def one(f: Any, *shape: int) -> list[Array]:
    return [f(*shape)]


def _scaled(count: int) -> Make:
    """Data, and as many vectors of its last extent."""
    return lambda f, *shape: [f(*shape), *[f(shape[-1]) for _ in range(count)]]


def _channels(f: Any, *shape: int) -> list[Array]:
    return [f(*shape), f(shape[1]), f(shape[1])]


def _batch(f: Any, *shape: int) -> list[Array]:
    vectors = [f(shape[1]) for _ in range(3)]
    return [f(*shape), *vectors, np.abs(f(shape[1])) + np.asarray(0.1, vectors[0].dtype)]


def _pooled(forward: str, attrs: dict[str, Any], inputs: int) -> Make:
    """What the gradient of a pool takes: that of its output, the data and the output."""

    def make(f: Any, *shape: int) -> list[Array]:
        op, x = Op.get(forward), f(*shape)
        y = as_list(op.call_with(Op.reference[op], params_of(op, attrs), x))[0]
        return [f(*y.shape), x, y][:inputs]

    return make


def _picked(forward: str, attrs: dict[str, Any]) -> Make:
    def make(f: Any, *shape: int) -> list[Array]:
        _, x, y = _pooled(forward, attrs, 3)(f, *shape)
        return [f(*shape), x, y]

    return make


def _attention(gradient: bool, mask: str) -> Make:
    def make(f: Any, heads: int, queries: int, keys: int, width: int, values: int) -> list[Array]:
        lead = (2, heads)
        q, k, v = f(*lead, queries, width), f(*lead, keys, width), f(*lead, keys, values)
        masks = {"none": [], "boolean": [f(heads, queries, keys) > -0.5], "additive": [f(heads, 1, keys)]}[mask]
        return [*([f(*lead, queries, values)] if gradient else []), q, k, v, *masks]

    return make


POOLS: list[dict[str, Any]] = [
    {"pool_size": (2, 2), "strides": (2, 2)},
    {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)},
    {"pool_size": (3, 2), "strides": (1, 1), "padding": (1, 0, 1, 1), "dilation": (1, 2)},
]
REDUCTIONS = ("sum", "mean", "max", "min", "_norm", "_variance", "logsumexp")
SCANS = (
    ("cumsum", {}),
    ("cumsum", {"reverse": True, "exclusive": True}),
    ("cumprod", {}),
    ("cumprod", {"exclusive": True}),
    ("logcumsumexp", {}),
)
ATTENTION: Sizes = [(3, 17, 33, 8, 5), (2, 40, 9, 16, 16), (5, 3, 65, 7, 2)]
ONE_ATTENTION: Sizes = [(1, 17, 9, 8, 5), (2, 1, 9, 8, 5), (2, 17, 1, 8, 5), (2, 4, 9, 1, 1)]


def _cases() -> list[Case]:
    found = [
        Case("softmax", {"axis": -1}, one, CUBES, ONE_CUBE),
        Case("softmax", {"axis": 1}, one, CUBES, ONE_CUBE),
        Case("log_softmax", {"axis": -1}, one, MATRICES),
        Case("log_softmax", {"axis": 0}, one, CUBES, ONE_CUBE),
        Case("layer_norm", {"axis": -1}, _scaled(2), MATRICES, [(1, 9), (9, 1)]),
        Case("rms_norm", {"axis": -1}, _scaled(1), CUBES, ONE_CUBE),
        Case("l2_normalize", {"axis": (-1,), "eps": 1e-6}, one, CUBES, ONE_CUBE),
        Case("l2_normalize", {"axis": (1,), "eps": 1e-6}, one, CUBES, ONE_CUBE),
        Case("instance_norm", {}, _channels, IMAGES, ONE_IMAGE),
        Case("group_norm", {"num_groups": 2}, _channels, [(n, c * 2, *r) for n, c, *r in IMAGES]),
        Case("lrn", {"size": 3, "axis": 1, "alpha": 0.1, "beta": 0.75, "bias": 1.0}, one, IMAGES),
        Case("_window_sum", {"size": 3, "axis": 1, "before": 1}, one, CUBES),
    ]
    for training in (False, True):
        attrs = {"training": training, "unbiased": training}
        found.append(Case("batch_norm", attrs, _batch, IMAGES, ONE_IMAGE))
        found.append(Case("batch_norm", attrs, _batch, MATRICES, [(9, 1)]))
        found.append(Case("batch_norm", {**attrs, "axis": -1}, _last_channels, CUBES))
    return [*found, *_norm_gradients(), *_losses(), *_reductions(), *_pools(), *_attentions()]


def _last_channels(f: Any, *shape: int) -> list[Array]:
    return [f(*shape), *_batch(f, 1, shape[-1])[1:]]


def _with_gradient(make: Make, vectors: int) -> Make:
    """What the gradient of a norm takes: that of its output, the data and some vectors."""

    def made(f: Any, *shape: int) -> list[Array]:
        x, *rest = make(f, *shape)
        return [f(*shape), x, *rest[:vectors]]

    return made


def _with_moments(make: Make, axis: int) -> Make:
    def made(f: Any, *shape: int) -> list[Array]:
        x, gamma, *_ = make(f, *shape)
        axes = tuple(at for at in range(x.ndim) if at != axis % x.ndim)
        moments = [x.mean(axes), x.var(axes)] if x.size else [gamma, gamma]
        return [f(*shape), x, gamma, *moments, f(len(gamma)), f(len(gamma))]

    return made


def _norm_gradients() -> list[Case]:
    groups = [(n, c * 2, *r) for n, c, *r in [*IMAGES, (3, 5, 2, 3), (7, 33)]]
    rows, channels = _with_gradient(_scaled(1), 1), _with_gradient(_channels, 1)
    few = [(2, 3, 5), (3, 1, 2), (33, 7, 3)]
    found = [
        Case("_layer_norm_grad", {"axis": -1}, rows, MATRICES, [(1, 9), (70, 1037)]),
        Case("_rms_norm_grad", {"axis": -1}, rows, CUBES, ONE_CUBE),
        Case("_instance_norm_grad", {}, channels, IMAGES, [*ONE_IMAGE, *few]),
        Case("_group_norm_grad", {"num_groups": 2}, channels, groups),
    ]
    for axis, make, sizes in ((1, _batch, IMAGES), (1, _batch, MATRICES), (-1, _last_channels, CUBES)):
        attrs = {"training": True, "axis": axis}
        found.append(Case("_batch_norm_grad", attrs, _with_moments(make, axis), sizes, [(2, 1)]))
    return found


def _losses() -> list[Case]:
    def scores(f: Any, *shape: int) -> list[Array]:
        """Some classes count nothing."""
        rows = (shape[0], *shape[2:])
        classes = np.rint(np.abs(f(*rows)) * shape[1]).astype("int64") % (shape[1] + 1) - 1
        return [f(*shape) * 3, classes]

    def gradients(f: Any, *shape: int) -> list[Array]:
        x, classes = scores(f, *shape)
        return [f(*classes.shape), x, classes]

    found = []
    for sizes, ones in ((MATRICES, [(1, 9), (9, 1)]), (CUBES, ONE_CUBE)):
        found += [
            Case("softmax_cross_entropy", {}, scores, sizes, ones),
            Case("softmax_cross_entropy", {"reduction": "mean"}, scores, sizes, ones),
            Case("_softmax_cross_entropy_grad", {}, gradients, sizes, ones),
        ]
    return found


def _reductions() -> list[Case]:
    found = []
    for name in REDUCTIONS:
        for axis in ((-1,), (0,), (1,), (0, 2), ()):
            attrs = {"axis": axis} | ({"correction": 0.5} if name == "_variance" else {})
            found.append(Case(name, attrs, one, CUBES, ONE_CUBE))
    for name in ("argmax", "argmin"):
        found.append(Case(name, {"axis": (1,), "dtype": "int64"}, one, CUBES))
        found.append(Case(name, {"axis": (0,)}, one, MATRICES))
    for name in ("_max_mask", "_min_mask"):
        found += [Case(name, {"axis": axis}, one, CUBES, [(1, 7, 9)]) for axis in ((-1,), (1,))]
    bias = lambda f, *shape: [f(*shape), f(*shape[1:])]
    found.append(Case("collapse_sum", {}, bias, CUBES, ONE_CUBE))
    kept = lambda f, n, c, w: [f(n, c, w), f(n, 1, w)]
    dropped = lambda f, n, c, w: [f(n, c, w), f(n, w)]
    found.append(Case("_expand_like_grad", {}, kept, CUBES, ONE_CUBE))
    found.append(Case("_expand_like_grad", {"axis": (1,)}, dropped, CUBES, ONE_CUBE))
    whole = lambda f, *shape: [np.rint(f(*shape) * 3).astype("int64")]
    found.append(Case("prod", {"axis": (1,)}, whole, CUBES, ONE_CUBE))
    for axis in (0, 1, 2):
        found += [Case(name, {**attrs, "axis": axis}, one, CUBES, ONE_CUBE) for name, attrs in SCANS]
        found.append(Case("_prod_others", {"axis": (axis,)}, one, CUBES, ONE_CUBE))
        pair = lambda f, *shape: [f(*shape), f(*shape)]
        for reverse in (False, True):
            attrs = {"axis": axis, "reverse": reverse}
            found.append(Case("_recurrence", attrs, pair, CUBES, ONE_CUBE))
    return found


def _pools() -> list[Case]:
    found = []
    for kind, inputs in (("max", 3), ("avg", 2)):
        for attrs in POOLS:
            make = _pooled(f"{kind}_pool2d", attrs, inputs)
            found.append(Case(f"{kind}_pool2d", attrs, one, IMAGES, ONE_IMAGE))
            found.append(Case(f"_{kind}_pool2d_grad", attrs, make, IMAGES, ONE_IMAGE))
        name = f"global_{kind}_pool2d"
        found.append(Case(name, {}, one, IMAGES, ONE_IMAGE))
        found.append(Case(f"_{name}_grad", {}, _pooled(name, {}, inputs), IMAGES, ONE_IMAGE))
    include = {**POOLS[1], "count_include_pad": True, "ceil_mode": True}
    found.append(Case("avg_pool2d", include, one, IMAGES))
    for name, attrs in (("max_pool2d", POOLS[1]), ("global_max_pool2d", {})):
        found.append(Case(f"_{name}_pick", attrs, _picked(name, attrs), IMAGES, ONE_IMAGE))
    for sizes in ((1, 1), (3, 5), (7, 1)):
        attrs = {"output_size": sizes}
        found.append(Case("adaptive_avg_pool2d", attrs, one, IMAGES, ONE_IMAGE))
        make = _pooled("adaptive_avg_pool2d", attrs, 2)
        found.append(Case("_adaptive_avg_pool2d_grad", attrs, make, IMAGES, ONE_IMAGE))
    for method in ("NEAREST_NEIGHBOR", "BILINEAR"):
        attrs = {"scale": 2, "method": method}
        found.append(Case("upsampling", attrs, one, IMAGES, ONE_IMAGE))
        make = _pooled("upsampling", attrs, 1)
        found.append(Case("_upsampling_grad", attrs, make, IMAGES, ONE_IMAGE))
        for mode in ("align_corners", "half_pixel"):
            attrs = {"size": (20, 30), "method": method, "coordinate_mode": mode}
            found.append(Case("resize", attrs, one, IMAGES, ONE_IMAGE))
            make = _pooled("resize", attrs, 2)
            found.append(Case("_resize_grad", attrs, make, IMAGES, ONE_IMAGE))
    return found


def _attentions() -> list[Case]:
    name, found = "scaled_dot_product_attention", []
    for mask, causal in (("none", False), ("none", True), ("boolean", False), ("additive", True)):
        attrs = {"mask": mask, "is_causal": causal}
        found.append(Case(name, attrs, _attention(False, mask), ATTENTION, ONE_ATTENTION))
        found.append(Case(f"_{name}_grad", attrs, _attention(True, mask), ATTENTION, ONE_ATTENTION))
    return found


CASES = _cases()

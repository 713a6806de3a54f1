"""The operators become pages: one a family in docs/ops, from what the registry knows of them.

python -m weft.tools.op_docs docs/ops
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..base.bits import MersenneTwister
from ..base.dtype import is_float
from ..base.errors import Error
from ..core.interpret import run_reference
from ..core.op import VARIADIC, Op, list_ops
from ..core.schema import REQUIRED, fields_of, text_of

Array = np.ndarray[Any, np.dtype[Any]]
MOST_VALUES = 16  # of an array that is written out


class Example(NamedTuple):
    inputs: list[Array]
    attrs: dict[str, Any]
    outputs: list[Array]


# Inputs and attributes, where no general ones would do.
_IMAGE = (1, 2, 4, 4)
_CONV = {"channels": 2, "kernel_size": (3, 3)}
_STATE = MersenneTwister(7).state()
_float32, _uint8, _int32, _int64, _complex64 = (
    partial(np.array, dtype=name) for name in ("float32", "uint8", "int32", "int64", "complex64")
)
CALLS: dict[str, tuple[Sequence[Any], Mapping[str, Any]]] = {
    "cholesky": ([np.array([[4, 2], [2, 5]], "float32")], {}),
    "inverse": ([np.array([[2, 1], [1, 1]], "float32")], {}),
    "solve": ([np.array([[2, 1], [1, 1]], "float32"), np.array([[3], [2]], "float32")], {}),
    "matrix_exp": ([np.array([[0, 1], [-1, 0]], "float32")], {}),
    "eig": ([np.array([[0, 1], [-1, 0]], "float32")], {}),
    "eigvals": ([np.array([[0, 1], [-1, 0]], "float32")], {}),
    "ldl_factor": ([np.array([[1, 2], [2, 1]], "float32")], {}),
    "ldl_solve": ([np.array([[4, 0], [0.5, 3]], "float32"), _int32([1, 2]), np.array([[4], [5]], "float32")], {}),
    "row_swaps": ([(3, 2), _int32([3, 2, 3])], {}),
    "orthogonal_polynomial": ([_float32([-1, 0.5, 2]), _float32([3])], {"family": "chebyshev_t"}),
    "zeta": ([_float32([2, 3, 4]), _float32([1])], {}),
    "igamma": ([_float32([1, 2, 4]), _float32([2])], {}),
    "igammac": ([_float32([1, 2, 4]), _float32([2])], {}),
    "__layout_transform__": ([(1, 8, 2, 2)], {"src_layout": "NCHW", "dst_layout": "NCHW4c"}),
    "_contrib_conv2d_NCHWc": (
        [(1, 1, 4, 4, 2), (1, 1, 3, 3, 2, 2), (1, 2)],
        {**_CONV, "layout": "NCHW2c", "kernel_layout": "OIHW2i2o"},
    ),
    "adaptive_avg_pool2d": ([_IMAGE], {"output_size": (2, 2)}),
    "adaptive_max_pool2d": ([_IMAGE], {"output_size": (2, 2)}),
    "adaptive_roi_align": ([(1, 1, 3, 3), _float32([[0, 0, 0, 2, 2]])], {"pooled_size": (1, 2)}),
    "arange": ([], {"start": 1, "stop": 7, "step": 2}),
    "batch_matmul": ([(2, 2, 3), (2, 3, 1)], {}),
    "batch_norm": ([(2, 3), (3,), (3,), (3,), (3,)], {}),
    "bitcast": ([_float32([1, -2])], {"dtype": "int32"}),
    "broadcast_to": ([(1, 3)], {"shape": (2, 3)}),
    "cached_attention": ([(2, 1), (2, 1), (2, 1), (1, 1, 1, 1, 16), (1, 1, 1, 16, 1), _int64([3]), _int64([0])], {}),
    "cast": ([(2, 3)], {"dtype": "int32"}),
    "clip": ([(2, 3)], {"a_min": -0.5, "a_max": 0.5}),
    "collapse_sum": ([(2, 3), (1, 3)], {}),
    "concatenate": ([(2, 1), (2, 2)], {"axis": 1}),
    "conv2d": ([_IMAGE, (2, 2, 3, 3), (2,)], _CONV),
    "conv2d_transpose": ([_IMAGE, (2, 2, 3, 3), (2,)], _CONV),
    "deformable_psroi_pool": (
        [(1, 4, 3, 3), _float32([[0, 0, 0, 2, 2]]), (1, 2, 2, 2)],
        {"output_dim": 1, "pooled_size": 2, "group_size": 2, "trans_std": 0.1},
    ),
    "correlation": ([(1, 1, 3, 3), (1, 1, 3, 3)], {"pad_size": 1}),
    "ctc_loss": ([np.log(_float32([[[0.5, 0.5]], [[0.25, 0.75]]])), _int32([[1]]), _int32([2]), _int32([1])], {}),
    "dense": ([(2, 3), (2, 3), (2,)], {"units": 2}),
    "dense_levels": ([(2, 2), _uint8([[0x9F], [0x28]]), _float32([[0.5], [0.25]])], {"units": 2, "bits": 4}),
    "dequantize": ([_uint8([[0, 128], [130, 255]]), _float32(0.5), _uint8(128)], {}),
    "integer_conv": (
        [_uint8([[[[1, 2], [3, 4]]]]), _uint8([[[[1, 2], [0, 1]]]]), _uint8(1)],
        {
            "channels": 1,
            "kernel_size": (2, 2),
            "strides": (1, 1),
            "padding": (0, 0, 0, 0),
            "dilation": (1, 1),
            "use_weight_zero": False,
        },
    ),
    "integer_matmul": ([_uint8([[250, 2]]), _uint8([[2, 1], [3, 250]]), _uint8(1), _uint8(2)], {}),
    "quantize": ([(2, 3), _float32(0.5), _uint8(128)], {}),
    "requantize": ([_int32([[300, -20]]), _float32(0.1), _uint8(128)], {}),
    "distances": ([(2, 3), (1, 3)], {}),
    "dropout": ([(2, 3), _STATE], {"training": True}),
    "expand_dims": ([(2, 3)], {"axis": 1}),
    "fft": ([_complex64([1, 1j, -1, 0.5])], {}),
    "irfft": ([_complex64([1, 1j, -1])], {"n": 4, "doubled": True}),
    "rfft": ([_float32([1, 2, 0, -1])], {"n": 4}),
    "expand_like": ([(2,), (2, 3)], {"axis": (1,)}),
    "full": ([], {"shape": (2, 2), "fill_value": 1.5}),
    "gather": ([(3, 2), _int32([2, 0])], {}),
    "gather_elements": ([(2, 3), _int32([[2, 0], [1, 1]])], {"axis": 1}),
    "gather_nd": ([(2, 3), _int32([[0, 1], [2, 0]])], {}),
    "grid_sample": ([(1, 1, 2, 2), _float32([[[[-1, -1], [0, 0.5]]]])], {}),
    "group_norm": ([(1, 4, 2), (4,), (4,)], {"num_groups": 2}),
    "instance_norm": ([(1, 2, 3), (2,), (2,)], {}),
    "l2_normalize": ([(2, 3)], {"eps": 1e-5, "axis": (1,)}),
    "layer_norm": ([(2, 3), (3,), (3,)], {}),
    "softmax_cross_entropy": ([(2, 3), _int64([2, 0])], {"reduction": "mean"}),
    "lrn": ([(1, 4, 1, 1)], {"size": 3, "axis": 1, "alpha": 1.0, "beta": 0.5, "bias": 1.0}),
    "matmul": ([(2, 3), (3, 2)], {}),
    "multibox_prior": ([(1, 1, 1, 2)], {"sizes": (0.5,), "ratios": (1.0, 2.0)}),
    "multibox_transform_loc": (
        [_float32([[[0.2, 0.9], [0.8, 0.1]]]), (1, 8), _float32([[[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]])],
        {"threshold": 0.5},
    ),
    "nll_loss": ([(2, 3), _int64([2, 0])], {}),
    "non_max_suppression": (
        [_float32([[[0, 0.9, 0, 0, 4, 4], [0, 0.8, 1, 0, 5, 4], [1, 0.7, 0, 0, 4, 4]]]), _int32([3])],
        {},
    ),
    "one_hot": ([_int32([2, 0])], {"depth": 3}),
    "ones": ([], {"shape": (2, 2)}),
    "pad": ([(1, 2)], {"pad_width": ((0, 1), (1, 0))}),
    "pairwise_coupling": ([_float32([[[0, 0.75], [0.25, 0]]])], {}),
    "part": ([(2, 3)], {"start": (0, 1), "length": (2, 2), "step": (1, 1), "shape": (2, 2)}),
    "polygamma": ([_float32([0.5, 1, 2])], {"n": 1}),
    "prelu": ([(2, 3), (3,)], {}),
    "proposal": (
        [_float32([[[[0.1, 0.8]], [[0.9, 0.2]]]]), (1, 4, 1, 2), _float32([[16, 32, 1]])],
        {"rpn_post_nms_top_n": 2, "rpn_min_size": 4, "scales": (1,), "ratios": (1,)},
    ),
    "psroi_pool": ([(1, 4, 3, 3), _float32([[0, 0, 0, 2, 2]])], {"output_dim": 1, "pooled_size": 2}),
    "random_bernoulli": ([_STATE], {"shape": (2, 3)}),
    "random_normal": ([_STATE], {"mean": 1.0, "shape": (4,)}),
    "random_randint": ([_STATE], {"low": -5, "high": 5, "shape": (6,)}),
    "random_uniform": ([_STATE], {"low": -1.0, "shape": (2, 2)}),
    "reshape": ([(2, 3)], {"shape": (3, -1)}),
    "reshape_like": ([(2, 3), (3, 2)], {}),
    "resize": ([(1, 1, 2, 2)], {"size": (3, 3)}),
    "rnn": ([(2, 1, 2), (2, 2), (2,), (1, 2)], {"mode": "rnn_tanh"}),
    "roi_align": ([(1, 1, 3, 3), _float32([[0, 0, 0, 2, 2]])], {"pooled_size": (1, 2)}),
    "roi_align_max": ([(1, 1, 3, 3), _float32([[0, 0, 0, 2, 2]])], {"pooled_size": (1, 2)}),
    "roi_pool": ([(1, 1, 3, 3), _float32([[0, 0, 0, 2, 2]])], {"pooled_size": (1, 2)}),
    "scatter_nd": ([(3,), _int32([[2, 0]]), (2,)], {}),
    "scatter_nd_reduce": ([(3,), _int32([[2, 2]]), (2,)], {"reduction": "add"}),
    "slice_like": ([(2, 3), (1, 2)], {}),
    "split": ([(2, 4)], {"indices_or_sections": 2}),
    "squeeze": ([(2, 1, 3)], {}),
    "strided_slice": ([(2, 4)], {"begin": (0, 1), "end": (2, 4), "stride": (1, 2)}),
    "take": ([(3, 2), _int32([2, 0])], {"axis": 0}),
    "topk": ([(2, 4)], {"k": 2}),
    "tree_ensemble": (
        [
            _float32([[0.5], [2.0]]),
            np.array([0], "uint32"),
            np.array([[2, 0], [1, 0], [2, 0], [3, 1]], "uint32"),
            _float32([1, np.nan, np.nan, np.nan]),
            np.zeros(4, "uint8"),
            _float32([[20], [10]]),
        ],
        {"targets": 1, "depth": 1},
    ),
    "where": ([_int32([[1, 0, 1]]), (1, 3), (1, 3)], {}),
    "yolo_reorg": ([(1, 4, 2, 2)], {"stride": 2}),
    "zeros": ([], {"shape": (2, 2)}),
}
_SHAPES: list[tuple[int, ...]] = [(2, 3), _IMAGE]
_VALUES = {
    "scalar": 2,
    "axis": 1,
    "shape": (2, 3),
    "pool_size": (2, 2),
    "scale": 2,
    "repeats": 2,
    "reps": (1, 2),
    "fill_value": 1.5,
    "num_args": 2,
    "size": (2, 2),
    "k": 2,
    "p": 2,
}


PAGE_NAMES = {"index": "indexing"}  # where web sites want an index.md of the whole folder


def families() -> dict[str, list[Op]]:
    """The operators by the file that registers them."""
    by_file: dict[str, list[Op]] = {}
    for op in list_ops():
        if op.name in ops.OWN:
            file = op.module.rpartition(".")[2]
            by_file.setdefault(PAGE_NAMES.get(file, file), []).append(op)
    return dict(sorted(by_file.items()))


def pages() -> dict[str, str]:
    """File name -> text."""
    made = {f"{family}.md": _page(family, members) for family, members in families().items()}
    return {"README.md": _index(), **made}


def _index() -> str:
    lines = ["# Operators", ""]
    for family, members in families().items():
        names = ", ".join(f"`{op.name}`" for op in members if not _is_internal(op))
        if names:
            lines.append(f"- [{family}]({family}.md): {names}")
    return "\n".join(lines) + "\n"


def _is_internal(op: Op) -> bool:
    return op.name.startswith("_") and not op.name.startswith(("__", "_contrib"))


def _page(family: str, members: Sequence[Op]) -> str:
    doc = sys.modules[members[0].module].__doc__ or ""
    parts = [f"# {family}", doc.strip()]
    parts += [_entry(op) for op in members if not _is_internal(op)]
    internal = [op for op in members if _is_internal(op)]
    if internal:
        parts.append("## Operators that gradients and passes use")
        parts.append("\n".join(f"- `{signature(op)}`: {_flat(op.description)}" for op in internal))
    return "\n\n".join(parts) + "\n"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _input_names(op: Op) -> list[str]:
    return [a.name for a in op.arguments if a.type.startswith("Tensor")]


def signature(op: Op) -> str:
    """How an operator is called, with its defaults."""
    inputs = ["*data"] if op.num_inputs == VARIADIC else _input_names(op)
    fields = fields_of(op.parser) if isinstance(op.parser, type) else ()
    shown = [f.name if f.default is REQUIRED else f"{f.name}={_default(f)}" for f in fields]
    return f"{op.name}({', '.join([*inputs, *shown])})"


def _default(field: Any) -> str:
    plain = field.default is None or isinstance(field.default, bool)
    return str(field.default) if plain else str(field.kind.print(field.default))


def _entry(op: Op) -> str:
    lines = [f"## {op.name}", "", f"`{signature(op)}`", "", _flat(op.description), ""]
    lines += [f"- `{a.name}` ({a.type}): {_flat(a.doc)}" for a in op.arguments]
    facts = [f"support level {op.support_level}"]
    facts += [] if Op.gradient.contains(op) else ["no gradient"]
    facts += [f"also called {', '.join(f'`{a}`' for a in op.aliases)}"] if op.aliases else []
    lines += ["", f"{'; '.join(facts)}.".capitalize()]
    made = example(op)
    return "\n".join(lines + (["", *_shown(op, made)] if made else []))


def example(op: Op) -> Example | None:
    """A small call of an operator and what it gives; None if it has no value."""
    for inputs, attrs in _calls(op):
        try:
            params = op.parse({key: text_of(value) for key, value in attrs.items()})
            arrays = [_array(op, number, given) for number, given in enumerate(inputs)]
            outputs = run_reference(op, params, arrays)[: op.visible_of(params)]
        except (Error, ValueError, TypeError, IndexError):
            continue
        return Example(arrays, dict(attrs), outputs)
    return None


def example_text(op: Op) -> list[str]:
    """A small call of an operator and what it gives, as lines of text; none if it has no value."""
    made = example(op)
    return [] if made is None else _shown(op, made)[1:-1]


def _calls(op: Op) -> Iterator[tuple[Sequence[Any], Mapping[str, Any]]]:
    if op.name in CALLS:
        yield CALLS[op.name]
        return
    fields = fields_of(op.parser) if isinstance(op.parser, type) else ()
    needed = [field.name for field in fields if field.default is REQUIRED]
    attrs = {name: _VALUES[name] for name in needed if name in _VALUES}
    count = 2 if op.num_inputs == VARIADIC else len(_input_names(op))
    for shape, integer in itertools.product(_SHAPES, (False, True)):
        yield [np.arange(1, 7, dtype="int32").reshape(2, 3) if integer else shape] * count, attrs


def _array(op: Op, number: int, given: Any) -> Array:
    """Given as it is, or made to a shape: numbers between -1 and 2 that are easy to follow."""
    if isinstance(given, np.ndarray):
        return given
    size = int(np.prod(given))
    values = (np.arange(size) * (2 * number + 3) % 7 - 2) / 2
    positive = op.name in {"log", "sqrt", "rsqrt", "log2", "log10", "acosh"} or number > 2
    return (np.abs(values) + 1 if positive else values).reshape(given).astype("float32")


def _shown(op: Op, made: Example) -> list[str]:
    names = "abcdefgh"[: len(made.inputs)] if len(made.inputs) != 1 else "x"
    attrs = [f"{key}={value!r}" for key, value in made.attrs.items()]
    lines = ["```text"]
    lines += [f"{name} = {_text(value)}" for name, value in zip(names, made.inputs)]
    results = [_text(value) for value in made.outputs]
    lines.append(f"{op.name}({', '.join([*names, *attrs])})")
    return [*lines, *(f"  -> {result}" for result in results), "```"]


def _text(value: Array) -> str:
    if value.size > MOST_VALUES or not value.size:
        return f"{value.dtype}{list(value.shape)}"
    digits = np.round(value.astype("float64"), 4) + 0.0 if is_float(value.dtype) else value
    return f"{value.dtype} {digits.tolist()}"


def write(folder: Path) -> None:
    """Writes all pages, and removes those of families that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for path in folder.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/ops"))

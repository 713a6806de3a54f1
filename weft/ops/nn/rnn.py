"""Recurrent layers: one layer in one direction, all its steps in one operator. What the inputs add
to the gates is computed before, by one product for all steps.

    lstm      c' = f c + i g,  h' = o tanh(c')              gates i, f, g, o
    gru       h' = (1 - z) n + z h                          gates r, z, n = tanh(x + r (h W + b)),
                                                            or tanh(x + (r h) W + b) with reset_first
    rnn_tanh  h' = tanh(x + h W + b), rnn_relu the same with max(., 0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.dtype import dtype_name, is_integer
from ...base.errors import DTypeError, InvalidValue, ShapeError, Unsupported
from ...base.shape import Shape, ceil_div_dims, floor_div_dims, mul_dims, unify_dim
from ...core.infer import unify_dtype
from ...core.schema import BOOL, FLOAT, attr, choice, schema
from .._families import F, Inferred, Shapes, attributes, define, floating, ranked
from .._kernels import wide_dtype
from ._rnn_kernels import GATES, KEPT, LANES, backward_kernels, forward_kernels, limited

Arrays = dict[str, Any]


@schema
class RnnAttrs:
    mode: str = attr(choice(*GATES), "the kind of cell")
    reverse: bool = attr(BOOL, "whether steps are taken from the last to the first", default=False)
    projected: bool = attr(BOOL, "whether the state is a projection of the cells", default=False)
    lengths: bool = attr(BOOL, "whether sequences have lengths of their own", default=False)
    clip_min: float = attr(FLOAT, "the least a cell of lstm may hold", default=-float("inf"))
    clip_max: float = attr(FLOAT, "the most it may hold", default=float("inf"))
    clip_nan: bool = attr(BOOL, "whether what is not a number becomes clip_min, where there is a limit", default=False)
    reset_first: bool = attr(
        BOOL, "of gru, whether r acts on the state before it is multiplied; that has no gradient", default=False
    )
    kept: bool = attr(
        BOOL, "whether what the gradient reads of every step is given, too; it has none itself", default=False
    )


_INPUTS = {
    "gates": "(steps, batch, gates * size): what the inputs add to the gates, biases included",
    "weight": "(state, gates * size): what the state is multiplied by",
    "bias": "(gates * size,): added to the state's product",
    "state": "(batch, state): before the first step",
    "cell": "(batch, size): of lstm, before the first step",
    "projection": "(size, state), where projected",
    "length": "(batch,), integers: steps of each sequence, where there are lengths",
}


def input_names(params: RnnAttrs) -> list[str]:
    absent = {"cell": params.mode != "lstm", "projection": not params.projected, "length": not params.lengths}
    return [name for name in _INPUTS if not absent.get(name)]


def output_names(params: RnnAttrs) -> list[str]:
    cell = ["cell"] if params.mode == "lstm" else []
    return ["output", "state", *cell, *(kept_names(params) if params.kept else [])]


def kept_names(params: RnnAttrs) -> list[str]:
    """Gates as they act and cells, by steps; of gru the state's part of n is the fourth gate, of a
    plain layer the only one is what it gives before it is projected."""
    return ["kept_gates", *(["kept_cells"] if params.mode == "lstm" else [])]


def _dims(params: RnnAttrs, known: dict[str, Shape]) -> dict[str, Any]:
    """steps, batch, wide (all gates), size and state (what is carried on), as far as known."""
    steps, batch, wide = ranked(known.get("gates"), 3, "gates")
    state, wide_too = ranked(known.get("weight"), 2, "weight")
    (bias,) = ranked(known.get("bias"), 1, "bias")
    batch_too, state_too = ranked(known.get("state"), 2, "state")
    batch, state = unify_dim(batch, batch_too), unify_dim(state, state_too)
    wide = unify_dim(unify_dim(wide, wide_too), bias)
    if isinstance(wide, int) and wide % GATES[params.mode]:
        raise ShapeError(f"{wide} gates", why=f"{params.mode} has {GATES[params.mode]} a cell")
    size = floor_div_dims(wide, GATES[params.mode])
    if known.get("cell") is not None:
        batch_too, size_too = ranked(known["cell"], 2, "cell")
        batch, size = unify_dim(batch, batch_too), unify_dim(size, size_too)
    if known.get("projection") is not None:
        size_too, state_too = ranked(known["projection"], 2, "projection")
        size, state = unify_dim(size, size_too), unify_dim(state, state_too)
    if known.get("length") is not None:
        batch = unify_dim(batch, *ranked(known["length"], 1, "length"))
    if not params.projected:
        state = size = unify_dim(state, size)
    kept = mul_dims(size, KEPT[params.mode])
    return {"steps": steps, "batch": batch, "wide": wide, "size": size, "state": state, "kept": kept}


_AXES = {
    "gates": "steps batch wide",
    "weight": "state wide",
    "bias": "wide",
    "state": "batch state",
    "cell": "batch size",
    "projection": "size state",
    "length": "batch",
    "output": "steps batch state",
    "before": "steps batch state",
    "raw": "steps batch size",
    "hidden": "steps batch wide",
    "kept_gates": "steps batch kept",
    "kept_cells": "steps batch size",
}


def _shaped(dims: dict[str, Any], names: Sequence[str]) -> list[Shape]:
    return [tuple(dims[axis] for axis in _AXES[name].split()) for name in names]


def _shape(params: RnnAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    _check(params)
    names = input_names(params)
    dims = _dims(params, dict(zip(names, ins)))
    return _shaped(dims, names), _shaped(dims, output_names(params))


def _check(params: RnnAttrs) -> None:
    if params.projected and params.mode == "gru":
        raise InvalidValue("a projected gru", why="its state and its gates have one size")
    if params.reset_first and (params.mode != "gru" or params.kept):
        raise InvalidValue(f"{params.mode} with reset_first", why="that is of gru, and has no gradient to keep for")


def _dtype(names: Any) -> Any:
    """One floating dtype; lengths are integers."""

    def rule(params: RnnAttrs, ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        by_name = dict(zip(names(params), ins))
        length = by_name.pop("length", None)
        if length is not None and not is_integer(length):
            raise DTypeError(f"lengths are {dtype_name(length)}", hint="cast them to int32")
        dtype = None
        for known in (*by_name.values(), *outs):
            dtype = unify_dtype(dtype, known)
        floating(params, [dtype], [])
        return [length if n == "length" else dtype for n in names(params)], [dtype] * len(outs)

    return rule


# numpy


def _sigmoid(x: Any) -> Any:
    return (1 / (1 + np.exp(-x))).astype(x.dtype)


def clipped(params: RnnAttrs, cell: Any) -> Any:
    """A cell between its limits."""
    low, high = params.clip_min, params.clip_max
    if not limited(params):
        return cell
    made = np.where(cell < low, low, np.where(cell > high, high, cell))
    return (np.where(np.isnan(cell), low, made) if params.clip_nan else made).astype(cell.dtype)


def _times(params: RnnAttrs, steps: int, batch: int, length: Any) -> Any:
    """For each turn, the step that each sequence takes, and whether it still has one."""
    turns = np.arange(steps)[:, None]
    ends = np.full(batch, steps) if length is None else np.clip(length.astype(np.int64), 0, steps)
    live = turns < ends
    back = np.where(live, ends - 1 - turns, turns)
    return (back if params.reverse else np.broadcast_to(turns, live.shape)), live


def _cell(params: RnnAttrs, x: Any, recurrent: Any, h: Any, c: Any) -> tuple[Any, ...]:
    """Gates to keep, the new cell, and the new output before it is projected."""
    size = x.shape[1] // GATES[params.mode]
    parts = [x[:, k * size : (k + 1) * size] for k in range(GATES[params.mode])]
    mine = [recurrent[:, k * size : (k + 1) * size] for k in range(GATES[params.mode])]
    if params.mode == "lstm":
        i, f, g, o = (a + b for a, b in zip(parts, mine))
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        c = clipped(params, f * c + i * g)
        return (i, f, g, o), c, o * np.tanh(c)
    if params.mode == "gru":
        r, z = (_sigmoid(a + b) for a, b in zip(parts[:2], mine))
        n = np.tanh(parts[2] + (mine[2] if params.reset_first else r * mine[2]))
        return (r, z, n, mine[2]), c, n + z * (h - n)
    total = parts[0] + mine[0]
    new = np.tanh(total) if params.mode == "rnn_tanh" else np.where(total < 0, 0, total)
    return (new,), c, new


def _recurrent(params: RnnAttrs, x: Any, h: Any, weight: Any, bias: Any) -> Any:
    """What the state adds to the gates."""
    own = h @ weight + bias
    if not params.reset_first:
        return own
    size = h.shape[1]
    reset = _sigmoid(x[:, :size] + own[:, :size]) * h
    return np.concatenate([own[:, : 2 * size], reset @ weight[:, 2 * size :] + bias[2 * size :]], 1)


def _reference(params: RnnAttrs, *arrays: Any) -> Any:
    by_name = dict(zip(input_names(params), arrays))
    dtype = by_name["gates"].dtype
    wide = {n: a.astype(wide_dtype(dtype)) for n, a in by_name.items() if n != "length"}
    x, (steps, batch, width) = wide["gates"], wide["gates"].shape
    h, c = wide["state"], wide.get("cell")
    size = width // GATES[params.mode]
    out = np.zeros((steps, *h.shape), h.dtype)
    gates = np.zeros((steps, batch, KEPT[params.mode] * size), h.dtype)
    cells = None if c is None else np.zeros((steps, batch, size), h.dtype)
    times, live = _times(params, steps, batch, by_name.get("length"))
    rows = np.arange(batch)
    with np.errstate(all="ignore"):
        for turn in range(steps):
            at, some = times[turn], live[turn][:, None]
            recurrent = _recurrent(params, x[at, rows], h, wide["weight"], wide["bias"])
            kept, cell, new = _cell(params, x[at, rows], recurrent, h, c)
            gates[at, rows] = np.where(some, np.concatenate(kept, 1), 0)
            new = new @ wide["projection"] if params.projected else new
            h = np.where(some, new, h)
            out[at, rows] = np.where(some, new, 0)
            if cells is not None:
                c = np.where(some, cell, c)
                cells[at, rows] = np.where(some, cell, 0)
    results = (out, h, c, *((gates, cells) if params.kept else ()))
    return tuple(a.astype(dtype) for a in results if a is not None)


def _kernels(params: RnnAttrs, inputs: Any, outputs: Any) -> Any:
    return forward_kernels(params, input_names(params), inputs, output_names(params), outputs)


def _names_of(op: Any, names: Any, results: Any) -> None:
    op.input_names = names
    op.set_num_inputs(lambda params: len(names(params)))
    op.output_names = results
    op.set_num_outputs(lambda params: len(results(params)))


# The gradient goes through the steps backwards. `gates` and `hidden` are gradients of the two parts
# of the gates, which differ in gru; products with `before` and `raw`, the states that steps start
# from and outputs before they are projected, make those of weights.


def grad_names(params: RnnAttrs) -> list[str]:
    """Gradients of outputs, inputs, and what was kept."""
    heads = ["output_grad", "state_grad", *(["cell_grad"] if params.mode == "lstm" else [])]
    return [*heads, *input_names(params), "output", *kept_names(params)]


def grad_results(params: RnnAttrs) -> list[str]:
    more = ["cell"] if params.mode == "lstm" else ["hidden"] if params.mode == "gru" else []
    return ["gates", "before", "state", *more, *(["raw", "output"] if params.projected else [])]


_AXES |= {f"{name}_grad": _AXES[name] for name in ("output", "state", "cell")}


def _grad_shape(params: RnnAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    names = grad_names(params)
    dims = _dims(params, {n: s for n, s in zip(names, ins) if n in _INPUTS})
    return _shaped(dims, names), _shaped(dims, grad_results(params))


def _grad_reference(params: RnnAttrs, *arrays: Any) -> Any:
    by_name = dict(zip(grad_names(params), arrays))
    dtype = by_name["gates"].dtype
    wide = {n: a.astype(wide_dtype(dtype)) for n, a in by_name.items() if n != "length"}
    with np.errstate(all="ignore"):
        grads = _backward(params, wide, by_name.get("length"))
    return tuple(grads[name].astype(dtype) for name in grad_results(params))


def _backward(params: RnnAttrs, a: Arrays, length: Any) -> Arrays:
    steps, batch, wide = a["gates"].shape
    size = wide // GATES[params.mode]
    grads = {
        "gates": np.zeros_like(a["gates"]),
        "hidden": np.zeros_like(a["gates"]),
        "before": np.zeros_like(a["output_grad"]),
        "raw": np.zeros((steps, batch, size), a["gates"].dtype),
        "output": np.zeros_like(a["output_grad"]),
    }
    times, live = _times(params, steps, batch, length)
    rows = np.arange(batch)
    dh, dc = a["state_grad"], a.get("cell_grad")
    for turn in reversed(range(steps)):
        at, some = times[turn], live[turn][:, None]
        h, c = a["state"], a.get("cell")
        if turn:
            past = times[turn - 1], rows
            h, c = a["output"][past], None if c is None else a["kept_cells"][past]
        kept = np.split(a["kept_gates"][at, rows], KEPT[params.mode], 1)
        d = np.where(some, a["output_grad"][at, rows] + dh, 0)
        grads["output"][at, rows] = d
        grads["before"][at, rows] = np.where(some, h, 0)
        d = d @ a["projection"].T if params.projected else d
        to_gates, to_hidden, carried, cell, raw = _cell_gradient(params, d, dc, kept, h, c)
        grads["raw"][at, rows] = np.where(some, raw, 0)
        grads["gates"][at, rows] = np.where(some, to_gates, 0)
        grads["hidden"][at, rows] = np.where(some, to_hidden, 0)
        back = np.where(some, to_hidden, 0) @ a["weight"].T
        dh = np.where(some, back + carried, dh)
        dc = None if dc is None else np.where(some, cell, dc)
    return {**grads, "state": dh, "cell": dc}


def _cell_gradient(params: RnnAttrs, d: Any, dc: Any, kept: Any, h: Any, c: Any) -> tuple[Any, ...]:
    """Gradients of the two parts of the gates, of the state past the gates, and of the cell; then
    the output before it is projected."""
    if params.mode == "lstm":
        i, f, g, o = kept
        plain = f * c + i * g
        level = np.tanh(clipped(params, plain))
        total = dc + d * o * (1 - level * level)
        if limited(params):
            total = np.where((plain >= params.clip_min) & (plain <= params.clip_max), total, 0)
        parts = [total * g * i * (1 - i), total * c * f * (1 - f), total * i * (1 - g * g)]
        grads = np.concatenate([*parts, d * level * o * (1 - o)], 1)
        return grads, grads, 0, total * f, o * level
    if params.mode == "gru":
        r, z, n, recurrent = kept
        change = d * (1 - z) * (1 - n * n)
        parts = [change * recurrent * r * (1 - r), d * (h - n) * z * (1 - z)]
        to_gates = np.concatenate([*parts, change], 1)
        return to_gates, np.concatenate([*parts, change * r], 1), d * z, None, 0
    (raw,) = kept
    grads = d * (1 - raw * raw) if params.mode == "rnn_tanh" else np.where(raw > 0, d, 0)
    return grads, grads, 0, None, raw


def _grad_kernels(params: RnnAttrs, inputs: Any, outputs: Any) -> Any:
    return backward_kernels(params, grad_names(params), inputs, grad_results(params), outputs)


def _gradient(ctx: Any, *heads: Any) -> list[Any]:
    params, names = ctx.params, input_names(ctx.params)
    if params.reset_first:
        raise Unsupported("the gradient of a gru with reset_first", hint="compose it of other operators")
    made, attrs = ctx.outputs, {**attributes(params), "kept": True}
    if not params.kept:
        made = F.rnn(*ctx.inputs, **attrs)
    visible = len(heads) - (len(kept_names(params)) if params.kept else 0)
    outputs = [made[0], *[made[visible + i] for i in range(len(kept_names(params)))]]
    results = F._rnn_grad(*heads[:visible], *ctx.inputs, *outputs, **attrs)
    grads = dict(zip(grad_results(params), results))
    hidden = grads.get("hidden", grads["gates"])
    grads |= {"weight": _outer(hidden, grads["before"]), "bias": F.sum(hidden, axis=(0, 1)), "length": None}
    if params.projected:
        grads["projection"] = _outer(grads["output"], grads["raw"])
    return [grads[name] for name in names]


def _outer(a: Any, b: Any) -> Any:
    """The sum of products of rows of b and a, over all steps and sequences."""
    a, b = (F.reshape(x, shape=(-3, 0)) for x in (a, b))
    return F.transpose(F.matmul(a, b, transpose_a=True), axes=(1, 0))


rnn = define(
    "rnn",
    "All steps of one recurrent layer in one direction: the outputs of every step, and the "
    "state (of lstm also the cell) after the last. Past the end of a sequence that has a length "
    "outputs are 0.",
    level=4,
    inputs=_INPUTS,
    named=False,
    attrs=RnnAttrs,
    shape=_shape,
    dtype=_dtype(input_names),
    reference=_reference,
    kernels=_kernels,
    open_body=True,
    native_from=1,
    gradient=_gradient,
)
_names_of(rnn, input_names, output_names)

# With a packed weight, which a build puts in its place after gradients are taken.


def packed_names(params: RnnAttrs) -> list[str]:
    return ["packed_weight" if name == "weight" else name for name in input_names(params)]


def _packed_shape(params: RnnAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    _check(params)
    names = packed_names(params)
    known = dict(zip(names, ins))
    panels, rows, lanes = ranked(known.pop("packed_weight"), 3, "the packed weight")
    if isinstance(lanes, int) and (not lanes or lanes % LANES):
        raise ShapeError(f"panels of {lanes} columns", why=f"they come in vectors of {LANES}")
    dims = _dims(params, {**known, "weight": (rows, None)})
    shapes = dict(zip(input_names(params), _shaped(dims, input_names(params))))
    count = ceil_div_dims(dims["wide"], lanes) if isinstance(lanes, int) else None
    shapes["packed_weight"] = (unify_dim(panels, count), dims["state"], lanes)
    return [shapes[name] for name in names], _shaped(dims, output_names(params))


def _packed_reference(params: RnnAttrs, *arrays: Any) -> Any:
    gates, panels, *rest = arrays
    matrix = np.concatenate(list(panels), 1)[:, : gates.shape[2]]
    return _reference(params, gates, matrix, *rest)


def _packed_kernels(params: RnnAttrs, inputs: Any, outputs: Any) -> Any:
    return forward_kernels(params, packed_names(params), inputs, output_names(params), outputs)


packed_rnn = define(
    "_packed_rnn",
    "rnn whose weight is in panels of columns, as _pack_panels makes them.",
    inputs={"packed_weight" if name == "weight" else name: text for name, text in _INPUTS.items()},
    named=False,
    attrs=RnnAttrs,
    shape=_packed_shape,
    dtype=_dtype(packed_names),
    reference=_packed_reference,
    kernels=_packed_kernels,
    open_body=True,
)
_names_of(packed_rnn, packed_names, output_names)

_GRAD_INPUTS = {
    "output_grad": "the gradient of the outputs",
    "state_grad": "of the last state",
    "cell_grad": "of the last cell",
    **_INPUTS,
    "output": "the outputs",
    "kept_gates": "the gates of every step as they act",
    "kept_cells": "the cells after every step",
}
rnn_grad = define(
    "_rnn_grad",
    "Gradients of rnn: of gates, state and cell, and what those of the matrices are products of.",
    inputs=_GRAD_INPUTS,
    named=False,
    attrs=RnnAttrs,
    shape=_grad_shape,
    dtype=_dtype(grad_names),
    reference=_grad_reference,
    kernels=_grad_kernels,
    open_body=True,
    native_from=1,
)
_names_of(rnn_grad, grad_names, grad_results)

"""Checks of one operator: comes in an operator's name and samples, goes out nothing, or an
AssertionError that names the operator and what it lacks."""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from .. import te
from ..base.cpu_target import CpuTarget
from ..base.dtype import FLOAT32, DType, as_dtype, is_complex, is_float
from ..base.errors import Error, InvalidValue
from ..base.layout import Layout
from ..base.shape import Shape, is_static, unify
from ..base.target import Target
from ..codegen.cpu.compile import compile_kernel
from ..core.fused import FusedGroup
from ..core.graph import Graph
from ..core.infer import infer, same_dtype, unify_dtype, unknown_entries
from ..core.interpret import evaluate, run_reference
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import Op
from ..core.pattern import OpPattern
from ..core.schema import REQUIRED, Field, fields_of, text_of
from ..core.symbol import Group, Symbol, Variable
from ..lower.cpu.dispatch import LOWERING
from ..lower.group import Temporary
from ..lower.lowering import Lowering
from ..runtime.cpu.kernel import NativeKernel
from ..te.expr import Const
from ..te.interpret import run_kernel
from ..te.loops import Buffer, Kernel
from ..te.schedule import loop_kernel
from ..te.transform import legalise

Array = np.ndarray[Any, np.dtype[Any]]
Runner = Callable[[Kernel, Sequence[Array]], None]
# Run on weights when models are built, where a copy of them all would be felt.
MAY_BE_VIEWS = frozenset({"__layout_transform__", "_pack_panels"})
EFFECTS = ("pure", "random", "mutates", "opaque")


@dataclass(frozen=True)
class Sample:
    """One call of an operator, and what an independent system says it gives.

    `differentiable` says which inputs the gradient is checked for: True for all floating ones,
    False for none, or their positions. Without an oracle only internal agreement is checked.
    """

    inputs: Sequence[Array]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    oracle: Callable[..., Any] | None = None
    differentiable: bool | tuple[int, ...] = True
    rtol: float = 1e-5
    atol: float = 1e-6
    label: str = ""
    system: str = "numpy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", [np.asarray(x) for x in self.inputs])

    def with_system(self, system: str) -> Sample:
        """The same sample, its oracle being called with the values of a system."""
        return replace(self, system=system)

    def __str__(self) -> str:
        shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        return f"{self.label or 'sample'}({shapes}; {dict(self.attrs)})"

    def checked_inputs(self) -> list[int]:
        """Positions of the inputs whose gradient is checked."""
        floating = [i for i, x in enumerate(self.inputs) if is_float(x.dtype)]
        if isinstance(self.differentiable, bool):
            return floating if self.differentiable else []
        return [i for i in self.differentiable if i in floating]


def check_op(name: str, samples: Sequence[Sample] | None = None) -> None:
    """Runs every check on an operator: that it is complete, refuses bad attributes and, on the
    samples, that its rules agree with each other and with their oracles.

    Without samples an operator that takes float tensors of one shape is tried on random ones.

    >>> check_op("relu", [Sample([np.float32([-1.5, 2])], oracle=lambda x: x.clip(0))])
    """
    op = Op.get(name)
    check_complete(op)
    check_attributes(op)
    samples = random_samples(op) if samples is None else samples
    assert samples, f"operator {name} has no samples"
    for sample in samples:
        for check in (*SAMPLE_CHECKS, check_native):
            check(op, sample)
        if any(x.dtype == FLOAT32 for x in sample.inputs):
            for dtype in ("float16", "bfloat16"):
                check_compute(op, narrowed(sample, as_dtype(dtype)))


def random_samples(op: Op) -> list[Sample]:
    """Samples of an operator whose inputs are floats of one shape and whose attributes have
    defaults; an error for others."""
    try:
        count = op.inputs_of(op.parse({}))
    except Error as error:
        raise InvalidValue(f"operator {op.name} needs attributes", why=str(error), hint="give samples") from None
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    shapes: list[tuple[int, ...]] = [(), (5,), (3, 4), (2, 1, 7), (3, 0, 2)]
    arrays = [[_uniform(rng, shape) for _ in range(max(count, 1))] for shape in shapes]
    return [Sample(values[:count]) for values in arrays]


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.uniform(0.1, 0.9, shape)).astype(np.float32)


def check_complete(op: Op) -> None:
    """Every piece that a complete operator has is there."""
    assert len(op.description) > 1, f"operator {op.name} has no doc"
    for argument in op.arguments:
        assert argument.doc, f"argument {argument.name} of operator {op.name} has no doc"
    for column in ("pattern", "shape", "layout", "reference", "gradient"):
        assert column_of(op, column) is not None, f"operator {op.name} has no {column}"
    check_body(op)
    if not callable(op.effect):
        assert op.effect in EFFECTS, f"operator {op.name} has the effect {op.effect!r}"


def check_body(op: Op) -> None:
    """There is a compute, or kernels that nothing tries to fuse with."""
    written = column_of(op, "kernels") is not None
    has = written or column_of(op, "compute") is not None
    assert has, f"operator {op.name} has no body: neither compute nor kernels"
    assert not written or op.pattern == OpPattern.OPAQUE, f"operator {op.name} is not opaque"


def runs_on_host(op: Op) -> bool:
    """Whether an operator has nothing to make machine code of."""
    bodies = [column_of(op, column) for column in ("compute", "kernels")]
    return not any(bodies) and op.name not in LOWERING.templates


def column_of(op: Op, column: str) -> Any:
    """The value that an operator has registered itself, or None."""
    return getattr(Op, column).get(op)


# Attributes.


def check_attributes(op: Op) -> None:
    """Unknown, malformed, missing and out-of-range attributes are refused by a typed error."""
    if not isinstance(op.parser, type):
        return
    good = {f.name: _good_text(f) for f in fields_of(op.parser) if f.default is REQUIRED}
    _refuses(op, {**good, "no_such_attribute": "1"}, "an unknown attribute")
    for item in fields_of(op.parser):
        for text in _bad_texts(item):
            _refuses(op, {**good, item.name: text}, f"{item.name}={text!r}")
        if item.default is REQUIRED:
            rest = {key: value for key, value in good.items() if key != item.name}
            _refuses(op, rest, f"a call without {item.name}")


def _good_text(item: Field) -> str:
    for text in ("1", "(1, 1)", "((1, 1),)", "float32", "NCHW"):
        try:
            item.kind.parse(text)
        except (ValueError, Error):
            continue
        return text
    return item.kind.name.partition("{")[2].partition(",")[0].rstrip("}")


def _bad_texts(item: Field) -> list[str]:
    if item.kind.name == "str":
        return []
    bad = ["{}", "1;2", "(1, 2", "nothing at all" if item.kind.symbolic else "nothing"]
    bad += [text_of(int(item.low) - 1)] if item.low is not None else []
    bad += [text_of(int(item.high) + 1)] if item.high is not None else []
    return bad


def _refuses(op: Op, attrs: Mapping[str, str], what: str) -> None:
    try:
        op.parse(attrs)
    except Error:
        return
    raise AssertionError(f"operator {op.name} accepts {what}")


# Values.


def _params(op: Op, sample: Sample) -> Any:
    return op.parse({key: text_of(value) for key, value in sample.attrs.items()})


def run_sample(op: Op, sample: Sample) -> list[Array]:
    """What the reference gives; the inputs are read-only while it runs."""
    frozen = [x.copy() for x in sample.inputs]
    for x in frozen:
        x.setflags(write=False)
    results = run_reference(op, _params(op, sample), frozen)
    for value in results if op.name not in MAY_BE_VIEWS else ():
        shared = [x for x in frozen if x.size and np.shares_memory(x, value)]
        assert not shared, f"operator {op.name}: {sample}: the reference returns its input"
    return results


def check_oracle(op: Op, sample: Sample) -> None:
    """The reference agrees with the independent system."""
    if sample.oracle is None:
        return
    said = sample.oracle(*(_to_system(x, sample.system) for x in sample.inputs))
    said = said if isinstance(said, (tuple, list)) else (said,)  # one value, or one an output
    ours = run_sample(op, sample)
    for index, (a, b) in enumerate(zip(ours, said)):
        _agree(a, _from_system(b), sample, f"operator {op.name}, output {index}, oracle")


def _to_system(x: Array, system: str) -> Any:
    if system != "torch":
        return x.copy()
    return _torch().from_numpy(x.copy())


def _torch() -> Any:
    return sys.modules["torch"]


def _from_system(value: Any) -> Array:
    detach = getattr(value, "detach", None)
    return np.asarray(detach().resolve_conj().numpy() if detach else value)


def _agree(ours: Array, theirs: Array, sample: Sample, what: str) -> None:
    place = f"{what}: {sample}"
    assert ours.shape == theirs.shape, f"{place}: shape {ours.shape} is not {theirs.shape}"
    exact = not _is_rounded(ours.dtype) or not _is_rounded(theirs.dtype)
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": sample.rtol, "atol": sample.atol}
    wide = np.complex128 if is_complex(ours.dtype) or is_complex(theirs.dtype) else np.float64
    np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), err_msg=place, **tolerance)


def _is_rounded(dtype: DType) -> bool:
    return is_float(dtype) or is_complex(dtype)


def check_compute(op: Op, sample: Sample) -> None:
    """The body as loops agrees with the reference."""
    if column_of(op, "compute") is None and column_of(op, "kernels") is None:
        return
    wanted = run_sample(op, sample)
    for index, (a, b) in enumerate(zip(run_compute(op, sample), wanted)):
        what = f"operator {op.name}, output {index}, compute"
        assert a.dtype == b.dtype, f"{what}: {sample}: dtype {a.dtype} is not {b.dtype}"
        _agree(a, b, sample, what)


def check_native(op: Op, sample: Sample) -> None:
    """The machine code that a build makes of the operator agrees with the reference; what has no
    body runs its reference."""
    if runs_on_host(op):
        return
    # A build gives what is written to variables a place of its own; here the body is enough.
    mutates = op in Op.mutates and op.mutates_of(_params(op, sample))
    outputs = run_compute(op, sample, run_native) if mutates else run_lowered(op, sample)
    for index, (a, b) in enumerate(zip(outputs, run_sample(op, sample))):
        _agree(a, b, sample, f"operator {op.name}, output {index}, machine code")


def run_native(kernel: Kernel, arrays: Sequence[Array]) -> None:
    """Compiles a kernel for this machine and runs it on arrays, in place."""
    NativeKernel(compile_kernel(kernel, CpuTarget.create()))(list(arrays))


def run_lowered(
    op: Op, sample: Sample, target: CpuTarget | None = None, placed: Callable[[Array], Array] = np.copy
) -> list[Array]:
    """What the kernels give that the operator is lowered to, as machine code; every array that
    they touch has gone through `placed`."""
    chosen = target or CpuTarget.create()
    run = lambda kernel, arrays: NativeKernel(compile_kernel(kernel, chosen))(list(arrays))
    return run_kernels_of(op, sample, LOWERING, chosen, run, placed)


def run_kernels_of(
    op: Op,
    sample: Sample,
    lowering: Lowering[Any],
    target: Target,
    run: Runner,
    placed: Callable[[Array], Array] = np.copy,
) -> list[Array]:
    """What the kernels give that an operator is lowered to on some backend, which `run(kernel, arrays)` runs."""
    node, fact = _typed_node(op, sample)
    outputs = tuple(NodeEntry(node, index) for index in range(node.num_outputs))
    group = FusedGroup((node,), tuple(dict.fromkeys(node.inputs)), outputs, node)
    memory: dict[Any, Array] = {entry: placed(np.array(x, order="C")) for entry, x in zip(node.inputs, sample.inputs)}
    for kernel, places, _ in lowering.lower(group, fact, target):
        for place in [*places, *outputs]:
            if place not in memory:
                assert isinstance(place, Temporary | NodeEntry)
                known = place if isinstance(place, Temporary) else fact(place)
                assert is_static(known.shape)
                assert known.dtype is not None
                memory[place] = placed(np.full(known.shape, _poison(known.dtype), known.dtype))
        arrays = [_as_buffer(memory[place], buffer) for place, buffer in zip(places, kernel.buffers)]
        run(kernel, arrays)
    return [memory[entry] for entry in outputs]


def _as_buffer(memory: Array, buffer: Buffer) -> Array:
    """Memory as a kernel reads it; bytes may be read by fours."""
    shape = [int(extent.value) for extent in buffer.shape if isinstance(extent, Const)]
    return (memory if memory.dtype == buffer.dtype else memory.reshape(-1).view(buffer.dtype)).reshape(shape)


def _typed_node(op: Op, sample: Sample) -> tuple[Node, Callable[[NodeEntry], Fact]]:
    """The operator as the only node of a graph, and what is known about its entries."""
    names = {f"x{i}": x for i, x in enumerate(sample.inputs)}
    symbol = op(*map(Variable, names), **dict(sample.attrs))
    shapes, dtypes = {name: x.shape for name, x in names.items()}, {name: x.dtype for name, x in names.items()}
    graph = infer(Graph(symbol.outputs), shapes, dtypes)
    (node,) = (node for node in graph.indexed.nodes if node.op is not None)
    return node, graph.fact


def run_compute(op: Op, sample: Sample, run: Runner = run_kernel) -> list[Array]:
    """What the body gives, as the plainest loops; reductions that are read have a buffer.

    `run(kernel, arrays)` runs the loops: by default the interpreter that checks every index.
    """
    if column_of(op, "kernels") is not None:
        return _run_written(op, sample, run)
    inputs = [te.placeholder(x.shape, x.dtype, f"x{i}") for i, x in enumerate(sample.inputs)]
    computed = op.call_with(column_of(op, "compute"), _params(op, sample), *inputs)
    outputs = list(computed) if isinstance(computed, (tuple, list)) else [computed]
    stages = [t for t in _producers(outputs) if t.is_reduction or t in outputs]
    kernel = loop_kernel(f"check_{op.name}", inputs, stages)
    arrays = [np.full(t.shape, _poison(t.dtype), t.dtype) for t in stages]
    run(kernel, [*(np.array(x, order="C") for x in sample.inputs), *arrays])
    return [arrays[stages.index(t)] for t in outputs]


def _run_written(op: Op, sample: Sample, run: Runner) -> list[Array]:
    """What the kernels of a body give; memory holds a conspicuous value until it is written."""
    params, ins = _params(op, sample), [(x.shape, x.dtype) for x in sample.inputs]
    shapes = column_of(op, "shape")(params, [s for s, _ in ins], [None] * op.outputs_of(params))[1]
    rule = column_of(op, "dtype") or same_dtype
    dtypes = rule(params, [d for _, d in ins], [None] * len(shapes))[1]
    outs = list(zip(shapes, dtypes))
    memory = [np.array(x, order="C").reshape(-1) for x in sample.inputs]
    memory += [np.full(math.prod(shape), _poison(dtype), dtype) for shape, dtype in outs]
    for kernel, positions, _ in op.call_with(column_of(op, "kernels"), params, ins, outs):
        arrays = []
        for buffer, position in zip(kernel.buffers, positions):
            shape = tuple(int(extent.value) for extent in buffer.shape)
            if position == len(memory):
                memory.append(np.full(math.prod(shape), _poison(buffer.dtype), buffer.dtype))
            arrays.append(memory[position].reshape(shape))
        run(legalise(kernel), arrays)
    results = memory[len(ins) : len(ins) + len(outs)]
    return [array.reshape(shape) for array, shape in zip(results, shapes)]


def _poison(dtype: DType) -> Any:
    return np.nan if is_float(dtype) else True if dtype.kind == "b" else np.iinfo(dtype).max - 5


def _producers(outputs: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Computed tensors, each after those it reads."""
    order: dict[te.Tensor, None] = {}
    stack = list(outputs)[::-1]
    while stack:
        tensor = stack[-1]
        waiting = [t for t in tensor.inputs() if t not in order and t.body is not None]
        if tensor in order or not waiting:
            order.setdefault(stack.pop())
        else:
            stack.extend(waiting)
    return list(order)


# Inference.


def narrowed(sample: Sample, dtype: DType) -> Sample:
    """The sample with its float32 inputs in a narrower dtype, and a tolerance that fits it."""
    inputs = [x.astype(dtype) if x.dtype == FLOAT32 else x for x in sample.inputs]
    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    error = 16 * float(limits.eps)
    return replace(sample, inputs=inputs, oracle=None, rtol=error, atol=error)


def in_dtype(sample: Sample, dtype: DType) -> Sample:
    """The sample with its float32 inputs in another dtype; for unsigned ones, what is positive."""
    signed = dtype.kind in "if"
    with np.errstate(invalid="ignore"):  # NaN as an integer is whatever it is
        inputs = [(x if signed else np.abs(x)).astype(dtype) if x.dtype == FLOAT32 else x for x in sample.inputs]
    return replace(sample, inputs=inputs, oracle=None)


SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


def with_special_values(sample: Sample, seed: int = 0) -> Sample:
    """The sample with NaN, infinities and both zeros in half the places of its float inputs."""
    rng = np.random.default_rng(seed)

    def mixed(x: Array) -> Array:
        if not is_float(x.dtype):
            return x
        chosen = rng.integers(0, 2 * len(SPECIAL), x.shape)
        special = np.asarray(SPECIAL, x.dtype)[chosen % len(SPECIAL)]
        return np.where(chosen < len(SPECIAL), special, x)

    return replace(sample, inputs=[mixed(x) for x in sample.inputs], oracle=None)


def check_inference(op: Op, sample: Sample) -> None:
    """Inferred shapes and dtypes are those of the reference, and less knowledge never misleads."""
    params, results = _params(op, sample), run_sample(op, sample)
    results = results[: op.outputs_of(params)]
    assert len(results) == op.outputs_of(params), f"operator {op.name}: outputs are missing"
    place = f"operator {op.name}: {sample}"
    shape = column_of(op, "shape")
    ins, outs = [x.shape for x in sample.inputs], [x.shape for x in results]
    said = shape(params, list(ins), [None] * len(outs))[1]
    assert [tuple(s) for s in said] == outs, f"{place}: inferred {said}, got {outs}"
    for partly in _partly_known(ins):
        _consistent(shape(params, partly, [None] * len(outs)), ins, outs, place)
        _consistent(shape(params, partly, list(outs)), ins, outs, place)
    dtype = column_of(op, "dtype") or same_dtype
    kinds, true = [x.dtype for x in sample.inputs], [x.dtype for x in results]
    inferred = list(dtype(params, list(kinds), [None] * len(true))[1])
    assert inferred == true, f"{place}: inferred {inferred}, got {true}"
    for known in ([None] * len(true), list(true)):
        for a, b in zip(dtype(params, [None] * len(kinds), known), (kinds, true)):
            for x, y in zip(a, b):
                unify_dtype(x, y)


def _partly_known(shapes: Sequence[tuple[int, ...]]) -> list[list[Shape]]:
    """Shapes of which some are unknown, or some dimensions, or are names."""
    rows: list[list[Shape]] = [[None] * len(shapes)]
    for position, shape in enumerate(shapes):
        weaker: list[Shape] = [None, (None,) * len(shape), tuple(f"n{i}" for i in range(len(shape)))]
        weaker += [(*shape[:axis], None, *shape[axis + 1 :]) for axis in range(len(shape))]
        rows += [[*shapes[:position], weak, *shapes[position + 1 :]] for weak in weaker]
    return rows


def _consistent(said: Any, ins: Sequence[Shape], outs: Sequence[Shape], place: str) -> None:
    """What a rule says about shapes never contradicts them."""
    for group, true in zip(said, (ins, outs)):
        assert len(group) == len(true), f"{place}: the shape rule says {group}"
        for fact, shape in zip(group, true):
            assert unify(fact, shape) == shape, f"{place}: the shape rule says {fact}"


def check_bad_inputs(op: Op, sample: Sample) -> None:
    """Shapes that do not fit are refused by a typed error; those that are taken give what was
    inferred. Too few inputs, and too many, are refused too."""
    params = _params(op, sample)
    count = op.outputs_of(params)
    for shapes in _unfit([x.shape for x in sample.inputs]):
        place = f"operator {op.name}: {dict(sample.attrs)}: shapes {shapes}"
        arrays = [_ones(s, x.dtype) for s, x in zip(shapes, sample.inputs)]
        try:
            _typed_node(op, replace(sample, inputs=arrays))
            inferred = column_of(op, "shape")(params, list(shapes), [None] * count)[1]
            with np.errstate(all="ignore"):
                results = run_reference(op, params, arrays)
        except Error:
            continue
        except Exception as error:
            raise AssertionError(f"{place}: {type(error).__name__}: {error}") from error
        true = [result.shape for result in results[:count]]
        assert [tuple(s) for s in inferred] == true, f"{place}: inferred {inferred}, got {true}"


def _ones(shape: tuple[int, ...], dtype: DType) -> Array:
    """Ones; in square matrices on the diagonal only, so that they can be inverted."""
    square = len(shape) > 1 and shape[-1] == shape[-2]
    values = np.broadcast_to(np.eye(shape[-1]), shape) if square else np.ones(shape)
    return values.astype(dtype)


def _unfit(shapes: Sequence[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Shapes of which one has another rank, or a dimension that is larger or nothing."""
    rows = []
    for position, shape in enumerate(shapes):
        others = [(), (1,), shape[1:], (2, *shape), (*shape, 3)]
        for axis, dim in enumerate(shape):
            others += [(*shape[:axis], d, *shape[axis + 1 :]) for d in (0, dim + 1, 2 * dim)]
        different = [other for other in dict.fromkeys(others) if other != shape]
        rows += [[*shapes[:position], other, *shapes[position + 1 :]] for other in different]
    return rows


def _letters(rank: int) -> Layout:
    """A layout of a rank; a shorter one has the last letters of a longer one."""
    return Layout("ABDNCHW"[-rank:]) if 0 < rank <= 7 else Layout()


def check_layout(op: Op, sample: Sample) -> None:
    """The layout rule answers for all inputs and outputs, with layouts of their ranks."""
    rule, params = column_of(op, "layout"), _params(op, sample)
    outs = run_sample(op, sample)[: op.outputs_of(params)]
    ranks = [x.ndim for x in sample.inputs]
    for ins in ([Layout() for _ in ranks], [_letters(r) for r in ranks]):
        shapes = ([x.shape for x in sample.inputs],) if getattr(rule, "takes_shapes", 0) else ()
        asked, results = rule(params, ins, list(ins), [Layout()] * len(outs), *shapes)
        place = f"operator {op.name}: {sample}: layouts {ins} give {asked}, {results}"
        assert len(asked) == len(ranks), place
        assert len(results) == len(outs), place
        for layout, rank in zip([*asked, *results], [*ranks, *(x.ndim for x in outs)]):
            assert not layout.defined or layout.ndim == rank, place


# Gradients.


def check_gradient(op: Op, sample: Sample, directions: int = 3) -> None:
    """The gradient agrees with differences of the reference in float64, along random directions.

    Its graph is inferred completely, and gives what the inputs are: their shapes and dtypes.
    """
    rule = column_of(op, "gradient")
    checked = sample.checked_inputs()
    if rule is None or not checked:
        return
    graph = _gradient_graph(op, sample, rule)
    _check_gradient_facts(op, sample, graph)
    rng = np.random.default_rng(len(sample.inputs[0].shape))
    wide = replace(sample, inputs=[_widened(x) for x in sample.inputs])
    outs = run_sample(op, wide)[: op.outputs_of(_params(op, sample))]
    seeds = [_weights(rng, out) for out in outs]
    grads = _run_gradient(graph, wide.inputs, seeds)
    for _ in range(directions):
        steps = {i: np.asarray(rng.standard_normal(wide.inputs[i].shape)) for i in checked}
        moved = sum((0.0 if grads[i] is None else np.sum(grads[i] * steps[i])) for i in checked)
        expected = _difference(op, wide, steps, seeds)
        np.testing.assert_allclose(
            moved, expected, rtol=1e-5, atol=1e-6, err_msg=f"operator {op.name}: {sample}: gradient and differences"
        )


def _weights(rng: np.random.Generator, out: Array) -> Array:
    noise = np.asarray(rng.standard_normal(out.shape))
    return noise + 1j * rng.standard_normal(out.shape) if is_complex(out.dtype) else noise


def _widened(x: Array) -> Array:
    return x.astype(np.float64) if is_float(x.dtype) else x


@dataclass(frozen=True)
class _Gradient:
    symbol: Symbol  # of those that are there
    present: list[bool]  # one for each input


def _gradient_graph(op: Op, sample: Sample, rule: Callable[..., Any]) -> _Gradient:
    inputs = [Variable(f"x{i}") for i in range(len(sample.inputs))]
    node: Node = op(*inputs, **dict(sample.attrs)).outputs[0].node
    outputs = [Symbol([NodeEntry(node, i)]) for i in range(node.num_outputs)]
    ctx = SimpleNamespace(inputs=inputs, outputs=outputs, params=node.params)
    grads = rule(ctx, *(Variable(f"g{i}") for i in range(len(outputs))))
    assert len(grads) == len(inputs), f"operator {op.name}: {len(grads)} gradients"
    present = [g is not None and not _is_undefined(g) for g in grads]
    return _Gradient(Group([g for g, there in zip(grads, present) if there]), present)


def _is_undefined(gradient: Symbol) -> bool:
    """Whether a derivative is one that nobody has."""
    op = gradient.outputs[0].node.op
    return op is not None and op.name == "_no_derivative"


def _run_gradient(gradient: _Gradient, inputs: Sequence[Array], seeds: Sequence[Array]) -> list[Array | None]:
    named = {f"x{i}": x for i, x in enumerate(inputs)}
    named |= {f"g{i}": g for i, g in enumerate(seeds)}
    values = iter(evaluate(gradient.symbol, named))
    return [next(values) if there else None for there in gradient.present]


def _check_gradient_facts(op: Op, sample: Sample, gradient: _Gradient) -> None:
    place = f"operator {op.name}: {sample}: gradient"
    outs = run_sample(op, sample)[: op.outputs_of(_params(op, sample))]
    named = {f"x{i}": x for i, x in enumerate(sample.inputs)}
    named |= {f"g{i}": g for i, g in enumerate(outs)}
    used = set(gradient.symbol.list_input_names())
    graph = infer(
        Graph(gradient.symbol.outputs),
        {name: x.shape for name, x in named.items() if name in used},
        {name: x.dtype for name, x in named.items() if name in used},
    )
    missing = [entry.node.name for entry in unknown_entries(graph)]
    assert not missing, f"{place}: nothing is inferred about {missing}"
    wanted = [x for x, there in zip(sample.inputs, gradient.present) if there]
    for value, x, entry in zip(evaluate(graph, named), wanted, graph.outputs):
        fact = graph.fact(entry)
        assert is_static(fact.shape), place
        assert (value.shape, value.dtype) == (x.shape, x.dtype), f"{place} is {value.dtype}{value.shape}"
        assert (fact.shape, fact.dtype) == (x.shape, x.dtype), f"{place} is inferred {fact}"


def _difference(op: Op, sample: Sample, steps: Mapping[int, Array], seeds: Sequence[Array], h: float = 1e-6) -> float:
    """The slope of sum(seed * output) along the steps, by a central difference; of complex outputs,
    that of both parts, each with its part of the seed."""
    totals = []
    for sign in (1, -1):
        moved = [np.asarray(x + sign * h * steps[i]) if i in steps else x for i, x in enumerate(sample.inputs)]
        outs = run_sample(op, replace(sample, inputs=moved))
        totals.append(sum(np.sum(np.conj(seed) * out).real for seed, out in zip(seeds, outs)))
    return float((totals[0] - totals[1]) / (2 * h))


SAMPLE_CHECKS = (check_oracle, check_inference, check_layout, check_compute, check_gradient)

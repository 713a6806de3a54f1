"""from_onnx: an ONNX model comes in; a Symbol and its parameters go out."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence, Set

import onnx

from ...base.errors import Error, FormatError, InvalidType, InvalidValue, Unsupported
from ...base.extents import names_of
from ...base.ndarray import NDArray
from ...base.shape import Dim, Shape, freed, given_shapes, show, unify
from ...core.ir import Fact
from ...core.symbol import Group, Symbol
from ..about import note_about
from ..custom import SymbolConverter
from ..emitter import TENSOR, Emitter
from ..gaps import Gaps
from ..input_names import plainly_named
from ..reading import check_inputs
from . import convert, host  # noqa: F401  registers converters and steps
from .control import CONTROL
from .functions import node_opset, subgraphs_of
from .kinds import declared_kind
from .model import Model, node_domain, node_label, read_model
from .node import OnnxNode
from .registry import GUESTS, TABLE
from .scope import Scope, constant
from .tensors import DTYPE_OF, checked_dims, dtype_of, has_external_data, sparse_to_numpy, symbol_name, to_numpy


def from_onnx(
    model: object,
    shape: Mapping[str, Sequence[Dim]] | None = None,
    links: bool = False,
    convert_map: Mapping[str, SymbolConverter] | None = None,
) -> tuple[Symbol, dict[str, NDArray]]:
    """An ONNX model as a symbol and its parameters.

    `model` is a path, the bytes of a file, or an onnx.ModelProto. `shape` gives the shape of inputs
    whose dimensions the model leaves open; a name or None in it leaves one open. Dimensions of one
    name in the file are one number, but for those that None is given for. Inputs of the
    graph become variables with shape and dtype hints, initialisers that are used become parameters,
    several outputs become a group.

    `convert_map` has converters for operators by name, "Relu" or "com.example.Thing", which come before what is built
    in: functions of the input symbols and a dict of attributes that give a symbol.

    External data is read from the model's folder only. A file there that is a symbolic link, or has
    a second name (a hard link), may lead outside; it is read with `links=True`, for folders that
    are trusted, such as those in which a model hub links its files.

    >>> from onnx import parser
    >>> text = 'm (float[2, n] x) => (float[2, n] y) { y = Relu(x) }'
    >>> proto = onnx.helper.make_model(parser.parse_graph(text))
    >>> symbol, params = from_onnx(proto, shape={"x": (2, 3)})
    >>> symbol.list_input_names(), params
    (['x'], {})
    """
    checked = read_model(model, links)
    brought = _brought(convert_map)
    gaps = Gaps(_without_converter(checked, brought), lambda: _declared_types(checked))
    emitter = Emitter()
    scope = Scope(emitter, checked.opsets, brought)
    _inputs(checked, scope, given_shapes(shape), gaps)
    for position, node in enumerate(checked.graph.node):
        if all(name in scope for name in node.input if name):
            _read_or_note(scope, node, position, gaps)
    gaps.check()
    outputs = [emitter.output(scope[item.name], item.name) for item in checked.graph.output]
    symbol = outputs[0] if len(outputs) == 1 else Group(outputs)
    emitter.keep_named(symbol)
    note_about(symbol, emitter.inputs, checked.metadata, has_external_data(checked.graph))
    return symbol, emitter.used_params(symbol)


def _read_or_note(scope: Scope, node: onnx.NodeProto, position: int, gaps: Gaps) -> None:
    outputs = [name for name in node.output if name]
    if scope.node(node, position).operator in gaps.operators:
        scope.values.update(gaps.stand_ins(outputs))
        return
    try:
        scope.read(node, position)
    except Error as error:
        gaps.add(error, node.input)
        scope.values.update(gaps.stand_ins(outputs))
    else:
        gaps.follow(node.output, node.input)


def _brought(convert_map: object) -> dict[str, SymbolConverter]:
    if not isinstance(convert_map, Mapping | None):
        raise InvalidType(f"convert_map is a dict from names to functions, not a {type(convert_map).__name__}")
    return dict(convert_map or {})


def _without_converter(model: Model, brought: Mapping[str, SymbolConverter]) -> dict[str, list[str]]:
    """Operators that have none, in subgraphs too, with the nodes that ask for them."""
    newest = onnx.defs.onnx_opset_version()
    if model.opsets.get("", newest) > newest:
        raise Unsupported(
            f"opset {model.opsets['']} is newer than {newest}, the newest that is known",
            hint="install a newer onnx, or export the model with an older opset",
        )
    missing: dict[str, list[str]] = {}
    pending = deque(enumerate(model.graph.node))
    while pending:
        position, node = pending.popleft()
        domain = node_domain(node)
        if domain not in model.opsets:
            raise FormatError(
                f"the model imports no opset of domain {domain or 'ai.onnx'!r}", where=node_label(node, position)
            )
        made = OnnxNode(node, node_opset(node, domain, model.opsets))
        if made.brought(brought) is not None:
            continue
        known = TABLE.find(node.op_type, made.version, domain) is not None or (not domain and node.op_type in CONTROL)
        if not known or (not domain and node.op_type not in GUESTS and made.schema is None):
            missing.setdefault(made.operator, []).append(node.name or f"#{position}")
        for graph in subgraphs_of(node):
            pending.extend(enumerate(graph.node))
    return missing


def _declared_types(model: Model) -> dict[str, Fact]:
    """The types that the file tells of values, where they have a rank. ONNX's own inference, which would tell more,
    does not survive damaged models."""
    told = [(item.name, item.type.tensor_type) for item in (*model.graph.value_info, *model.graph.output)]
    told = [(name, kind) for name, kind in told if kind.HasField("shape") and kind.elem_type in DTYPE_OF]
    return {name: Fact(_dims(kind.shape), DTYPE_OF[kind.elem_type]) for name, kind in told}


# Inputs and initialisers.


def _inputs(model: Model, scope: Scope, wanted: Mapping[str, tuple[Dim, ...]], gaps: Gaps) -> None:
    graph = model.graph
    for position, tensor in enumerate(graph.initializer):
        large = model.large.get(position)
        try:
            data = to_numpy(tensor, f"initialiser {tensor.name!r}", model.folder, large)
        except Unsupported as error:
            gaps.add(error)
        else:
            scope.values[tensor.name] = constant(scope.emitter, tensor.name, data, owned=large is not None)
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        scope.values[name] = constant(
            scope.emitter, name, sparse_to_numpy(sparse, f"initialiser {name!r}", model.folder)
        )
    stored = {tensor.name for tensor in graph.initializer} | {item.values.name for item in graph.sparse_initializer}
    real = [item for item in graph.input if item.name not in stored]
    check_inputs(wanted, [item.name for item in real])
    shapes = {item.name: _declared_shape(item) for item in real}
    bound = plainly_named(_bind_symbols(shapes, wanted))
    for item in real:
        kind = declared_kind(item.type)
        try:
            dtype = dtype_of(item.type.tensor_type.elem_type, f"graph input {item.name!r}") if kind == TENSOR else None
        except Unsupported as error:
            gaps.add(error)
        else:
            scope.values[item.name] = scope.emitter.input(item.name, bound[item.name], dtype, kind)


def _declared_shape(item: onnx.ValueInfoProto) -> Shape:
    """Numbers, names of symbols, or None for dimensions; None if there is no shape."""
    if not item.type.tensor_type.HasField("shape"):
        return None
    dims = _dims(item.type.tensor_type.shape)
    checked_dims((dim for dim in dims if isinstance(dim, int)), f"graph input {item.name!r}")
    return dims


def _dims(shape: onnx.TensorShapeProto) -> tuple[Dim, ...]:
    known = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in shape.dim]
    return tuple(number if number >= 0 else symbol_name(dim.dim_param) for number, dim in zip(known, shape.dim))


def _bind_symbols(shapes: Mapping[str, Shape], wanted: Mapping[str, tuple[Dim, ...]]) -> dict[str, Shape]:
    """The shapes with what the caller says filled in; a symbol means one number wherever it stands, but for dimensions
    that the caller leaves free."""
    symbols: dict[str, int | str] = {}
    said_by: dict[str, str] = {}
    for name, dims in wanted.items():
        declared = shapes[name]
        checked_dims((dim for dim in dims if isinstance(dim, int)), f"shape of input {name!r}")
        if declared is None:
            continue
        if len(declared) != len(dims):
            raise InvalidValue(f"input {name!r} of shape {show(declared)} cannot be {show(dims)}")
        for axis, (known, dim) in enumerate(zip(declared, dims)):
            symbol = None
            if isinstance(known, str) and dim is not None:
                symbol, known = known, symbols.setdefault(known, dim)
                said_by.setdefault(symbol, name)
            if isinstance(dim, int) and isinstance(known, int) and known != dim:
                error = InvalidValue(f"input {name!r} of shape {show(declared)} cannot be {show(dims)}")
                if symbol is not None:
                    error.why = f"{symbol} is {known} in input {said_by[symbol]!r}, and {dim} here"
                    error.hint = freed(name, dims, axis)
                raise error
    uses = Counter(name for shape in shapes.values() for dim in shape or () for name in _names_in(dim))
    shared = {name for name, count in uses.items() if count > 1}
    return {name: _filled(shape, wanted.get(name), symbols, shared) for name, shape in shapes.items()}


def _names_in(dim: Dim) -> set[str]:
    """The names of an expression, or a name that is none, as files may have it."""
    return {dim, *names_of(dim)} if isinstance(dim, str) else set()


def _filled(declared: Shape, dims: tuple[Dim, ...] | None, symbols: Mapping[str, int | str], shared: Set[str]) -> Shape:
    """A shared name beside None is free: the dimension has nothing to do with others of that name."""
    if declared is not None and dims is not None:
        declared = tuple(None if dim is None and _names_in(own) & shared else own for own, dim in zip(declared, dims))
    return unify(dims, _substituted(declared, symbols))


def _substituted(shape: Shape, symbols: Mapping[str, int | str]) -> Shape:
    if shape is None:
        return None
    return tuple(symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in shape)

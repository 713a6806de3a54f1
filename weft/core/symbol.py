"""Symbol: what a user composes. A list of entries; the graph is whatever is reachable from them."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from ..base.dtype import NAMED_DTYPES, as_dtype, dtype_code
from ..base.errors import GraphError, InvalidType, InvalidValue, OutOfRange
from ..base.shown import as_html
from .compose import link_inputs, substitute
from .ir import Node, NodeEntry, VariableState, copy_nodes, topo_order
from .naming import AttrScope, NameManager
from .op import Op, _default_apply, role
from .schema import text_of

S = TypeVar("S", bound="Symbol")

# What was last given with Variable(init=...) under a name, as long as the variable lives.
variable_inits: WeakValueDictionary[str, Any] = WeakValueDictionary()


class Symbol:
    """One or more outputs of a graph. Immutable in use: operations make new symbols."""

    __slots__ = ("__weakref__", "outputs")
    __array_ufunc__ = None  # numpy leaves `array + symbol` to the symbol

    def __init__(self, outputs: Sequence[NodeEntry]) -> None:
        self.outputs: list[NodeEntry] = list(outputs)

    # Structure

    def __len__(self) -> int:
        return len(self.outputs)

    def __iter__(self: S) -> Iterator[S]:
        return (type(self)([entry]) for entry in self.outputs)

    def __getitem__(self: S, index: int | str) -> S:
        """One output, by position or by name."""
        if isinstance(index, str):
            index = self._index_of(index)
        if not isinstance(index, (int, np.integer)):
            raise InvalidType(f"a symbol is indexed by an int or a str, not {index!r}")
        if not 0 <= index < len(self.outputs):
            raise OutOfRange(
                f"output {index} of a symbol with {len(self.outputs)} outputs",
                why="a symbol only accepts indices from 0 to its number of outputs",
            )
        return type(self)([self.outputs[index]])

    def _index_of(self, name: str) -> int:
        matches = [i for i, known in enumerate(self.list_output_names()) if known == name]
        if len(matches) != 1:
            problem = "there are multiple outputs" if matches else "cannot find an output"
            known = self.list_output_names()
            raise InvalidValue(
                f"{problem} with name {name!r}",
                why="outputs: " + ", ".join(known[:10]) + (", ..." if len(known) > 10 else ""),
            )
        return matches[0]

    def get_internals(self: S) -> S:
        """All visible outputs of all nodes, each after what it needs."""
        return type(self)([n.entry(i) for n in topo_order(self.outputs) for i in range(n.num_visible_outputs)])

    def get_children(self: S) -> S | None:
        """The inputs of the nodes that give the outputs; None if they have none."""
        nodes = dict.fromkeys(entry.node for entry in self.outputs)
        entries = [entry for node in nodes for entry in node.inputs]
        return type(self)(entries) if entries else None

    def __copy__(self: S) -> S:
        return self.__deepcopy__()

    def __deepcopy__(self: S, memo: object = None) -> S:
        copies = copy_nodes(self.outputs)
        return type(self)([NodeEntry(copies[n], i, v) for n, i, v in self.outputs])

    def __repr__(self) -> str:
        if len(self.outputs) == 1:
            return f"<Symbol {self.outputs[0].node.name}>"
        names = self.list_output_names()
        shown = names[:5] + (["..."] if len(names) > 5 else [])
        return f"<Symbol group of {len(names)}{': ' if shown else ''}{', '.join(shown)}>"

    def _repr_html_(self) -> str:
        inputs, outputs = self.list_input_names(), self.list_output_names()
        return as_html(f"{self!r}\ninputs: {_named(inputs)}\noutputs: {_named(outputs)}")

    # Composition

    @classmethod
    def __weft_op__(cls: type[S], op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> S:
        return apply_op(cls, op, op.name, args, kwargs)

    def __call__(self: S, *args: Any, **kwargs: Any) -> S:
        """A copy in which inputs are filled in: by position for an operator that has none yet,
        by variable name otherwise."""
        made = self.__deepcopy__() if self._is_atomic else type(self)(self.outputs)
        made._compose(*args, **kwargs)
        return made

    @property
    def _is_atomic(self) -> bool:
        """Whether this is an operator that has not been given inputs."""
        node = self.outputs[0].node if self.outputs else None
        return bool(node and node.op is not None and not node.inputs and not node.control_deps)

    def _compose(self, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        if args and kwargs:
            raise InvalidType("compose takes symbols by position or by keyword, not both")
        positional = [_single(value, i, "compose") for i, value in enumerate(args)]
        keywords = {key: _single(value, key, "compose") for key, value in kwargs.items()}
        _check_name(name)
        if self._is_atomic:
            node = self.outputs[0].node
            node.name = name or node.name
            link_inputs(node, positional, keywords)
            return
        if positional:
            raise InvalidType(
                "this symbol already has its inputs, so it composes by keyword only", hint="symbol(variable_name=other)"
            )
        old = self.outputs
        self.outputs = substitute(old, keywords)
        if name and old:
            if self.outputs[0] in keywords.values():
                raise InvalidValue(f"cannot name the output {name!r}", why="it is an argument, which has a name")
            self.outputs[0].node.name = name

    def _add_control_deps(self, deps: Symbol | Sequence[Symbol]) -> None:
        """Makes the node of this symbol wait for others. A cycle is found by whoever walks it."""
        node = self._single_node("control dependencies")
        for dep in [deps] if isinstance(deps, Symbol) else deps:
            if not isinstance(dep, Symbol):
                raise InvalidType(f"a control dependency must be a Symbol, not {dep!r}")
            found = dict.fromkeys(entry.node for entry in dep.outputs)
            if node in found:
                raise GraphError(f"node {node.name!r} cannot wait for itself")
            node.control_deps.extend(found)

    # Names and attributes

    def list_input_variables(self: S, option: str = "all") -> S:
        """The variables: `all`, `read_only` ones, or `aux_state`: those that operators mutate."""
        return type(self)([node.entry() for node in self._variables(option)])

    def list_input_names(self, option: str = "all") -> list[str]:
        """Names of the variables; see `list_input_variables`."""
        return [node.name for node in self._variables(option)]

    def _variables(self, option: str) -> list[Node]:
        if option not in ("all", "read_only", "aux_state"):
            raise InvalidValue(f"unknown kind of inputs {option!r}", hint="use 'all', 'read_only' or 'aux_state'")
        order = topo_order(self.outputs)
        variables = [node for node in order if node.op is None]
        if option == "all":
            return variables
        mutated = {
            node.inputs[index].node
            for node in order
            if node.op is not None
            for index in node.op.mutates_of(node.params)
        }
        return [node for node in variables if (node in mutated) == (option == "aux_state")]

    def list_output_names(self) -> list[str]:
        return [entry.node.output_name(entry.index) for entry in self.outputs]

    def attr(self, key: str) -> str | None:
        """An attribute of the node; also `name`, `op_name` and `_value_index`."""
        nodes = {entry.node for entry in self.outputs}
        if len(nodes) != 1:
            return None
        node = next(iter(nodes))
        if key == "name":
            return node.name
        if key == "op_name":
            return node.op_name
        if key == "_value_index":
            return ", ".join(str(entry.index) for entry in self.outputs)
        return node.attrs.get(key)

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """The node's attributes, or those of all nodes as {node$key: value}."""
        if not recursive:
            return dict(self.outputs[0].node.attrs) if self.outputs else {}
        return {f"{node.name}${key}": value for node in topo_order(self.outputs) for key, value in node.attrs.items()}

    def _set_attr(self, **kwargs: Any) -> None:
        """Changes attributes of the node, in place; `name` renames it."""
        node = self._single_node("attributes")
        name = _check_name(kwargs.pop("name", node.name)) or ""
        attrs = {**node.attrs, **{key: text_of(value) for key, value in kwargs.items()}}
        if node.op is not None:
            node.params = node.op.parse(attrs)
        node.attrs, node.name = attrs, name

    def _single_node(self, what: str) -> Node:
        nodes = {entry.node for entry in self.outputs}
        if len(nodes) != 1:
            raise InvalidValue(f"cannot set {what} of a group", why=f"its outputs come from {len(nodes)} nodes")
        return next(iter(nodes))

    def debug_str(self) -> str:
        """The nodes, their inputs and attributes, as text."""
        return debug_str(self)

    # Operators. Two symbols broadcast; a symbol and a number use the scalar form.

    def _binary(self: S, symbol_role: str, scalar_role: str, other: Any) -> S:
        if isinstance(other, Symbol):
            return self._apply(symbol_role, self, other)
        return self._with_number(scalar_role, other)

    def _apply(self: S, role_name: str, *args: Any, **kwargs: Any) -> S:
        name = role(role_name)
        return apply_op(type(self), Op.get(name), name, args, kwargs)

    def __add__(self: S, other: Any) -> S:
        return self._binary("add", "add_scalar", other)

    __radd__ = __add__

    def __sub__(self: S, other: Any) -> S:
        return self._binary("sub", "sub_scalar", other)

    def __rsub__(self: S, other: Any) -> S:
        return self._with_number("rsub_scalar", other)

    def __mul__(self: S, other: Any) -> S:
        return self._binary("mul", "mul_scalar", other)

    __rmul__ = __mul__

    def __truediv__(self: S, other: Any) -> S:
        return self._binary("div", "div_scalar", other)

    def __rtruediv__(self: S, other: Any) -> S:
        return self._with_number("rdiv_scalar", other)

    __div__, __rdiv__ = __truediv__, __rtruediv__

    def __pow__(self: S, other: Any) -> S:
        return self._binary("pow", "pow_scalar", other)

    def __rpow__(self: S, other: Any) -> S:
        return self._with_number("rpow_scalar", other)

    def __lshift__(self: S, other: Any) -> S:
        return self._with_number("lshift_scalar", other)

    def __rshift__(self: S, other: Any) -> S:
        return self._with_number("rshift_scalar", other)

    def _with_number(self: S, scalar_role: str, other: Any) -> S:
        if not isinstance(other, numbers.Number):
            raise InvalidType(
                f"type {type(other).__name__} not supported by this operator of a symbol",
                why="symbols work with numbers, and most operators with symbols",
                hint="an array becomes a Variable with a parameter",
            )
        return self._apply(scalar_role, self, scalar=other)

    def __neg__(self: S) -> S:
        return self._apply("mul_scalar", self, scalar=-1.0)


def apply_op(symbol_class: type[S], op: Op, hint: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> S:
    """Makes a node of an operator and composes it with its inputs."""
    name: str | None = None
    attr: Mapping[str, Any] | None = None
    attrs: dict[str, str] = {}
    inputs: dict[str, Symbol] = {}
    for key, value in kwargs.items():
        if isinstance(value, Symbol):
            inputs[key] = value
        elif key == "name":
            name = _check_name(value)
        elif key == "attr":
            attr = value
        elif value is not None or not _is_input(op, key):
            attrs[key] = text_of(value)
    if args and inputs:
        raise InvalidType(f"{hint} takes its input symbols either by position or by keyword, not both")
    node = Node(op, "", {**AttrScope.current.get(_texts(attr)), **attrs})
    node.name = NameManager.current.get(name, hint.lower())
    positional = [_single(value, i, hint) for i, value in enumerate(args)]
    keywords = {key: _single(value, key, hint) for key, value in inputs.items()}
    link_inputs(node, positional, keywords)
    visible = node.num_visible_outputs
    return symbol_class([NodeEntry(node, i) for i in range(visible)])


def _is_input(op: Op, key: str) -> bool:
    """Whether `key=None` leaves out an input, as the function's signature shows it."""
    if any(argument.name == key and "Tensor" in argument.type for argument in op.arguments):
        return True
    return isinstance(op.input_names, (list, tuple)) and key in op.input_names


def _texts(attr: Mapping[str, Any] | None) -> dict[str, str] | None:
    if attr is None:
        return None
    if not isinstance(attr, Mapping):
        raise InvalidType(f"attr must be a dict of attributes, not {type(attr).__name__}")
    return {str(key): text_of(value) for key, value in attr.items()}


def _check_name(name: Any) -> str | None:
    if name is not None and not isinstance(name, str):
        raise InvalidType(f"a name must be a str, not {name!r}")
    return name


_default_apply.append(Symbol.__weft_op__)


def _single(value: Any, position: int | str, owner: str) -> NodeEntry:
    if isinstance(value, Symbol) and len(value.outputs) == 1:
        return value.outputs[0]
    what = f"argument {position} of {owner}"
    if not isinstance(value, Symbol):
        raise InvalidType(
            f"{what} must be a Symbol, not {type(value).__name__}",
            hint="attributes go by keyword; constants become variables with a parameter",
        )
    raise InvalidValue(
        f"{what} has {len(value.outputs)} outputs, and a single one is needed", hint="pick one with symbol[i]"
    )


def variable(name: str, init: Any = None, *, symbol_class: type[S], **kwargs: Any) -> S:
    """A variable of a symbol class; see `Variable`."""
    if not isinstance(name, str):
        raise InvalidType(f"a variable's name must be a str, not {name!r}")
    if init is not None:
        if not isinstance(init, (Symbol, np.ndarray)):
            raise InvalidType(f"init of variable {name!r} must be a Symbol or a numpy array")
        variable_inits[name] = init
    dtype = kwargs.get("dtype")
    if dtype is not None and (not isinstance(dtype, (int, str)) or dtype in NAMED_DTYPES):
        kwargs["dtype"] = dtype_code(as_dtype(dtype))
    attrs = {key: text_of(value) for key, value in kwargs.items()}
    state = VariableState(init=init)
    return symbol_class([NodeEntry(Node(None, name, AttrScope.current.get(attrs), params=state))])


def Variable(name: str, init: Any = None, **kwargs: Any) -> Symbol:
    """A named input of a graph.

    `shape` and `dtype` are hints for inference; other keywords are kept as attributes. `init`, a
    numpy array or a Symbol, is the value a build gives it when there is no parameter of its name.

    >>> Variable("x", shape=(1, 3)).list_attr()
    {'shape': '(1, 3)'}
    """
    return variable(name, init, symbol_class=Symbol, **kwargs)


def Group(symbols: Sequence[Symbol]) -> Symbol:
    """One symbol with the outputs of several.

    >>> Group([Variable("a"), Variable("b")]).list_output_names()
    ['a', 'b']
    """
    symbols = list(symbols)
    for item in symbols:
        if not isinstance(item, Symbol):
            raise InvalidType(f"Group takes Symbols, not {type(item).__name__}")
    made = type(symbols[0]) if symbols else Symbol
    return made([entry for item in symbols for entry in item.outputs])


def debug_str(symbol: Symbol) -> str:
    """What `Symbol.debug_str` prints."""
    single = symbol.outputs[0].node if len(symbol.outputs) == 1 else None
    if single is not None and single.op is None:
        return f"Variable:{single.name}\n"
    if single is not None and single.op is not None and not single.inputs:
        return f"AtomicFunctor  Op:{single.op.name}\n"
    lines = ["Symbol Outputs:"]
    for position, (node, index, _) in enumerate(symbol.outputs):
        lines.append(f"\toutput[{position}]={node.name}({index})")
    for node in topo_order(symbol.outputs):
        lines += _debug_lines(node)
    return "\n".join(lines) + "\n"


def _debug_lines(node: Node) -> list[str]:
    if node.op is None:
        return [f"Variable:{node.name}"]
    lines = ["--------------------", f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
    for position, (producer, index, version) in enumerate(node.inputs):
        suffix = f" version={version}" if producer.op is None else ""
        lines.append(f"\targ[{position}]={producer.name}({index}){suffix}")
    if node.attrs:
        lines.append("Attrs:")
        lines += [f"\t{key}={value}" for key, value in sorted(node.attrs.items())]
    if node.control_deps:
        lines.append("Control deps:")
        lines += [f"\tcdep[{i}]={dep.name}" for i, dep in enumerate(node.control_deps)]
    return lines


def _named(names: Sequence[str], most: int = 20) -> str:
    """Names as text; of many, the first."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

"""Operators: a name plus typed columns. Op, OpGroup, OpMap and the registry that owns them.

    relu = Op.register("relu").describe("max(x, 0)").set_num_inputs(1)
    relu.set_attr("FReference", lambda x: np.maximum(x, 0))    # or: relu.reference = ...

A column is an OpMap: operator -> value. The columns that core reads are declared on Op below, each
with its contract; any other name given to `set_attr` makes a new column.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

from ..base.errors import Error, InvalidType, InvalidValue, NotFound, RegistryError
from ..base.forks import held_lock
from ..base.stages import note_registration, running_module
from .schema import Params, canonical, fields_of, parse, text_of

V = TypeVar("V")
VARIADIC = -1  # any number of inputs
MAX_OUTPUTS = 65536  # attributes of a file may ask for more than there is memory


class Argument(NamedTuple):
    """An input or attribute, as documentation shows it."""

    name: str
    type: str
    doc: str


class OpMap(Generic[V]):
    """One column: the values that operators have for an attribute name.

    A plevel orders rival registrations: the higher one wins, whichever came first.
    """

    def __init__(self, name: str, doc: str = "", absent: Any = None, or_rule: bool = False) -> None:
        self.name = name
        self.doc = doc
        self.absent = absent
        self.or_rule = or_rule  # a function of params may stand for the value
        self._rows: dict[Op, tuple[V, int]] = {}
        self._type: type | None = None

    def __getitem__(self, op: Op | None) -> V:
        row = self._rows.get(op) if op is not None else None
        if row is None:
            shown = "no operator" if op is None else f"operator {op.name}"
            raise NotFound(
                f"attribute {self.name} has not been registered for {shown}",
                hint=f'Op.register("{op.name}").set_attr("{self.name}", ...)' if op else None,
            )
        return row[0]

    def get(self, op: Op | None, default: Any = None) -> Any:
        row = self._rows.get(op) if op is not None else None
        return default if row is None else row[0]

    def contains(self, op: Op | None) -> bool:
        return op in self._rows

    __contains__ = contains

    def __len__(self) -> int:
        """How many operators have a value."""
        return len(self._rows)

    def count(self, op: Op | None) -> int:
        return int(op in self._rows)

    def _set(self, op: Op, value: V, plevel: int) -> Callable[[], None]:
        """Sets a value; what comes back takes that back."""
        kind = _column_type(value)
        free = self.or_rule and callable(value)
        if not free and self._type is not None and kind is not self._type:
            raise RegistryError(
                f"attribute {self.name} of operator {op.name} would be {kind.__name__}",
                why=f"other operators registered it as {self._type.__name__}",
            )
        row = self._rows.get(op)
        if row is not None and row[1] == plevel:
            raise RegistryError(
                f"attribute {self.name} of operator {op.name} is already registered with plevel={plevel}",
                hint="give a higher plevel to replace it",
            )
        type_before = self._type
        self._type = self._type if free else kind
        if row is None or plevel > row[1]:
            self._rows[op] = (value, plevel)

        def restore() -> None:
            self._type = type_before
            if row is None:
                self._rows.pop(op, None)
            else:
                self._rows[op] = row

        return restore


def _column_type(value: object) -> type:
    """What must agree across operators: any two callables do, as do lists and tuples; other values
    by their type."""
    if callable(value):
        return Callable  # type: ignore[return-value]
    return list if isinstance(value, (list, tuple)) else type(value)


class Column(Generic[V]):
    """A declared column, read and written as an attribute of Op: `op.gradient = rule`."""

    or_rule = False

    def __init__(self, key: str, doc: str, absent: Any = None) -> None:
        self.map: OpMap[V] = OpMap(key, doc, absent, self.or_rule)
        _columns[key] = self.map

    @overload
    def __get__(self, op: None, owner: type[Op]) -> OpMap[V]: ...
    @overload
    def __get__(self, op: Op, owner: type[Op]) -> V: ...
    def __get__(self, op: Op | None, owner: type[Op]) -> OpMap[V] | V:
        if op is None:
            return self.map
        row = self.map._rows.get(op)
        return self.map.absent if row is None else row[0]

    def __set__(self, op: Op, value: V) -> None:
        op.set_attr(self.map.name, value)


Rule = Callable[..., Any]


class RuleColumn(Column[Rule]):
    """A column of functions, from the first operator on."""

    def __init__(self, key: str, doc: str) -> None:
        super().__init__(key, doc)
        self.map._type = _column_type(_column_type)


class ValueColumn(Column[Any]):
    """A column of values, for any of which a function of params may stand."""

    or_rule = True


_columns: dict[str, OpMap[Any]] = {}
_lock = held_lock("table")
_ops: dict[str, Op] = {}  # by name and by alias
_indices = itertools.count()
_groups: dict[str, OpGroup] = {}
_listeners: list[Callable[[Op, str], None]] = []


class Op:
    """An operator. Made by `Op.register`, never directly; compared by identity."""

    input_names = ValueColumn(
        "FListInputNames",
        "[str] or f(params): names of the inputs, which makes them keywords and lets missing ones "
        "become variables. Absent: one input is called data, several are positional only.",
    )
    output_names = ValueColumn(
        "FListOutputNames", "[str] or f(params): suffixes of the output names. Absent: output, or output0, output1..."
    )
    visible_outputs = ValueColumn("FNumVisibleOutputs", "int or f(params): how many outputs a user sees. Absent: all.")
    mutates = ValueColumn(
        "FMutateInputs", "[int] or f(params): inputs that are written to; each must be a variable. Absent: none."
    )
    shape = RuleColumn(
        "FInferShape",
        "f(params, ins, outs) -> (ins, outs): what the known shapes say about all shapes, in both "
        "directions; None where it says nothing. A rule with `takes_subgraphs = True` gets the "
        "node's subgraphs, too. Absent: outputs stay unknown.",
    )
    dtype = RuleColumn(
        "FInferType",
        "f(params, ins, outs) -> (ins, outs), of dtypes. A rule with `takes_subgraphs = True` gets "
        "the node's subgraphs, too. Absent: all are the same.",
    )
    layout = RuleColumn(
        "FCorrectLayout",
        "f(params, ins, last_ins, outs) -> (ins, outs): the layouts an operator asks for and "
        "gives. A rule with `takes_shapes = True` gets the inputs' shapes, too. Absent: it works "
        "in the layout it was written in.",
    )
    attr_dict = RuleColumn(
        "FGetAttrDict", "f(params) -> {str: str}: canonical attributes. Absent: the schema's, else as given."
    )
    reference = RuleColumn(
        "FReference",
        "f([params,] *arrays) -> array or tuple: the meaning, in numpy; params only where there is "
        "a schema, and `subgraphs=` where the node has some. A mutating operator returns the new "
        "values of what it mutates after its outputs. Absent: the operator has no meaning outside "
        "compiled code.",
    )
    compute = RuleColumn(
        "FTVMCompute",
        "f([params,] *tensors) -> te tensor or tuple: the body as tensor expressions. Absent: the "
        "operator needs kernels or a template, or is expanded by a pass.",
    )
    kernels = RuleColumn(
        "FKernels",
        "f([params,] inputs, outputs) -> [(kernel, positions, work)]: the body as loop IR, where "
        "tensor expressions do not reach: sorts, scans, scatters. Inputs and outputs come as "
        "(shape, dtype). The buffers of a kernel are, by position, the inputs, then the outputs, "
        "then the new values of what is mutated, then memory that the kernels of this body share; "
        "each with as many elements, row-major. `work` counts element operations. The pattern must "
        "be opaque. Absent: see FTVMCompute.",
    )
    schedule = RuleColumn(
        "FTVMSchedule",
        "f(params, kernel, target) -> kernel: the loops of each kernel of a group that the operator is the master of, "
        "given as plain ones. Absent: the generic schedules, or a template.",
    )
    gradient = RuleColumn(
        "FGradient",
        "f(ctx, *output_gradients) -> one gradient (or None for zero) an input; ctx has inputs, "
        "outputs, params. Written with operators, so it serves symbols and tensors. Absent: the "
        "operator is not differentiable.",
    )
    complex_gradient = RuleColumn(
        "FComplexGradient",
        "f(ctx, *output_gradients) -> one gradient (or None) an input, where a tensor of the call "
        "is complex; the gradient of a real number L by z is dL/d Re z + i dL/d Im z. ctx has "
        "inputs, outputs, params, and rule, which is FGradient's. Absent: the operator takes no "
        "complex tensor.",
    )
    pattern = Column[int]("TOpPattern", "OpPattern: how the operator may fuse. Absent: opaque.", absent=8)
    effect = ValueColumn(
        "TEffect",
        "pure, random, mutates or opaque, or f(params): what merging, removing or reordering must "
        "respect. Absent: pure.",
        absent="pure",
    )
    alias = ValueColumn(
        "FAlias",
        "{output: input} or f(params): outputs that may be views of an input's memory. "
        "Absent: every output is fresh memory.",
    )
    inplace = ValueColumn(
        "FInplaceOption",
        "[(input, output)] or f(params): an output may overwrite an input that dies here. Absent: none.",
    )
    inplace_identity = ValueColumn(
        "FInplaceIdentity",
        "[bool] or f(params), one for each pair of FInplaceOption: the output equals the input. Absent: all false.",
    )
    ignored_inputs = ValueColumn(
        "FIgnoreInputs", "[int] or f(params): inputs whose values are not read, only their shapes. Absent: none."
    )
    views = RuleColumn(
        "FViews",
        "f(params, *arrays) -> [array] or None: the outputs as views of the first input, None where they are not. "
        "Absent: those of FAlias in another shape, others never.",
    )
    same_if_alike = Column[bool](
        "TSameIfAlike",
        "The output is the first input where that has the shape of the last. Absent: false.",
        absent=False,
    )
    keeps_output = Column[bool](
        "TKeepsOutput",
        "The gradient reads an output where PyTorch's reads the inputs: users may write to it, so a copy is kept then. "
        "Absent: false.",
        absent=False,
    )
    alter_layout = RuleColumn(
        "FTVMAlterOpLayout", "f(params, inputs, facts) -> Symbol or None: the same in another layout. Absent: none."
    )
    on_compose = RuleColumn(
        "FSetInputVarAttrOnCompose",
        "f(attrs, variable, index): called for each variable that becomes an input. Absent: none.",
    )
    input_graphs = ValueColumn(
        "FInputGraph", "[int] or f(params): inputs that are subgraphs, kept in Node.subgraphs. Absent: none."
    )
    is_backward = Column[bool](
        "TIsBackward",
        "The operator is made by a gradient; its first control dependency is the forward node. Absent: false.",
        absent=False,
    )
    is_ghost = Column[bool]("TIsGhost", "Nodes of it are left out of an IndexedGraph. Absent: false.", absent=False)
    native_from = Column[int](
        "TNativeFrom",
        "From how many elements in the largest array on eager calls run native code rather than the reference: kernels "
        "of their own, the template or the kernels that compiled models run, or the compute as it is. Absent: "
        "element-wise operators from where a pass over arrays is slower in numpy, others never.",
    )
    joined_axes = RuleColumn(
        "FJoinedAxes",
        "f(params, *shapes) -> (params, shapes): the same call on inputs in which neighbouring axes that are treated "
        "alike are one; outputs have the same elements in the same order. Eager calls run native code in that form, so "
        "that few programs serve all shapes. Absent: axes stay as they are.",
    )
    batching = RuleColumn(
        "FBatching",
        "f(call) -> [tensor]: the outputs for a whole batch, which is their first axis; call has op, params, size "
        "(of the batch), inputs, and batched: which inputs have the batch as their first axis. Written with "
        "functions of tensors. Absent: the operator runs for each element of the batch.",
    )
    open_body = Column[bool](
        "TOpenBody",
        "The compute or the kernels serve, as they are, extents that are arguments of what they become, so that "
        "eager calls may run it. Element-wise ones always do. Absent: false.",
        absent=False,
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.description = ""
        self.arguments: list[Argument] = []
        self.num_inputs: int | Callable[[Params], int] = 1
        self.num_outputs: int | Callable[[Params], int] = 1
        self.support_level = 10
        self.parser: type | Callable[[Mapping[str, str]], Params] | None = None
        self.aliases: list[str] = []
        self.index = next(_indices)
        self.module = running_module()  # the file that registers it

    def __repr__(self) -> str:
        return f"Op({self.name})"

    # Registration. Every setter returns the operator.

    @staticmethod
    def register(name: str) -> Op:
        """The operator of that name, new if there is none.

        >>> Op.register("double_for_doctest") is Op.register("double_for_doctest")
        True
        """
        _check_text("an operator's name", name)
        with _lock:
            if name not in _ops:
                _ops[name] = op = Op(name)
                op._changed()
            return _ops[name]

    @staticmethod
    def get(name: str) -> Op:
        """The operator of that name or alias, or an error with the nearest names."""
        op = _ops.get(name)
        if op is None:
            close = difflib.get_close_matches(str(name), list(_ops), n=3)
            raise NotFound(
                f"operator {name} is not registered",
                hint=f"did you mean {' or '.join(close)}?" if close else "see weft.list_ops()",
            )
        return op

    @staticmethod
    def get_attr(key: str) -> OpMap[Any]:
        """The column of that name, an empty one if nobody has registered it."""
        _check_text("an operator attribute's name", key)
        with _lock:
            column = _columns.get(key)
            if column is None:
                column = _columns[key] = OpMap(key)
            return column

    def describe(self, text: str) -> Op:
        if not isinstance(text, str):
            raise InvalidType(f"the description of operator {self.name} must be a str")
        self.description = text
        return self._changed()

    def add_argument(self, name: str, type: str, doc: str) -> Op:
        return self.add_arguments([(name, type, doc)])

    def add_arguments(self, arguments: Sequence[tuple[str, str, str]]) -> Op:
        made = [Argument(*argument) for argument in arguments]
        for argument in made:
            _check_text(f"the name of an argument of operator {self.name}", argument.name)
            if not isinstance(argument.type, str) or not isinstance(argument.doc, str):
                raise InvalidType(f"argument {argument.name!r} of operator {self.name} is no text")
        self.arguments.extend(made)
        return self._changed()

    def set_num_inputs(self, count: int | Callable[[Params], int]) -> Op:
        """A number, VARIADIC, or a function of params; a number does not replace a function."""
        _check_count(f"the number of inputs of operator {self.name}", count, VARIADIC)
        if callable(count) or not callable(self.num_inputs):
            self.num_inputs = count
        return self._changed()

    def set_num_outputs(self, count: int | Callable[[Params], int]) -> Op:
        """A number, or a function of params; a number does not replace a function."""
        _check_count(f"the number of outputs of operator {self.name}", count, 0)
        if callable(count) or not callable(self.num_outputs):
            self.num_outputs = count
        return self._changed()

    def set_support_level(self, level: int) -> Op:
        _check_number(f"the support level of operator {self.name}", level, 0)
        self.support_level = level
        return self

    def set_attr_parser(self, parser: type | Callable[[Mapping[str, str]], Params]) -> Op:
        """A schema class, or a function from text attributes to params."""
        if isinstance(parser, type) and not hasattr(parser, "__weft_fields__"):
            raise InvalidType(
                f"the attributes of operator {self.name} cannot be read by {parser.__name__}",
                hint="decorate the class with @schema",
            )
        if not callable(parser):
            raise InvalidType(
                f"the attributes of operator {self.name} cannot be read by {parser!r}",
                hint="give a @schema class, or a function from text attributes to params",
            )
        self.parser = parser
        if isinstance(parser, type):
            known = {argument.name for argument in self.arguments}
            rows = [(f.name, f.type_text, f.doc) for f in fields_of(parser) if f.name not in known]
            return self.add_arguments(rows)
        return self._changed()

    def set_attr(self, key: str, value: Any, plevel: int = 10) -> Op:
        """Sets the value of a column; see OpMap for what plevel does."""
        _check_value(key, value, plevel, f"operator {self.name}")
        _set_all([(self, key, value, plevel)])
        return self

    def add_alias(self, alias: str) -> Op:
        _check_text(f"an alias of operator {self.name}", alias)
        with _lock:
            taken = _ops.get(alias)
            if taken is not None and taken is not self:
                raise RegistryError(
                    f"cannot register alias {alias} for operator {self.name}",
                    why=f"it is already taken by operator {taken.name}",
                )
            if taken is None:
                _ops[alias] = self
                self.aliases.append(alias)
        return self._changed()

    def include(self, group: str) -> Op:
        """Joins a group: what the group sets, now or later, is set on this operator."""
        OpGroup.register(group)._add(self)
        return self

    def _changed(self) -> Op:
        note_registration()
        with _lock:
            for listener in _listeners:
                for name in (self.name, *self.aliases):
                    listener(self, name)
        return self

    # What nodes of this operator look like, given their params.

    @property
    def has_schema(self) -> bool:
        return isinstance(self.parser, type)

    def parse(self, attrs: Mapping[str, str]) -> Params:
        """The attributes as the operator reads them; without a parser, the text as it is."""
        if self.parser is None:
            return dict(attrs)
        if isinstance(self.parser, type):
            return parse(self.parser, attrs, f"operator {self.name}")
        try:
            return self.parser(attrs)
        except Error as error:
            error.at(f"operator {self.name}")
            raise
        except Exception as error:
            raise InvalidValue(
                f"operator {self.name} cannot read its attributes", why=f"{type(error).__name__}: {error}"
            ) from error

    def attributes(self, params: Params) -> dict[str, str]:
        """Canonical text attributes: what comparisons and hashes look at."""
        rule = Op.attr_dict.get(self)
        if rule is not None:
            return dict(rule(params))
        if hasattr(params, "__weft_fields__"):
            return canonical(params)
        if params is None or isinstance(params, Mapping):
            return {key: text_of(value) for key, value in (params or {}).items()}
        raise InvalidType(
            f"the attributes of operator {self.name} have no text form",
            hint="set its attr_dict column, or use a @schema class as parser",
        )

    def inputs_of(self, params: Params) -> int:
        """The number of inputs; VARIADIC for any."""
        return self.num_inputs(params) if callable(self.num_inputs) else self.num_inputs

    def outputs_of(self, params: Params) -> int:
        """The number of outputs, hidden ones included."""
        if not callable(self.num_outputs):
            return self.num_outputs
        count = self.num_outputs(params)
        if not 0 <= count <= MAX_OUTPUTS:
            raise InvalidValue(f"operator {self.name} would have {count} outputs", why=f"at most {MAX_OUTPUTS}")
        return count

    def visible_of(self, params: Params) -> int:
        visible = _valued(self.visible_outputs, params)
        return self.outputs_of(params) if visible is None else visible

    def input_names_of(self, params: Params) -> list[str]:
        """Names of the inputs; empty when they are positional only."""
        names = _valued(self.input_names, params)
        if names is not None:
            return list(names)
        return ["data"] if self.inputs_of(params) == 1 else []

    def output_names_of(self, params: Params) -> list[str]:
        """One suffix an output; those that the column leaves out are numbered."""
        given = _valued(self.output_names, params)
        count = self.outputs_of(params)
        names = ["output"] if count == 1 else [f"output{i}" for i in range(count)]
        return names if given is None else [*given, *names[len(given) :]]

    def mutates_of(self, params: Params) -> tuple[int, ...]:
        return tuple(_valued(self.mutates, params) or ())

    def effect_of(self, params: Params) -> str:
        return str(_valued(self.effect, params))

    def alias_of(self, params: Params) -> dict[int, int]:
        return dict(_valued(self.alias, params) or {})

    def inplace_of(self, params: Params) -> list[tuple[int, int]]:
        return list(_valued(self.inplace, params) or [])

    def ignored_of(self, params: Params) -> tuple[int, ...]:
        return tuple(_valued(self.ignored_inputs, params) or ())

    def call_with(self, rule: Rule, params: Params, *args: Any) -> Any:
        """Calls a reference or compute rule, which takes params where the operator has a parser, or
        the rule says so itself by an attribute `takes_params`."""
        if self.parser is not None or getattr(rule, "takes_params", False):
            return rule(params, *args)
        return rule(*args)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Applies the operator to symbols, or to whatever class its inputs are of.

        A class takes part by `__weft_op__(op, args, kwargs)`; without inputs, symbols do.
        """
        for value in (*args, *kwargs.values()):
            apply = getattr(type(value), "__weft_op__", None)
            if apply is not None:
                return apply(self, args, kwargs)
        return _default_apply[0](self, args, kwargs)


_default_apply: list[Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]] = []


def _check_text(what: str, text: Any) -> None:
    if not text or not isinstance(text, str):
        raise InvalidType(f"{what} must be a non-empty str, not {text!r}")


def _check_number(what: str, number: Any, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidType(f"{what} must be an int, not {number!r}")
    if number < least:
        raise InvalidValue(f"{what} cannot be {number}", why=f"the least is {least}")


def _check_count(what: str, count: Any, least: int) -> None:
    """An error unless it is a number or a function that gives one."""
    if not callable(count):
        _check_number(what, count, least)
        if count > MAX_OUTPUTS:
            raise InvalidValue(f"{what} cannot be {count}", why=f"at most {MAX_OUTPUTS}")


def _set_all(changes: Sequence[tuple[Op, str, Any, int]]) -> None:
    """Sets values of columns, all of them or, where one is refused, none."""
    undo: list[Callable[[], None]] = []
    with _lock:
        try:
            for op, key, value, plevel in changes:
                undo.append(Op.get_attr(key)._set(op, value, plevel))
        except Error:
            for restore in reversed(undo):
                restore()
            raise
        for op in dict.fromkeys(op for op, *_ in changes):
            op._changed()


def _check_value(key: str, value: Any, plevel: int, owner: str) -> None:
    if not isinstance(plevel, int) or plevel <= 0:
        raise InvalidValue(
            f"plevel of attribute {key} of {owner} is {plevel!r}", why="it must be an integer greater than 0"
        )
    if value is None:
        raise InvalidValue(f"attribute {key} of {owner} cannot be None")


def _valued(value: Any, params: Params) -> Any:
    return value(params) if callable(value) else value


class OpGroup:
    """A named set of operators that share column values.

    A value set on the group reaches its members, present and future; plevel 1 by default, so that
    what an operator says itself wins.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._values: list[tuple[str, Any, int]] = []
        self._members: list[Op] = []

    @staticmethod
    def register(name: str) -> OpGroup:
        """The group of that name, new if there is none."""
        _check_text("a group's name", name)
        with _lock:
            return _groups.setdefault(name, OpGroup(name))

    def set_attr(self, key: str, value: Any, plevel: int = 1) -> OpGroup:
        _check_value(key, value, plevel, f"group {self.name}")
        with _lock:
            _set_all([(op, key, value, plevel) for op in self._members])
            self._values.append((key, value, plevel))
        return self

    def _add(self, op: Op) -> None:
        with _lock:
            _set_all([(op, key, value, plevel) for key, value, plevel in self._values])
            if op not in self._members:
                self._members.append(op)


def list_op_names() -> list[str]:
    """Names and aliases of all operators, sorted."""
    return sorted(_ops.copy())


def list_ops() -> list[Op]:
    """All operators, in the order of registration."""
    with _lock:
        return sorted(set(_ops.values()), key=lambda op: op.index)


def column_docs() -> Iterator[tuple[str, str]]:
    """Name and contract of every column that has one."""
    for name, column in sorted(_columns.items()):
        if column.doc:
            yield name, column.doc


def subscribe(listener: Callable[[Op, str], None]) -> None:
    """Has `listener(op, name)` called for every name now, and whenever an operator changes.

    One that fails now is not called again.
    """
    with _lock:
        for name, op in list(_ops.items()):
            listener(op, name)
        _listeners.append(listener)


# Which operator plays a part that core needs but may not name: `x + y`, a sum of gradients, a cast.

_roles: dict[str, str] = {}


def set_role(role: str, op_name: str) -> None:
    """Says which operator plays a role."""
    with _lock:
        _roles[role] = op_name


def role(name: str) -> str:
    """The name of the operator that plays a role."""
    if name not in _roles:
        raise NotFound(f"no operator plays the role {name!r}", why="import weft.ops registers them")
    return _roles[name]

"""Expressions of the source as nodes of a program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from ..classes import ScriptClass
from ..graph import Graph
from ..nodes import Node, Value
from ..types import (
    BoolType,
    ComplexType,
    DictType,
    FloatType,
    IntType,
    ListType,
    NoneType,
    OptionalType,
    StringType,
    TensorType,
    TupleType,
    Type,
    UnionType,
)
from .annotations import Annotations
from .builder import Builder
from .calls import as_type, call_operator, unify
from .environment import Environment
from .indexing import index_tensor
from .place import Place, Source
from .subset import BINARY, COMPARED
from .sugar import Form, Range, Simple, Sugar, ToList, Tuple, Zipped, present

DEEPEST = 100  # expressions in expressions, and statements in statements
Refinements = dict[str, Type]  # types that variables are known to have, by name


class Condition(NamedTuple):
    """A condition, what is known of variables if it holds and if it does not, and its value where that is known while
    the program is compiled."""

    value: Value
    if_true: Refinements
    if_false: Refinements
    static: bool | None = None


class Expressions(Builder):
    """Compiles expressions. `resolve` gives what names stand for that are no variables."""

    def __init__(
        self, graph: Graph, source: Source, annotations: Annotations, resolve: Callable[[str], Sugar | None]
    ) -> None:
        super().__init__(graph, Place(source, 0, 1))
        self.source, self.annotations, self.resolve = source, annotations, resolve
        self.env, self.level, self._depth = Environment(), 0, 0

    # Where the source is being read

    @contextmanager
    def reading(self, node: ast.AST) -> Iterator[Place]:
        """Nodes and errors are those of a part of the source; there is a limit to parts in parts."""
        before, self.place = self.place, self.source.place(node)
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.error(f"the program has more than {DEEPEST} levels of nesting")
        try:
            yield self.place
        finally:
            self._depth -= 1
            self.place = before

    # Values

    def value(self, node: ast.expr, hint: Type | None = None) -> Value:
        """The value of an expression; `hint` is the type that it is expected to have."""
        sugar = self.sugar(node, hint)
        with self.at(self.source.place(node)):
            return sugar.value(self)

    def sugar(self, node: ast.expr, hint: Type | None = None) -> Sugar:
        """What an expression stands for."""
        emit = self._EMITTED.get(type(node))
        with self.reading(node):
            if emit is None:
                raise self.error(f"{type(node).__name__} aren't supported")
            found = emit(self, node, hint)
            return found if isinstance(found, Sugar) else Simple(found)

    def operator(self, name: str, *args: Any) -> Value:
        """The result of an operator on values and constants."""
        return call_operator(self, name, [each if isinstance(each, Value) else self.constant(each) for each in args])

    def _constant(self, node: ast.Constant, hint: Type | None) -> Value:
        if node.value is None and isinstance(hint, OptionalType):
            return self.constant(None).setType(hint)
        return self.constant(node.value)

    def _name(self, node: ast.Name, hint: Type | None) -> Sugar:
        return self.lookup(node.id)

    def lookup(self, name: str) -> Sugar:
        known = self.env.get(name)
        if known is not None:
            return known.sugar
        found = self.resolve(name)
        if found is None:
            if name in self.env.errors:
                raise self.error(f"{self.env.errors[name]}and was used here")
            raise self.error(f"undefined value {name}")
        return found

    def _attribute(self, node: ast.Attribute, hint: Type | None) -> Sugar:
        return self.sugar(node.value).attribute(self, node.attr)

    def _binary(self, node: ast.BinOp, hint: Type | None) -> Value:
        """`a + b + c`: the chain on the left is followed without calls in calls."""
        chain, first = [node], node.left
        while isinstance(first, ast.BinOp):
            chain.append(first)
            first = first.left
        left = self.value(first)
        for each in reversed(chain):
            right = self.value(each.right)
            with self.at(self.source.place(each)):
                left = self._operation(each.op, left, right)
        return left

    def _operation(self, op: ast.operator, left: Value, right: Value) -> Value:
        name = BINARY[type(op)]
        if isinstance(left.type(), StringType) and isinstance(op, ast.Mod):
            values = self.unpacked(right) if isinstance(right.type(), TupleType) else [right]
            return call_operator(self, "aten::percentFormat", [left, *values])
        if isinstance(left.type(), TensorType) and isinstance(op, ast.FloorDiv):
            name = "aten::floor_divide"
        method = f"__{_METHODS[type(op)]}__"
        magic = self.magic(left, method, [right])
        return magic if magic is not None else call_operator(self, name, [left, right])

    def magic(self, value: Value, name: str, args: Sequence[Value]) -> Value | None:
        """What a method of a class gives, where a sign calls it; None for values of no class."""
        kind = value.type()
        if not isinstance(kind, ScriptClass) or getattr(kind, "order", None) is not None:
            return None
        if name not in kind.methods and self.python_method(value, kind, name) is None:
            return None
        return Simple(value).attribute(self, name).call(self, [Simple(each) for each in args], {}).value(self)

    def _unary(self, node: ast.UnaryOp, hint: Type | None) -> Value:
        if isinstance(node.op, ast.Not):
            return self.condition(node).value
        value = self.value(node.operand)
        if isinstance(node.op, ast.Invert):
            return self.magic(value, "__invert__", []) or call_operator(self, "aten::bitwise_not", [value])
        known = value.toIValue()
        if isinstance(node.operand, ast.Constant) and type(known) in (int, float, complex):
            value.node().destroy()
            return self.constant(-known)
        return self.magic(value, "__neg__", []) or call_operator(self, "aten::neg", [value])

    # Conditions

    def condition(self, node: ast.expr) -> Condition:
        """A condition, with what it tells of variables."""
        with self.reading(node):
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                return self._negated(self.condition(node.operand))
            if isinstance(node, ast.BoolOp):
                return self._logical(node)
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                return self._identity(node)
            if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
                form = self.sugar(node.func) if self._may_be_form(node.func) else None
                if isinstance(form, Form) and form.name == "isinstance":
                    return self._isinstance(node)
                if isinstance(form, Form) and form.name == "hasattr":
                    return self._hasattr(node)
            value = self.as_bool(self.value(node))
            known = value.toIValue()
            return Condition(value, {}, {}, known if isinstance(known, bool) else None)

    def _may_be_form(self, node: ast.expr) -> bool:
        return ast.unparse(node).split(".")[-1] in ("isinstance", "hasattr")

    def as_bool(self, value: Value) -> Value:
        kind = value.type()
        if isinstance(kind, BoolType):
            return value
        if isinstance(kind, (TensorType, IntType, FloatType, ComplexType)):
            return call_operator(self, "aten::Bool", [value])
        if isinstance(kind, (StringType, ListType, DictType)):
            return self.operator("aten::gt", call_operator(self, "aten::len", [value]), 0)
        magic = self.magic(value, "__bool__", [])
        if magic is not None:
            return magic
        raise self.error(f"Could not cast value of type {self.shown_type(value)} to bool")

    def _negated(self, found: Condition) -> Condition:
        static = None if found.static is None else not found.static
        value = self.constant(static) if static is not None else call_operator(self, "aten::__not__", [found.value])
        return Condition(value, found.if_false, found.if_true, static)

    def _logical(self, node: ast.BoolOp) -> Condition:
        """`a and b`: b is only computed if a holds."""
        is_or = isinstance(node.op, ast.Or)
        found = self.condition(node.values[0])
        for right in node.values[1:]:
            found = self._two(found, right, is_or)
        return found

    def _two(self, left: Condition, node: ast.expr, is_or: bool) -> Condition:
        if left.static is is_or:
            return left
        if left.static is not None:
            with self.refined(left.if_false if is_or else left.if_true):
                return self.condition(node)
        found: list[Condition] = []

        def right() -> Value:
            with self.refined(left.if_false if is_or else left.if_true):
                found.append(self.condition(node))
            return found[0].value

        def known() -> Value:
            return self.constant(is_or)

        value = self.choose(left.value, known if is_or else right, right if is_or else known)
        other = found[0]
        both_true = _both(left.if_true, other.if_true), _either(left.if_false, other.if_false)
        both_false = _either(left.if_true, other.if_true), _both(left.if_false, other.if_false)
        return Condition(value, *(both_false if is_or else both_true))

    @contextmanager
    def refined(self, refinements: Refinements) -> Iterator[None]:
        """Variables have the types that are known of them, for the time of a block."""
        before = self.env
        self.env = before.copy()
        self.refine(refinements)
        try:
            yield
        finally:
            self.env = before

    def refine(self, refinements: Refinements) -> None:
        for name, kind in refinements.items():
            known = self.env.get(name)
            if known is None or not isinstance(known.sugar, Simple):
                continue
            value = known.sugar.value(self)
            if value.type() == kind or (value.type().isSubtypeOf(kind)):
                continue
            made = self.node("prim::unchecked_cast", [value], kind)
            self.env.refine(name, Simple(made), self.level, kind)

    def choose(self, condition: Value, true: Callable[[], Value], false: Callable[[], Value]) -> Value:
        """The value that one of two ways gives."""
        node = self.nodes("prim::If", [condition], [])
        values = []
        for way in (true, false):
            with self.inside(node.addBlock()):
                values.append(way())
        kind = unify(values[0].type(), values[1].type())
        if kind is None:
            raise self.error(
                f"if-expression's true branch has type {values[0].type()} but false branch has type {values[1].type()}"
            )
        return self.output(node, values, kind)

    def output(self, node: Node, values: Sequence[Value], kind: Type) -> Value:
        """One more result of a node, which each of its blocks gives."""
        for block, value in zip(node.blocks(), values):
            block.registerOutput(value)
        return node.addOutput().setType(kind)

    def _identity(self, node: ast.Compare) -> Condition:
        """`x is None`."""
        left, right = self.value(node.left), self.value(node.comparators[0])
        negative = isinstance(node.ops[0], ast.IsNot)
        place = self.source.place(node)
        for one, other, part in ((left, right, node.left), (right, left, node.comparators[0])):
            if not isinstance(other.type(), NoneType):
                continue
            may = isinstance(one.type(), (OptionalType, NoneType)) or _may_be_none(one.type())
            if isinstance(one.type(), NoneType) or not may:
                result = isinstance(one.type(), NoneType) is not negative
                with self.at(place):
                    return Condition(self.constant(result), {}, {}, result)
            with self.at(place):
                value = call_operator(self, "aten::__isnot__" if negative else "aten::__is__", [left, right])
            refinement, none = {}, {}
            if isinstance(part, ast.Name):
                refinement, none = {part.id: present(one.type())}, {part.id: NoneType.get()}
            return Condition(value, refinement, none) if negative else Condition(value, none, refinement)
        with self.at(place):
            value = call_operator(self, "aten::__isnot__" if negative else "aten::__is__", [left, right])
        return Condition(value, {}, {})

    def _isinstance(self, node: ast.Call) -> Condition:
        if len(node.args) != 2 or node.keywords:
            raise self.error(f"isinstance expected exactly 2 arguments, got {len(node.args)}")
        value = self.value(node.args[0])
        kinds = self._classes(node.args[1])
        choices = _choices(value.type())
        inside = [choice for choice in choices if any(_is_instance(choice, kind) for kind in kinds)]
        outside = [choice for choice in choices if choice not in inside]
        if not outside or (not inside and not any(kind.isSubtypeOf(value.type()) for kind in kinds)):
            static = not outside
            return Condition(self.constant(static), {}, {}, static)
        made = self.nodes("prim::isinstance", [value], [BoolType.get()])
        made.tys_("types", [kind for kind in kinds if isinstance(kind, Type)])  # type: ignore[attr-defined]
        if not isinstance(node.args[0], ast.Name):
            return Condition(made.output(), {}, {})
        name = node.args[0].id
        known: Type = UnionType(inside or [kind for kind in kinds if isinstance(kind, Type)])
        rest: Type | None = UnionType(outside) if inside else None
        return Condition(made.output(), {name: known}, {} if rest is None else {name: rest})

    def _classes(self, node: ast.expr) -> list[Any]:
        """The types that a second argument of isinstance names; `list` and `tuple` are those of any elements."""
        if isinstance(node, ast.Tuple):
            return [kind for part in node.elts for kind in self._classes(part)]
        text = ast.unparse(node)
        if text in ("list", "tuple", "dict"):
            return [{"list": ListType, "tuple": TupleType, "dict": DictType}[text]]
        return [self.annotations.type(node)]

    def _hasattr(self, node: ast.Call) -> Condition:
        if len(node.args) != 2 or not (isinstance(node.args[1], ast.Constant) and isinstance(node.args[1].value, str)):
            raise self.error("hasattr's second argument must be a string literal")
        found = self.sugar(node.args[0]).has_attribute(self, node.args[1].value)
        return Condition(self.constant(found), {}, {}, found)

    def _boolean(self, node: ast.expr, hint: Type | None) -> Value:
        return self.condition(node).value

    def _compare(self, node: ast.Compare, hint: Type | None) -> Value:
        """`a < b < c` is `a < b and b < c`, with b computed once."""
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return self.condition(node).value
        left = self.value(node.left)
        found: Value | None = None
        for op, part in zip(node.ops, node.comparators):
            right = self.value(part)
            result = self._compared(op, left, right)
            result = self.as_bool(result) if len(node.ops) > 1 else result
            if found is None:
                found = result
            else:
                found = call_operator(self, "aten::__and__", [found, result])
            left = right
        assert found is not None
        return found

    def _compared(self, op: ast.cmpop, left: Value, right: Value) -> Value:
        if isinstance(op, (ast.In, ast.NotIn)):
            magic = self.magic(right, "__contains__", [left])
            found = magic if magic is not None else self._contained(left, right)
            return call_operator(self, "aten::__not__", [found]) if isinstance(op, ast.NotIn) else found
        name = COMPARED[type(op)]
        magic = self.magic(left, f"__{name.removeprefix('aten::')}__", [right])
        return magic if magic is not None else call_operator(self, name, [left, right])

    def _contained(self, item: Value, container: Value) -> Value:
        if isinstance(container.type(), StringType) and isinstance(item.type(), StringType):
            place = self.operator("aten::find", container, item, 0, self.operator("aten::len", container))
            return self.operator("aten::ne", place, -1)
        return call_operator(self, "aten::__contains__", [container, item])

    def _ternary(self, node: ast.IfExp, hint: Type | None) -> Value:
        found = self.condition(node.test)
        if found.static is not None:
            with self.refined(found.if_true if found.static else found.if_false):
                return self.value(node.body if found.static else node.orelse, hint)

        def way(part: ast.expr, refinements: Refinements) -> Callable[[], Value]:
            def emit() -> Value:
                with self.refined(refinements):
                    return self.value(part, hint)

            return emit

        return self.choose(found.value, way(node.body, found.if_true), way(node.orelse, found.if_false))

    # Containers

    def _tuple(self, node: ast.Tuple, hint: Type | None) -> Sugar:
        hints: Sequence[Type | None] = [None] * len(node.elts)
        if isinstance(hint, TupleType) and len(hint.parts) == len(node.elts):
            hints = hint.parts
        parts = [self.sugar(part, kind) for part, kind in zip(node.elts, hints)]
        if all(isinstance(part, Simple) for part in parts):
            return Simple(self.tuple_of([part.value(self) for part in parts]))
        return Tuple(parts)

    def _list(self, node: ast.List, hint: Type | None) -> Value:
        hint = present(hint) if hint is not None else None
        wanted = hint.getElementType() if isinstance(hint, ListType) else None
        if not node.elts:
            return self.empty_list() if wanted is None else self.list_of(wanted, [])
        values = [self.value(part, wanted) for part in node.elts]
        return self.list_of(self._list_element(values, wanted), values)

    def _list_element(self, values: list[Value], wanted: Type | None) -> Type:
        """The type of the elements of a list, which are converted in place."""
        if wanted is None:
            return self._element(values)
        values[:] = [as_type(self, value, wanted) for value in values]
        if not all(value.type().isSubtypeOf(wanted) for value in values):
            raise self.error(
                f"List type annotation `List[{wanted}]` did not match the types of the given list elements, which were "
                f"unified to {self._element(values)}"
            )
        return wanted

    def _element(self, values: list[Value]) -> Type:
        """The type that some values have in common."""
        kind = values[0].type()
        for value in values[1:]:
            unified = unify(kind, value.type(), union=True)
            assert unified is not None
            kind = unified
        return kind

    def _dict(self, node: ast.Dict, hint: Type | None) -> Value:
        hint = present(hint) if hint is not None else None
        key, item = (hint.getKeyType(), hint.getValueType()) if isinstance(hint, DictType) else (None, None)
        if not node.keys:
            kind = hint if isinstance(hint, DictType) else DictType(StringType.get(), TensorType.get())
            return self.node("prim::DictConstruct", [], kind)
        keys = [self.value(part, key) for part in node.keys if part is not None]
        values = [self.value(part, item) for part in node.values]
        kind = hint if isinstance(hint, DictType) else DictType(self._element(keys), self._element(values))
        for found, wanted, what in ((keys, key, "keys"), (values, item, "values")):
            if wanted is not None and not all(value.type().isSubtypeOf(wanted) for value in found):
                shown = f"{kind}" if what == "keys" else f"`{kind}`, "
                raise self.error(
                    f"Type annotation was inferred to be {shown}but the type of {what} given by the dict literal is "
                    f"{self._element(found)}"
                )
        return self.node("prim::DictConstruct", [part for pair in zip(keys, values) for part in pair], kind)

    def _list_comprehension(self, node: ast.ListComp, hint: Type | None) -> Value:
        wanted = hint.getElementType() if isinstance(hint, ListType) else None
        return self._comprehended(
            node,
            lambda: self.list_of(wanted or TensorType.get(), []),
            lambda made: self._append(made, self.value(node.elt, wanted), wanted),
        )

    def _append(self, made: Value, value: Value, wanted: Type | None) -> None:
        if wanted is None:
            made.setType(ListType(value.type()))
        call_operator(self, "aten::append", [made, value])

    def _dict_comprehension(self, node: ast.DictComp, hint: Type | None) -> Value:
        def put(made: Value) -> None:
            key, value = self.value(node.key), self.value(node.value)
            made.setType(DictType(key.type(), value.type()))
            call_operator(self, "aten::_set_item", [made, key, value])

        kind = DictType(StringType.get(), TensorType.get())
        return self._comprehended(node, lambda: self.node("prim::DictConstruct", [], kind), put)

    def _comprehended(
        self, node: ast.ListComp | ast.DictComp, make: Callable[[], Value], put: Callable[[Value], None]
    ) -> Value:
        """A container that a loop fills."""
        generator = node.generators[0]
        sugar = self.sugar(generator.iter)
        made = make()
        iteration = sugar.iteration(self)
        before = self.env
        if iteration is None:
            for part in sugar.items(self):
                self.env = before.copy()
                self.assign_target(generator.target, part)
                put(made)
            self.env = before
            return made
        loop = self.nodes("prim::Loop", [iteration.length(), self.constant(True)], [])
        block = loop.addBlock()
        index = block.addInputToBlock().setType(IntType.get())
        self.env = before.copy()
        with self.inside(block):
            self.assign_target(generator.target, iteration.item(index))
            put(made)
            block.registerOutput(self.constant(True))
        self.env = before
        return made

    def assign_target(self, node: ast.expr, sugar: Sugar) -> None:
        """Gives a target of an assignment what it is assigned."""
        raise NotImplementedError

    def _formatted(self, node: ast.JoinedStr, hint: Type | None) -> Value:
        text, values = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value).replace("{", "{{").replace("}", "}}")
            elif isinstance(part, ast.FormattedValue):
                text += "{}"
                values.append(self.value(part.value))
        return call_operator(self, "aten::format", [self.constant(text), *values])

    # Subscripts

    def _subscript(self, node: ast.Subscript, hint: Type | None) -> Sugar:
        sugar = self.sugar(node.value)
        if not isinstance(sugar, Simple):
            if isinstance(sugar, Tuple) and isinstance(node.slice, ast.Slice):
                return Tuple(self._static_slice(sugar.items(self), node.slice))
            return sugar.subscript(self, self.value(node.slice))
        value = sugar.value(self)
        kind = value.type()
        if isinstance(kind, TensorType):
            return Simple(index_tensor(self, value, node.slice))
        if isinstance(node.slice, ast.Slice):
            if isinstance(kind, TupleType):
                return Simple(self.tuple_of(self._static_slice(self.unpacked(value), node.slice)))
            bounds = [None if part is None else self.value(part) for part in (node.slice.lower, node.slice.upper)]
            step = self.constant(1) if node.slice.step is None else self.value(node.slice.step)
            start, end = [self.constant(None) if part is None else part for part in bounds]
            return Simple(call_operator(self, "aten::slice", [value, start, end, step]))
        if isinstance(kind, TupleType):
            return Simple(self._tuple_item(value, kind, node.slice))
        index = self.value(node.slice)
        magic = self.magic(value, "__getitem__", [index])
        return Simple(magic) if magic is not None else sugar.subscript(self, index)

    def _static_slice(self, parts: Sequence[Any], node: ast.Slice) -> list[Any]:
        bounds = [None if part is None else self.value(part).toIValue() for part in (node.lower, node.upper, node.step)]
        for bound, part in zip(bounds, (node.lower, node.upper, node.step)):
            if part is not None and not isinstance(bound, int):
                raise self.error("Tuple slices must have constant bounds")
        return list(parts)[slice(*bounds)]

    def _tuple_item(self, value: Value, kind: TupleType, node: ast.expr) -> Value:
        index = self.value(node)
        place = index.toIValue()
        if not isinstance(place, int):
            if not isinstance(index.type(), IntType):
                raise self.error("tuple index must be an integer")
            if len(set(kind.parts)) != 1:
                raise self.error(
                    "Cannot index into a tuple with a non-integer literal because we cannot resolve the output type"
                )
            return self.node("prim::TupleIndex", [value, index], kind.parts[0])
        if not -len(kind.parts) <= place < len(kind.parts):
            raise self.error(f"Tuple index out of range. Tuple is length {len(kind.parts)} and index is {place}")
        return self.node("prim::TupleIndex", [value, index], kind.parts[place])

    # Calls

    def _call(self, node: ast.Call, hint: Type | None) -> Sugar:
        sugar = self.sugar(node.func)
        if isinstance(sugar, Form):
            return self._form(sugar.name, node, hint)
        with self.at(self.source.place(node.func)):
            if isinstance(sugar, ToList):
                if hint is None:
                    raise self.error("Expected type hint for result of tolist()")
                return Simple(sugar.typed(self, hint))
        args: list[Sugar] = []
        for part in node.args:
            if isinstance(part, ast.Starred):
                args += self.sugar(part.value).items(self)
            else:
                args.append(self.sugar(part))
        kwargs = {each.arg: self.sugar(each.value) for each in node.keywords if each.arg is not None}
        with self.at(self.source.place(node.func)):
            return sugar.call(self, args, kwargs)

    def _form(self, name: str, node: ast.Call, hint: Type | None) -> Sugar:
        """What looks like a call of a function and is part of the language."""
        if name in ("isinstance", "hasattr"):
            return Simple(self.condition(node).value)
        if name == "is_scripting":
            return Simple(self.constant(True))
        if name == "is_tracing":
            return Simple(self.constant(False))
        if name in ("annotate", "unchecked_cast", "uninitialized"):
            return Simple(self._typed(name, node))
        if name == "getattr":
            return self._getattr(node)
        if name == "new":
            self._check_count(name, node, 1)
            return Simple(self.node("prim::CreateObject", [], self.annotations.type(node.args[0])))
        args = [self.sugar(part) for part in node.args]
        if name == "print":
            self.nodes("prim::Print", [each.value(self) for each in args], [])
            return Simple(self.constant(None))
        if name == "range":
            return Range.of(self, args)
        if name == "zip":
            if not args:
                raise self.error("zip expected at least 1 arguments, got 0")
            return Zipped(args)
        if name == "enumerate":
            starts = [self.value(each.value) for each in node.keywords if each.arg == "start"]
            starts += [each.value(self) for each in args[1:]]
            return Zipped(args[:1], starts[0] if starts else self.constant(0))
        if name == "reversed":
            return Simple(self.operator("aten::slice", args[0].value(self), None, None, -1))
        if name in ("tuple", "list", "dict"):
            return Simple(self._container(name, args, hint))
        raise self.error(f"{name} cannot be called here")

    def _typed(self, name: str, node: ast.Call) -> Value:
        """`annotate(type, value)`, and its relatives in programs that were saved."""
        self._check_count(name, node, 1 if name == "uninitialized" else 2)
        kind = self.annotations.type(node.args[0])
        if name == "uninitialized":
            return self.node("prim::Uninitialized", [], kind)
        value = self.value(node.args[1], kind)
        if name == "unchecked_cast":
            return self.node("prim::unchecked_cast", [value], kind)
        return self.declared(as_type(self, value, kind), kind)

    def _check_count(self, name: str, node: ast.Call, count: int) -> None:
        if len(node.args) != count or node.keywords:
            raise self.error(f"{name} takes {count} arguments without names, not {len(node.args)}")

    def declared(self, value: Value, kind: Type) -> Value:
        """A value that has a type which says less than its own: an optional that is there."""
        if not value.type().isSubtypeOf(kind):
            raise self.error(
                f"expected an expression of type {kind} because it is annotated, but found {self.shown_type(value)}"
            )
        if value.type() == kind or isinstance(kind, TensorType):
            return value
        return self.node("prim::unchecked_cast", [value], kind)

    def _getattr(self, node: ast.Call) -> Sugar:
        if len(node.args) not in (2, 3):
            raise self.error(f"getattr expects 2 or 3 arguments, got {len(node.args)}")
        name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        if not isinstance(name, str):
            raise self.error("getattr's second argument must be a string literal")
        owner = self.sugar(node.args[0])
        if len(node.args) == 3 and not owner.has_attribute(self, name):
            return self.sugar(node.args[2])
        return owner.attribute(self, name)

    def _container(self, name: str, args: list[Sugar], hint: Type | None) -> Value:
        if not args:
            empty = ast.parse({"tuple": "()", "list": "[]", "dict": "{}"}[name], mode="eval").body
            return self._EMITTED[type(empty)](self, empty, hint)  # type: ignore[no-any-return]
        value = args[0]
        if name == "tuple":
            return self.tuple_of([part.value(self) for part in value.items(self)])
        if name == "dict":
            return call_operator(self, "aten::dict", [value.value(self)])
        if isinstance(value, Simple) and isinstance(value.value(self).type(), (ListType, StringType)):
            return call_operator(self, "aten::list", [value.value(self)])
        iteration = value.iteration(self)
        if iteration is None:
            values = [part.value(self) for part in value.items(self)]
            return self.list_of(self._element(values), values) if values else self.empty_list()
        made = self.list_of(TensorType.get(), [])
        loop = self.nodes("prim::Loop", [iteration.length(), self.constant(True)], [])
        block = loop.addBlock()
        index = block.addInputToBlock().setType(IntType.get())
        with self.inside(block):
            self._append(made, iteration.item(index).value(self), None)
            block.registerOutput(self.constant(True))
        return made

    _EMITTED: ClassVar[dict[type[ast.expr], Callable[..., Any]]] = {
        ast.Constant: _constant,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: _boolean,
        ast.Compare: _compare,
        ast.IfExp: _ternary,
        ast.Tuple: _tuple,
        ast.List: _list,
        ast.Dict: _dict,
        ast.ListComp: _list_comprehension,
        ast.GeneratorExp: _list_comprehension,
        ast.DictComp: _dict_comprehension,
        ast.JoinedStr: _formatted,
        ast.Subscript: _subscript,
        ast.Call: _call,
    }


_METHODS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}


def _choices(kind: Type) -> list[Type]:
    if isinstance(kind, OptionalType):
        return [kind.getElementType(), NoneType.get()]
    return kind.choices() if isinstance(kind, UnionType) else [kind]


def _may_be_none(kind: Type) -> bool:
    return any(isinstance(choice, NoneType) for choice in _choices(kind)) or kind.kind() == "AnyType"


def _is_instance(kind: Type, asked: Any) -> bool:
    return isinstance(kind, asked) if isinstance(asked, type) else kind.isSubtypeOf(asked)


def _both(one: Refinements, two: Refinements) -> Refinements:
    """What is known if two conditions hold."""
    return one | two


def _either(one: Refinements, two: Refinements) -> Refinements:
    """What is known if one of two conditions holds."""
    return {name: kind for name, kind in one.items() if two.get(name) == kind}

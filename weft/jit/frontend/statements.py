"""Statements of the source as nodes of a program.

Variables of blocks become results of `prim::If` and `prim::Loop`. A program has no jumps: what follows a branch that
always leaves (by return, break or continue) is put into the other branch; what follows statements that may have left is
put under a condition that they have not. Names with a sign in front are variables of the compiler's own:

| name | what |
|---|---|
| `$exited` | whether what follows is skipped |
| `$stop` | whether the loop ends |
| `$returned` | whether the function has returned from inside a loop |
| `$value` | what it returned |
"""

from __future__ import annotations

import ast
import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..nodes import Block, Node, Value
from ..types import BoolType, IntType, ListType, TensorType, TupleType, Type
from .calls import as_type, call_operator, unify
from .environment import Environment
from .expressions import Condition, Expressions, Refinements
from .forks import Closure
from .indexing import indexed_views, set_tensor_item
from .subset import BINARY
from .sugar import Exceptions, GradMode, Iteration, Simple, Sugar

Item = tuple[ast.stmt | Callable[[], None], int]  # a statement with its level; or what does the work of one
Items = Sequence[Item]
EXITED, STOP, RETURNED, VALUE = "$exited", "$stop", "$returned", "$value"
LONGEST = (1 << 63) - 1  # how often a loop without a count may run


class End(enum.Enum):
    """How statements end: they go on, may have left, leave, or raise."""

    FALLS, MAYBE, EXITS, RAISES = range(4)


def end_of(body: Sequence[ast.stmt]) -> End:
    """How statements end, as far as it can be seen: FALLS stands for MAYBE as well."""
    for statement in body:
        if isinstance(statement, (ast.Return, ast.Break, ast.Continue)):
            return End.EXITS
        if isinstance(statement, ast.Raise):
            return End.RAISES
        if isinstance(statement, ast.If):
            ends = end_of(statement.body), end_of(statement.orelse)
            if End.FALLS not in ends:
                return End.RAISES if ends == (End.RAISES, End.RAISES) else End.EXITS
    return End.FALLS


class Statements(Expressions):
    """Compiles statements. `result` is the type that the function is said to give, once that is known."""

    result: Type | None = None
    annotated = False
    _loops = 0  # that are being compiled, one in the other
    _unrolled = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._modes: list[tuple[Value, int]] = []  # before with statements, and the loops those are in

    # Sequences

    def run(self, items: Items) -> End:
        """Compiles statements one after the other."""
        end = End.FALLS
        for place, (statement, level) in enumerate(items):
            before, self.level = self.level, level
            try:
                if callable(statement):
                    statement()
                    continue
                if isinstance(statement, ast.If):
                    with self.reading(statement):
                        end, used = self._if(statement, items[place + 1 :])
                    if used:
                        return end
                else:
                    with self.reading(statement):
                        end = self._statement(statement)
                if end in (End.EXITS, End.RAISES):
                    return end
                if end is End.MAYBE and place + 1 < len(items):
                    return self._unless_exited(items[place + 1 :])
            finally:
                self.level = before
        return end

    def _unless_exited(self, rest: Items) -> End:
        """What follows statements that may have left."""
        exited = self._flag(self.env, EXITED)
        after: list[End] = []

        def go_on() -> End:
            for name in (EXITED, STOP, RETURNED, VALUE):
                self.env.variables.pop(name, None)
            after.append(self.run(rest))
            return after[0]

        self._branches(Condition(exited, {}, {}), lambda: End.EXITS, go_on)
        return {End.FALLS: End.MAYBE, End.RAISES: End.EXITS}.get(after[0], after[0])

    def _flag(self, env: Environment, name: str) -> Value:
        known = env.get(name)
        return self.constant(False) if known is None else known.sugar.value(self)

    def _set_flag(self, name: str, value: Value) -> None:
        self.env.set(name, Simple(value), self.level, value.type())

    # Branches

    def _if(self, node: ast.If, rest: Items) -> tuple[End, bool]:
        """A branch; whether what follows it is part of it now."""
        condition = self.condition(node.test)
        level = self.level
        true: Items = [(each, level + 1) for each in node.body]
        false: Items = [(each, level + 1) for each in node.orelse]
        if condition.static is not None:
            self.refine(condition.if_true if condition.static else condition.if_false)
            return self.run([(each, level) for each, _ in (true if condition.static else false)]), False
        ends = end_of(node.body), end_of(node.orelse)
        used = End.EXITS in ends and bool(rest)
        if used and ends[0] is End.EXITS:
            false = [*false, *rest]
        elif used:
            true = [*true, *rest]
        return self._branches(condition, lambda: self.run(true), lambda: self.run(false)), used

    def _branches(self, condition: Condition, true: Callable[[], End], false: Callable[[], End]) -> End:
        """A condition with two ways, and the variables that they give."""
        node = self.nodes("prim::If", [condition.value], [])
        base, envs, ends = self.env, list[Environment](), list[End]()
        for way, refinements in ((true, condition.if_true), (false, condition.if_false)):
            self.env = base.copy()
            with self.inside(node.addBlock()):
                self.level += 1
                self.refine(refinements)
                self.level -= 1
                ends.append(way())
            envs.append(self.env)
        self.env = base
        end = _merged_end(ends)
        if end is not End.RAISES:
            self._merge(node, base, envs, ends, end)
        return end

    def _merge(self, node: Node, base: Environment, envs: list[Environment], ends: list[End], end: End) -> None:
        """Variables that the two ways of a branch give values become results of it."""
        blocks = list(node.blocks())
        if end is End.MAYBE:
            flags = [self._exit_flag(*each) for each in zip(blocks, envs, ends)]
            self._set_flag(EXITED, self.output(node, flags, BoolType.get()))
        names = {
            name for env in envs for name, variable in env.variables.items() if _is_new(base, name, variable.origin)
        }
        for name in sorted(names - {EXITED}):
            self._merge_variable(name, node, base, envs, ends)
        alive = [env for env, each in zip(envs, ends) if each is not End.RAISES]
        if len(alive) == 1:
            self._keep_refinements(base, alive[0], names)
        for env in envs:
            base.errors |= {name: text for name, text in env.errors.items() if base.get(name) is None}

    def _exit_flag(self, block: Block, env: Environment, end: End) -> Value:
        with self.inside(block):
            return self._flag(env, EXITED) if end is End.MAYBE else self.constant(end is End.EXITS)

    def _merge_variable(
        self, name: str, node: Node, base: Environment, envs: list[Environment], ends: list[End]
    ) -> None:
        found = [None if end is End.RAISES else env.get(name) for env, end in zip(envs, ends)]
        absent = [variable is None for variable in found]
        if any(absent):
            missing = absent.index(True)
            if ends[missing] in (End.FALLS, End.MAYBE) and name not in (STOP, RETURNED, VALUE):
                if base.get(name) is None:
                    which = "true" if missing == 0 else "false"
                    base.errors[name] = f"{self.place.error(f'{name} is not defined in the {which} branch')}"
                return
        known = [variable.sugar for variable in found if variable is not None]
        if not all(isinstance(sugar, Simple) for sugar in known):
            if len(known) == 1:
                base.set(name, known[0], self.level, None)
            return
        values = [None if variable is None else variable.sugar.value(self) for variable in found]
        kinds = [value.type() for value in values if value is not None]
        kind = kinds[0] if len(kinds) == 1 else unify(kinds[0], kinds[1])
        if kind is None:
            text = (
                f"Type mismatch: {name} is set to type {kinds[0]} in the true branch and type {kinds[1]} in the false"
            )
            if base.get(name) is not None:
                raise self.error(f"{text} branch")
            base.errors[name] = str(self.place.error(f"{text} branch"))
            return
        filled = [
            self._absent(name, kind, block) if value is None else value for value, block in zip(values, node.blocks())
        ]
        result = filled[0] if filled[0] is filled[1] else self.output(node, filled, kind)
        self._named(name, result)
        base.set(name, Simple(result), self.level, kind)

    def _absent(self, name: str, kind: Type, block: Block) -> Value:
        """What a variable is on a way that gives it no value, and that nobody reads it after."""
        with self.inside(block):
            if name in (STOP, RETURNED):
                return self.constant(False)
            return self.node("prim::Uninitialized", [], kind)

    def _keep_refinements(self, base: Environment, env: Environment, names: set[str]) -> None:
        """What is known of variables after a branch of which only one way goes on."""
        kinds: Refinements = {}
        for name, variable in env.variables.items():
            known = base.get(name)
            if known is not None and name not in names and variable.sugar is not known.sugar:
                kinds[name] = variable.sugar.value(self).type()
        self.refine(kinds)

    def _named(self, name: str, value: Value) -> None:
        if not value.hasDebugName() and not name.startswith(("$", "_")) and not name.isdecimal():
            value.setDebugName(self.graph._free_name(name) if name in self.graph._names else name)

    # Loops

    def _while(self, node: ast.While) -> End:
        first = self.condition(node.test).value
        body: Items = [(each, self.level + 1) for each in node.body]
        return self._loop(node, body, self.constant(LONGEST), first, lambda index: None, node.test)

    def _for(self, node: ast.For) -> End:
        sugar = self.sugar(node.iter)
        iteration = sugar.iteration(self)
        if iteration is None:
            return self._unroll(node, sugar.items(self))
        body: Items = [(each, self.level + 1) for each in node.body]
        found: Iteration = iteration

        def bind(index: Value) -> None:
            self.assign_target(node.target, found.item(index))

        return self._loop(node, body, iteration.length(), self.constant(True), bind, None)

    def _unroll(self, node: ast.For, parts: Sequence[Sugar]) -> End:
        """A loop over parts of different types: its body for each of them."""
        items: list[Item] = []
        level = self.level + 1
        for part in parts:
            items.append((functools.partial(self.assign_target, node.target, part), level))
            items += [(each, level) for each in node.body]
        before, self._unrolled = self._unrolled, True
        end = self.run(items)
        self._unrolled = before
        return end

    def _loop(
        self,
        node: ast.While | ast.For,
        body: Items,
        count: Value,
        first: Value,
        bind: Callable[[Value], None],
        test: ast.expr | None,
    ) -> End:
        names = [name for name in sorted(_assigned(node)) if self._is_carried(name)]
        before = {name: self.env.variables[name] for name in names}
        loop = self.nodes("prim::Loop", [count, first, *[before[name].sugar.value(self) for name in names]], [])
        block = loop.addBlock()
        index = block.addInputToBlock().setType(IntType.get())
        base, self.env = self.env, self.env.copy()
        for name in names:
            value = block.addInputToBlock().setType(before[name].type)
            self._named(name, value)
            self.env.set(name, Simple(value), self.level, before[name].type)
        unrolled, self._unrolled = self._unrolled, False
        self._loops += 1
        with self.inside(block):
            self.level += 1
            bind(index)
            self.level -= 1
            self.run(body)
            block.registerOutput(self._goes_on(test))
        self._loops -= 1
        self._unrolled = unrolled
        after, self.env = self.env, base
        for name in names:
            variable = after.variables[name]
            block.registerOutput(variable.sugar.value(self))
            result = loop.addOutput().setType(before[name].type)
            self._named(name, result)
            self.env.set(name, Simple(result), self.level, before[name].type)
        return self._after_loop(loop, block, after)

    def _is_carried(self, name: str) -> bool:
        known = self.env.get(name)
        return known is not None and isinstance(known.sugar, Simple)

    def _goes_on(self, test: ast.expr | None) -> Value:
        """Whether a loop runs once more."""

        def again() -> Value:
            return self.constant(True) if test is None else self.condition(test).value

        stop = self.env.get(STOP)
        if stop is None:
            return again()
        value = stop.sugar.value(self)
        if value.toIValue() is True:
            return self.constant(False)
        if test is None:
            return call_operator(self, "aten::__not__", [value])
        return self.choose(value, lambda: self.constant(False), again)

    def _after_loop(self, loop: Node, block: Block, after: Environment) -> End:
        """What a return inside a loop means outside of it."""
        returned = after.get(RETURNED)
        if returned is None:
            return End.FALLS
        results = []
        for name in (RETURNED, VALUE):
            value = after.variables[name].sugar.value(self)
            with self.graph.insert_point_guard(loop):
                start = self._absent_before(name, value.type())
            loop.addInput(start)
            block.addInputToBlock().setType(value.type())
            block.registerOutput(value)
            results.append(loop.addOutput().setType(value.type()))
        self._set_flag(EXITED, results[0])
        self._set_flag(VALUE, results[1])
        if self._loops:
            self._set_flag(RETURNED, results[0])
            self._set_flag(STOP, results[0])
        return End.MAYBE

    def _absent_before(self, name: str, kind: Type) -> Value:
        return self.constant(False) if name == RETURNED else self.node("prim::Uninitialized", [], kind)

    # Statements that leave

    def _return(self, node: ast.Return) -> End:
        hint = self.result if self.annotated else None
        value = self.constant(None) if node.value is None else self.value(node.value, hint)
        if self.result is not None:
            value = as_type(self, value, self.result)
            if not value.type().isSubtypeOf(self.result):
                if self.annotated:
                    raise self.error(
                        f"Return value was annotated as having type {self.result} but is actually of type "
                        f"{value.type()}"
                    )
                raise self.error(
                    f"Previous return statement returned a value of type {self.result} but this return statement "
                    f"returns a value of type {value.type()}"
                )
            if not isinstance(self.result, TensorType):
                value = self.declared(value, self.result)
        self.result = self.result or value.type()
        self._set_flag(VALUE, value)
        self._leave_modes(self._modes)
        if self._loops:
            self._set_flag(STOP, self.constant(True))
            self._set_flag(RETURNED, self.constant(True))
        return End.EXITS

    def _break(self, node: ast.stmt) -> End:
        if self._unrolled:
            raise self.error(
                "Because we emit iteration over modulelists or tuples as unrolled loops, we do not support break or "
                "continue inside the body of these loops"
            )
        self._leave_modes([each for each in self._modes if each[1] == self._loops])
        if isinstance(node, ast.Break):
            self._set_flag(STOP, self.constant(True))
        return End.EXITS

    def _raise(self, node: ast.Raise) -> End:
        self.nodes("prim::RaiseException", self._exception(node.exc), [])
        return End.RAISES

    def _exception(self, node: ast.expr | None) -> tuple[Value, Value]:
        """The message of an exception, and the name of its class."""
        name, arguments = (node.func, node.args) if isinstance(node, ast.Call) else (node, [])
        if name is None:
            raise self.error("raise without an exception is not supported")
        qualified = self.exception_name(name)
        values = [self.value(part) for part in arguments]
        if not isinstance(node, ast.Call):
            return self.constant(""), self.constant(None)
        if not values:
            text = self.constant("")
        elif len(values) == 1:
            text = values[0] if values[0].type().kind() == "StringType" else call_operator(self, "aten::str", values)
        else:
            text = call_operator(self, "aten::str", [self.tuple_of(values)])
        return text, self.constant(qualified)

    def exception_name(self, node: ast.expr) -> str:
        """The qualified name of a class of exceptions."""
        found = self.sugar(node)
        if not isinstance(found, Exceptions):
            raise self.error("exceptions must derive from BaseException")
        return found.name

    def _assert(self, node: ast.Assert) -> End:
        condition = self.condition(node.test)

        def fail() -> End:
            text = self.constant("") if node.msg is None else self.value(node.msg)
            self.nodes("prim::RaiseException", [_prefixed(self, text), self.constant(None)], [])
            return End.RAISES

        if condition.static is True:
            return End.FALLS
        return self._branches(condition, lambda: End.FALLS, fail)

    # Assignments

    def _assign(self, node: ast.Assign) -> End:
        sugar = self.sugar(node.value)
        if len(node.targets) > 1:
            sugar = Simple(sugar.value(self))
        for target in node.targets:
            self.assign_target(target, sugar, node.value)
        return End.FALLS

    def assign_target(self, node: ast.expr, sugar: Sugar, right: ast.expr | None = None) -> None:
        if isinstance(node, ast.Name):
            with self.at(self.source.place(node)):
                self.assign(node.id, sugar, named=not isinstance(right, ast.Name | ast.Tuple))
        elif isinstance(node, (ast.Tuple, ast.List)):
            self._assign_parts(node, sugar, right)
        elif isinstance(node, ast.Subscript):
            self._assign_item(node, sugar)
        elif isinstance(node, ast.Attribute):
            owner = self.sugar(node.value)
            with self.at(self.source.place(node)):
                owner.set_attribute(self, node.attr, sugar.value(self))
        else:
            raise self.source.place(node).error("unexpected expression on left-hand side of assignment")

    def assign(self, name: str, sugar: Sugar, kind: Type | None = None, named: bool = True) -> None:
        """Gives a variable a value, of the type that it has outside of these statements. What another variable is
        already has its name from there."""
        known = self.env.get(name)
        outer = known is not None and (known.outside(self.level) or not isinstance(known.sugar, Simple))
        if known is not None and outer:
            sugar = self._reassigned(name, sugar, known.sugar, known.outer_type(self.level), kind)
        if not isinstance(sugar, Simple):
            self.env.set(name, sugar, self.level, None)
            return
        value = sugar.value(self)
        if kind is not None:
            value = as_type(self, value, kind)
            if not value.type().isSubtypeOf(kind):
                raise self.error(
                    f"Variable '{name}' is annotated with type {kind} but is being assigned to a value of type "
                    f"{self.shown_type(value)}"
                )
            value = self.declared(value, kind)
        if named and value.node().owningBlock() is self.graph.insertPoint().owningBlock():
            self._named(name, value)
        self.env.set(name, Simple(value), self.level, kind or value.type())

    def _reassigned(self, name: str, sugar: Sugar, known: Sugar, outer: Type | None, kind: Type | None) -> Sugar:
        if kind is not None:
            raise self.error(
                f"Attempting to declare and annotate the type of variable '{name}' but it is already defined in an "
                "outer block"
            )
        if not isinstance(sugar, Simple) or outer is None:
            if outer is None and not isinstance(known, Simple) and self.level == 0:
                return sugar
            raise self.error(
                f"Cannot re-assign '{name}' to a value of type {sugar.kind} because {name} is not a first-class value. "
                " Only reassignments to first-class values are allowed"
            )
        value = as_type(self, sugar.value(self), outer)
        if not value.type().isSubtypeOf(outer):
            text = (
                f"Variable '{name}' previously had type {outer} but is now being assigned to a value of type "
                f"{self.shown_type(value)}"
            )
            if isinstance(outer, ListType) and isinstance(value.type(), ListType):
                text += (
                    "\nEmpty lists default to List[Tensor]. Add a variable annotation to the assignment to create an "
                    "empty list of another type (torch.jit.annotate(List[T, []]) where T is the type of elements in "
                    "the list for Python 2)"
                )
            raise self.error(f"{text}\n")
        return Simple(value)

    def _assign_parts(self, node: ast.Tuple | ast.List, sugar: Sugar, right: ast.expr | None) -> None:
        starred = [place for place, part in enumerate(node.elts) if isinstance(part, ast.Starred)]
        if len(starred) > 1:
            raise self.source.place(node).error("Only one starred expression is allowed on the lhs")
        wanted = len(node.elts)
        with self.at(self.source.place(node if right is None else right)):
            parts = sugar.items(self, None if starred else wanted)
        place = self.source.place(node)
        if len(parts) < wanted - len(starred):
            needed = f"{'at least ' if starred else ''}{wanted - len(starred)}"
            raise place.error(f"need {needed} values to unpack but found only {len(parts)}")
        if len(parts) > wanted and not starred:
            raise place.error(f"too many values to unpack: need {wanted} but found {len(parts)}")
        if starred:
            first = starred[0]
            last = len(parts) - (wanted - first - 1)
            middle = Simple(self.tuple_of([part.value(self) for part in parts[first:last]]))
            parts = [*parts[:first], middle, *parts[last:]]
        for target, part in zip(node.elts, parts):
            target = target.value if isinstance(target, ast.Starred) else target
            self.assign_target(target, part, right if isinstance(right, ast.Tuple) else None)

    def _assign_item(self, node: ast.Subscript, sugar: Sugar) -> None:
        with self.at(self.source.place(node)):
            owner, value = self.value(node.value), sugar.value(self)
            if isinstance(owner.type(), TensorType):
                set_tensor_item(self, owner, node.slice, value)
                return
            if isinstance(node.slice, ast.Slice):
                raise self.error(
                    "Sliced expression not yet supported for subscripted assignment. File a bug if you want this"
                )
            if isinstance(owner.type(), TupleType):
                raise self.error(f"{owner.type()} does not support subscripted assignment")
            index = self.value(node.slice)
            if self.magic(owner, "__setitem__", [index, value]) is None:
                call_operator(self, "aten::_set_item", [owner, index, value])

    def _assign_annotated(self, node: ast.AnnAssign) -> End:
        kind = self.annotations.type(node.annotation)
        if node.value is None:
            return End.FALLS
        sugar = self.sugar(node.value, kind)
        if isinstance(node.target, ast.Name):
            with self.at(self.source.place(node.target)):
                self.assign(node.target.id, Simple(sugar.value(self)), kind)
        else:
            self.assign_target(node.target, Simple(as_type(self, sugar.value(self), kind)))
        return End.FALLS

    def _augmented(self, node: ast.AugAssign) -> End:
        """`x += y`: tensors and lists are written to, others are assigned."""
        target = node.target
        if isinstance(target, ast.Subscript):
            owner = self.value(target.value)
            if isinstance(owner.type(), TensorType):
                view, indices = indexed_views(self, owner, target.slice)
                if not indices:
                    self._in_place(node.op, view, self.value(node.value))
                    return End.FALLS
            self._assign_item(target, Simple(self._operation(node.op, self.value(target), self.value(node.value))))
            return End.FALLS
        left, right = self.value(target), self.value(node.value)
        self.assign_target(target, Simple(self._in_place(node.op, left, right)))
        return End.FALLS

    def _in_place(self, op: ast.operator, left: Value, right: Value) -> Value:
        """What a value is after `op=`: itself, written to, if there is such an operator; else another."""
        name = _IN_PLACE.get(type(op))
        if isinstance(left.type(), TensorType) and name is not None:
            return call_operator(self, name, [left, right])
        if isinstance(left.type(), ListType) and isinstance(op, ast.Add) and isinstance(right.type(), ListType):
            return call_operator(self, "aten::add_", [left, right])
        return self._operation(op, left, right)

    # Others

    def _expression(self, node: ast.Expr) -> End:
        if not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
            self.sugar(node.value)
        return End.FALLS

    def _closure(self, node: ast.FunctionDef) -> End:
        self.env.set(node.name, Closure(node), self.level, None)
        return End.FALLS

    def value_of_body(self, node: ast.FunctionDef) -> Value:
        """What a function inside of this one gives, which knows the variables that there are."""
        before = self.env.copy()
        self.run([(each, self.level) for each in node.body[:-1]])
        last = node.body[-1]
        with self.reading(last):
            value = self.value(last.value) if isinstance(last, ast.Return) and last.value else self.constant(None)
        self.env = before
        return value

    def _pass(self, node: ast.stmt) -> End:
        return End.FALLS

    def _delete(self, node: ast.Delete) -> End:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                call_operator(self, "aten::Delete", [self.value(target.value), self.value(target.slice)])
            elif isinstance(target, ast.Name):
                self.lookup(target.id)
                self.env.variables.pop(target.id, None)
            else:
                raise self.error("Only list and dict elements and variables can be deleted")
        return End.FALLS

    def _with(self, node: ast.With) -> End:
        before = list(self._modes)
        for item in node.items:
            mode = self.sugar(item.context_expr)
            if not isinstance(mode, GradMode):
                raise self.error("with statements are for no_grad() and enable_grad()")
            self._modes.append((mode.enter(self), self._loops))
        leave = functools.partial(self._leave_modes, self._modes[len(before) :])
        end = self.run([*[(each, self.level) for each in node.body], (leave, self.level)])
        self._modes = before
        return end

    def _leave_modes(self, modes: Sequence[tuple[Value, int]]) -> None:
        """Leaves the blocks of with statements: what the outermost found is set again."""
        if modes:
            call_operator(self, "aten::set_grad_enabled", [modes[0][0]])

    def _statement(self, node: ast.stmt) -> End:
        return _COMPILED[type(node)](self, node)


_COMPILED: dict[type[ast.stmt], Callable[..., End]] = {
    ast.Assign: Statements._assign,
    ast.AnnAssign: Statements._assign_annotated,
    ast.AugAssign: Statements._augmented,
    ast.Return: Statements._return,
    ast.Break: Statements._break,
    ast.Continue: Statements._break,
    ast.Raise: Statements._raise,
    ast.Assert: Statements._assert,
    ast.While: Statements._while,
    ast.For: Statements._for,
    ast.Expr: Statements._expression,
    ast.FunctionDef: Statements._closure,
    ast.Pass: Statements._pass,
    ast.Delete: Statements._delete,
    ast.With: Statements._with,
}
_IN_PLACE: dict[type[ast.operator], str] = {
    kind: f"{BINARY[kind]}_" for kind in (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.Pow)
}


def _prefixed(emit: Statements, text: Value) -> Value:
    """The message of an assertion that fails."""
    return call_operator(emit, "aten::add", [emit.constant("AssertionError: "), text])


def _is_new(base: Environment, name: str, origin: Sugar) -> bool:
    known = base.get(name)
    return known is None or known.origin is not origin


def _merged_end(ends: Sequence[End]) -> End:
    first, second = ends
    if End.RAISES in ends:
        return second if first is End.RAISES else first
    if first is End.EXITS and second is End.EXITS:
        return End.EXITS
    return End.FALLS if first is End.FALLS and second is End.FALLS else End.MAYBE


def _assigned(node: ast.While | ast.For) -> set[str]:
    """Names that the body of a loop assigns."""
    found, waiting = set[str](), list[ast.AST](node.body)
    if isinstance(node, ast.For):
        waiting.append(node.target)
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            found.add(part.id)
        if isinstance(part, (ast.ListComp, ast.DictComp, ast.GeneratorExp)):
            continue
        waiting += ast.iter_child_nodes(part)
    return found

"""Random programs as text of the IR: tensors of two rows and two columns, ints, bools, lists and tuples of them,
branches, loops, views, writes."""

import random


class Writer:
    """Writes statements, and knows which names there are of each type."""

    # All of it is exact, so that every system gives the same numbers.
    UNARY = "relu sign neg abs t detach".split()
    BINARY = "mul maximum add sub".split()

    def __init__(self, chooser: random.Random, writes: bool, views: bool = True) -> None:
        self.chooser, self.writes, self.views = chooser, writes, views
        self.lines: list[str] = []
        self.count = 0
        self.depth = 0
        self.names: dict[str, list[str]] = {}

    def program(self, statements: int) -> str:
        head = ["%x : Tensor", "%y : Tensor", "%n : int", "%c : bool"]
        self.names = {"Tensor": ["%x", "%y"], "int": ["%n"], "bool": ["%c"], "str": []}
        self.names |= {kind: [] for kind in ("Tensor[]", "(Tensor, int)", "Dict(str, Tensor)")}
        for value in range(3):
            self.constant("int", value)
        self.constant("bool", 1)
        self.constant("bool", 0)
        self.give("str", 'prim::Constant[value="key"]()')
        for _ in range(statements):
            self.statement()
        results = [self.pick("Tensor"), self.pick("int"), self.pick("Tensor")]
        if self.names["Tensor[]"] and self.chooser.random() < 0.5:
            results.append(self.pick("Tensor[]"))
        return "\n".join([f"graph({', '.join(head)}):", *self.lines, f"  return ({', '.join(results)})", ""])

    def pick(self, kind: str) -> str:
        """A name of a type; late ones more often."""
        names = self.names[kind]
        return names[-1] if self.chooser.random() < 0.4 else self.chooser.choice(names)

    def write(self, text: str) -> None:
        self.lines.append("  " * (self.depth + 1) + text)

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def give(self, kind: str, text: str) -> str:
        name = self.name()
        self.write(f"{name} : {kind} = {text}")
        self.names[kind].append(name)
        return name

    def constant(self, kind: str, value: int) -> str:
        return self.give(kind, f"prim::Constant[value={value}]()")

    def statement(self) -> None:
        kinds = [self.unary, self.unary, self.binary, self.binary, self.number, self.compare, self.pair]
        kinds += [self.listed, self.listed, self.mapped, self.constants] + [self.branch, self.loop] * (self.depth < 2)
        kinds += [self.in_place, self.in_place] * self.writes
        self.chooser.choice(kinds)()

    def unary(self) -> None:
        name = self.chooser.choice(self.UNARY if self.views else self.UNARY[:-2])
        self.give("Tensor", f"aten::{name}({self.pick('Tensor')})")

    def one(self) -> str:
        return self.constant("int", 1)

    def binary(self) -> None:
        name = self.chooser.choice(self.BINARY)
        alpha = f", {self.one()}" if name in ("add", "sub") else ""
        self.give("Tensor", f"aten::{name}({self.pick('Tensor')}, {self.pick('Tensor')}{alpha})")

    def in_place(self) -> None:
        # What is read is new: nobody may read and write one memory in two orders at once.
        one, two = self.pick("Tensor"), self.give("Tensor", f"aten::neg({self.pick('Tensor')})")
        texts = [f"relu_({one})", f"neg_({one})", f"mul_({one}, {two})", f"add_({one}, {two}, {self.one()})"]
        self.give("Tensor", f"aten::{self.chooser.choice(texts)}")

    def constants(self) -> None:
        self.constant("int", self.chooser.randrange(4))

    def number(self) -> None:
        self.give("int", f"aten::{self.chooser.choice(['add', 'sub'])}({self.pick('int')}, {self.pick('int')})")

    def compare(self) -> None:
        self.give("bool", f"aten::{self.chooser.choice(['lt', 'eq', 'ge'])}({self.pick('int')}, {self.pick('int')})")

    def pair(self) -> None:
        if self.names["(Tensor, int)"] and self.chooser.random() < 0.5:
            one, two = self.name(), self.name()
            self.write(f"{one} : Tensor, {two} : int = prim::TupleUnpack({self.pick('(Tensor, int)')})")
            self.names["Tensor"].append(one)
            self.names["int"].append(two)
        else:
            self.give("(Tensor, int)", f"prim::TupleConstruct({self.pick('Tensor')}, {self.pick('int')})")

    def listed(self) -> None:
        what = self.chooser.randrange(8)
        if what == 0 or not self.names["Tensor[]"]:
            self.give("Tensor[]", f"prim::ListConstruct({self.pick('Tensor')}, {self.pick('Tensor')})")
        elif what == 1:
            self.give("int", f"aten::len({self.pick('Tensor[]')})")
        elif what == 2:
            self.give("Tensor", f"aten::__getitem__({self.pick('Tensor[]')}, {self.constant('int', 0)})")
        elif what == 3:
            self.give("Tensor[]", f"aten::add({self.pick('Tensor[]')}, {self.pick('Tensor[]')})")
        elif what == 4 and self.views:
            self.give("Tensor[]", f"aten::chunk({self.pick('Tensor')}, {self.one()}, {self.constant('int', 0)})")
        elif what == 5 and self.writes:
            self.give("Tensor[]", f"aten::append({self.pick('Tensor[]')}, {self.pick('Tensor')})")
        elif what == 6 and self.writes:
            self.write(f"aten::extend({self.pick('Tensor[]')}, {self.pick('Tensor[]')})")
        elif self.writes:
            place = self.constant("int", 0)
            self.give("Tensor[]", f"aten::_set_item({self.pick('Tensor[]')}, {place}, {self.pick('Tensor')})")

    def mapped(self) -> None:
        what, key, kind = self.chooser.randrange(3), self.names["str"][0], "Dict(str, Tensor)"
        if what == 0 or not self.names[kind]:
            self.give(kind, f"prim::DictConstruct({key}, {self.pick('Tensor')})")
        elif what == 1:
            self.give("Tensor", f"aten::__getitem__({self.pick(kind)}, {key})")
        elif self.writes:
            self.write(f"aten::_set_item({self.pick(kind)}, {key}, {self.pick('Tensor')})")

    def block(self, head: str, inputs: dict[str, str], end: str = "") -> None:
        before = {kind: list(names) for kind, names in self.names.items()}
        self.depth += 1
        self.write(head)
        self.depth += 1
        for name, kind in inputs.items():
            self.names[kind].append(name)
        for _ in range(self.chooser.randrange(4)):
            self.statement()
        self.write(f"-> ({end}{self.pick('Tensor')}, {self.pick('int')})")
        self.depth -= 2
        self.names = before

    def outputs(self, text: str) -> tuple[str, str]:
        one, two = self.name(), self.name()
        self.write(f"{one} : Tensor, {two} : int = {text}")
        return one, two

    def branch(self) -> None:
        one, two = self.outputs(f"prim::If({self.pick('bool')})")
        self.block("block0():", {})
        self.block("block1():", {})
        self.names["Tensor"].append(one)
        self.names["int"].append(two)

    def loop(self) -> None:
        turns = self.constant("int", self.chooser.randrange(4)) if self.chooser.random() < 0.5 else "%n"
        on = self.constant("bool", 1)
        one, two = self.outputs(f"prim::Loop({turns}, {on}, {self.pick('Tensor')}, {self.pick('int')})")
        turn, tensor, number = self.name(), self.name(), self.name()
        inputs = {turn: "int", tensor: "Tensor", number: "int"}
        self.block(f"block0({', '.join([f'{name} : {kind}' for name, kind in inputs.items()])}):", inputs, f"{on}, ")
        self.names["Tensor"].append(one)
        self.names["int"].append(two)

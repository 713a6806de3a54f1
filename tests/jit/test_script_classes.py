"""Classes of Python in programs: named tuples, enums, and classes with methods."""

import enum
import random
import warnings
from typing import List, NamedTuple  # noqa: UP035

import numpy as np
import pytest
from oracles import oracle

import weft


class Point(NamedTuple):
    x: int
    y: float = 2.5


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Stack:
    def __init__(self, size: int):
        self.items: List[int] = []  # noqa: UP006
        self.size = size

    def push(self, value: int) -> bool:
        if len(self.items) >= self.size:
            return False
        self.items.append(value)
        return True

    def total(self):
        total = 0
        for value in self.items:
            total += value
        return total

    def __add__(self, number: int):
        self.push(number)
        return self.total()


class Child(Stack):
    pass


def named(n: int):
    p = Point(n)
    q = Point(x=n, y=1.5)
    x, y = q
    return p.x + q.x, p.y * q.y, p[0], x, y


def takes_named(p: Point) -> float:
    return p.x * p.y


def chosen(c: Color, n: int):
    if c == Color.RED:
        return n + Color.BLUE.value, c.name
    return -n, c.name


def stacked(n: int):
    stack = Stack(3)
    for i in range(n):
        if not stack.push(i * 2):
            break
    stack.size = 10
    return stack.total(), stack + 100, stack.size


def inherited(n: int):
    return Child(n).total()


def wrong_attribute(n: int):
    stack = Stack(n)
    stack.height = 3
    return n


def wrong_type(n: int):
    stack = Stack(n)
    stack.size = "large"
    return n


@pytest.mark.parametrize("function", [named, stacked])
def test_classes_in_programs(function):
    number = int(np.random.default_rng(random.getrandbits(32)).integers(8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert weft.jit.script(function)(number) == oracle("torch").jit.script(function)(number)


def test_values_of_classes_are_given_and_had():
    number = int(np.random.default_rng(random.getrandbits(32)).integers(8))
    assert weft.jit.script(takes_named)(Point(number, 2.0)) == number * 2.0
    compiled = weft.jit.script(chosen)
    assert [compiled(color, number) for color in Color] == [chosen(color, number) for color in Color]


def test_what_is_wrong_with_classes():
    with pytest.raises(TypeError, match=r"does not support class inheritance[\s\S]*Stack"):
        weft.jit.script(inherited)
    with pytest.raises(RuntimeError, match=r"nonexistent attribute: height[\s\S]*line \d+[\s\S]*HERE"):
        weft.jit.script(wrong_attribute)
    with pytest.raises(RuntimeError, match="Wrong type for attribute assignment"):
        weft.jit.script(wrong_type)
    with pytest.raises(TypeError, match="no class that programs know"):
        weft.jit.script(int)

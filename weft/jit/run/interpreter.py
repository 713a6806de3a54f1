"""Runs instructions. Calls of programs are frames on a list of its own: they may be as deep as memory allows."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from typing import Any

from ...base.errors import Error, RunError
from ...eager.autograd.modes import modes
from ...eager.torch_core.future import fork
from ..nodes import Node
from .code import CALL, JUMP, MOVE, OP, RAISE, RETURN, TURN, UNLESS, Code, Forked, Instruction

DEEPEST = 1_000_000  # calls in calls
FAILED = "The following operation failed in the TorchScript interpreter."
_CONTEXT = 2  # lines shown before and after the one that failed


class JITException(Error):
    """An exception that a program raised. Its text has the line that did; `python_class_name` is the class that the
    program named, and `original_message` its message."""

    def __init__(self, what: str, python_class_name: str | None = None, original_message: str = "") -> None:
        super().__init__(what)
        self.python_class_name, self.original_message = python_class_name, original_message


class _Raised(Exception):
    """What `prim::RaiseException` raises inside the interpreter."""

    def __init__(self, message: str, name: str | None) -> None:
        self.message, self.name = message, name


class Frame:
    """A call that is under way: instructions, the next of them, registers."""

    __slots__ = ("at", "code", "registers")

    def __init__(self, code: Code, values: Sequence[Any]) -> None:
        if len(values) != code.input_count:
            raise RunError(f"expected {code.input_count} inputs, but got {len(values)}", where=code.name)
        self.code, self.at = code, 0
        self.registers = [*values, *[None] * (code.registers - len(values))]


def run(code: Code, values: Sequence[Any]) -> list[Any]:
    """What a program gives for some inputs.

    >>> from weft.jit.parse import parse_ir
    >>> run(Code(parse_ir('''
    ... graph(%a : int, %b : int):
    ...   %c : int = aten::mul(%a, %b)
    ...   return (%c)
    ... ''')), [6, 7])
    [42]
    """
    frames, grad = [Frame(code, values)], modes.grad
    try:
        return _run(frames)
    except BaseException as error:
        modes.grad = grad  # the program may have been about to
        raise _located(error, frames) from (None if isinstance(error, _Raised) else error)


def _located(error: BaseException, frames: Sequence[Frame]) -> BaseException:
    """An error with the lines of the program that led to it."""
    if isinstance(error, _Raised):
        text = _traceback(frames, f"{error.name or 'RuntimeError'}: {error.message}")
        return JITException(text, error.name, error.message)
    return RunError(_traceback(frames, f"RuntimeError: {error}")) if isinstance(error, Exception) else error


def _run(frames: list[Frame]) -> list[Any]:
    frame = frames[-1]
    while True:
        registers, instructions = frame.registers, frame.code.instructions
        instruction = instructions[frame.at]
        frame.at += 1
        code, inputs, outputs, drops, target, call, _ = instruction
        values = [registers[place] for place in inputs]
        for place in drops:
            registers[place] = None
        if code == OP:
            result = call(*values)
            if len(outputs) == 1:
                registers[outputs[0]] = result
            elif outputs:
                _put(registers, outputs, result)
        elif code == MOVE:
            for place, value in zip(outputs, values):
                registers[place] = value
        elif code == JUMP:
            frame.at = target
        elif code == UNLESS:
            if not values[0]:
                frame.at = target
        elif code == TURN:
            count, most, going = values
            if going and count < most:
                registers[inputs[0]], registers[outputs[0]] = count + 1, count
            else:
                frame.at = target
        elif code == CALL:
            callee, values = _callee(instruction, values)
            if isinstance(callee, Forked):
                registers[outputs[0]] = fork(_beside, callee.executable(), values, modes.grad)
            elif hasattr(callee, "executable"):  # a `Runnable`
                frames.append(Frame(callee.executable(), values))
                if len(frames) > DEEPEST:
                    raise RunError(f"calls are nested more than {DEEPEST} deep", hint="does the recursion end?")
                frame = frames[-1]
            else:
                result = callee(*values)
                _put(registers, outputs, [result] if len(outputs) == 1 else result)
        elif code == RAISE:
            message, name = (*values, None)[:2]
            raise _Raised(message, name)
        elif code == RETURN:
            frames.pop()
            if not frames:
                return values
            frame = frames[-1]
            places = frame.code.instructions[frame.at - 1].outputs
            if len(places) == 1 and len(values) != 1:
                values = [tuple(values)]
            _put(frame.registers, places, values)


def _beside(code: Code, values: Sequence[Any], grad: bool) -> Any:
    """What a program gives, in a thread of its own: with the mode of the one that asked for it."""
    before, modes.grad = modes.grad, grad
    try:
        (result,) = run(code, values)
        return result
    finally:
        modes.grad = before


def _put(registers: list[Any], outputs: tuple[int, ...], results: Any) -> None:
    for place, value in zip(outputs, results or ()):
        registers[place] = value


def _callee(instruction: Instruction, values: list[Any]) -> tuple[Any, list[Any]]:
    """What a CALL runs, and with which values."""
    if instruction.call is not None:
        return instruction.call, values
    node = instruction.node
    assert node is not None
    if node.kind() == "prim::CallFunction":
        return values[0], values[1:]
    return values[0].find_method(node.s("name")), values  # type: ignore[attr-defined]


# Where it went wrong


def _traceback(frames: Sequence[Frame], what: str) -> str:
    lines = [FAILED, "Traceback of TorchScript (most recent call last):"]
    shown = frames if len(frames) <= 20 else [*frames[:10], *frames[-10:]]
    for place, frame in enumerate(shown):
        if place == 10 and len(shown) < len(frames):
            lines.append(f"  ... {len(frames) - len(shown)} calls in between ...")
        node = frame.code.instructions[frame.at - 1].node
        if node is not None:
            lines.append(_place(node, frame.code.name))
    return "\n".join([*lines, what, ""])


def _place(node: Node, name: str) -> str:
    """The line of a node in the user's source, with those around it; the node itself if it has none."""
    found = re.fullmatch(r"(.*):(\d+):(\d+)", node.sourceRange())
    if found is None:
        return f"  in {name}\n    {str(node).splitlines()[0]}\n    {'~' * len(node.kind())} <--- HERE"
    file, row, column = found.group(1), int(found.group(2)), int(found.group(3))
    line = linecache.getline(file, row)
    word = re.match(r"[\w.]+|.", line[column:].rstrip() or " ")
    mark = " " * column + "~" * len(word.group() if word else "~") + " <--- HERE"
    before = [linecache.getline(file, number) for number in range(max(row - _CONTEXT, 1), row)]
    after = [linecache.getline(file, number) for number in range(row + 1, row + 1 + _CONTEXT)]
    text = [each.rstrip("\n") for each in (*before, line)] + [mark] + [each.rstrip("\n") for each in after if each]
    return "\n".join([f'  File "{file}", line {row}, in {name}', *text])

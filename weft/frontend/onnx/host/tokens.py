"""Text taken apart into tokens, on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....base.errors import FormatError, ShapeError
from ....base.memory import require
from ....core.interpret import Array
from ..node import OnnxNode
from ..registry import host_step
from .regex import longest_matches

_BEGIN, _END = "\x02", "\x03"  # what marks the ends of a text


@host_step("Tokenizer", domain="com.microsoft")
def tokenizer(call: OnnxNode, x: Array) -> list[Array]:
    """The tokens of each text along a new last axis, filled up to the longest: what an expression finds, or what is
    between separators, which are expressions too; of a separator that is empty, the characters."""
    if x.ndim not in (1, 2):
        raise ShapeError(f"text of shape {x.shape}", why="a Tokenizer takes one or two axes")
    split, shortest = _splitting(call), call.attr("mincharnum", 1)
    rows = [[token for token in split(text) if len(token) >= shortest] for text in x.ravel().tolist()]
    if call.attr("mark", 0):
        rows = [[_BEGIN, *row, _END] for row in rows]
    width = max(map(len, rows), default=0)
    require(8 * width * len(rows), f"{len(rows)} texts of up to {width} tokens")
    made = np.full((len(rows), width), call.attr("pad_value", ""), object)
    for line, row in zip(made, rows):
        line[: len(row)] = row
    return [made.reshape(*x.shape, width)]


def _splitting(call: OnnxNode) -> Callable[[str], list[str]]:
    expression, separators = call.attr("tokenexp"), call.attr("separators")
    if (expression is None) == (separators is None):
        raise FormatError("a Tokenizer has either tokenexp or separators")
    if expression is not None:
        find = longest_matches(expression)
        return lambda text: [text[begin:end] for begin, end in find(text)]
    if separators == [""]:
        return list
    finds = [longest_matches(separator) for separator in separators]

    def split(text: str) -> list[str]:
        pieces = [text]
        for find in finds:
            pieces = [piece for whole in pieces for piece in _between(whole, find(whole))]
        return pieces

    return split


def _between(text: str, found: list[tuple[int, int]]) -> list[str]:
    """What is left of a text without some of its parts."""
    ends = [0, *(end for _, end in found)]
    begins = [*(begin for begin, _ in found), len(text)]
    return [text[end:begin] for end, begin in zip(ends, begins)]

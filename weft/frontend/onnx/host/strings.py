"""Steps on the host for text, which is arrays of str; and for counts of the words in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ....base.dtype import BOOL, DType, is_float
from ....base.errors import FormatError, InvalidValue, ShapeError
from ....base.memory import require
from ..node import OnnxNode
from ..registry import host_step
from ..tensors import dtype_of
from .regex import full_match

Array = np.ndarray


def _texts(items: Iterable[str], shape: Sequence[int]) -> Array:
    """Text as an array, of whatever shape."""
    made = np.empty(shape, object)
    made.reshape(-1)[:] = list(items)
    return made


@host_step("Constant", numbers=False)
def constant(call: OnnxNode) -> list[Array]:
    """A tensor, a list, or a single text."""
    given = (call.attr(name) for name in ("value", "value_strings", "value_string"))
    return [np.array(next(data for data in given if data is not None), object)]


@host_step("StringConcat", since=20)
def concat(call: OnnxNode, x: Array, y: Array) -> list[Array]:
    return [np.asarray(x + y, object)]


@host_step("StringSplit", since=20)
def split(call: OnnxNode, x: Array) -> list[Array]:
    """The parts between delimiters, with empty ones behind where others have more, and how many there
    are. Without a delimiter they are words."""
    delimiter, most = call.attr("delimiter") or None, call.attr("maxsplit", -1)
    lists = [(text if delimiter else text.strip()).split(delimiter, most) for text in x.ravel()]
    counts = np.array([len(parts) for parts in lists], np.int64)
    widest = int(counts.max(initial=0))
    require(8 * widest * len(lists), f"{len(lists)} texts of up to {widest} parts")
    padded = [part for parts in lists for part in (*parts, *[""] * (widest - len(parts)))]
    return [_texts(padded, (*x.shape, widest)), counts.reshape(x.shape)]


_CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


@host_step("StringNormalizer", since=10)
def normalized(call: OnnxNode, x: Array) -> list[Array]:
    """Text without some words, and in one case; a single empty one where nothing is left. Python's
    rules of case hold in every locale."""
    change, cased = _CASES.get(call.attr("case_change_action")), call.attr("is_case_sensitive")
    if change is None:
        raise FormatError(f"case_change_action is {call.attr('case_change_action')!r}")
    if x.ndim not in (1, 2) or (x.ndim == 2 and len(x) != 1):
        raise ShapeError(f"text of shape {x.shape}", why="StringNormalizer takes one row")
    seen = str if cased else str.lower
    left_out = {seen(word) for word in call.attr("stopwords", [])}
    words = [change(word) for word in x.ravel() if seen(word) not in left_out] or [""]
    return [_texts(words, (len(words),) if x.ndim == 1 else (1, len(words)))]


@host_step("RegexFullMatch", since=20)
def matches(call: OnnxNode, x: Array) -> list[Array]:
    """Whether each text as a whole is what a pattern says."""
    is_match = full_match(call.attr("pattern", ""))
    return [np.array([is_match(text) for text in x.ravel()], bool).reshape(x.shape)]


# Numbers.


@host_step("Cast", "CastLike", numbers=False)
def cast(call: OnnxNode, x: Array, like: Array | None = None) -> list[Array]:
    """To text from numbers, or the other way round."""
    if x.dtype != object:
        return [_texts([_shown(number) for number in x.ravel().tolist()], x.shape)]
    if like is not None and like.dtype == object:
        return [x]
    dtype = like.dtype if like is not None else dtype_of(call.attr("to"), "attribute 'to'")
    return [_numbers(x.ravel(), dtype).reshape(x.shape)]


def _shown(number: float) -> str:
    """A number as text: eight digits of a float."""
    if not isinstance(number, float):
        return str(int(number))
    text = f"{number:.8g}"
    return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(text, text)


def _numbers(texts: Iterable[str], dtype: DType) -> Array:
    read = [_number(text) for text in texts]
    if is_float(dtype):
        with np.errstate(over="ignore"):
            return np.array(read, np.float64).astype(dtype)
    if any(number != number or abs(number) == np.inf for number in read):
        raise InvalidValue(f"NaN or an infinity as {dtype}")
    whole = [int(number) for number in read]
    if dtype == BOOL:
        return np.array(whole, object).astype(bool)
    bits = 8 * dtype.itemsize  # those above are lost
    return np.array([number % (1 << bits) for number in whole], np.uint64).astype(f"u{dtype.itemsize}").view(dtype)


def _number(text: str) -> float:
    """A whole number with all its digits."""
    try:
        if "_" in text:  # which Python allows between digits
            raise ValueError
        return int(text) if text.strip().lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise InvalidValue(f"{text[:40]!r} is no number") from None


# Counts of words.


@host_step("TfIdfVectorizer", since=9)
def tf_idf(call: OnnxNode, x: Array) -> list[Array]:
    """How often each n-gram of a pool is in a row, or whether, times its weight; elements of an
    n-gram are next to each other, or have up to so many others between them."""
    if x.ndim not in (1, 2):
        raise ShapeError(f"words of shape {x.shape}", why="TfIdfVectorizer takes rows of them")
    pool = call.attr("pool_strings") or call.attr("pool_int64s") or []
    grams = _grams(pool, call.attr("ngram_counts"))
    places = np.array(call.attr("ngram_indexes"), np.int64)
    mode, weights = call.attr("mode"), call.attr("weights") or [1.0] * len(places)
    if len(grams) != len(places) or len(weights) != len(places) or min(places, default=-1) < 0:
        raise FormatError(f"{len(grams)} n-grams, {len(places)} places for them and {len(weights)} weights")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise FormatError(f"the mode is {mode!r}")
    rows = np.atleast_2d(x).tolist()
    width = int(places.max()) + 1
    require(4 * width * len(rows), f"{len(rows)} rows of {width} counts")
    counts = np.zeros((len(rows), width), np.float32)
    sizes = range(call.attr("min_gram_length"), call.attr("max_gram_length") + 1)
    numbers = {gram: number for number, gram in enumerate(grams) if len(gram) in sizes}
    scale = np.ones(len(places)) if mode == "TF" else np.asarray(weights)
    for row, words in zip(counts, rows):
        found = [numbers[gram] for gram in _said(words, numbers, call.attr("max_skip_count"))]
        found = sorted(set(found)) if mode == "IDF" else found
        np.add.at(row, places[found], scale[found])
    return [counts if x.ndim == 2 else counts[0]]


def _grams(pool: Sequence[Any], starts: Sequence[int]) -> list[tuple[Any, ...]]:
    """The n-grams of a pool: first the single words, then pairs and so on, from the starts."""
    grams: list[tuple[Any, ...]] = []
    for size, (start, stop) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1):
        if not 0 <= start <= stop <= len(pool) or (stop - start) % size:
            raise FormatError(f"n-grams of {size} from {start} to {stop} in a pool of {len(pool)}")
        grams += [tuple(pool[i : i + size]) for i in range(start, stop, size)]
    return grams


def _said(words: Sequence[Any], known: dict[tuple[Any, ...], int], skips: int) -> Iterator[tuple[Any, ...]]:
    """Every known n-gram that words make, as often as they do."""
    for size in sorted({len(gram) for gram in known}):
        for step in range(1, 2 if size == 1 else min(skips + 1, len(words)) + 1):
            lines = [words[step * place :] for place in range(size)]
            yield from (gram for gram in zip(*lines) if gram in known)

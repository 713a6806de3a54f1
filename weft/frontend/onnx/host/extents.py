"""Steps on the host for what has as many elements as the data says: those that are not 0, that are
chosen, that differ, and boxes that are left of many that overlap."""

from __future__ import annotations

import numpy as np

from ....base.errors import InvalidValue, ShapeError
from ....base.shape import normalize_axis, numel
from ..node import OnnxNode
from ..registry import host_step
from ..restated import OWN

_BLOCK = 64  # boxes that are compared with each other at once


@host_step("NonZero", since=9)
def non_zero(call: OnnxNode, x: np.ndarray) -> list[np.ndarray]:
    """Where the elements stand, a row an axis; a single number has one."""
    return [np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)]


@host_step("Compress", since=9)
def compress(call: OnnxNode, x: np.ndarray, condition: np.ndarray) -> list[np.ndarray]:
    """What the condition says nothing of is left out, and what it says of nothing is ignored."""
    axis = call.attr("axis")
    data, axis = (x.reshape(-1), 0) if axis is None else (x, normalize_axis(axis, x.ndim))
    return [np.compress(condition[: data.shape[axis]].astype(bool), data, axis)]


@host_step("Unique", since=11)
def unique(call: OnnxNode, x: np.ndarray) -> list[np.ndarray]:
    """The different elements, or slices along an axis; where each stands first, which one each
    element is, and how often it is there."""
    axis = call.attr("axis")
    data, axis = (x.reshape(-1), 0) if axis is None else (x, normalize_axis(axis, x.ndim))
    first, inverse, counts = _distinct(data, axis)
    if not call.attr("sorted"):
        order = np.argsort(first)
        first, inverse, counts = first[order], np.argsort(order)[inverse], counts[order]
    return [np.take(data, first, axis), *(part.astype(np.int64) for part in (first, inverse, counts))]


@host_step("Unique", domain="com.microsoft")
def unique_in_order(call: OnnxNode, x: np.ndarray) -> list[np.ndarray]:
    """The different elements in the order in which they come, which one each element is, and how often it is there."""
    first, inverse, counts = _distinct(x, 0)
    order = np.argsort(first)
    return [x[first[order]], np.argsort(order)[inverse].astype(np.int64), counts[order].astype(np.int64)]


@host_step("WithinLongest", domain=OWN)
def within_longest(call: OnnxNode, lengths: np.ndarray, number: np.ndarray, longest: np.ndarray) -> list[np.ndarray]:
    """The length of one sequence of a batch."""
    if lengths.ndim != 1 or not int(number) < len(lengths):
        raise ShapeError(f"sequence_lens of shape {lengths.shape} has no length for sequence {int(number)}")
    length = int(lengths[int(number)])
    if not 1 <= length <= int(longest):
        raise InvalidValue(
            f"sequence_lens[{int(number)}] is {length}", why=f"a sequence has 1 to {int(longest)} items here"
        )
    return [np.array(length, np.int64)]


@host_step("Lengthened", domain=OWN)
def lengthened(call: OnnxNode, items: np.ndarray, longest: np.ndarray) -> list[np.ndarray]:
    """Zeros behind the items, so that there are as many as in the longest sequence."""
    filled = np.zeros((int(longest), *items.shape[1:]), items.dtype)
    filled[: len(items)] = items
    return [filled]


def _distinct(data: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In the order of the elements. They are ranked first, so that slices of text are those of numbers."""
    slices = np.moveaxis(data, axis, 0)
    ranks = np.unique(slices, return_inverse=True)[1].reshape(len(slices), numel(slices.shape[1:]))
    if not ranks.size:  # slices without elements are all the same
        ranks = np.zeros((len(slices), 1), np.int64)
    _, first, inverse, counts = np.unique(ranks, axis=0, return_index=True, return_inverse=True, return_counts=True)
    return first, inverse.reshape(-1), counts


@host_step("NonMaxSuppression", since=10)
def non_max_suppression(
    call: OnnxNode,
    boxes: np.ndarray,
    scores: np.ndarray,
    most: np.ndarray | None = None,
    overlap: np.ndarray | None = None,
    least: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Image, class and number of the boxes that stay: in the order of their scores, one does unless
    it overlaps one before it too much."""
    if boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise ShapeError(f"boxes of shape {boxes.shape} have scores of shape {scores.shape}")
    count = 0 if most is None else int(most.reshape(()))
    share = np.float32(0 if overlap is None else overlap.reshape(()))
    if not 0 <= share <= 1:
        raise InvalidValue(f"boxes overlap too much from {share} on", why="it is a part of their union, 0 to 1")
    sides = _sides(boxes, bool(call.attr("center_point_box")))
    rows = []
    for image, label in np.ndindex(scores.shape[:2]) if count > 0 else ():
        row = scores[image, label]
        some = np.arange(row.size) if least is None else np.flatnonzero(row > least.reshape(()))
        kept = _left(sides[:, image], some[_falling(row[some])], count, share)
        rows.append(np.stack([np.full_like(kept, image), np.full_like(kept, label), kept], 1))
    return [np.concatenate(rows).astype(np.int64) if rows else np.zeros((0, 3), np.int64)]


def _falling(scores: np.ndarray) -> np.ndarray:
    """Where the greatest score stands, and so on; of equal ones, the first first. The bits of floats are
    put before their places, as numpy sorts whole numbers several times faster than it keeps an order."""
    known = np.where(np.isnan(scores), np.float32(-np.inf), scores) + np.float32(0)  # -0 is 0
    bits = known.view(np.uint32)
    rising = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    keys = np.sort(((~rising).astype(np.uint64) << 32) | np.arange(scores.size, dtype=np.uint64))
    return (keys & 0xFFFFFFFF).astype(np.int64)


def _sides(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """The lower and upper ends in both directions, first; boxes are two corners, or a centre and extents."""
    a, b, c, d = np.moveaxis(boxes, -1, 0)
    if centred:
        return np.stack([a - c / 2, a + c / 2, b - d / 2, b + d / 2])
    return np.stack([np.minimum(a, c), np.maximum(a, c), np.minimum(b, d), np.maximum(b, d)])


def _left(sides: np.ndarray, best: np.ndarray, count: int, share: np.float32) -> np.ndarray:
    """The first boxes, at most a count, none of which overlaps one before it too much."""
    kept = best[:0]
    for start in range(0, best.size, _BLOCK):
        block = best[start : start + _BLOCK]
        block = block[~_overlaps(sides[:, kept], sides[:, block], share).any(0)]
        covers = _overlaps(sides[:, block], sides[:, block], share)
        stays = np.ones(block.size, bool)
        for place, covered in enumerate(covers):
            if stays[place]:
                stays[place + 1 :] &= ~covered[place + 1 :]
        kept = np.concatenate([kept, block[stays]])
        if kept.size >= count:
            break
    return kept[:count]


def _overlaps(one: np.ndarray, other: np.ndarray, share: np.float32) -> np.ndarray:
    """Whether what each of some boxes has in common with each of others is more than a share of both together."""
    low0, high0, low1, high1 = one[:, :, None]
    with np.errstate(all="ignore"):
        along = np.minimum(high0, other[1]) - np.maximum(low0, other[0])
        across = np.minimum(high1, other[3]) - np.maximum(low1, other[2])
        common = np.maximum(along, 0) * np.maximum(across, 0)
        areas = (high0 - low0) * (high1 - low1) + (other[1] - other[0]) * (other[3] - other[2])
        return np.asarray((common > 0) & (common / (areas - common) > share))

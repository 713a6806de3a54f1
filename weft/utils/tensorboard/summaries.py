"""What is written about a run, as messages of event files: values of summaries with what TensorBoard's plugins read."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import DTypeError, InvalidType, InvalidValue
from ...eager.tensor.memory import array_of
from ...eager.tensor.tensor import Tensor
from .events import Message, encode
from .pictures import Pixels

Array = NDArray[Any]

_STRING = 7  # of the numbers of types
_TYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8, "int64": 9, "bool": 10,
    "uint16": 17, "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
_MOST_THRESHOLDS = 127
_PARTS_OF_MESHES = {"VERTEX": 1, "FACE": 2, "COLOR": 3}


def array(value: Any) -> Array:
    """The numbers of a tensor, or of what numpy takes."""
    return array_of(value.detach()) if isinstance(value, Tensor) else np.asarray(value)


def number(value: Any) -> float:
    """The only number of a tensor, or of what numpy takes."""
    found = array(value)
    if found.size != 1:
        raise InvalidValue(f"a number was expected, not {found.size} of them", where="a scalar of a summary")
    return float(found.reshape(()).item())


def for_plugin(name: str, content: bytes | None = None) -> Message:
    """Which plugin reads a value, and what it is told about it."""
    return {"plugin_data": {"plugin_name": name, "content": content}}


def tensor(values: Array) -> Message:
    """An array, its bytes as they lie in memory; TensorBoard reads no bfloat16, which is float32 there.

    >>> tensor(np.ones((2, 1), np.int16))["tensor_content"]
    b'\\x01\\x00\\x01\\x00'
    """
    values = values.astype(np.float32) if values.dtype.name == "bfloat16" else values
    kind = _TYPES.get(values.dtype.name)
    if kind is None:
        raise DTypeError(f"event files have no tensors of {values.dtype}")
    shape = {"dim": [{"size": size} for size in values.shape]}
    return {"dtype": kind, "tensor_shape": shape, "tensor_content": values.tobytes()}


def texts(values: Sequence[str | bytes], shape: Sequence[int]) -> Message:
    """An array of texts."""
    return {"dtype": _STRING, "tensor_shape": {"dim": [{"size": size} for size in shape]}, "string_val": values}


def histogram(values: Array, bins: Any, max_bins: int | None) -> Message:
    """How values are spread; `bins` are those of `numpy.histogram`, or TensorFlow's, which grow by a tenth each."""
    numbers = values.astype(np.float64).reshape(-1)
    if not numbers.size:
        raise InvalidValue("a histogram of no values", why="The input has no element.")
    counts, limits = np.histogram(numbers, _growing_bins() if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins is not None and counts.size > max_bins:
        starts = np.arange(0, counts.size, -(-counts.size // max_bins))
        counts, limits = np.add.reduceat(counts, starts), np.append(limits[starts], limits[-1])
    ends, filled = _used(counts, limits)
    squares = float(numbers @ numbers)
    return raw_histogram(numbers.min(), numbers.max(), numbers.size, numbers.sum(), squares, ends, filled)


def raw_histogram(
    low: float, high: float, count: int, total: float, squares: float, ends: Sequence[float], counts: Sequence[float]
) -> Message:
    """A histogram that is known already: the upper end and the count of each bucket."""
    if len(ends) != len(counts):
        raise InvalidValue(f"{len(ends)} ends of buckets and {len(counts)} counts")
    sums = {"min": low, "max": high, "num": count, "sum": total, "sum_squares": squares}
    return sums | {"bucket_limit": [float(end) for end in ends], "bucket": [float(each) for each in counts]}


def _growing_bins() -> Array:
    positive = np.cumprod([1e-12] + [1.1] * 773)  # to 1e20
    return np.concatenate([-positive[::-1], [0.0], positive])


def _used(counts: Array, limits: Array) -> tuple[list[float], list[float]]:
    """The upper ends and counts of the buckets from the first to the last with values, behind an empty one that tells
    where the first begins.

    >>> _used(np.array([0, 2, 0, 1, 0]), np.array([0, 1, 2, 3, 4, 5]))
    ([1, 2, 3, 4], [0, 2, 0, 1])
    """
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise InvalidValue("no value is in any bucket", why="The histogram is empty")
    first, last = int(filled[0]), int(filled[-1])
    return limits[first : last + 2].tolist(), [0, *counts[first : last + 1].tolist()]


def picture(first: Pixels, content: bytes) -> Message:
    """A file of a picture, of which the pixels are known."""
    height, width, channels = first.shape
    return {"height": height, "width": width, "colorspace": channels, "encoded_image_string": content}


def sound(samples: Array, sample_rate: int) -> Message:
    """Samples from -1 to 1 as a file of 16 bits a sample."""
    samples = np.clip(samples.astype(np.float64).reshape(-1), -1, 1)
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(sample_rate)
        written.writeframes((samples * 32767).astype("<i2").tobytes())
    head = {"sample_rate": sample_rate, "num_channels": 1, "length_frames": samples.size}
    return head | {"encoded_audio_string": file.getvalue(), "content_type": "audio/wav"}


def mesh(tag: str, parts: Mapping[str, Array], config: Mapping[str, Any] | None) -> list[Message]:
    """Values of a mesh, one for each of its parts, which are (batch, count, 3)."""
    components = sum(1 << _PARTS_OF_MESHES[name] for name in parts)
    found: list[Message] = []
    for name, part in parts.items():
        if part.ndim != 3 or part.shape[2] != 3:
            raise InvalidValue(f"a mesh of {name.lower()} of shape {part.shape}", why="it is (batch, count, 3)")
        told = {"name": tag, "content_type": _PARTS_OF_MESHES[name], "shape": part.shape}
        told |= {"components": components, "json_config": json.dumps(config or {}, sort_keys=True)}
        value = {"tag": f"{tag}_{name}", "tensor": tensor(part.astype(np.float32))}
        found.append(value | {"metadata": for_plugin("mesh", encode("Mesh", told))})
    return found


def curve(rows: Array, thresholds: int) -> Message:
    """A precision-recall curve: rows of true and false positives, true and false negatives, precision and recall."""
    told = encode("Curve", {"num_thresholds": min(thresholds, _MOST_THRESHOLDS)})
    return {"tensor": tensor(rows.astype(np.float32)), "metadata": for_plugin("pr_curves", told)}


def curve_rows(labels: Array, predictions: Array, thresholds: int, weights: Any) -> Array:
    """The rows of a curve: what is predicted above each of the thresholds, which are evenly spaced from 0 to 1."""
    thresholds = min(thresholds, _MOST_THRESHOLDS)
    buckets = np.floor(predictions.astype(np.float64) * (thresholds - 1)).astype(np.int64).reshape(-1)
    if buckets.size and not 0 <= buckets.min() <= buckets.max() < thresholds:
        raise InvalidValue("a prediction that is not from 0 to 1")
    true = labels.astype(np.float64).reshape(-1)
    weight = np.broadcast_to(1.0 if weights is None else array(weights).reshape(-1), true.shape)
    positives, negatives = (
        np.bincount(buckets, each * weight, thresholds)[::-1].cumsum()[::-1] for each in (true, 1 - true)
    )
    missed = positives[0] - positives
    precision = positives / np.maximum(1e-7, positives + negatives)
    recall = positives / np.maximum(1e-7, positives + missed)
    return np.stack([positives, negatives, negatives[0] - negatives, missed, precision, recall])


def layout(charts: Mapping[str, Mapping[str, Sequence[Any]]]) -> Message:
    """Which scalars are drawn together: categories of charts, each ("Multiline", tags) or ("Margin", three tags)."""
    categories = []
    for category, members in charts.items():
        found: list[Message] = []
        for title, (kind, tags) in members.items():
            if kind != "Margin":
                found.append({"title": title, "multiline": {"tag": tags}})
                continue
            if len(tags) != 3:
                raise InvalidValue(f"{len(tags)} tags of a margin", why="there are three: the value, its ends")
            series = dict(zip(("value", "lower", "upper"), tags))
            found.append({"title": title, "margin": {"series": [series]}})
        categories.append({"title": category, "chart": found})
    content = encode("Layout", {"category": categories})
    return {"tensor": texts([content], ()), "metadata": for_plugin("custom_scalars")}


def hparams(
    settings: Mapping[str, Any], metrics: Mapping[str, Any], domains: Mapping[str, Sequence[Any]] | None
) -> list[Message]:
    """The three values by which TensorBoard compares runs: what there is, what this run has, and that it is over."""
    infos, values = [], []
    for name, value in settings.items():
        if value is not None:
            kind, made = _setting(value)
            allowed = (domains or {}).get(name)
            choices = None if allowed is None else {"values": [_setting(each)[1] for each in allowed]}
            infos.append({"name": name, "type": kind, "domain_discrete": choices})
            values.append({"key": name, "value": made})
    for name, choices_of in (domains or {}).items():
        if name not in settings or not all(isinstance(each, type(settings[name])) for each in choices_of):
            raise InvalidType(f"the values that {name!r} may have are not of the type of a setting of that name")
    told = {
        "experiment": {"hparam_infos": infos, "metric_infos": [{"name": {"tag": tag}} for tag in metrics]},
        "session_start_info": {"hparams": values},
        "session_end_info": {"status": 1},
    }
    return [
        {"tag": f"_hparams_/{name}", "metadata": for_plugin("hparams", encode("Hparams", {name: content}))}
        for name, content in told.items()
    ]


def _setting(value: Any) -> tuple[int, Message]:
    """The number of its type, and the value."""
    if isinstance(value, bool):
        return 2, {"bool_value": value}
    if isinstance(value, str):
        return 1, {"string_value": value}
    if isinstance(value, int | float | Tensor | np.number):
        return 3, {"number_value": number(value)}
    raise InvalidValue(f"a setting of type {type(value).__name__}", why="it is a number, a bool, text or a tensor")

"""SummaryWriter: numbers, histograms, images, sounds and text of a run, in files that TensorBoard shows. The package
`tensorboard` writes them; it is needed by the writer, not by weft."""

from __future__ import annotations

import io
import os
import socket
import struct
import time
import wave
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InvalidValue
from ..eager.tensor.memory import array_of
from ..eager.tensor.tensor import Tensor

__all__ = ["SummaryWriter"]

Array = NDArray[Any]
_VERSION = "brain.Event:2"  # of the format of event files
_PNG = b"\x89PNG\r\n\x1a\n"
_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG's kinds of pixels, by channels


class SummaryWriter:
    """Writes what a run tells to a folder: `log_dir`, or one below `runs` that is named by the time and the machine.

    with SummaryWriter() as writer:
        writer.add_scalar("loss", loss, step)
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if log_dir is None:
            started = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{started}_{socket.gethostname()}{comment}")
        self.log_dir, self.purge_step = os.fspath(log_dir), purge_step
        self._options = (max_queue, flush_secs, filename_suffix)
        self._writers: dict[str, Any] = {}  # by folder
        self._protos = _protos()
        self._writer_of(self.log_dir)

    def _writer_of(self, folder: str) -> Any:
        writer = self._writers.get(folder)
        if writer is None:
            events, _, writer_of = self._protos
            writer = self._writers[folder] = writer_of(folder, *self._options)
            if self.purge_step is not None:  # what an earlier run wrote from this step on does not count
                start = events.SessionLog(status=events.SessionLog.START)
                writer.add_event(events.Event(wall_time=time.time(), step=self.purge_step, file_version=_VERSION))
                writer.add_event(events.Event(wall_time=time.time(), step=self.purge_step, session_log=start))
        return writer

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def _add(self, tag: str, step: Any, walltime: float | None, folder: str | None = None, **value: Any) -> None:
        events, summaries, _ = self._protos
        summary = summaries.Summary(value=[summaries.Summary.Value(tag=tag.lstrip("/"), **value)])
        event = events.Event(wall_time=time.time() if walltime is None else walltime, summary=summary)
        if step is not None:
            event.step = int(step)
        self._writer_of(self.log_dir if folder is None else folder).add_event(event)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number at a step; in the new style, in which TensorBoard reads it faster, it may be a double."""
        number = _number(scalar_value)
        if not new_style:
            self._add(tag, global_step, walltime, simple_value=number)
            return
        value = self._protos[1].Summary.Value()
        value.metadata.plugin_data.plugin_name = "scalars"
        value.metadata.data_class = 1  # a scalar
        value.tensor.dtype = 2 if double_precision else 1  # DT_DOUBLE, DT_FLOAT
        (value.tensor.double_val if double_precision else value.tensor.float_val).append(number)
        self._add(tag, global_step, walltime, metadata=value.metadata, tensor=value.tensor)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers at a step, for one plot: each is in a folder of its own beside the run's file."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            self._add(main_tag, global_step, walltime, folder, simple_value=_number(value))

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: str | Sequence[float] | int = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How values are spread; `bins` are those of `numpy.histogram`, or TensorFlow's, which grow by a tenth each."""
        numbers = _array(values).astype(np.float64).reshape(-1)
        if not numbers.size:
            raise InvalidValue("a histogram of no values", why="The input has no element.")
        counts, limits = np.histogram(
            numbers, _growing_bins() if isinstance(bins, str) and bins == "tensorflow" else bins
        )
        if max_bins is not None and counts.size > max_bins:
            starts = np.arange(0, counts.size, -(-counts.size // max_bins))
            counts, limits = np.add.reduceat(counts, starts), np.append(limits[starts], limits[-1])
        self.add_histogram_raw(
            tag,
            numbers.min(),
            numbers.max(),
            numbers.size,
            numbers.sum(),
            float(numbers @ numbers),
            *_used(counts, limits),
            global_step,
            walltime,
        )

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[float],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that is known already: the upper end and the count of each bucket."""
        if len(bucket_limits) != len(bucket_counts):
            raise InvalidValue(f"{len(bucket_limits)} ends of buckets and {len(bucket_counts)} counts")
        histogram = self._protos[1].HistogramProto(
            min=float(min),
            max=float(max),
            num=float(num),
            sum=float(sum),
            sum_squares=float(sum_squares),
            bucket_limit=[float(limit) for limit in bucket_limits],
            bucket=[float(count) for count in bucket_counts],
        )
        self._add(tag, global_step, walltime, histo=histogram)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: bytes, or floats from 0 to 1, with the axes that `dataformats` names."""
        self._add_png(tag, png(pixels(_array(img_tensor), dataformats)), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Several pictures of one size, side by side and one below the other."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A figure of matplotlib, or several, one after the other; they are cleared then, unless `close` is False."""
        for one in figure if isinstance(figure, list | tuple) else [figure]:
            file = io.BytesIO()
            one.savefig(file, format="png")
            self._add_png(tag, file.getvalue(), global_step, walltime)
            if close:
                one.clear()

    def _add_png(self, tag: str, content: bytes, step: Any, walltime: float | None) -> None:
        width, height = struct.unpack(">II", content[16:24])
        channels = {kind: count for count, kind in _COLOURS.items()}[content[25]]
        image = self._protos[1].Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=content
        )
        self._add(tag, step, walltime, image=image)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound: samples from -1 to 1."""
        samples = np.clip(_array(snd_tensor).astype(np.float64).reshape(-1), -1, 1)
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(sample_rate)
            sound.writeframes((samples * 32767).astype("<i2").tobytes())
        audio = self._protos[1].Summary.Audio(
            sample_rate=sample_rate,
            num_channels=1,
            length_frames=samples.size,
            encoded_audio_string=file.getvalue(),
            content_type="audio/wav",
        )
        self._add(tag, global_step, walltime, audio=audio)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Text, which may be Markdown."""
        value = self._protos[1].Summary.Value()
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = 7  # DT_STRING
        value.tensor.string_val.append(text_string.encode())
        value.tensor.tensor_shape.dim.add(size=1)
        self._add(f"{tag}/text_summary", global_step, walltime, metadata=value.metadata, tensor=value.tensor)

    def flush(self) -> None:
        """Has all that was added in the files when it returns."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Writes what is left, and ends; what is added later begins another file."""
        for writer in self._writers.values():
            writer.flush()
            writer.close()
        self._writers.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _protos() -> tuple[Any, Any, Any]:
    """The messages of event files and of summaries, and what writes files."""
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise ImportError(
            "SummaryWriter needs the package tensorboard, which is not installed\n  try:   pip install tensorboard"
        ) from error
    return event_pb2, summary_pb2, EventFileWriter


def _array(value: Any) -> Array:
    return array_of(value.detach()) if isinstance(value, Tensor) else np.asarray(value)


def _number(value: Any) -> float:
    found = _array(value)
    if found.size != 1:
        raise InvalidValue(f"a number was expected, not {found.size} of them", where="a scalar of a summary")
    return float(found.reshape(()).item())


def _growing_bins() -> Array:
    positive = 1e-12 * 1.1 ** np.arange(774)  # to 1e20
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


def pixels(image: Array, dataformats: str) -> NDArray[np.uint8]:
    """Bytes of height, width and channels, from an image whose axes are named by letters of NHWC, in any order. Several
    images (N) are laid out in rows of eight.

    >>> pixels(np.zeros((9, 3, 2, 2)), "NCHW").shape
    (4, 16, 3)
    """
    axes = dataformats.upper()
    if len(axes) != image.ndim or len(set(axes)) != len(axes) or not {"H", "W"} <= set(axes) <= set("NHWC"):
        raise InvalidValue(f"an image of shape {image.shape} has no axes {dataformats!r}")
    missing = [letter for letter in "NC" if letter not in axes]
    image = image.reshape(image.shape + (1,) * len(missing))
    image = image.transpose([(axes + "".join(missing)).index(letter) for letter in "NHWC"])
    if image.dtype != np.uint8:
        image = np.clip(image.astype(np.float32) * 255, 0, 255).astype(np.uint8)
    count, height, width, channels = image.shape
    columns = max(min(count, 8), 1)
    rows = -(-count // columns)
    page = np.zeros((rows * columns, height, width, channels), np.uint8)
    page[:count] = image
    page = page.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return page.reshape(rows * height, columns * width, channels)


def png(image: NDArray[np.uint8]) -> bytes:
    """A picture of height, width and 1 to 4 channels as a PNG file.

    >>> png(np.zeros((1, 2, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width, channels = image.shape
    if channels not in _COLOURS:
        raise InvalidValue(f"an image of {channels} channels", why="a picture has 1 to 4")
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each line says first that it is as it is
    lines[:, 1:] = image.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return _PNG + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts
    )

"""SummaryWriter: numbers, histograms, images, sounds, text and more of a run, in files that TensorBoard shows."""

from __future__ import annotations

import io
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from ...base.errors import InvalidType, InvalidValue, Unsupported
from . import summaries
from .embedding import write_embedding, write_settings
from .events import VERSION, EventFile, Message
from .graph import graph_of
from .pictures import Pixels, moving_png, pixels, png, with_boxes
from .summaries import array, for_plugin, number

__all__ = ["SummaryWriter"]

_START = 1  # of a session


class SummaryWriter:
    """Writes what a run tells to a folder: `log_dir`, or one below `runs` that is named by the time and the machine.
    What is added is in the files when a call returns, so nothing waits for `max_queue` others or for `flush_secs`.

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
        self.max_queue, self.flush_secs, self.filename_suffix = max_queue, flush_secs, filename_suffix
        self._files: dict[str, EventFile] = {}  # by folder
        self._embeddings: list[str] = []
        self._file_of(self.log_dir)

    def _file_of(self, folder: str) -> EventFile:
        file = self._files.get(folder)
        if file is None:
            file = self._files[folder] = EventFile(folder, self.filename_suffix)
            if self.purge_step is not None:  # what an earlier run wrote from this step on does not count
                began = {"wall_time": time.time(), "step": int(self.purge_step)}
                file.add(began | {"file_version": VERSION})
                file.add(began | {"session_log": {"status": _START}})
                self.purge_step = None
        return file

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def _add(self, values: Sequence[Message], step: Any, walltime: float | None, folder: str | None = None) -> None:
        event = {"wall_time": time.time() if walltime is None else walltime, "summary": {"value": values}}
        file = self._file_of(self.log_dir if folder is None else folder)
        file.add(event | {"step": None if step is None else int(step)})

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Settings of a run and what came of them, in a folder of their own, so that runs can be compared. Settings may
        be said to have only some values."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise InvalidType("hparam_dict and metric_dict should be dictionary.")
        values = summaries.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as run:
            for value in values:
                run._add([value], global_step, None)
            for tag, metric in metric_dict.items():
                run.add_scalar(tag, metric, global_step)

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
        found = number(scalar_value)
        value: Message = {"simple_value": found}
        if new_style:
            exact = np.asarray(found, np.float64 if double_precision else np.float32)
            value = {"tensor": summaries.tensor(exact), "metadata": for_plugin("scalars")}
        self._add([{"tag": tag, **value}], global_step, walltime)

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
            self._add([{"tag": main_tag, "simple_value": number(value)}], global_step, walltime, folder)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """All numbers of a tensor."""
        value = {"tensor": summaries.tensor(array(tensor)), "metadata": for_plugin("tensor")}
        self._add([{"tag": tag, **value}], global_step, walltime)

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
        self._add([{"tag": tag, "histo": summaries.histogram(array(values), bins, max_bins)}], global_step, walltime)

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
        histo = summaries.raw_histogram(min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add([{"tag": tag, "histo": histo}], global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: bytes, or floats from 0 to 1, with the axes that `dataformats` names."""
        self._add_pixels(tag, pixels(array(img_tensor), dataformats), global_step, walltime)

    def _add_pixels(self, tag: str, found: Pixels, step: Any, walltime: float | None) -> None:
        self._add([{"tag": tag, "image": summaries.picture(found, png(found))}], step, walltime)

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

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Sequence[str] | str | None = None,
    ) -> None:
        """A picture with red frames, of which `box_tensor` has (left, top, right, bottom)."""
        if rescale != 1 or labels is not None:
            raise Unsupported("add_image_with_boxes draws frames, and neither changes sizes nor writes labels")
        found = with_boxes(pixels(array(img_tensor), dataformats), array(box_tensor))
        self._add_pixels(tag, found, global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A figure of matplotlib, or several of one size in one picture; they are closed then, unless `close` is
        False."""
        drawn = [_drawn(one, close) for one in (figure if isinstance(figure, list) else [figure])]
        self.add_image(tag, np.stack(drawn), global_step, walltime, "NHWC")

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: int | None = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """Moving pictures (batch, time, channels, height, width), those of a batch beside each other: bytes, or floats
        from 0 to 1. They are written as a PNG file of several frames, which browsers show."""
        video = array(vid_tensor)
        if video.ndim != 5 or not video.shape[0] or not video.shape[1]:
            raise InvalidValue(f"a video of shape {video.shape}", why="it is (batch, time, channels, height, width)")
        columns = 1 << video.shape[0].bit_length() // 2  # twice as many as rows, or as many
        frames = [pixels(video[:, at], "NCHW", columns) for at in range(video.shape[1])]
        self._add([{"tag": tag, "image": summaries.picture(frames[0], moving_png(frames, fps))}], global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound: samples from -1 to 1."""
        self._add([{"tag": tag, "audio": summaries.sound(array(snd_tensor), sample_rate)}], global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Text, which may be Markdown."""
        value = {"tensor": summaries.texts([text_string], [1]), "metadata": for_plugin("text")}
        self._add([{"tag": f"{tag}/text_summary", **value}], global_step, walltime)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The graph of a module: what it calls when it is run on an input, or on a tuple of them. `verbose` prints the
        nodes; any containers may be given and returned, so `use_strict_trace` asks for nothing."""
        graph = graph_of(model, () if input_to_model is None else input_to_model)
        if verbose:
            for node in graph["node"]:
                print(f"{node['name']} = {node['op']}({', '.join(node['input'])})")
        self._file_of(self.log_dir).add({"wall_time": time.time(), "graph_def": graph})

    def add_embedding(
        self,
        mat: Any,
        metadata: Sequence[Any] | None = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Points, which are rows of `mat`, for the projector; they may have labels, of one column or of those that
        `metadata_header` names, and pictures (count, channels, height, width)."""
        pictures = None if label_img is None else array(label_img)
        step = 0 if global_step is None else int(global_step)
        written = write_embedding(self.log_dir, array(mat), metadata, pictures, step, tag, metadata_header)
        self._embeddings.append(written)
        write_settings(self.log_dir, self._embeddings)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision and recall at thresholds from 0 to 1, from labels of 0 or 1 and predicted probabilities."""
        rows = summaries.curve_rows(array(labels), array(predictions), num_thresholds, weights)
        self._add([{"tag": tag, **summaries.curve(rows, num_thresholds)}], global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A curve of precision and recall that is known already; what weights there were is in it."""
        counts = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts)
        rows = np.stack([array(row) for row in (*counts, precision, recall)])
        self._add([{"tag": tag, **summaries.curve(rows, num_thresholds)}], global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """A chart of several scalars, of which the tags are given."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """A chart of a scalar between two others: three tags."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Charts by category and title: `["Multiline", tags]`, or `["Margin", [value, lower, upper]]`. TensorBoard
        takes the first that a run has."""
        self._add([{"tag": "custom_scalars__config__", **summaries.layout(layout)}], None, None)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Mapping[str, Any] | None = None,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Meshes or clouds of points (batch, count, 3), a colour for each point, and faces of three points each."""
        parts = {"VERTEX": vertices, "FACE": faces, "COLOR": colors}
        given = {name: array(part) for name, part in parts.items() if part is not None}
        self._add(summaries.mesh(tag, given, config_dict), global_step, walltime)

    def flush(self) -> None:
        """All that was added is in the files already."""

    def close(self) -> None:
        """Ends; what is added later begins another file."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _drawn(figure: Any, close: bool) -> Pixels:
    """The pixels of a figure of matplotlib."""
    file = io.BytesIO()
    figure.savefig(file, format="rgba", dpi=figure.dpi)
    width, height = figure.canvas.get_width_height()
    found = np.frombuffer(file.getvalue(), np.uint8).reshape(height, width, 4)[:, :, :3]
    pyplot = sys.modules.get("matplotlib.pyplot")
    if close and pyplot is not None:
        pyplot.close(figure)
    return found

"""Values of an ONNX model's nodes as ONNX Runtime computes them, some at a time, so that memory is bounded."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import set_external_data, uses_external_data

from ..base.errors import NotFound, RunError, Unsupported
from ..core.ir import NodeEntry
from ..runtime.program import Array

RUNTIME = "onnxruntime"
AT_ONCE = 24  # values that one run gives
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"  # a setting of the runtime's
WEIGHTS, SMALL, ALIGNMENT = "weights", 1 << 16, 1 << 12


class OrtValues:
    """Values by entry of weft's graph, found by the names of nodes or of their outputs. Optimisations are off, so that
    every value is computed as it is written."""

    def __init__(self, path: Path, feed: Mapping[str, Array]) -> None:
        if find_spec(RUNTIME) is None:
            raise NotFound(f"{RUNTIME} is not installed", hint=f"pip install {RUNTIME}, or --ref fp64")
        if path.suffix.lower() != ".onnx":
            raise Unsupported(f"{RUNTIME} runs ONNX files, not {path.name!r}", hint="--ref fp64")
        self._feed = dict(feed)
        self._model = onnx.load(path, load_external_data=False)
        self._folder = path.parent
        if not any(map(uses_external_data, self._model.graph.initializer)):
            self._own = tempfile.TemporaryDirectory(prefix="weft-compare-")  # which goes with this object
            self._folder = Path(self._own.name)
            _move_weights(self._model, self._folder)
        self._outputs = {node.name: list(node.output) for node in self._model.graph.node if node.name}
        self._given = [name for node in self._model.graph.node for name in node.output if name]
        self._place = {name: place for place, name in enumerate(self._given)}
        self._known: dict[str, Array] = {}

    def value(self, entry: NodeEntry) -> Array | None:
        """The value of an entry; None if ONNX has no value of its name."""
        name = self._name(entry)
        if name is None:
            return None
        if name not in self._known:
            self._load(name)
        return self._known.get(name)

    def release(self, entry: NodeEntry) -> None:
        """Values go when others are asked for."""

    def _name(self, entry: NodeEntry) -> str | None:
        own = entry.node.output_name(entry.index)
        if own in self._place:
            return own
        outputs = self._outputs.get(entry.node.name, [])
        if entry.index < len(outputs):
            return str(outputs[entry.index])
        return entry.node.name if entry.node.name in self._place else None

    def _load(self, name: str) -> None:
        """This value and those behind it in the file."""
        place = self._place[name]
        names = self._given[place : place + AT_ONCE]
        ort = import_module(RUNTIME)
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=wanted) for wanted in names)
        options: Any = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry(WEIGHTS_FOLDER, str(self._folder.resolve()))
        self._known = {}  # before the next are there
        try:
            session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            feed = {item.name: self._feed[item.name] for item in session.get_inputs()}
            self._known = dict(zip(names, session.run(names, feed)))
        except Exception as error:
            raise RunError(f"{RUNTIME} does not run the model", why=str(error)[:300], hint="--ref fp64") from None


def _move_weights(model: onnx.ModelProto, folder: Path) -> None:
    """Puts large weights into a file, so that the model that is made for each run is small."""
    with (folder / WEIGHTS).open("wb") as file:
        for tensor in model.graph.initializer:
            data = tensor.raw_data
            if len(data) < SMALL:
                continue
            at = -(-file.tell() // ALIGNMENT) * ALIGNMENT
            file.seek(at)
            file.write(data)
            set_external_data(tensor, WEIGHTS, at, len(data))
            tensor.ClearField("raw_data")

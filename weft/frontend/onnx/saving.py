"""An ONNX model and its weights become files, all of them or none: a model comes in, what is at the
path afterwards is whole, checked, and what was there before if anything went wrong."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ...base.errors import InvalidValue, Unsupported
from .tensors import CODE_OF

Verify = Callable[[Path], None]
LARGEST_INSIDE = (1 << 31) - (1 << 24)  # bytes of weights; protobuf ends at 2 GiB with all the rest
SMALLEST_BESIDE = 1024  # bytes; smaller tensors may be shapes, which checkers read
_ALIGNED = 64


def with_weights(model: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with its weights inside."""
    if _total(arrays) > LARGEST_INSIDE:
        raise Unsupported(
            "the model is larger than 2 GiB, which an ONNX file cannot hold",
            hint="give a path: the weights are then written to a file beside it",
        )
    model.graph.initializer.extend(numpy_helper.from_array(_plain(array), name) for name, array in arrays.items())
    return model


def save(
    path: Path, model: onnx.ModelProto, arrays: Mapping[str, np.ndarray], verify: Verify | None
) -> onnx.ModelProto:
    """Writes the files into a folder beside the path, checks them there, and moves them."""
    try:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    except OSError as error:
        raise InvalidValue(f"cannot write {str(path)!r}", why=error.strerror) from None
    try:
        if _total(arrays) > LARGEST_INSIDE:
            _write_beside(folder, path.name, model, arrays)
        else:
            with_weights(model, arrays)
        file = folder / path.name
        _write(file, model.SerializeToString())
        checked(str(file))
        if verify is not None:
            verify(file)
        for part in sorted(folder.iterdir(), key=lambda part: part == file):  # the model last
            os.replace(part, path.with_name(part.name))
        _sync(path.parent)
    except OSError as error:
        raise InvalidValue(f"cannot write {str(path)!r}", why=error.strerror) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return model


def checked(model: onnx.ModelProto | str) -> None:
    """Raises if ONNX's own checker does not like a model, or the file of one."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        why = " ".join(str(error).split())[:300]
        raise Unsupported("ONNX does not take what its operators would have to be", why=why) from None


def _total(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values())


def _plain(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(array.shape)


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_beside(folder: Path, name: str, model: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> None:
    """Weights in a file that is named by what it holds: a model never meets another's weights."""
    digest = hashlib.sha256()
    part = folder / "weights"
    tensors = []
    with open(part, "xb") as file:
        for key, array in arrays.items():
            if array.nbytes < SMALLEST_BESIDE:
                model.graph.initializer.append(numpy_helper.from_array(_plain(array), key))
                continue
            file.write(bytes(-file.tell() % _ALIGNED))
            data = _plain(array.astype(array.dtype.newbyteorder("<"), copy=False))
            tensors.append(_reference(key, array, file.tell()))
            view = data.reshape(-1).view(np.uint8).data
            digest.update(view)
            file.write(view)
        file.flush()
        os.fsync(file.fileno())
    location = f"{name}.{digest.hexdigest()[:12]}.data"
    os.replace(part, folder / location)
    for tensor in tensors:
        tensor.external_data.add(key="location", value=location)
    model.graph.initializer.extend(tensors)


def _reference(name: str, array: np.ndarray, offset: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=CODE_OF[array.dtype], dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="offset", value=str(offset))
    tensor.external_data.add(key="length", value=str(array.nbytes))
    return tensor


def _sync(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""What `weft._C` holds, put there step by step in the order in which PyTorch's own extension module
is filled. A step takes the namespace and adds names; no step needs a later one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base.counters import AVG, SUM, AggregationType, LockingLogger, LoggerBase, NoopLogger, set_logger
from ...base.errors import InvalidType
from ..archive.extra_files import ExtraFilesMap
from ..archive.file_reader import PyTorchFileReader
from ..archive.file_writer import PyTorchFileWriter
from ..autograd.anomaly import is_anomaly_enabled, set_anomaly_enabled
from ..autograd.function import Function
from ..autograd.modes import is_grad_enabled, modes
from ..autograd.python_engine import (
    PythonEngine,
    get_base_engine,
    get_default_engine,
    get_python_engine,
    set_default_engine,
    set_default_engine_stub,
)
from ..functions.all import FUNCTIONS
from ..random.generator import Generator, default_generator
from ..tensor import types
from ..tensor.storage_copy import COPY_HANDLERS, copy_pairs, insert_storage_copy_function
from ..tensor.tensor import Tensor
from ..tensor.typed_storage import STORAGE_BASES, init_storage
from .future import Future, fork, wait
from .processor import FatalError, features, get_num_threads, set_flush_denormal, set_num_threads

Namespace = dict[str, Any]
Step = Callable[[Namespace], None]


def set_grad_enabled(mode: bool) -> None:
    """Turns the recording of operators on or off for this thread."""
    if not isinstance(mode, bool):
        raise InvalidType(f"set_grad_enabled(): argument 'enabled' must be bool, not {type(mode).__name__}")
    modes.grad = mode


def add_functions(namespace: Namespace) -> None:
    """Threads, the default dtype, denormals, the switches of autograd."""
    for function in (
        get_num_threads,
        set_num_threads,
        set_flush_denormal,
        types.get_default_dtype,
        is_grad_enabled,
        set_grad_enabled,
        is_anomaly_enabled,
        set_anomaly_enabled,
    ):
        namespace[function.__name__] = function
    namespace["_set_default_dtype"] = types.set_default_dtype
    namespace["_set_grad_enabled"] = set_grad_enabled


def add_base_types(namespace: Namespace) -> None:
    """Generator, exceptions, Size, dtype, finfo and iinfo, layout, device."""
    for kind in (Generator, FatalError, types.Size, types.dtype, types.finfo, types.iinfo):
        namespace[kind.__name__] = kind
    namespace["layout"] = types.layout
    namespace["device"] = types.device


def add_autograd(namespace: Namespace) -> None:
    """The classes that tensors, functions and the engine of backward passes are of."""
    namespace["_TensorBase"] = Tensor
    namespace["_FunctionBase"] = Function
    namespace["_ImperativeEngine"] = PythonEngine
    for function in (
        get_base_engine,
        get_python_engine,
        get_default_engine,
        set_default_engine,
        set_default_engine_stub,
    ):
        namespace[f"_{function.__name__}"] = function


def add_archives(namespace: Namespace) -> None:
    """Records of archives, loggers, futures."""
    for kind in (
        PyTorchFileReader,
        PyTorchFileWriter,
        ExtraFilesMap,
        AggregationType,
        LoggerBase,
        NoopLogger,
        LockingLogger,
        Future,
        fork,
        wait,
    ):
        namespace[kind.__name__] = kind
    namespace |= {"SUM": SUM, "AVG": AVG, "_logging_set_logger": set_logger}


def add_functions_on_tensors(namespace: Namespace) -> None:
    """Every function of the table."""
    namespace["_VariableFunctions"] = dict(FUNCTIONS["weft"])


def storage_step(kind: types.dtype) -> Step:
    """Adds the base class of one typed storage and registers the copies into it."""

    def add_storage(namespace: Namespace) -> None:
        base = init_storage(kind)
        namespace[base.__name__] = base

    return add_storage


def add_copy_registry(namespace: Namespace) -> None:
    """The registry that the storages were entered in."""
    namespace["_storage_copies"] = COPY_HANDLERS
    namespace["_storage_copy_pairs"] = copy_pairs
    namespace["_insert_storage_copy_function"] = insert_storage_copy_function


def add_features(namespace: Namespace) -> None:
    """The flags, and the generator that is used when none is named."""
    namespace.update(features())
    namespace["default_generator"] = default_generator


_NINE = list(STORAGE_BASES)[:9]
STEPS: tuple[Step, ...] = (
    add_functions,
    add_base_types,
    add_autograd,
    add_archives,
    add_functions_on_tensors,
    *(storage_step(kind) for kind in _NINE),
    add_copy_registry,
    add_features,
)


def filled(steps: Sequence[Step] = STEPS) -> Namespace:
    """All names, or an ImportError and none of them."""
    namespace: Namespace = {}
    for step in steps:
        try:
            step(namespace)
        except Exception as error:
            raise ImportError(f"weft._C: {step.__name__} failed: {error}") from error
    return namespace


def public_names(namespace: Namespace) -> list[str]:
    """The names that `weft` passes on to its users."""
    return sorted(n for n in namespace if n[0] != "_" and not n.endswith("Base"))

"""create_workload: a network comes in; it goes out with random parameters of the right shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.device import Device, cpu
from ..base.dtype import as_dtype
from ..base.errors import InvalidValue
from ..base.ndarray import NDArray, array
from ..base.shape import is_static
from ..core.graph import Graph
from ..core.infer import infer
from ..core.symbol import Symbol
from .init import Initializer, Xavier
from .moments import settle_statistics


def create_workload(
    net: Symbol,
    batch_size: int,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    initializer: Initializer | None = None,
    seed: int = 0,
    data_dtype: str | None = None,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network and random parameters for an input `data` of (batch_size, *image_shape).

    The statistics of batch norms are set near those of what passes through them, so that the
    outputs of deep networks are neither tiny nor huge. `data_dtype` is that of the input where it
    is not the parameters'.
    """
    initializer = initializer or Xavier("gaussian", "in", 2)
    initializer.rng = np.random.default_rng(seed)
    data_shape = (batch_size, *image_shape)
    dtypes = {"data": as_dtype(data_dtype or dtype)}
    graph = infer(Graph(net.outputs), {"data": data_shape}, dtypes)
    params = {}
    for variable in net.list_input_variables():
        name = variable.outputs[0].node.name
        shape = graph.fact(variable.outputs[0]).shape
        if name == "data":
            continue
        if not is_static(shape):
            raise InvalidValue(f"the shape of parameter {name!r} does not follow from the data's")
        params[name] = np.empty(shape, np.float32)
        initializer(name, params[name])
    settle_statistics(net, params, initializer.rng)
    return net, {name: array(value.astype(as_dtype(dtype))) for name, value in params.items()}


def ctx_list() -> list[tuple[str, Device]]:
    """The targets and devices that tests run on."""
    return [("llvm", cpu(0))]

"""What PyTorch has under this name: the functions that its pickles call, old-style casts, lists of
tensors as one, exceptions that travel."""

from itertools import accumulate as _accumulate

from .eager.archive.rebuild import from_type as _rebuild_from_type_v2
from .eager.archive.rebuild import parameter as _rebuild_parameter
from .eager.archive.rebuild import parameter_with_state as _rebuild_parameter_with_state
from .eager.archive.rebuild import tensor_v1 as _rebuild_tensor
from .eager.archive.rebuild import tensor_v2 as _rebuild_tensor_v2
from .eager.archive.rebuild import tensor_v3 as _rebuild_tensor_v3
from .eager.torch_core.exception_wrapper import ExceptionWrapper, KeyErrorMessage
from .eager.torch_core.old_casts import cuda as _cuda
from .eager.torch_core.old_casts import dotted_name as _import_dotted_name
from .eager.torch_core.old_casts import element_size as _element_size
from .eager.torch_core.old_casts import non_blocking_of as _get_async_or_non_blocking
from .eager.torch_core.old_casts import type_of as _type
from .eager.torch_core.tensor_lists import flatten_dense as _flatten_dense_tensors
from .eager.torch_core.tensor_lists import flatten_sparse as _flatten_sparse_tensors
from .eager.torch_core.tensor_lists import reorder_as as _reorder_tensors_as
from .eager.torch_core.tensor_lists import take as _take_tensors
from .eager.torch_core.tensor_lists import unflatten_dense as _unflatten_dense_tensors
from .eager.torch_core.tensor_lists import unflatten_sparse as _unflatten_sparse_tensors

__all__ = [
    "ExceptionWrapper",
    "KeyErrorMessage",
    "_accumulate",
    "_cuda",
    "_element_size",
    "_flatten_dense_tensors",
    "_flatten_sparse_tensors",
    "_get_async_or_non_blocking",
    "_import_dotted_name",
    "_rebuild_from_type_v2",
    "_rebuild_parameter",
    "_rebuild_parameter_with_state",
    "_rebuild_tensor",
    "_rebuild_tensor_v2",
    "_rebuild_tensor_v3",
    "_reorder_tensors_as",
    "_take_tensors",
    "_type",
    "_unflatten_dense_tensors",
    "_unflatten_sparse_tensors",
]

"""What nodes of the graph are called: after the function that a user called, as PyTorch has it."""

from __future__ import annotations

from typing import Any

from ..tensor.tensor import Tensor

# Functions whose last step has another name.
LAST_STEPS = {
    "linear": "addmm",
    "conv1d": "convolution",
    "conv2d": "convolution",
    "conv3d": "convolution",
    "conv_transpose1d": "convolution",
    "conv_transpose2d": "convolution",
    "conv_transpose3d": "convolution",
    "max_pool2d": "max_pool2d_with_indices",
    "layer_norm": "native_layer_norm",
    "batch_norm": "native_batch_norm",
    "group_norm": "native_group_norm",
    "cross_entropy": "nll_loss",
    "norm": "linalg_vector_norm",
    "reshape": "view",
    "flatten": "view",
    "view_as": "view",
    "reshape_as": "view",
    "unflatten": "view",
    "matmul": "mm",
    "chunk": "split",
    "dropout": "mul",
    "to": "to_copy",
    "type": "to_copy",
    "contiguous": "clone",
    "pad": "constant_pad_nd",
    "l1_loss": "mean",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "concat": "cat",
    "concatenate": "cat",
    "negative": "neg",
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "clip": "clamp",
    "absolute": "abs",
    "ravel": "view",
    "einsum": "view",
    "double": "to_copy",
    "float": "to_copy",
    "half": "to_copy",
    "bfloat16": "to_copy",
}


def title_of(name: str) -> str:
    """The name of a function's node.

    >>> title_of("log_softmax"), title_of("avg_pool2d"), title_of("reshape")
    ('LogSoftmaxBackward0', 'AvgPool2DBackward0', 'ViewBackward0')
    """
    words = LAST_STEPS.get(name, name).strip("_").split("_")
    return "".join(map(_capitalised, words)) + "Backward0"


def _capitalised(word: str) -> str:
    dimensions = word.endswith("d") and word[-2:-1].isdigit()
    return f"{word[:-1].capitalize()}D" if dimensions else word.capitalize()


def entitle(result: Any, title: str, source: Any = None) -> None:
    """Names the node that a function has just made; what it was given keeps its name."""
    if type(result) is Tensor:
        node = result._grad_fn
        if node is not None and node.title is None and result is not source:
            node.title = title
    elif isinstance(result, (tuple, list)):
        for item in result:
            if type(item) is Tensor:
                entitle(item, title, source)

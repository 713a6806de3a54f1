"""autocast: within a block, functions that gain by it run in a narrow float, those that need the precision in float32,
and those that join tensors in the widest of theirs; which does what is PyTorch's lists, of the processor and of GPUs.

A parameter is cast once in a block: the cast is kept until the outermost block ends, or until the parameter changes.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..base.dtype import DTYPES, DType, is_float
from ..base.errors import InvalidType, InvalidValue, RunError
from .autograd.modes import modes
from .functions.all import TABLE
from .functions.around import LAYERS, Args, Kwargs, Rest
from .tensor.device import device, is_there
from .tensor.tensor import Tensor
from .tensor.types import as_dtype, bfloat16, dtype, float16

Function = TypeVar("Function", bound=Callable[..., Any])

_NARROW = (
    "bmm mm baddbmm addmm addbmm matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "conv_tbc convolution prelu linear scaled_dot_product_attention multi_head_attention_forward vecdot multi_dot "
    "matrix_power chain_matmul einsum tensordot inner cov corrcoef lstm rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell"
).split()
_FLOAT32 = (
    "avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d max_unpool1d "
    "max_unpool2d max_unpool3d grid_sample grid_sampler grid_sampler_2d grid_sampler_3d polar prod quantile "
    "nanquantile stft cdist trace view_as_complex cholesky cholesky_ex cholesky_inverse cholesky_solve inverse inv "
    "inv_ex geqrf lu lu_factor lu_solve orgqr ormqr pinverse qr svd svdvals triangular_solve householder_product lstsq "
    "solve eig eigvals eigh eigvalsh cond matrix_rank tensorinv tensorsolve fft fft2 fftn ifft ifft2 ifftn rfft rfft2 "
    "rfftn irfft irfft2 irfftn hfft ihfft mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss "
    "hinge_embedding_loss margin_ranking_loss soft_margin_loss cosine_embedding_loss triplet_margin_loss nll_loss "
    "cross_entropy linear_cross_entropy binary_cross_entropy binary_cross_entropy_with_logits multi_margin_loss "
    "multilabel_margin_loss ctc_loss"
).split()
_WIDEST = "cat concat concatenate stack index_copy".split()
# On GPUs PyTorch's lists are others.
_NARROW_ON_CUDA = [*_NARROW, *"addmv addr mv gru gru_cell lstm_cell".split()]
_FLOAT32_ON_CUDA = (
    "acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss cdist cosine_similarity cross_entropy "
    "cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div l1_loss layer_norm log log10 "
    "log_softmax log1p log2 margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss norm "
    "normalize pdist poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin "
    "softplus sum renorm tan triplet_margin_loss huber_loss logsumexp"
).split()
_WIDEST_ON_CUDA = [*_WIDEST, *"addcdiv addcmul atan2 bilinear cross dot grid_sample index_put scatter_add".split()]
_PADS_IN_FLOAT32 = ("reflect", "replicate")
_SUPPORTED = (bfloat16, float16)
_DEFAULTS = {"cpu": bfloat16, "xpu": bfloat16, "mtia": bfloat16, "hpu": bfloat16, "xla": bfloat16}
_UNKNOWN = ("meta", "lazy", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "vulkan")


def _policies(narrow: Sequence[str], float32: Sequence[str], widest: Sequence[str], **more: str) -> dict[str, str]:
    """By the names of rows; one name in another space, such as linalg's, has the same policy."""
    of_name = dict.fromkeys(narrow, "narrow") | dict.fromkeys(float32, "float32")
    of_name |= dict.fromkeys(widest, "widest") | more
    plain = {key: key.rpartition(".")[2] for key in TABLE}
    return {key: of_name[name] for key, name in plain.items() if name in of_name}


_POLICIES = {
    "cpu": _policies(_NARROW, _FLOAT32, _WIDEST, pad="pad"),
    "cuda": _policies(_NARROW_ON_CUDA, _FLOAT32_ON_CUDA, _WIDEST_ON_CUDA),
}


class _State(threading.local):
    """What holds in a thread: the dtypes of devices, which of them cast, and the casts that are kept."""

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {}
        self.dtypes: dict[str, dtype] = {}
        self.caching = True
        self.depth = 0
        self.inside = False  # of a function that was cast: what it calls is not
        self.casts: dict[tuple[int, DType], tuple[Tensor, int, Tensor]] = {}


_state = _State()


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows a kind of device."""
    return device(device_type).type not in _UNKNOWN


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether functions on a kind of device are cast now; without one, those on CUDA devices."""
    return _state.enabled.get(device("cuda" if device_type is None else device_type).type, False)


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Says whether functions on a kind of device are cast from now on, in this thread."""
    kind, value = ("cuda", device_type) if enabled is None else (device(device_type).type, enabled)
    _enable(kind, bool(value))


def _enable(kind: str, value: bool) -> None:
    """Says so, and steps into calls or out of them."""
    before = _state.enabled.get(kind, False)
    _state.enabled[kind] = value
    if kind in _POLICIES and value != before:
        (LAYERS.append if value else LAYERS.remove)(_layer)


def get_autocast_dtype(device_type: str) -> dtype:
    """The narrow dtype of a kind of device.

    >>> get_autocast_dtype("cpu")
    weft.bfloat16
    """
    kind = device(device_type).type
    if kind in _UNKNOWN:
        raise RunError(f"there is no autocast on {kind!r}")
    return _state.dtypes.get(kind, _DEFAULTS.get(kind, float16))


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Says what the narrow dtype of a kind of device is, in this thread."""
    _state.dtypes[device(device_type).type] = as_dtype(dtype)


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept."""
    return _state.caching


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Says whether casts of parameters are kept."""
    _state.caching = bool(enabled)


def clear_autocast_cache() -> None:
    """Forgets the casts of parameters."""
    _state.casts.clear()


class autocast:
    """A block, or a function, in which functions are cast.

    >>> import weft
    >>> with autocast("cpu"):
    ...     product = weft.ones(2, 2) @ weft.ones(2, 2)
    >>> product.dtype
    weft.bfloat16
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if not isinstance(device_type, str):
            raise InvalidValue(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device(device_type).type
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else as_dtype(dtype)
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else bool(cache_enabled)
        self._enabled = bool(enabled) and self._is_possible()
        self._before: list[tuple[bool, Any, bool]] = []

    def _is_possible(self) -> bool:
        if self.device == "cpu" and self.fast_dtype not in _SUPPORTED:
            why = "In CPU autocast, but the target dtype is not supported. Disabling autocast."
            named = ", ".join(str(one) for one in _SUPPORTED)
            warnings.warn(f"{why}\nCPU Autocast only supports dtypes of {named} currently.", stacklevel=3)
            return False
        if self.device not in _POLICIES or not is_there(self.device):
            title = {"cuda": "CUDA"}.get(self.device, self.device)
            warnings.warn(f"{title} is not available. Disabling autocast.", stacklevel=3)
            return False
        return True

    def __enter__(self) -> autocast:
        self._before.append((is_autocast_enabled(self.device), get_autocast_dtype(self.device), _state.caching))
        _enable(self.device, self._enabled)
        _state.dtypes[self.device], _state.caching = self.fast_dtype, self._cache_enabled
        _state.depth += 1
        return self

    def __exit__(self, *raised: object) -> None:
        enabled, _state.dtypes[self.device], _state.caching = self._before.pop()
        _enable(self.device, enabled)
        _state.depth -= 1
        if not _state.depth:
            clear_autocast_cache()

    def __call__(self, function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]


def _layer(name: str, rest: Rest, args: Args, kwargs: Kwargs) -> Any:
    """A call with its arguments cast as its policy says; `out=` keeps a call as it is."""
    kind = "cuda" if any([not x.is_cpu for x in _tensors((*args, *kwargs.values()))]) else "cpu"
    policy = _POLICIES[kind].get(name)
    if policy is None or _state.inside or not _state.enabled.get(kind) or kwargs.get("out") is not None:
        return rest(args, kwargs)
    if policy == "pad":
        mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
        if mode not in _PADS_IN_FLOAT32:
            return rest(args, kwargs)
    target = _target(policy, kind, args, kwargs)
    _state.inside = True
    try:
        cast = _cast_all(args, target)
        return rest(cast, {key: _cast(value, target) for key, value in kwargs.items()})
    finally:
        _state.inside = False


def _target(policy: str, kind: str, args: Args, kwargs: Kwargs) -> DType:
    if policy == "narrow":
        return get_autocast_dtype(kind).numpy
    if policy == "widest" and not any(x._dtype == DTYPES["float32"] for x in _tensors((*args, *kwargs.values()))):
        return get_autocast_dtype(kind).numpy
    return DTYPES["float32"]


def _tensors(values: Any) -> list[Tensor]:
    """The tensors among arguments and in lists of them."""
    found: list[Tensor] = []
    for value in values:
        found += _tensors(value) if isinstance(value, (tuple, list)) else [value] if isinstance(value, Tensor) else []
    return found


def _cast_all(values: Any, target: DType) -> tuple[Any, ...]:
    return tuple([_cast(value, target) for value in values])


def _cast(value: Any, target: DType) -> Any:
    """A float tensor, or those of a list, in another dtype; float64 stays, as what is asked for on purpose."""
    if isinstance(value, Tensor):
        kind = value._dtype
        return value if kind == target or kind == DTYPES["float64"] or not is_float(kind) else _kept(value, target)
    if type(value) in (tuple, list) and _tensors(value):
        return type(value)(_cast_all(value, target))
    return value


def _kept(tensor: Tensor, target: DType) -> Tensor:
    """A cast; that of a parameter is made once, while it stays as it is."""
    is_parameter = tensor._requires_grad and tensor._grad_fn is None and tensor._base is None
    if not (is_parameter and _state.caching and modes.grad and target != DTYPES["float32"]):
        return tensor._cast(target)
    known = _state.casts.get((id(tensor), target))
    if known is None or known[1] != tensor._counter[0]:
        known = _state.casts[id(tensor), target] = (tensor, tensor._counter[0], tensor._cast(target))
    return known[2]


# Functions of the user's own.


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Makes the `forward` of a `Function` know of autocast: with `cast_inputs` its floats are cast to that and it runs
    without autocast; else it runs as the block says, and `custom_bwd` puts that back for `backward`."""
    _check_name(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        context._dtype = get_autocast_dtype(device_type)
        enabled = is_autocast_enabled(device_type)
        context._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(*args, **kwargs)
        target = as_dtype(cast_inputs).numpy
        with autocast(device_type, enabled=False):
            return fwd(*_cast_all(args, target), **{key: _cast(value, target) for key, value in kwargs.items()})

    return forward


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """Makes the `backward` of a `Function` run with the autocast that its `forward` ran with."""
    _check_name(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(device_type, enabled=context._fwd_used_autocast, dtype=context._dtype):
            return bwd(*args, **kwargs)

    return backward


def _check_name(device_type: object) -> None:
    if not isinstance(device_type, str):
        raise InvalidType(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def _old(new: Callable[..., Any], kind: str, name: str) -> Callable[..., Any]:
    """An old name, which tells the kind of device, of a function that takes it."""

    def call(*args: Any) -> Any:
        warnings.warn(f"weft.{name}() is deprecated: use weft.{new.__name__}({kind!r})", DeprecationWarning, 2)
        return new(kind, *args)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{new.__name__}({kind!r})` by an old name."
    return call


_OLD: dict[str, tuple[Callable[..., Any], str]] = {
    "is_autocast_cpu_enabled": (is_autocast_enabled, "cpu"),
    "set_autocast_cpu_enabled": (set_autocast_enabled, "cpu"),
    "get_autocast_cpu_dtype": (get_autocast_dtype, "cpu"),
    "set_autocast_cpu_dtype": (set_autocast_dtype, "cpu"),
    "get_autocast_gpu_dtype": (get_autocast_dtype, "cuda"),
    "set_autocast_gpu_dtype": (set_autocast_dtype, "cuda"),
}
AUTOCAST: dict[str, Any] = {name: _old(new, kind, name) for name, (new, kind) in _OLD.items()}
AUTOCAST |= {
    function.__name__: function
    for function in (
        autocast,
        clear_autocast_cache,
        get_autocast_dtype,
        is_autocast_cache_enabled,
        is_autocast_enabled,
        set_autocast_cache_enabled,
        set_autocast_dtype,
        set_autocast_enabled,
    )
}


class CudaAutocast(autocast):
    """`autocast` of CUDA devices by its old name."""

    def __init__(self, enabled: bool = True, dtype: Any = float16, cache_enabled: bool = True) -> None:
        warnings.warn("cuda.amp.autocast(...) is deprecated: use amp.autocast('cuda', ...)", FutureWarning, 2)
        super().__init__("cuda", dtype, enabled, cache_enabled)


def _of_cuda(modern: Callable[..., Any], function: Any = None, **options: Any) -> Any:
    return modern(function, device_type="cuda", **options)


cuda_custom_fwd = functools.partial(_of_cuda, custom_fwd)
cuda_custom_bwd = functools.partial(_of_cuda, custom_bwd)

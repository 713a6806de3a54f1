"""Parametrisations that networks are trained with: orthogonal matrices, weights with a norm of their own, weights
divided by their largest singular value."""

from __future__ import annotations

from typing import Any

from ...base.errors import InvalidValue, OutOfRange, Unsupported
from ...eager.autograd.modes import no_grad
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.tensor import Tensor
from ...eager.tensor.types import finfo
from ..modules.module import Module
from .parametrize import register_parametrization

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

_functions, _linalg = FUNCTIONS["weft"], FUNCTIONS["weft.linalg"]
_normalize = FUNCTIONS["weft.nn.functional"]["normalize"]
_MAPS = ("matrix_exp", "cayley", "householder")


# Orthogonal matrices.


def _orthogonal_factor(matrix: Tensor) -> Tensor:
    """Q of a QR decomposition whose R has a positive diagonal; it keeps a matrix that is orthogonal already."""
    packed, tau = _functions["geqrf"](matrix)
    signs = packed.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
    made: Tensor = _linalg["householder_product"](packed, tau) * signs
    return made


def _is_orthogonal(matrix: Tensor) -> bool:
    rows, columns = matrix.shape[-2:]
    identity = _functions["eye"](columns, dtype=matrix.dtype)
    near = 10 * rows * finfo(matrix.dtype).eps
    same: bool = _functions["allclose"](matrix.mH @ matrix, identity.expand(*matrix.shape[:-2], -1, -1), atol=near)
    return same


class _Orthogonal(Module):
    """Q = base f(X): X has the shape of the weight, and f maps every X to a matrix with orthonormal columns.

    With A = tril(X) - tril(X)^H, f is exp(A) (`matrix_exp`) or (I - A/2)^-1 (I + A/2) (`cayley`), of which the first
    columns are taken; or the product of the reflections in the columns of X below the diagonal (`householder`).
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise InvalidValue("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        tall: Tensor = X.mT if wide else X
        Q = self._reflected(tall) if self.orthogonal_map == "householder" else self._of_skew(tall)
        if getattr(self, "base", None) is not None:
            Q = self.base @ Q  # type: ignore[operator]
        return Q.mT if wide else Q

    def _of_skew(self, X: Tensor) -> Tensor:
        rows, columns = X.shape[-2:]
        lower = X.tril()
        if rows != columns:
            rest = X.new_zeros((*X.shape[:-2], rows, rows - columns))
            lower = _functions["cat"]([lower, rest], dim=-1)
        skew = lower - lower.mH
        if self.orthogonal_map == "matrix_exp":
            Q: Tensor = _linalg["matrix_exp"](skew)
        else:
            identity = _functions["eye"](rows, dtype=skew.dtype)
            Q = _linalg["solve"](identity - skew * 0.5, identity + skew * 0.5)
        return Q[..., :columns]

    def _reflected(self, X: Tensor) -> Tensor:
        below = X.tril(diagonal=-1)
        tau = 2.0 / (1.0 + (below * below).sum(dim=-2))
        signs = X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        Q: Tensor = _linalg["householder_product"](below, tau) * signs
        return Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise InvalidValue(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}."
            )
        wide = Q.shape[-2] < Q.shape[-1]
        tall: Tensor = Q.mT if wide else Q
        if not hasattr(self, "base"):
            X = self._reflections(tall)
            return X.mT if wide else X
        rows, columns = tall.shape[-2:]
        if rows != columns:  # the columns that are missing are any that complete a basis
            rest = _functions["randn"](*tall.shape[:-2], rows, rows - columns, dtype=Q.dtype)
            self.base = _orthogonal_factor(_functions["cat"]([tall, rest], dim=-1))
        else:
            self.base = tall.clone() if _is_orthogonal(tall) else _orthogonal_factor(tall)
        start = _functions["zeros_like"](Q)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)  # which every one of the maps takes to I
        made: Tensor = start
        return made

    def _reflections(self, Q: Tensor) -> Tensor:
        if self.orthogonal_map != "householder":
            raise Unsupported(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        X, tau = _functions["geqrf"](Q)
        diagonal = X.diagonal(dim1=-2, dim2=-1)
        diagonal.sign_()
        diagonal[tau == 0.0] *= -1
        made: Tensor = X
        return made


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keeps the rows or columns of a weight orthonormal: whichever are shorter in number.

    >>> import weft
    >>> from weft import nn
    >>> layer = orthogonal(nn.Linear(2, 3))
    >>> weft.allclose(layer.weight.mT @ layer.weight, weft.eye(2), atol=1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise InvalidValue(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise InvalidValue(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise InvalidValue(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    kept = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, kept, unsafe=True)


# Norms and directions.


class _WeightNorm(Module):
    """g v / |v|: the norms over all dimensions but one, and the directions."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        norm = _functions["norm_except_dim"](weight_v, 2, self.dim)
        made: Tensor = weight_v * (weight_g / norm)
        return made

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return _functions["norm_except_dim"](weight, 2, self.dim), weight


class _OldKeys:
    """Reads states in which the norms are `weight_g` and the directions `weight_v`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        old = [f"{prefix}{self.name}_{kind}" for kind in "gv"]
        if all(key in state_dict for key in old):
            for number, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{self.name}.original{number}"] = state_dict.pop(key)


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Trains the norms of a weight, `original0`, and its directions, `original1`, apart: w = g v / |v|. There is a
    norm for every index of `dim`, or one of all where it is None.

    >>> import weft
    >>> from weft import nn
    >>> layer = weight_norm(nn.Linear(2, 3))
    >>> layer.weight = weft.tensor([[3.0, 4.0]])
    >>> layer.parametrizations.weight.original0.tolist(), layer.weight.tolist()
    ([[5.0]], [[3.0, 4.0]])
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(_OldKeys(name))
    return module


# The largest singular value.


class _SpectralNorm(Module):
    """W / sigma, where sigma = u^H W v is the largest singular value of W as a matrix. Steps of the power method, some
    for each call in training, keep u and v: u = W v / |W v|, v = W^H u / |W^H u|."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        rank = weight.ndim
        if not -rank <= dim < rank:
            raise OutOfRange(f"Dimension out of range (expected to be in range of [-{rank}, {rank - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise InvalidValue(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % rank
        self.eps = eps
        if rank > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight)
            u, v = (matrix.new_empty(size).normal_(0, 1) for size in matrix.shape)
            self.register_buffer("_u", _normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", _normalize(v, dim=0, eps=eps))
            self._step(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        """The weight with one dimension first, and the others as columns."""
        made: Tensor = weight.movedim(self.dim, 0).flatten(1)
        return made

    def _step(self, matrix: Tensor, times: int) -> None:
        with no_grad():
            for _ in range(times):
                self._u = _normalize(_functions["mv"](matrix, self._v), dim=0, eps=self.eps)
                self._v = _normalize(_functions["mv"](matrix.mH, self._u), dim=0, eps=self.eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:  # the only singular value is the norm
            made: Tensor = _normalize(weight, dim=0, eps=self.eps)
            return made
        matrix = self._matrix(weight)
        if self.training:
            self._step(matrix, self.n_power_iterations)
        sigma = _functions["vdot"](self._u.clone(), _functions["mv"](matrix, self._v.clone()))
        divided: Tensor = weight / sigma
        return divided

    def right_inverse(self, value: Tensor) -> Tensor:
        return value  # nearly: the value is divided again


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its largest singular value, as a matrix whose rows are along `dim`: that of the outputs.

    >>> import weft
    >>> from weft import nn
    >>> layer = spectral_norm(nn.Linear(8, 8), n_power_iterations=50)
    >>> norm = weft.linalg.matrix_norm(layer.weight.detach(), 2)
    >>> weft.allclose(norm, weft.ones(()), atol=1e-2)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise InvalidValue(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0  # where transposed convolutions have their outputs
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))

"""Muon: momentum whose matrices are made nearly orthogonal before they are subtracted."""

from __future__ import annotations

from ..base.errors import InvalidValue
from ..eager.tensor.tensor import Tensor
from .optimizer import F, Group, OneByOne, ParamsT, check, check_lr

__all__ = ["Muon"]

MOST_STEPS = 100
ADJUSTED = ("original", "match_rms_adamw")


class Muon(OneByOne):
    """Muon, for matrices: with the momentum b = momentum * b + (1 - momentum) * g, p * (1 - lr * weight_decay) less
    lr' times the orthogonal matrix next to b, or to g and b (Nesterov), found by `ns_steps` iterations of
    X -> a X + (b A + c A A) X, A = X X', in bfloat16.

    lr' is lr * sqrt(max(1, rows / columns)), or with `adjust_lr_fn="match_rms_adamw"`
    lr * 0.2 * sqrt(max(rows, columns)).

    >>> import weft
    >>> w = weft.ones(2, 3, requires_grad=True)
    >>> optimizer = Muon([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> bool((w < 1).all())
    True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor):
            check_lr(lr)
        check("Learning rate should be >= 0 but is", lr, bool(lr >= 0.0))
        check("momentum should be >= 0 but is", momentum, momentum >= 0.0)
        check("weight decay should be >= 0 but is", weight_decay, weight_decay >= 0.0)
        if adjust_lr_fn is not None and adjust_lr_fn not in ADJUSTED:
            raise InvalidValue(
                f"Adjust learning rate function {adjust_lr_fn} is not supported", hint=" or ".join(ADJUSTED)
            )
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        super().add_param_group(param_group)
        for p in param_group["params"]:
            if p.ndim != 2:
                raise InvalidValue(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}"
                )

    def _change(self, group: Group, p: Tensor, grad: Tensor) -> None:
        state, lr, momentum = self.state[p], float(group["lr"]), group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = F.zeros_like(grad)
        buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
        update = orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            rate = lr * 0.2 * max(rows, columns) ** 0.5
        else:
            rate = lr * max(1.0, rows / columns) ** 0.5
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(update.to(p.dtype), alpha=-rate)


def orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """About the orthogonal matrix next to a matrix: an iteration that moves all singular values towards one."""
    if steps >= MOST_STEPS:
        raise InvalidValue("Number of steps must be less than 100 for computational efficiency", why=f"it is {steps}")
    if len(coefficients) != 3:
        raise InvalidValue("Coefficients must be a tuple of exactly 3 values", why=f"there are {len(coefficients)}")
    a, b, c = coefficients
    x = _rounded(matrix)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = _rounded(x / _rounded(x.norm()).clamp(min=eps))
    for _ in range(steps):
        gram = _rounded(x.matmul(x.T))
        x = _rounded(a * x + _rounded(b * gram + c * gram.matmul(gram)).matmul(x))
    return x.T if tall else x


def _rounded(x: Tensor) -> Tensor:
    """Numbers as bfloat16 has them, in float32, where sums of products are exact enough."""
    made: Tensor = x.bfloat16().float()
    return made

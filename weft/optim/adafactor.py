"""Adafactor: Adam whose mean of squares is kept as one row and one column for each matrix."""

from __future__ import annotations

from ..eager.tensor.tensor import Tensor
from ..eager.tensor.types import finfo
from .element_wise import check_scalar_options, scalar_dtype
from .optimizer import F, Group, OneByOne, ParamsT, check, check_lr

__all__ = ["Adafactor"]


class Adafactor(OneByOne):
    """Adafactor: squares of gradients are estimated by the product of their means along rows and along columns; a step
    is as long as the parameters are, and no longer than `d` on average.

    >>> import weft
    >>> w = weft.ones(4, 6, requires_grad=True)
    >>> optimizer = Adafactor([w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> [tuple(optimizer.state[w][name].shape) for name in ("row_var", "col_var")]
    [(4, 1), (1, 6)]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_scalar_options(foreach, False, lr=lr)
        if isinstance(lr, Tensor):
            check_lr(lr)
        check("Learning rate should be >= 0 but is", lr, float(lr) >= 0.0)
        check("beta2_decay should be <= 0 but is", beta2_decay, beta2_decay <= 0.0)
        check("epsilon1 should be >= 0 but is", eps[0], eps[0] is None or eps[0] >= 0.0)
        check("epsilon2 should be >= 0 but is", eps[1], eps[1] >= 0.0)
        check("Clipping threshold d should be >= 1 but is", d, d >= 1.0)
        check("weight_decay should be >= 0 but is", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _change(self, group: Group, p: Tensor, grad: Tensor) -> None:
        grad = grad.neg() if group["maximize"] else grad
        state = self.state[p]
        if not state:
            state.update(_begun(p))
        state["step"] += 1
        step, lr = state["step"].item(), float(group["lr"])
        least, least_size = group["eps"]
        least = finfo(p.dtype).eps if least is None else least
        size = max(least_size, float(p.norm()) / p.numel() ** 0.5) * min(lr, 1 / step**0.5)
        if group["weight_decay"]:
            p.mul_(1 - lr * group["weight_decay"])
        squares = _squares(state, grad, step ** group["beta2_decay"], least)
        update = squares.clamp(min=least * least).rsqrt() * grad
        excess = max(1.0, float(update.norm()) / (update.numel() ** 0.5 * group["d"]))
        p.add_(update, alpha=-size / excess)


def _begun(p: Tensor) -> dict[str, Tensor]:
    state = {"step": F.tensor(0.0, dtype=scalar_dtype())}
    if p.ndim > 1:
        state["row_var"] = p.new_zeros((*p.shape[:-1], 1))
        state["col_var"] = p.new_zeros((*p.shape[:-2], 1, p.shape[-1]))
    else:
        state["variance"] = F.zeros_like(p)
    return state


def _squares(state: dict[str, Tensor], grad: Tensor, taken: float, least: float) -> Tensor:
    """Estimates of the squares of gradients, after the means took up these ones."""
    if grad.ndim < 2:
        return state["variance"].lerp_(grad * grad, taken)  # type: ignore[no-any-return]
    rows = state["row_var"].lerp_((grad * grad).mean(dim=-1, keepdim=True), taken)
    columns = state["col_var"].lerp_((grad * grad).mean(dim=-2, keepdim=True), taken)
    return rows.matmul(columns) / rows.mean(dim=-2, keepdim=True).clamp(min=least)  # type: ignore[no-any-return]

"""Weights that are left out: a mask hides them, from the next forward pass on.

A pruned parameter `name` becomes the parameter `name_orig`, the buffer `name_mask` and their product `name`, which a
hook makes before each forward pass. Pruning again prunes what is left. `remove` makes it a parameter again.

>>> import weft
>>> layer = weft.nn.Linear(4, 2)
>>> _ = l1_unstructured(layer, "weight", amount=0.5)
>>> int(layer.weight_mask.sum()), sorted(layer.state_dict())
(4, ['bias', 'weight_mask', 'weight_orig'])
>>> _ = remove(layer, "weight")
>>> int((layer.weight == 0).sum()), sorted(layer.state_dict())
(4, ['bias', 'weight'])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from ...base.errors import InvalidType, InvalidValue, NotFound, OutOfRange
from ...eager.functions.math.arithmetic import mul
from ...eager.functions.math.unary import abs as magnitude
from ...eager.functions.math.unary import neg
from ...eager.functions.random.fill import rand, rand_like
from ...eager.functions.shape.join import cat
from ...eager.tensor.tensor import Tensor
from ..modules.module import Module

Amount = float  # a share of the elements or channels that are left, or how many of them


class BasePruningMethod(ABC):
    """Which elements of a parameter are left out: a subclass says by `compute_mask`, and what it decides about by
    `PRUNING_TYPE`: elements ("unstructured"), channels along `dim` ("structured"), or all at once ("global")."""

    PRUNING_TYPE: ClassVar[str]
    _tensor_name: str = ""

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Ones for what stays, by the importance `t` of elements and the mask so far."""

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter times its mask."""
        name = self._tensor_name
        original: Tensor = getattr(module, f"{name}_orig")
        result: Tensor = getattr(module, f"{name}_mask").to(original.dtype) * original
        return result

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prunes a parameter of a module, after what pruned it before; gives the hook that does."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        values: Tensor = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != values.shape:
            raise InvalidValue(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{tuple(importance_scores.shape)} vs {tuple(values.shape)}"
            )
        scores = values if importance_scores is None else importance_scores
        place, before = _hook_of(module, name)
        if before is None:
            if name not in module._parameters:
                raise NotFound(f"{name!r} of {module} is not a parameter, so it cannot be pruned")
            original: Any = module._parameters[name]
            mask = method.compute_mask(scores, original.detach().new_ones(original.shape))
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", original)
            module.register_buffer(f"{name}_mask", mask)
            hook: BasePruningMethod = method
        else:
            hook = PruningContainer(*(before if isinstance(before, PruningContainer) else [before]), method)
            so_far: Tensor = getattr(module, f"{name}_mask")
            setattr(module, f"{name}_mask", hook.compute_mask(scores, so_far.to(scores.dtype)))
            del module._forward_pre_hooks[place]
        setattr(module, name, hook.apply_mask(module))
        module.register_forward_pre_hook(hook)
        return hook

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A tensor with what this leaves out as zeros; nothing is registered."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise InvalidValue("importance_scores should have the same shape as tensor t")
        scores = t if importance_scores is None else importance_scores
        mask = t.detach().new_ones(t.shape) if default_mask is None else default_mask
        result: Tensor = t * self.compute_mask(scores, mask)
        return result

    def remove(self, module: Module) -> None:
        """Makes the pruned values the parameter again."""
        name = self._tensor_name
        pruned = self.apply_mask(module).detach()
        original: Any = module._parameters.pop(f"{name}_orig")
        original.data = pruned
        del module._buffers[f"{name}_mask"]
        delattr(module, name)
        setattr(module, name, original)


def _hook_of(module: Module, name: str) -> tuple[Any, BasePruningMethod | None]:
    """The hook that prunes a parameter, and its key; None where there is none."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None, None


class PruningContainer(BasePruningMethod):
    """Methods that prune a parameter one after another."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Adds a method for the same parameter."""
        if method is None:
            return
        if not isinstance(method, BasePruningMethod):
            raise InvalidType(f"{type(method)} is not a BasePruningMethod subclass")
        if self._pruning_methods and method._tensor_name != self._tensor_name:
            raise InvalidValue(
                f"Can only add pruning methods acting on the parameter named {self._tensor_name!r} to {self}",
                why=f"this one acts on {method._tensor_name!r}",
            )
        self._tensor_name = method._tensor_name
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, place: int) -> BasePruningMethod:
        return self._pruning_methods[place]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far, of what the last method leaves of that."""
        method = self._pruning_methods[-1]
        left = _left(method, default_mask)
        mask: Tensor = default_mask.clone()
        mask[left] = method.compute_mask(t[left], default_mask[left]).to(mask.dtype)
        return mask


def _left(method: BasePruningMethod, mask: Tensor) -> Any:
    """An index of what a method still has to decide about."""
    if method.PRUNING_TYPE == "unstructured":
        return mask.eq(1)
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * mask.ndim
    if method.PRUNING_TYPE != "structured":
        raise InvalidValue(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    axis: int = range(mask.ndim)[getattr(method, "dim", 0)]
    others = [other for other in range(mask.ndim) if other != axis]
    return (*(slice(None),) * axis, mask.sum(others).ne(0))


# Methods.


class Identity(BasePruningMethod):
    """Leaves nothing out."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class CustomFromMask(BasePruningMethod):
    """Leaves out the zeros of a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            found, wanted = tuple(self.mask.shape), tuple(default_mask.shape)
            raise InvalidValue(f"default_mask shape {wanted} must match self.mask shape {found}")
        return mul(default_mask, self.mask.to(default_mask.dtype))


class _ByAmount(BasePruningMethod):
    """Leaves out a share, or a number, of elements or channels."""

    def __init__(self, amount: Amount) -> None:
        if not isinstance(amount, (int, float)):
            raise InvalidType(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or (not isinstance(amount, int) and amount > 1):
            raise InvalidValue(
                f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
            )
        self.amount = amount

    def _count(self, size: int) -> int:
        """How many of `size` are left out."""
        if not isinstance(self.amount, int):
            return round(self.amount * size)
        if self.amount > size:
            raise InvalidValue(f"amount={self.amount} should be smaller than the number of parameters to prune={size}")
        return self.amount


class _Unstructured(_ByAmount):
    """Leaves out the elements that are least in `_importance`."""

    PRUNING_TYPE = "unstructured"

    @abstractmethod
    def _importance(self, t: Tensor) -> Tensor: ...

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = self._count(t.numel())
        mask: Tensor = default_mask.contiguous().clone()
        if count:
            mask.view(-1)[self._importance(t).reshape(-1).topk(count, largest=False).indices] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Leaves out elements at random."""

    def _importance(self, t: Tensor) -> Tensor:
        return neg(rand_like(t))  # PyTorch leaves out what draws the greatest numbers


class L1Unstructured(_Unstructured):
    """Leaves out the smallest elements."""

    def _importance(self, t: Tensor) -> Tensor:
        return magnitude(t.detach())


class _Structured(_ByAmount):
    """Leaves out the channels along `dim` that are least in `_importance`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    @abstractmethod
    def _importance(self, t: Tensor, axis: int) -> Tensor: ...

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim < 2:
            raise InvalidValue(
                "Structured pruning can only be applied to multidimensional tensors",
                why=f"this one has the shape {tuple(t.shape)}",
            )
        if not -t.ndim <= self.dim < t.ndim:
            raise OutOfRange(f"Invalid index {self.dim} for tensor of size {tuple(t.shape)}")
        axis = self.dim % t.ndim
        count = self._count(t.shape[axis])
        mask: Tensor = default_mask.clone()
        if count:
            least = self._importance(t, axis).topk(count, largest=False).indices
            mask[(*(slice(None),) * axis, least)] = 0
        return mask


class RandomStructured(_Structured):
    """Leaves out channels at random."""

    def _importance(self, t: Tensor, axis: int) -> Tensor:
        return rand(t.shape[axis])


class LnStructured(_Structured):
    """Leaves out the channels of the least n-norm."""

    def __init__(self, amount: Amount, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _importance(self, t: Tensor, axis: int) -> Tensor:
        others = [other for other in range(t.ndim) if other != axis]
        result: Tensor = t.detach().norm(p=self.n, dim=others)
        return result


# The same as functions.


def identity(module: Module, name: str) -> Module:
    """Prepares a parameter for pruning, and leaves nothing out."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Amount) -> Module:
    """Leaves out elements of a parameter at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: Amount, importance_scores: Tensor | None = None) -> Module:
    """Leaves out the elements of a parameter whose absolute values, or those of their scores, are least."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Amount, dim: int) -> Module:
    """Leaves out channels of a parameter along an axis at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: Amount, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Leaves out the channels of a parameter along an axis whose n-norms, or those of their scores, are least."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Leaves out the elements of a parameter where a mask is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


Part = tuple[Module, str]


def global_unstructured(
    parameters: Iterable[Part],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[Part, Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes parameters of modules, given as (module, name), as if they were one vector."""
    if not isinstance(parameters, Iterable):
        raise InvalidType("global_unstructured(): parameters is not an Iterable")
    given = {} if importance_scores is None else importance_scores
    if not isinstance(given, dict):
        raise InvalidType("global_unstructured(): importance_scores must be of type dict")
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise InvalidType(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`',
            why=f"{pruning_method.__name__} is {method.PRUNING_TYPE}",
        )
    parts = list(parameters)
    values: list[Tensor] = [getattr(module, name) for module, name in parts]
    masks = [getattr(part[0], f"{part[1]}_mask", each.new_ones(each.shape)) for part, each in zip(parts, values)]
    scores = [given.get(part, each) for part, each in zip(parts, values)]
    flat = PruningContainer(method).compute_mask(_joined(scores), _joined(masks))
    start = 0
    for (module, name), mask in zip(parts, masks):
        end = start + mask.numel()
        custom_from_mask(module, name, flat[start:end].view(mask.shape))
        start = end


def _joined(tensors: list[Tensor]) -> Tensor:
    return cat([tensor.detach().reshape(-1) for tensor in tensors])


def remove(module: Module, name: str) -> Module:
    """Makes what is left of a pruned parameter the parameter itself; what was left out becomes zeros."""
    place, hook = _hook_of(module, name)
    if hook is None:
        raise InvalidValue(f"Parameter {name!r} of module {module} has to be pruned before pruning can be removed")
    hook.remove(module)
    del module._forward_pre_hooks[place]
    return module


def is_pruned(module: Module) -> bool:
    """Whether something of a module, or of a module inside it, is pruned.

    >>> import weft
    >>> is_pruned(weft.nn.Sequential(identity(weft.nn.Linear(2, 2), "bias")))
    True
    """
    hooks = (hook for inside in module.modules() for hook in inside._forward_pre_hooks.values())
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)

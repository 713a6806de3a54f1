"""Functions that read elements themselves, on whole batches: how a call is changed so that the function works on one
more axis before the others. What has no rule here runs for each element of the batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ..functions.around import Args, Kwargs, Rest
from ..functions.shape.shape import reshape
from ..functions.table import TABLE
from ..tensor.tensor import Tensor
from .batched import merged, unmerged, with_rank
from .trees import flattened, mapped

if TYPE_CHECKING:
    from .level import Level

WholeCall = Callable[[Sequence[Tensor]], Any]  # of the batches of the arguments that are batched
# f(level, what calls the function, its arguments) -> the call on whole batches, or None where it is not for that
RowRule = Callable[["Level", Rest, Args, Kwargs], WholeCall | None]
RULES: dict[str, RowRule] = {}


def register(names: str, rule: RowRule, space: str = "") -> None:
    """Gives functions of the table a rule."""
    for name in names.split():
        RULES[space + name] = rule


def whole_call(name: str, level: Level, rest: Rest, args: Args, kwargs: Kwargs) -> WholeCall | None:
    """The call of a function on whole batches, if there is one."""
    rule = RULES.get(name)
    return None if rule is None else rule(level, rest, args, kwargs)


def _substituted(
    level: Level, rest: Rest, args: Args, kwargs: Kwargs, prepare: Callable[[Tensor, bool], Tensor]
) -> WholeCall:
    """A call with batches, and what is not batched, prepared."""
    leaves, tree = flattened((args, kwargs))
    held = [level.holds(leaf) for leaf in leaves]

    def call(wholes: Sequence[Tensor]) -> Any:
        batches = iter(wholes)
        given = []
        for leaf, is_batched in zip(leaves, held):
            if isinstance(leaf, Tensor):
                leaf = prepare(next(batches) if is_batched else leaf, is_batched)
            given.append(leaf)
        positional, named = tree.built(given)
        return rest(positional, named)

    return call


def _largest_rank(args: Args, kwargs: Kwargs) -> int:
    leaves, _ = flattened((args, kwargs))
    return max([leaf.ndim for leaf in leaves if isinstance(leaf, Tensor)])


def element_wise(level: Level, rest: Rest, args: Args, kwargs: Kwargs) -> WholeCall | None:
    """What meets at the last axes: batches get axes of size 1 after the first."""
    if kwargs.get("memory_format") is not None:
        return None
    rank = _largest_rank(args, kwargs)
    return _substituted(level, rest, args, kwargs, lambda x, held: with_rank(x, rank) if held else x)


def first_alone(level: Level, rest: Rest, args: Args, kwargs: Kwargs) -> WholeCall | None:
    """What looks up each element of its first argument in others, which are for all."""
    leaves, _ = flattened((args, kwargs))
    if [place for place, leaf in enumerate(leaves) if level.holds(leaf)] != [0]:
        return None
    return _substituted(level, rest, args, kwargs, lambda x, held: x)


def _masked_fill(level: Level, rest: Rest, args: Args, kwargs: Kwargs) -> WholeCall | None:
    return None if level.holds(kwargs.get("value", args[-1])) else element_wise(level, rest, args, kwargs)


def _one_hot(level: Level, rest: Rest, args: Args, kwargs: Kwargs) -> WholeCall | None:
    """Rows of a length that is said, and does not follow from the greatest element."""
    return first_alone(level, rest, args, kwargs) if kwargs.get("num_classes", args[-1]) != -1 else None


@cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(TABLE[name].function)


def along_dim(
    name: str, shared: Sequence[str], level: Level, rest: Rest, args: Args, kwargs: Kwargs
) -> WholeCall | None:
    """What works along one dimension, which is counted from the last; arguments in `shared` must be for all."""
    bound = _signature(name).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    rank, dim = given["input"].ndim, given["dim"]
    if not rank or not isinstance(dim, int) or not -rank <= dim < rank:
        return None
    if any([level.holds(given[key]) for key in shared]):
        return None
    apart = [id(given[key]) for key in shared]
    given["dim"] = dim % rank - rank

    def prepare(x: Tensor, held: bool) -> Tensor:
        return x if id(x) in apart else level.spread(x, held)

    return _substituted(level, rest, bound.args, bound.kwargs, prepare)


def of_all(name: str, pairs: bool, level: Level, rest: Rest, args: Args, kwargs: Kwargs) -> WholeCall | None:
    """What reduces one dimension, or all of them as one; `pairs` are what gives values and indices of one dimension."""
    bound = _signature(name).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.arguments["dim"] is not None:
        return along_dim(name, (), level, rest, args, kwargs)
    if bound.arguments.get("keepdim"):
        return None
    bound.arguments["dim"] = -1

    def prepare(x: Tensor, held: bool) -> Tensor:
        return reshape(x, (level.size, -1)) if held else x

    call = _substituted(level, rest, bound.args, bound.kwargs, prepare)
    return (lambda wholes: call(wholes)[0]) if pairs else call


def more_images(spatial: int, level: Level, rest: Rest, args: Args, kwargs: Kwargs) -> WholeCall | None:
    """What works on images (C, ...) or (N, C, ...), each by itself."""
    leaves, _ = flattened((args, kwargs))
    images = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not all([level.holds(image) for image in images]):
        return None
    if images[0].ndim == spatial + 1:
        return _substituted(level, rest, args, kwargs, lambda x, held: x)
    fold = _substituted(level, rest, args, kwargs, lambda x, held: merged(x, 0))
    return lambda wholes: mapped(lambda made: unmerged(made, 0, level.size), fold(wholes))


register("clone contiguous to type_as nan_to_num remainder fmod div floor_divide frexp", element_wise)
register("float double half bfloat16 int long short char byte bool cfloat cdouble chalf", element_wise)
register("zeros_like ones_like empty_like full_like view_as_complex nextafter cholesky", element_wise)
register("cholesky cholesky_ex eig eigvals lu_factor lu_factor_ex ldl_factor", element_wise, "weft.linalg.")
register("pixel_shuffle pixel_unshuffle", element_wise, "weft.nn.functional.")
register("bucketize", first_alone)
register("masked_fill", _masked_fill)
register("one_hot", _one_hot, "weft.nn.functional.")
for (
    _name
) in "sort argsort topk kthvalue mode cummax cummin cumsum gather scatter scatter_add scatter_reduce diff".split():
    register(_name, partial(along_dim, _name, ()))
for _name in ("index_select", "index_add", "index_copy", "index_fill"):
    register(_name, partial(along_dim, _name, ("index",)))
for _name in ("median", "nanmedian", "count_nonzero"):
    register(_name, partial(of_all, _name, _name != "count_nonzero"))
for _name, _ranks in {"max_pool{}d": (1, 2, 3), "avg_pool{}d": (1, 2, 3), "adaptive_max_pool{}d": (1, 2, 3)}.items():
    for _rank in _ranks:
        register(_name.format(_rank), partial(more_images, _rank), "weft.nn.functional.")
for _rank in (1, 3):
    register(f"adaptive_avg_pool{_rank}d", partial(more_images, _rank), "weft.nn.functional.")

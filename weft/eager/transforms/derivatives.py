"""Derivatives of functions as functions: grad, vjp, jvp, and matrices of derivatives. Each is a level of its own: its
arguments are entered by nodes that only it differentiates, and inside a `vmap` they are batched, so that what an inner
level records is apart from what an outer one does.

Forward derivatives are made of backward passes: what comes back to the inputs of a function is linear in what is given
to its outputs, and the derivative of that linear map is the product wanted. It costs a backward pass that is recorded,
once, and another one for each product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ...base.dtype import is_complex, is_float
from ...base.errors import InvalidValue, RunError
from ..autograd.backward import grad as gradients_of
from ..autograd.modes import enable_grad, modes
from ..autograd.node import AccumulateGrad, Grad, Node
from ..functions.shape.shape import movedim, reshape
from ..tensor.memory import memory_of
from ..tensor.tensor import Tensor, as_view, wrap
from .batched import Batched
from .level import DERIVED, Slices, current_level
from .trees import Tree, flattened, must_be_alike
from .vmap import named, vmap

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "value_and_grad", "vjp"]
Function = Callable[..., Any]


class Entry(Node):
    """Where a tensor enters a level: gradients of the level end here, those of levels around it go on."""

    open = True  # whether its level still runs

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        return grads


class Entered:
    """A level: the tensors that it differentiates by, and whether what it gives may be recorded outside."""

    def __init__(self) -> None:
        self.nodes: list[Entry] = []
        self.recorded = modes.grad

    def enter(self, name: str, tensor: Any) -> Tensor:
        """A tensor as this level sees it."""
        if not isinstance(tensor, Tensor):
            raise InvalidValue(f"{name}: Thing passed to transform API must be Tensor, got {type(tensor)}")
        if not (is_float(tensor._dtype) or is_complex(tensor._dtype)):
            raise RunError(
                f"{name}: only Tensors of floating point dtype can require gradients",
                why=f"an argument that is differentiated by is {tensor.dtype}",
            )
        level = current_level()
        source = tensor if level is None else level.lifted(tensor)
        made = as_view(memory_of(source), source)
        node = Entry((source._edge(),), ((source._shape, source._dtype),))
        made._requires_grad, made._grad_fn = True, node
        self.nodes.append(node)
        return made

    def close(self) -> None:
        for node in self.nodes:
            node.open = False

    def left(self, tensor: Any) -> Any:
        """A result outside of the level: in the graph only if that leads somewhere."""
        if not isinstance(tensor, Tensor) or not tensor.requires_grad:
            return tensor
        return tensor if self.recorded and leads_out([tensor], self.nodes) else tensor.detach()

    def pulled(self, outputs: Sequence[Tensor], grads: Sequence[Any], inputs: Sequence[Tensor]) -> list[Tensor]:
        """What comes to inputs, given what comes to outputs; zeros where there is no way."""
        pairs = [(y, g) for y, g in zip(outputs, grads) if g is not None and y.requires_grad]
        if not pairs:
            return [_zeros(x) for x in inputs]
        ys, gs = zip(*pairs)
        create = modes.grad and (leads_out(ys, self.nodes) or leads_out(gs, self.nodes))
        with enable_grad():
            found = gradients_of(ys, inputs, gs, retain_graph=True, create_graph=create, allow_unused=True)
        return [_zeros(x) if one is None else self.left(one) for one, x in zip(found, inputs)]


@contextmanager
def entered() -> Iterator[Entered]:
    """A level while a function runs in it."""
    level = Entered()
    try:
        with enable_grad():
            yield level
    finally:
        level.close()


def leads_out(tensors: Sequence[Tensor], own: Sequence[Entry]) -> bool:
    """Whether a graph reaches a leaf, or what an open level differentiates by, other than the entries of one level."""
    known: set[Node | None] = {None}
    waiting: list[Node | None] = []
    for tensor in tensors:
        memory = memory_of(tensor)
        while isinstance(memory, Batched):
            if memory.value.requires_grad:
                return True
            memory = memory_of(memory.value)
        waiting.append(tensor._edge()[0])
    mine = set(own)
    while waiting:
        node = waiting.pop()
        if node in known:
            continue
        known.add(node)
        if isinstance(node, AccumulateGrad) or (isinstance(node, Entry) and node.open and node not in mine):
            return True
        waiting += [target for target, _ in node.next_functions]  # type: ignore[union-attr]
    return False


def _zeros(like: Tensor) -> Tensor:
    return wrap(np.zeros(like._shape, like._dtype))


def _tensors(name: str, values: Sequence[Any]) -> list[Tensor]:
    for value in values:
        if not isinstance(value, Tensor):
            raise RunError(f"{name}: expected f(*args) to return only tensors, got {type(value)}")
    return list(values)


def _with_aux(name: str, made: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return made, None
    if not isinstance(made, tuple) or len(made) != 2:
        raise RunError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return made


# Arguments by number.


class Chosen(NamedTuple):
    """Some of the arguments of a call: their tensors, and how to call the function with others in their place."""

    leaves: list[Any]
    tree: Tree
    call: Callable[[Sequence[Any]], Any]


def _chosen(name: str, func: Function, argnums: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Chosen:
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers:
        raise RunError(f"{name}: argnums must not be empty")
    places = []
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise RunError(f"argnum must be int or Tuple[int, ...], got: {type(number)}")
        if not -len(args) <= number < len(args):
            raise RunError(f"Got argnum={number}, but only {len(args)} positional inputs")
        places.append(number % len(args))
    if len(set(places)) != len(places):
        raise RunError(f"argnums elements must be unique, got {argnums}")
    given = tuple([args[place] for place in places])
    leaves, tree = flattened(given if isinstance(argnums, tuple) else given[0])

    def call(values: Sequence[Any]) -> Any:
        built = tree.built(values)
        positional = list(args)
        for place, value in zip(places, built if isinstance(argnums, tuple) else (built,)):
            positional[place] = value
        return func(*positional, **kwargs)

    return Chosen(leaves, tree, call)


# Gradients.


def grad_and_value(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """A function that gives the gradient of one that gives a number, and that number; with `has_aux`, what else the
    function gives beside it.

    >>> import weft
    >>> weft.func.grad_and_value(lambda x: (x * x).sum())(weft.tensor([1.0, 2.0]))
    (tensor([2., 4.]), tensor(5.))
    """

    @functools.wraps(func)
    def derived(*args: Any, **kwargs: Any) -> Any:
        name = "grad_and_value(f)(*args)"
        chosen = _chosen(name, func, argnums, args, kwargs)
        with entered() as level:
            inputs = [level.enter(name, leaf) for leaf in chosen.leaves]
            value, aux = _with_aux(name, chosen.call(inputs), has_aux)
            _must_be_number(name, value)
        found = level.pulled([value], [wrap(np.ones((), value._dtype))], inputs)
        gradient, value = chosen.tree.built(found), level.left(value)
        if not has_aux:
            return gradient, value
        leaves, tree = flattened(aux)
        return gradient, (value, tree.built([level.left(leaf) for leaf in leaves]))

    return derived


def value_and_grad(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """As `grad_and_value`, with the number first: with `has_aux`, what else the function gives is beside the number.

    >>> import weft
    >>> weft.func.value_and_grad(lambda x: (x * x).sum())(weft.tensor([1.0, 2.0]))
    (tensor(5.), tensor([2., 4.]))
    >>> weft.func.value_and_grad(lambda x: ((x * x).sum(), "twice"), has_aux=True)(weft.tensor([1.0, 2.0]))
    ((tensor(5.), 'twice'), tensor([2., 4.]))
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def derived(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return value, gradient

    return derived


def _must_be_number(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise RunError(f"{name}: Expected f(*args) to return a Tensor, got {type(value)}")
    if value.ndim:
        raise RunError(
            f"{name}: Expected f(*args) to return a scalar Tensor, got tensor with {value.ndim} dims. Maybe you wanted "
            "to use the vjp or jacrev APIs instead?"
        )


def grad(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """A function that gives the gradient of one that gives a number.

    >>> import weft
    >>> weft.func.grad(weft.sin)(weft.tensor(0.0))
    tensor(1.)
    >>> weft.func.grad(weft.func.grad(lambda x: x**3))(weft.tensor(2.0))
    tensor(12.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def derived(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return derived


# Products with vectors.


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """What a function gives, and a function from a vector to that times the matrix of derivatives.

    >>> import weft
    >>> output, pull = weft.func.vjp(lambda x: x * x, weft.tensor([1.0, 2.0]))
    >>> pull(weft.tensor([1.0, 10.0]))
    (tensor([ 2., 40.]),)
    """
    name = "vjp(f, *primals)"
    leaves, tree = flattened(primals)
    with entered() as level:
        inputs = [level.enter(name, leaf) for leaf in leaves]
        output, aux = _with_aux(name, func(*tree.built(inputs)), has_aux)
        ys, made = flattened(output)
        _tensors(name, ys)

    def pull(cotangents: Any) -> Any:
        grads, given = flattened(cotangents)
        must_be_alike(name, "what is given for the output", given, made)
        return tree.built(level.pulled(ys, _tensors(name, grads), inputs))

    left = made.built([level.left(y) for y in ys])
    if not has_aux:
        return left, pull
    aux_leaves, aux_tree = flattened(aux)
    return left, pull, aux_tree.built([level.left(leaf) for leaf in aux_leaves])


class Linear(NamedTuple):
    """A function at a point: its results, and the linear map by which they change with its arguments."""

    outputs: list[Tensor]
    tree: Tree
    push: Callable[[Sequence[Any]], list[Tensor]]  # changes of arguments, or None, to those of the results
    aux: Any


def _linear(name: str, call: Callable[[Sequence[Any]], Any], leaves: Sequence[Any], has_aux: bool) -> Linear:
    """The derivative of what comes back to the inputs, by what was given to the outputs: a linear map, whose derivative
    is its transpose."""
    with entered() as level:
        inputs = [level.enter(name, leaf) for leaf in leaves]
        made, aux = _with_aux(name, call(inputs), has_aux)
        ys, tree = flattened(made)
        flowing = [y for y in _tensors(name, ys) if y.requires_grad]
        seeds = [level.enter(name, _zeros(y)) for y in flowing]
        back: Sequence[Any] = [None] * len(inputs)
        if flowing:
            back = gradients_of(flowing, inputs, seeds, create_graph=True, allow_unused=True)

    def push(changes: Sequence[Any]) -> list[Tensor]:
        reached = [(b, t) for b, t in zip(back, changes) if b is not None and t is not None]
        found = iter(level.pulled([b for b, _ in reached], [t for _, t in reached], seeds) if reached else ())
        return [next(found) if y.requires_grad and reached else _zeros(y) for y in ys]

    outputs = [level.left(y) for y in ys]
    aux_leaves, aux_tree = flattened(aux)
    return Linear(outputs, tree, push, aux_tree.built([level.left(leaf) for leaf in aux_leaves]))


def _must_fit(name: str, leaves: Sequence[Any], tangents: Sequence[Any]) -> None:
    for leaf, tangent in zip(leaves, tangents):
        if isinstance(leaf, Tensor) and (not isinstance(tangent, Tensor) or tangent._shape != leaf._shape):
            shown = list(tangent.shape) if isinstance(tangent, Tensor) else type(tangent)
            raise RunError(f"{name}: a tangent is {shown} for an input of shape {list(leaf.shape)}")


def jvp(func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """What a function gives, and the matrix of its derivatives times a vector.

    >>> import weft
    >>> weft.func.jvp(lambda x: x * x, (weft.tensor([1.0, 2.0]),), (weft.tensor([1.0, 10.0]),))
    (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    name = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple) or not primals:
        raise RunError(f"{name}: Expected primals to be a tuple of one or more inputs, got {type(primals)}")
    leaves, tree = flattened(primals)
    changes, changes_tree = flattened(tangents)
    if changes_tree != tree:
        raise RunError(
            f"{name}: Expected primals and tangents to have the same python structure: {tree}, {changes_tree}"
        )
    _must_fit(name, leaves, changes)
    linear = _linear(name, lambda values: func(*tree.built(values)), leaves, has_aux)
    made = linear.tree.built(linear.outputs), linear.tree.built(linear.push(changes))
    return (*made, linear.aux) if has_aux else made


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """What a function gives, and the linear function by which that changes with its arguments: `jvp` at one point, for
    many vectors.

    >>> import weft
    >>> output, push = weft.func.linearize(lambda x: x * x, weft.tensor([1.0, 2.0]))
    >>> push(weft.tensor([1.0, 0.0])), push(weft.tensor([0.0, 1.0]))
    (tensor([2., 0.]), tensor([0., 4.]))
    """
    name = "linearize(f, *primals)"
    leaves, tree = flattened(primals)
    linear = _linear(name, lambda values: func(*tree.built(values)), leaves, False)

    def push(*tangents: Any) -> Any:
        changes, changes_tree = flattened(tangents)
        must_be_alike(name, "what is given for the arguments", changes_tree, tree)
        _must_fit(name, leaves, changes)
        return linear.tree.built(linear.push(changes))

    return linear.tree.built(linear.outputs), push


# Matrices of derivatives.


def jacrev(
    func: Function,
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Function:
    """A function that gives the derivatives of every element that one gives by every element of its arguments: one
    backward pass for a batch of as many vectors as there are elements of an output.

    >>> import weft
    >>> weft.func.jacrev(lambda x: x * x)(weft.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(func)
    def derived(*args: Any, **kwargs: Any) -> Any:
        name = f"jacrev({named(func)})"
        chosen = _chosen(name, func, argnums, args, kwargs)
        with entered() as level:
            inputs = [level.enter(name, leaf) for leaf in chosen.leaves]
            output, aux = _with_aux(name, chosen.call(inputs), has_aux)
            ys, tree = flattened(output)
            _tensors(name, ys)

        def rows(y: Tensor) -> Any:
            found: Sequence[Tensor] = [wrap(np.zeros((y.numel(), *x._shape), x._dtype)) for x in inputs]
            if y.numel():
                found = vmap(lambda one: level.pulled([y], [one], inputs), chunk_size=chunk_size)(_basis(y))
            return chosen.tree.built([reshape(row, (*y._shape, *x._shape)) for row, x in zip(found, inputs)])

        made = tree.built([rows(y) for y in ys])
        if not has_aux:
            return made
        leaves, aux_tree = flattened(aux)
        return made, aux_tree.built([level.left(leaf) for leaf in leaves])

    return derived


def _basis(like: Tensor) -> Tensor:
    """Vectors with a one for each element of a tensor."""
    count = like.numel()
    return wrap(np.eye(count, dtype=like._dtype).reshape(count, *like._shape))


def jacfwd(
    func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Function:
    """The same as `jacrev`, by products with as many vectors as there are elements of an argument: for functions of few
    numbers that give many.

    >>> import weft
    >>> weft.func.jacfwd(weft.sin)(weft.tensor([0.0, 0.0]))
    tensor([[1., 0.],
            [0., 1.]])
    """

    @functools.wraps(func)
    def derived(*args: Any, **kwargs: Any) -> Any:
        name = f"jacfwd({named(func)})"
        chosen = _chosen(name, func, argnums, args, kwargs)
        linear = _linear(name, chosen.call, chosen.leaves, has_aux)

        def columns(place: int) -> list[Tensor]:
            x: Tensor = chosen.leaves[place]
            if not x.numel():
                return [wrap(np.zeros((*y._shape, *x._shape), y._dtype)) for y in linear.outputs]
            others: list[Any] = [None] * len(chosen.leaves)

            def pushed(one: Tensor) -> list[Tensor]:
                return linear.push([*others[:place], one, *others[place + 1 :]])

            found = vmap(pushed, randomness=randomness)(_basis(x))
            return [reshape(movedim(column, 0, -1), (*y._shape, *x._shape)) for column, y in zip(found, linear.outputs)]

        by_input = [columns(place) for place in range(len(chosen.leaves))]
        made = linear.tree.built([chosen.tree.built(list(row)) for row in zip(*by_input)])
        return (made, linear.aux) if has_aux else made

    return derived


def hessian(func: Function, argnums: int | tuple[int, ...] = 0) -> Function:
    """A function that gives the second derivatives of one: forward derivatives of backward ones.

    >>> import weft
    >>> weft.func.hessian(lambda x: (x**3).sum())(weft.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def _derived(function: Callable[[Slices], Any], xs: Slices, wanted: Sequence[bool], grads: dict[int, Tensor]) -> Any:
    """What comes to the wanted arguments of a function that is run for one element of a batch."""
    with entered() as level:
        inputs = [level.enter("vmap", x) if want else x for x, want in zip(xs, wanted)]
        ys = [y for y in flattened(function(inputs))[0] if isinstance(y, Tensor) and y._dtype.kind in "fcV"]
    places = [place for place in grads if place < len(ys)]
    return level.pulled(
        [ys[place] for place in places],
        [grads[place] for place in places],
        [x for x, want in zip(inputs, wanted) if want],
    )


DERIVED.append(_derived)

"""Samples of the operators that read at given positions, and of products of matrices."""

import numpy as np
from sample import SMALL_SHAPES, Sample, floats, integers, samples


def _vjp(torch, forward):
    """The gradient that torch's autograd gives, as a function of (gradient, input, the rest)."""

    def backward(g, x, *rest):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(forward(x, *rest), x, g)[0]

    return backward


TAKES = [
    ((3, 4), (2, 2), 1),
    ((3, 4), (5,), 0),
    ((3, 4), (), -1),
    ((6,), (2, 3), 0),
    ((2, 1, 3, 2), (4,), 2),
    ((3, 4), (2, 2), None),
    ((5,), (0,), 0),
    ((0, 3), (0,), 0),
    ((0, 3), (2,), 1),
    ((), (3,), None),
]


def _take(x, indices, axis):
    """Negative indices wrap, what is still outside goes to the nearest end."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    size = x.shape[axis]
    places = indices.long()
    places = (places + size * (places < 0)).clamp(0, max(size - 1, 0))
    rows = x.index_select(axis, places.reshape(-1))
    axis = axis % x.ndim
    return rows.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _indices(rng, x, shape, axis, dtype, beyond=0):
    extent = x.size if axis is None else x.shape[axis]
    return integers(rng, shape, -extent - beyond, max(extent, 1) + beyond, dtype)


@samples("take")
def take(rng, torch):
    for (shape, where, axis), dtype in zip(TAKES, ("int32", "int64", "int8") * 4):
        x = floats(rng, shape)
        indices = _indices(rng, x, where, axis, dtype)
        yield Sample([x, indices], {"axis": axis}, lambda x, i, a=axis: _take(x, i, a))
    x = floats(rng, (3, 2))
    outside = _indices(rng, x, (9,), 0, "int32", beyond=5)
    yield Sample([x, outside], {"axis": 0}, lambda x, i: _take(x, i, 0))


@samples("gather")
def gather(rng, torch):
    for shape, where, axis in TAKES:
        if axis is not None:
            x = floats(rng, shape)
            indices = _indices(rng, x, where, axis, "int64")
            yield Sample([x, indices], {"axis": axis}, lambda x, i, a=axis: _take(x, i, a))


@samples("_take_grad")
def take_grad(rng, torch):
    for shape, where, axis in TAKES[:7]:
        x = floats(rng, shape)
        indices = _indices(rng, x, where, axis, "int32")
        g = floats(rng, _take(torch.from_numpy(x), torch.from_numpy(indices), axis).shape)
        run = _vjp(torch, lambda x, i, a=axis: _take(x, i, a))
        yield Sample([g, x, indices], {"axis": axis}, run)


GATHERS_ND = [((3, 4), (2, 5)), ((3, 4), (1, 2)), ((2, 3, 4), (2, 2, 2)), ((5,), (1, 3)), ((3, 2), (2, 0))]


def _gather_nd(x, indices):
    places = tuple(row.long() % size for row, size in zip(indices, x.shape))
    return x[places]


def _coordinates(rng, shape, where):
    rows = [integers(rng, where[1:], -size, size) for size in shape[: where[0]]]
    return np.stack(rows)


@samples("gather_nd")
def gather_nd(rng, torch):
    for shape, where in GATHERS_ND:
        yield Sample([floats(rng, shape), _coordinates(rng, shape, where)], {}, _gather_nd)


@samples("_gather_nd_grad")
def gather_nd_grad(rng, torch):
    for shape, where in GATHERS_ND:
        x, indices = floats(rng, shape), _coordinates(rng, shape, where)
        g = floats(rng, (*where[1:], *shape[where[0] :]))
        yield Sample([g, x, indices], {}, _vjp(torch, _gather_nd))


@samples("scatter_nd")
def scatter_nd(rng, torch):
    def put(x, indices, updates):
        places = tuple(row.long() % size for row, size in zip(indices, x.shape))
        return x.index_put(places, updates)

    for shape, where in [((3, 4), (2, 5)), ((5, 2), (1, 3)), ((2, 3, 4), (2, 2, 2)), ((3, 2), (2, 0))]:
        count = where[0]
        picked = rng.permutation(int(np.prod(shape[:count])))[: int(np.prod(where[1:]))]
        places = np.stack(np.unravel_index(picked, shape[:count])).reshape(where)
        signs = np.reshape(shape[:count], (-1,) + (1,) * (len(where) - 1))
        indices = np.where(rng.random(where) < 0.5, places - signs, places).astype("int32")
        updates = floats(rng, (*where[1:], *shape[count:]))
        yield Sample([floats(rng, shape), indices, updates], {}, put)
    twice = [floats(rng, (3,)), np.int64([[1, 1, 9]]), np.float32([5, 6, 7])]
    run = lambda x, i, u: torch.stack([x[0], u[1], u[2]])
    yield Sample(twice, {}, run, differentiable=(0,))


@samples("scatter_nd_reduce")
def scatter_nd_reduce(rng, torch):
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}

    def rows(reduction):
        """By PyTorch's scatter along the first axis, for one coordinate; of more, by their row numbers."""

        def put(x, indices, updates):
            count = len(indices)
            numbers = torch.zeros(indices.shape[1:], dtype=torch.int64)
            for row, size in zip(indices, x.shape):
                numbers = numbers * size + row.long() % size
            flat = x.reshape(-1, *x.shape[count:])
            news = updates.reshape(-1, *x.shape[count:])
            where = numbers.reshape(-1, *[1] * (x.ndim - count)).expand_as(news)
            return flat.scatter_reduce(0, where, news, names[reduction]).reshape(x.shape)

        return put

    for reduction in names:
        attrs = {"reduction": reduction}
        for shape, where in [
            ((5,), (1, 9)),
            ((5, 3), (1, 7)),
            ((2, 3, 4), (2, 2, 4)),
            ((3, 16), (1, 4)),
            ((3, 2), (1, 0)),
        ]:
            count = where[0]
            sizes = np.reshape(shape[:count], (-1,) + (1,) * (len(where) - 1))
            indices = rng.integers(-sizes, sizes, where)
            updates = floats(rng, (*where[1:], *shape[count:]))
            yield Sample([floats(rng, shape), indices, updates], attrs, rows(reduction), False)
        whole = [integers(rng, (4,), dtype="int64"), rng.integers(0, 4, (1, 6)), integers(rng, (6,), dtype="int64")]
        yield Sample(whole, attrs, rows(reduction), False)


ELEMENTS = [
    ((3, 4), (3, 4), 1),
    ((3, 4), (2, 4), 0),
    ((3, 4), (7, 2), 0),
    ((5,), (3,), -1),
    ((2, 3, 1, 2), (1, 3, 1, 4), 3),
]


def _gather_elements(x, indices, axis):
    return x.gather(axis, indices.long() % x.shape[axis])


@samples("gather_elements")
def gather_elements(rng, torch):
    for shape, where, axis in ELEMENTS:
        x = floats(rng, shape)
        indices = integers(rng, where, -shape[axis], shape[axis], "int64")
        run = lambda x, i, a=axis: _gather_elements(x, i, a)
        yield Sample([x, indices], {"axis": axis}, run)


@samples("_gather_elements_grad")
def gather_elements_grad(rng, torch):
    for shape, where, axis in ELEMENTS:
        x, g = floats(rng, shape), floats(rng, where)
        indices = integers(rng, where, -shape[axis], shape[axis])
        run = _vjp(torch, lambda x, i, a=axis: _gather_elements(x, i, a))
        yield Sample([g, x, indices], {"axis": axis}, run)


@samples("where")
def where(rng, torch):
    for shape in SMALL_SHAPES:
        for dtype in ("bool", "int32", "float32"):
            condition = integers(rng, shape, 0, 2).astype(dtype)
            three = [condition, floats(rng, shape), floats(rng, shape)]
            run = lambda c, x, y: torch.where(c != 0, x, y)
            yield Sample(three, {}, run, differentiable=(1, 2))
    rows = [integers(rng, (3,), 0, 2), floats(rng, (3, 2)), floats(rng, (3, 2))]
    yield Sample(rows, {}, lambda c, x, y: torch.where(c[:, None] != 0, x, y))


FLAGS = [{}, {"transpose_a": True}, {"transpose_b": True}, {"transpose_a": True, "transpose_b": True}]


def _reversed(shape, attrs, key):
    return shape[::-1] if attrs.get(key) else shape


def _turned(x, attrs, key):
    return x.permute(*range(x.ndim)[::-1]) if attrs.get(key) else x


def _tensordot(torch, attrs):
    return lambda a, b: torch.tensordot(_turned(a, attrs, "transpose_a"), _turned(b, attrs, "transpose_b"), 1)


PRODUCTS = [
    ((3, 4), (4, 2)),
    ((2, 3, 4), (4, 2)),
    ((3, 4), (4, 2, 1, 3)),
    ((4,), (4, 3)),
    ((2, 4), (4,)),
    ((4,), (4,)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
]


def _factors(rng, a, b, attrs):
    return [floats(rng, _reversed(a, attrs, "transpose_a")), floats(rng, _reversed(b, attrs, "transpose_b"))]


@samples("matmul")
def matmul(rng, torch):
    for attrs in FLAGS:
        for a, b in PRODUCTS:
            yield Sample(_factors(rng, a, b, attrs), attrs, _tensordot(torch, attrs))
    yield Sample([integers(rng, (2, 3)), integers(rng, (3, 2))], {}, lambda a, b: a @ b)


def _matmul_grad(side):
    @samples(f"_matmul_grad_{side}")
    def make(rng, torch):
        for attrs in FLAGS:
            for a, b in PRODUCTS[:6]:
                left, right = _factors(rng, a, b, attrs)
                g = floats(rng, a[:-1] + b[1:])
                product = _tensordot(torch, attrs)
                if side == "lhs":
                    run = lambda g, b, a, f=product: _vjp(torch, f)(g, a, b)
                    yield Sample([g, right, left], attrs, run)
                else:
                    run = lambda g, a, b, f=product: _vjp(torch, lambda b: f(a, b))(g, b)
                    yield Sample([g, left, right], attrs, run)


_matmul_grad("lhs")
_matmul_grad("rhs")


def _swapped(shape, attrs, key):
    return (*shape[:-2], shape[-1], shape[-2]) if attrs.get(key) else shape


@samples("batch_matmul")
def batch_matmul(rng, torch):
    def product(attrs):
        turn = lambda x, key: x.mT if attrs.get(key) else x
        return lambda a, b: turn(a, "transpose_a") @ turn(b, "transpose_b")

    for attrs in FLAGS:
        for a, b in [
            ((3, 4), (4, 2)),
            ((2, 3, 4), (2, 4, 1)),
            ((2, 1, 3, 2), (4, 2, 3)),
            ((5, 2, 3), (3, 4)),
            ((2, 0, 3), (3, 2)),
            ((2, 2, 0), (0, 3)),
        ]:
            pair = [floats(rng, _swapped(a, attrs, "transpose_a")), floats(rng, _swapped(b, attrs, "transpose_b"))]
            yield Sample(pair, attrs, product(attrs))
    yield Sample([integers(rng, (2, 2, 3)), integers(rng, (2, 3, 2))], {}, lambda a, b: a @ b)

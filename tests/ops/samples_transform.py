"""Samples of the operators that give elements another shape, order or company."""

import numpy as np
from sample import SHAPES, SMALL_SHAPES, Sample, floats, integers, samples


@samples("flatten")
def flatten(rng, torch):
    for shape in [(5,), (2, 3), (2, 3, 4), (1, 2, 3, 1), (0, 5, 2), (3, 0)]:
        size = (shape[0], int(np.prod(shape[1:])))
        yield Sample([floats(rng, shape)], {}, lambda x, s=size: x.reshape(s))


@samples("reshape")
def reshape(rng, torch):
    for shape, codes, out in [
        ((2, 3, 4), (0, -1), (2, 12)),
        ((2, 3, 4), (-1,), (24,)),
        ((2, 3, 4), (4, 6), (4, 6)),
        ((2, 3, 4), (-2,), (2, 3, 4)),
        ((2, 3, 4), (-3, 0), (6, 4)),
        ((6, 5), (-4, 2, -1, 0), (2, 3, 5)),
        ((6, 5), (-4, 2, 3, -2), (2, 3, 5)),
        ((2, 3, 4), (0, -3), (2, 12)),
        ((), (1, 1), (1, 1)),
        ((1,), (), ()),
        ((12,), (3, 2, 2), (3, 2, 2)),
        ((4, 6), (3, 8), (3, 8)),
        ((2, 3, 5, 1), (5, 6), (5, 6)),
        ((0, 3), (0, 3), (0, 3)),
    ]:
        yield Sample([floats(rng, shape)], {"shape": codes}, lambda x, o=out: x.reshape(o))
    yield Sample([integers(rng, (2, 3))], {"shape": "(3L, 2L)"}, lambda x: x.reshape(3, 2))


@samples("reshape_like")
def reshape_like(rng, torch):
    for shape, like in [((2, 3), (3, 2)), ((6,), (1, 6)), ((), (1,)), ((0, 3), (2, 0)), ((2, 2), (4,))]:
        pair = [floats(rng, shape), floats(rng, like)]
        yield Sample(pair, {}, lambda x, y: x.reshape(y.shape))


@samples("squeeze")
def squeeze(rng, torch):
    for shape, axis, out in [
        ((1, 3, 1), (), (3,)),
        ((1, 3, 1), 0, (3, 1)),
        ((1, 3, 1), (-1,), (1, 3)),
        ((1, 1), (), (1,)),
        ((1, 1), (0, 1), (1,)),
        ((), (), ()),
        ((2, 3), (), (2, 3)),
        ((0, 1), 1, (0,)),
    ]:
        yield Sample([floats(rng, shape)], {"axis": axis}, lambda x, o=out: x.reshape(o))


@samples("expand_dims")
def expand_dims(rng, torch):
    for shape, axis, count, out in [
        ((2, 3), 0, 1, (1, 2, 3)),
        ((2, 3), -3, 1, (1, 2, 3)),
        ((2, 3), 1, 2, (2, 1, 1, 3)),
        ((2, 3), -1, 1, (2, 3, 1)),
        ((), 0, 3, (1, 1, 1)),
        ((0,), 1, 1, (0, 1)),
    ]:
        attrs = {"axis": axis, "num_newaxis": count}
        yield Sample([floats(rng, shape)], attrs, lambda x, o=out: x.reshape(o))


@samples("transpose")
def transpose(rng, torch):
    for shape, axes in [
        ((2, 3, 4), (1, 2, 0)),
        ((2, 3, 4), ()),
        ((2, 3, 4), (2, 0, -2)),
        ((), ()),
        ((5,), ()),
        ((2, 1, 3, 2), (0, 2, 3, 1)),
        ((0, 3), (1, 0)),
    ]:
        order = axes or tuple(range(len(shape)))[::-1]
        yield Sample([floats(rng, shape)], {"axes": axes}, lambda x, o=order: x.permute(o))


@samples("flip")
def flip(rng, torch):
    for shape, axis in [((5,), 0), ((3, 4), -1), ((2, 3, 1, 2), 1), ((0, 2), 0)]:
        yield Sample([floats(rng, shape)], {"axis": axis}, lambda x, a=axis: x.flip(a))


@samples("__layout_transform__")
def layout_transform(rng, torch):
    for shape, source, target, run in [
        ((2, 3, 4, 5), "NCHW", "NHWC", lambda x: x.permute(0, 2, 3, 1)),
        ((2, 8, 3, 1), "NCHW", "NCHW4c", lambda x: x.reshape(2, 2, 4, 3, 1).permute(0, 1, 3, 4, 2)),
        ((2, 2, 3, 1, 4), "NCHW4c", "NHWC", lambda x: x.permute(0, 2, 3, 1, 4).reshape(2, 3, 1, 8)),
        ((4, 2, 1, 3, 2), "4cNHWC", "NC8cHW", lambda x: x.permute(1, 4, 0, 2, 3).reshape(2, 1, 8, 1, 3)),
        ((6,), "C", "C3c", lambda x: x.reshape(2, 3)),
        ((0, 2), "HW", "WH", lambda x: x.t()),
    ]:
        attrs = {"src_layout": source, "dst_layout": target}
        yield Sample([floats(rng, shape)], attrs, run)


@samples("concatenate")
def concatenate(rng, torch):
    for shapes, axis in [
        ([(2, 3), (2, 1), (2, 4)], 1),
        ([(2, 1), (2, 5)], -1),
        ([(3,)], 0),
        ([(2, 0), (2, 2)], 1),
        ([(1, 2, 3, 2), (4, 2, 3, 2)], 0),
        ([(0, 2), (0, 2)], 0),
    ]:
        parts = [floats(rng, shape) for shape in shapes]
        yield Sample(parts, {"axis": axis}, lambda *xs, a=axis: torch.cat(xs, a))
    parts = [integers(rng, (2, n)) for n in (1, 2)]
    yield Sample(parts, {}, lambda *xs: torch.cat(xs, 1))


@samples("_concatenate_grad")
def concatenate_grad(rng, torch):
    for shapes, axis in [([(2, 3), (2, 1)], 1), ([(2, 0), (2, 2)], -1), ([(3,)], 0)]:
        parts = [floats(rng, shape) for shape in shapes]
        sizes = [shape[axis] for shape in shapes]
        whole = np.concatenate(parts, axis)
        attrs = {"axis": axis, "num_args": len(parts)}
        yield Sample([whole, *parts], attrs, lambda g, *xs, s=sizes, a=axis: g.split(s, a))


@samples("split")
def split(rng, torch):
    for shape, cuts, axis, sizes in [
        ((2, 6), 3, 1, [2, 2, 2]),
        ((4, 2), (1, 3), 0, [1, 2, 1]),
        ((2, 5), (2,), -1, [2, 3]),
        ((2, 3, 4, 1), 2, 2, [2, 2]),
        ((0, 4), 2, 1, [2, 2]),
        ((4, 3), 1, 0, [4]),
        ((5,), (0, 2), 0, [0, 2, 3]),
        ((3, 2), (), 1, [2]),
    ]:
        attrs = {"indices_or_sections": cuts, "axis": axis}
        yield Sample([floats(rng, shape)], attrs, lambda x, s=sizes, a=axis: x.split(s, a))


@samples("stack")
def stack(rng, torch):
    for shape, count, axis in [((2, 3), 3, 0), ((2, 3), 2, -1), ((), 2, 0), ((2, 1, 2), 1, 1), ((0,), 2, 1)]:
        parts = [floats(rng, shape) for _ in range(count)]
        yield Sample(parts, {"axis": axis}, lambda *xs, a=axis: torch.stack(xs, a))


@samples("tile")
def tile(rng, torch):
    for shape, reps in [
        ((2, 3), (2, 2)),
        ((3,), (2, 1, 2)),
        ((2, 1, 3), (2,)),
        ((), (3,)),
        ((2,), ()),
        ((2, 2), (0, 1)),
        ((0, 2), (2, 3)),
    ]:
        yield Sample([floats(rng, shape)], {"reps": reps}, lambda x, r=reps: torch.tile(x, r))


@samples("_tile_grad")
def tile_grad(rng, torch):
    for shape, reps in [((2, 3), (2, 2)), ((3,), (2, 1, 2)), ((2, 1, 3), (2,)), ((), (3,)), ((2,), ())]:
        x = floats(rng, shape)
        g = floats(rng, np.tile(x, reps).shape)
        yield Sample([g, x], {"reps": reps}, _vjp(torch, lambda x, r=reps: torch.tile(x, r)))


def _vjp(torch, forward):
    """The gradient that torch's autograd gives, as a function of (gradient, input)."""

    def backward(g, x, *rest):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(forward(x, *rest), x, g)[0]

    return backward


@samples("repeat")
def repeat(rng, torch):
    for shape, count, axis in [
        ((2, 3), 2, 0),
        ((2, 3), 3, -1),
        ((2, 3), 2, None),
        ((), 3, None),
        ((4,), 1, 0),
        ((2, 2), 0, 1),
        ((0, 2), 2, 1),
    ]:
        attrs = {"repeats": count, "axis": axis}
        run = lambda x, c=count, a=axis: torch.repeat_interleave(x, c, dim=a)
        yield Sample([floats(rng, shape)], attrs, run)


@samples("_repeat_grad")
def repeat_grad(rng, torch):
    for shape, count, axis in [((2, 3), 2, 0), ((2, 3), 3, -1), ((2, 3), 2, None), ((), 3, None)]:
        x = floats(rng, shape)
        g = floats(rng, np.repeat(x, count, axis).shape)
        run = _vjp(torch, lambda x, c=count, a=axis: torch.repeat_interleave(x, c, dim=a))
        yield Sample([g, x], {"repeats": count, "axis": axis}, run)


SLICES = [
    ((4, 5), (0,), (2,), ()),
    ((4, 5), (1, 1), (4, 5), (2, 3)),
    ((4, 5), (3,), (0,), (-2,)),
    ((4, 5), (-1, -2), (-5, 5), (-1, 1)),
    ((4,), (2,), (99,), ()),
    ((2, 3, 1, 4), (0, 1), (2, 3), ()),
    ((4, 5), (), (2,), ()),
    ((5,), (0,), (5,), (3,)),
    ((0, 3), (0, 1), (0, 3), ()),
    ((), (), (), ()),
    ((7,), (-2,), (0,), (-2,)),
    ((4, 5), (3, 0), (-9, 2147483647), (-3,)),
]


def _slice(x, begin, end, stride):
    """Indexing by lists, since torch has no negative steps."""
    for axis, size in enumerate(x.shape):
        at = slice(*(row[axis] if axis < len(row) else None for row in (begin, end, stride)))
        if axis >= len(begin):
            at = slice(0, at.stop, at.step)
        x = x[(slice(None),) * axis + (list(range(size))[at],)]
    return x


@samples("strided_slice")
def strided_slice(rng, torch):
    for shape, begin, end, stride in SLICES:
        attrs = {"begin": begin, "end": end, "stride": stride}
        run = lambda x, b=begin, e=end, s=stride: _slice(x, b, e, s)
        yield Sample([floats(rng, shape)], attrs, run)


@samples("_strided_slice_grad")
def strided_slice_grad(rng, torch):
    for shape, begin, end, stride in SLICES:
        attrs = {"begin": begin, "end": end, "stride": stride}
        run = lambda x, b=begin, e=end, s=stride: _slice(x, b, e, s)
        x = floats(rng, shape)
        g = floats(rng, run(torch.from_numpy(x)).shape)
        yield Sample([g, x], attrs, _vjp(torch, lambda x, r=run: r(x.clone())))


CUTS = [
    ((3, 4), (2, 2), (), (2, 2)),
    ((3, 4), (2, 2), (-1,), (3, 2)),
    ((3, 4), (2,), (), (2, 4)),
    ((2, 3, 4), (5, 2, 1), (1, 2), (2, 2, 1)),
    ((3,), (0,), (), (0,)),
    ((3, 4), (3, 4), (), (3, 4)),
]


@samples("slice_like")
def slice_like(rng, torch):
    for shape, like, axis, out in CUTS:
        pair = [floats(rng, shape), floats(rng, like)]
        at = tuple(map(slice, out))
        yield Sample(pair, {"axis": axis}, lambda x, y, at=at: x[at])


@samples("_slice_like_grad")
def slice_like_grad(rng, torch):
    for shape, _, _, out in CUTS:
        pair = [floats(rng, out), floats(rng, shape)]
        at = tuple(map(slice, out))
        yield Sample(pair, {}, _vjp(torch, lambda x, at=at: x[at]))


@samples("_assign", system="numpy")
def assign(rng, numpy):
    for shape in SMALL_SHAPES:
        pair = [floats(rng, shape), floats(rng, shape)]
        yield Sample(pair, {}, lambda old, new: (new, new))


def _made(name, value):
    @samples(name)
    def make(rng, torch):
        for shape, dtype in zip(SHAPES, ("float32", "int32", "bool", "uint8", "float64", "int64") * 2):
            extra = {"fill_value": value} if name == "full" else {}
            attrs = {"shape": shape, "dtype": dtype, **extra}
            run = lambda s=shape, d=dtype: torch.full(s, value, dtype=getattr(torch, d))
            yield Sample([], attrs, run)


_made("zeros", 0)
_made("ones", 1)
_made("full", 7)


@samples("full_like")
def full_like(rng, torch):
    for shape in SMALL_SHAPES:
        run = lambda x: torch.full_like(x, -2.5)
        yield Sample([floats(rng, shape)], {"fill_value": -2.5}, run)
    yield Sample([integers(rng, (3,))], {"fill_value": 2.5}, lambda x: torch.full_like(x, 2))


@samples("arange")
def arange(rng, torch):
    for start, stop, step, dtype in [
        (0, 5, 1, "float32"),
        (2, 11, 3, "int32"),
        (5, 0, -2, "int64"),
        (0.5, 2, 0.25, "float64"),
        (3, 3, 1, "int32"),
    ]:
        attrs = {"start": start, "stop": stop, "step": step, "dtype": dtype}
        kind = getattr(torch, dtype)
        run = lambda b=start, e=stop, s=step, k=kind: torch.arange(b, e, s, dtype=k)
        yield Sample([], attrs, run)
    yield Sample([], {"start": 4, "stop": 1}, lambda: torch.zeros(0))


@samples("one_hot")
def one_hot(rng, torch):
    hot = torch.nn.functional.one_hot
    for shape in [(), (4,), (2, 3), (0,), (1, 2, 1)]:
        x = integers(rng, shape, 0, 5, "int64")
        yield Sample([x], {"depth": 5}, lambda x: hot(x, 5).float())
    x = integers(rng, (2, 3), 0, 4)
    first = {"depth": 4, "axis": 0, "dtype": "int32", "on_value": 5, "off_value": -1}
    yield Sample([x], first, lambda x: hot(x.long(), 4).permute(2, 0, 1).int() * 6 - 1)
    outside = np.int32([-1, 3, -4])
    rows = torch.tensor([[0.0, 0, 1], [0, 0, 0], [0, 0, 0]])
    yield Sample([outside], {"depth": 3}, lambda x: rows)

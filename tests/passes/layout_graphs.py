"""Random graphs that mix operators with layouts of their own, and operators that count axes."""

import numpy as np
from passes.graphs import F, Graph, Group, Variable

from weft.core.infer import infer

MOST_ELEMENTS = 6000
NHWC = {"layout": "NHWC", "kernel_layout": "HWIO"}


class RandomGraph:
    """Grows a graph by random operators on random tensors of it; shapes as users see them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0
        self.made = [self.variable(self.choice([(1, 8, 6, 9), (2, 16, 4, 4), (3, 8, 5, 8)]))]

    def choice(self, options):
        return options[self.rng.integers(len(options))]

    def name(self):
        self.count += 1
        return f"n{self.count}"

    def variable(self, shape):
        return Variable(self.name(), shape=shape), tuple(shape)

    def grow(self, steps):
        while steps:
            symbol, shape = self.made[-self.rng.integers(1, min(len(self.made), 4) + 1)]
            step = self.choice(BY_RANK.get(len(shape), ANY_RANK))
            made = step(self, symbol, shape)
            if made is None:
                continue
            known = infer(Graph(made.outputs), {}, {}).fact(made.outputs[0]).shape
            if 0 < np.prod(known) <= MOST_ELEMENTS and len(known) <= 5:
                self.made.append((made, known))
                steps -= 1
        return Group([symbol for symbol, _ in self.made[-3:]])


def _conv(g, x, shape):
    if min(shape[2:]) < 2:
        return None
    kernel = g.choice([(1, 1), (2, 1), (2, 2)])
    attrs = {"channels": g.choice([4, 8, 16, 5]), "padding": g.choice([(0, 0), (1, 1)])}
    return F.conv2d(x, kernel_size=kernel, name=g.name(), use_bias=g.choice([True, False]), **attrs)


def _conv_nhwc(g, x, shape):
    if min(shape[1:3]) < 2:
        return None
    return F.conv2d(x, channels=g.choice([8, 3]), kernel_size=(2, 1), name=g.name(), **NHWC)


def _depthwise(g, x, shape):
    if min(shape[2:]) < 2:
        return None
    return F.conv2d(x, channels=shape[1], groups=shape[1], kernel_size=(2, 2), padding=(1, 0), name=g.name())


def _conv_transpose(g, x, shape):
    return F.conv2d_transpose(x, channels=8, kernel_size=(2, 3), strides=(2, 1), name=g.name())


def _pool(g, x, shape):
    layout = g.choice(["NCHW", "NCHW", "NHWC"])
    rows, columns = (shape[layout.index(letter)] for letter in "HW")
    if rows < 3 or columns < 3:
        return None
    op = g.choice([F.max_pool2d, F.avg_pool2d])
    size, padding = g.choice([((2, 3), (0, 0)), ((3, 2), (1, 1))])
    return op(x, pool_size=size, strides=g.choice([(1, 2), (1, 1)]), padding=padding, layout=layout)


def _whole_image(g, x, shape):
    op = g.choice([F.global_avg_pool2d, F.global_max_pool2d])
    return op(x, layout=g.choice(["NCHW", "NHWC"]))


def _upsampling(g, x, shape):
    return F.upsampling(x, scale=2, layout=g.choice(["NCHW", "NHWC"]))


def _batch_norm(g, x, shape):
    return F.batch_norm(x, axis=g.choice([1, 1, len(shape) - 1]), name=g.name())[0]


def _prelu(g, x, shape):
    return F.prelu(x, axis=1, name=g.name())


def _lrn(g, x, shape):
    return F.lrn(x, size=3, axis=1, alpha=0.1, beta=0.75, bias=1.0)


def _explicit_transform(g, x, shape):
    if shape[1] % 4:
        return None
    return F.__layout_transform__(x, src_layout="NCHW", dst_layout=g.choice(["NHWC", "NCHW4c"]))


def _transpose(g, x, shape):
    return F.transpose(x, axes=tuple(int(a) for a in g.rng.permutation(len(shape))))


def _swap(g, x, shape):
    if len(shape) < 2:
        return None
    axes = list(range(len(shape)))
    axes[-1], axes[-2] = axes[-2], axes[-1]
    return F.transpose(x, axes=tuple(axes))


def _element(g, x, shape):
    return g.choice([F.relu, F.tanh, F.sigmoid, F.copy])(x)


def _reduce(g, x, shape):
    count = int(g.rng.integers(1, len(shape) + 1))
    axes = [int(axis) for axis in g.rng.choice(len(shape), count, replace=False)]
    axes = tuple(axis - len(shape) * int(g.rng.integers(2)) for axis in axes)
    op = g.choice([F.mean, F.sum, F.max, F.min])
    exclude = bool(g.rng.integers(4) == 0)
    return op(x, axis=axes, keepdims=g.choice([True, False]), exclude=exclude)


def _softmax(g, x, shape):
    return g.choice([F.softmax, F.log_softmax])(x, axis=int(g.rng.integers(-1, len(shape))))


def _pad(g, x, shape):
    return F.pad(x, pad_width=tuple((int(g.rng.integers(2)), 1) for _ in shape), pad_value=0.5)


def _slice(g, x, shape):
    begin = tuple(int(g.rng.integers((dim + 1) // 2)) for dim in shape)
    return F.strided_slice(x, begin=begin, end=shape)


def _flip(g, x, shape):
    return F.flip(x, axis=int(g.rng.integers(len(shape))))


def _joined(g, x, shape):
    others = [symbol for symbol, known in g.made if known == shape]
    axis = int(g.rng.integers(-1, len(shape)))
    return F.concatenate(x, g.choice(others), F.tanh(x), axis=axis)


def _split(g, x, shape):
    axis = int(g.rng.integers(len(shape)))
    if shape[axis] % 2:
        return None
    first, second = F.split(x, indices_or_sections=2, axis=axis)
    return F.elemwise_mul(first, second)


def _same_shape(g, x, shape):
    others = [symbol for symbol, known in g.made if known == shape]
    others.append(g.variable(shape)[0])
    op = g.choice([F.elemwise_add, F.elemwise_mul, F.elemwise_sub])
    pair = [x, g.choice(others)]
    return op(*pair) if g.rng.integers(2) else op(*pair[::-1])


def _summed(g, x, shape):
    others = [symbol for symbol, known in g.made if known == shape]
    return F.elemwise_sum(g.choice(others), x, F.relu(x), num_args=3)


def _broadcast(g, x, shape):
    """With a variable or a tensor of the graph, of lower, equal or higher rank."""
    others = [symbol for symbol, known in g.made if _broadcasts(known, shape)]
    rank = int(g.rng.integers(1, min(len(shape) + 1, 5) + 1))
    last = shape[max(len(shape) - rank, 0) :]
    own = (2,) * (rank - len(last)) + tuple(dim if g.rng.integers(2) else 1 for dim in last)
    others.append(g.variable(own)[0])
    pair = [x, g.choice(others[-2:])]
    op = g.choice([F.broadcast_add, F.broadcast_mul, F.broadcast_sub, F.broadcast_max])
    return op(*pair) if g.rng.integers(2) else op(*pair[::-1])


def _broadcasts(one, other):
    return all(a == b or 1 in (a, b) for a, b in zip(one[::-1], other[::-1]))


def _turned_sum(g, x, shape):
    """A sum by position of axes that have other names."""
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return None
    return F.broadcast_add(x, _swap(g, x, shape))


def _flat(g, x, shape):
    return F.flatten(x)


def _reshape(g, x, shape):
    if len(shape) < 2:
        return F.reshape(x, shape=(1, 1, 1, -1))
    return g.choice(
        [
            F.reshape(x, shape=(*shape[:-2], shape[-1], shape[-2])),
            F.reshape(x, shape=(shape[0], -1)),
            F.reshape(x, shape=(1, -1, shape[-2], shape[-1])),
        ]
    )


def _expand(g, x, shape):
    return F.expand_dims(x, axis=int(g.rng.integers(-1, len(shape) + 1)))


def _squeeze(g, x, shape):
    return F.squeeze(x, axis=(shape.index(1),)) if 1 in shape and len(shape) > 1 else None


def _dense(g, x, shape):
    return F.dense(x, units=g.choice([8, 5]), name=g.name())


def _matmul(g, x, shape):
    return F.matmul(x, g.variable((shape[-1], 8))[0])


ANY_RANK = [
    _transpose,
    _element,
    _reduce,
    _softmax,
    _pad,
    _slice,
    _flip,
    _joined,
    _split,
    _same_shape,
    _summed,
    _broadcast,
    _broadcast,
    _turned_sum,
    _reshape,
    _expand,
    _squeeze,
    _dense,
]
BY_RANK = {
    2: [*ANY_RANK, _matmul, _batch_norm],
    4: [
        *ANY_RANK,
        *[_conv] * 8,
        *[_pool] * 3,
        _conv_nhwc,
        _conv_nhwc,
        _depthwise,
        _conv_transpose,
        _whole_image,
        _upsampling,
        _batch_norm,
        _prelu,
        _lrn,
        _explicit_transform,
        _swap,
        _flat,
        _transpose,
        _transpose,
    ],
    5: [*ANY_RANK, _transpose],
}

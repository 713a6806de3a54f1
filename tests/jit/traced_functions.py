"""Functions that PyTorch and weft trace alike: `T` is the one or the other. Each has the shapes of its inputs."""

CASES = {}


def takes(*shapes):
    def add(function):
        CASES[function.__name__] = (function, shapes)
        return function

    return add


@takes((2, 3), (2, 3))
def arithmetic(T, x, y):
    return x * 2 + y / 3 - 1.5, 2 - x, 2 / x, 2 * x, x**2, -x, abs(x), x // 2, x % 2, 2**x


@takes((2, 3), (2, 3))
def comparisons(T, x, y):
    return x > 1, x <= y, x == y, (x > 0) & (y > 0), ~(x > 0), x.ne(y)


@takes((2, 3))
def reductions(T, x):
    some = x.sum(), x.sum(1), x.mean(dim=1, keepdim=True), x.max(), x.max(1), x.argmax(dim=1), T.logsumexp(x, 1)
    return *some, x.prod(), x.cumsum(1), x.any(), x.amax(1), x.min(0)


@takes((2, 3))
def shapes(T, x):
    views = x.view(3, 2), x.reshape(-1), x.permute(1, 0), x.transpose(0, 1), x.t(), x.unsqueeze(0), x.squeeze(), x.T
    return *views, x.flatten(), x.expand(4, 2, 3), x.repeat(2, 1), x.contiguous(), x.view_as(x), x.flip(0), x.roll(1, 1)


@takes((2, 3))
def parts(T, x):
    return x[0], x[:, 1], x[:, 1:], x[None], x[..., 0], x[0:1, ::2], x[-1], x[1, 2], x[x > 0]


@takes((2, 3), (2, 3))
def writes(T, x, y):
    z = x.clone()
    z.add_(y)
    z.mul_(2)
    z[0] = 5
    z[:, 1] = y[:, 0]
    z += 1
    z.clamp_(min=0)
    return z


@takes((2, 3))
def sizes(T, x):
    some = x.view(x.size(0), -1), x.reshape(x.shape[0] * x.shape[1]), T.zeros(x.size(0), 4), x.expand(x.shape[0], 3)
    return *some, x.view(x.size()), T.arange(x.size(1)), x.new_zeros(x.size(0)), x.reshape(x.shape[1], x.shape[0] + 0)


@takes((2, 3))
def made(T, x):
    some = (
        T.zeros(2, 3) + x,
        T.ones(3),
        T.full((2,), 1.5),
        T.arange(5),
        T.arange(1, 5, 2),
        T.linspace(0, 1, 5),
        T.eye(3),
    )
    likes = T.zeros_like(x), T.ones_like(x), T.full_like(x, 2.0), T.empty_like(x).fill_(1), x.new_ones(2, 2)
    return *some, *likes, T.zeros(2, dtype=T.int64)


@takes((2, 3))
def lists(T, x):
    a, b = T.chunk(x, 2, 1)
    c, d, e = x.unbind(1)
    p, q = T.split(x, [1, 2], 1)
    return a + c.unsqueeze(1), T.cat([a, b], 1), T.stack([c, d], 0), e, p, q, x.split(1)[0]


@takes((2, 3))
def order(T, x):
    return x.sort(1), x.topk(2, 1), x.argsort(1), x.nonzero(), x.median(1), T.sort(x, descending=True)


@takes((2, 3))
def functions(T, x):
    some = x.exp(), x.abs().sqrt(), x.sin(), x.clamp(0, 1), x.clamp(min=0), x.round(), T.pow(x, 3), T.atan2(x, x)
    more = T.maximum(x, x), x.sign(), T.erf(x), T.lerp(x, x, 0.5), T.add(x, x, alpha=2), x.sub(1), x.floor()
    return *some, *more, T.addcmul(x, x, x, value=0.5), T.logical_and(x > 0, x < 1), T.special.expit(x)


@takes((2, 3))
def activations(T, x):
    F = T.nn.functional
    some = F.relu(x), F.gelu(x), F.silu(x), F.elu(x), F.leaky_relu(x, 0.2), F.softmax(x, 1), F.log_softmax(x, -1)
    more = F.hardtanh(x), F.hardswish(x), F.mish(x), F.dropout(x, 0.5, False), F.relu6(x), F.logsigmoid(x), F.selu(x)
    return *some, *more, F.threshold(x, 0.0, 1.0), F.layer_norm(x, (3,)), F.pad(x, (1, 1)), F.glu(x.repeat(1, 2), 1)


@takes((2, 3, 8, 8))
def images(T, x):
    F = T.nn.functional
    some = F.avg_pool2d(x, 2, 1), F.adaptive_avg_pool2d(x, (1, 1)), F.interpolate(x, scale_factor=2.0)
    return *some, F.max_pool2d(x, 3, 2, 1), F.interpolate(x, size=(4, 4), mode="bilinear", align_corners=False)


@takes((2, 3))
def products(T, x):
    return x @ x.t(), T.mm(x, x.T), T.outer(x[0], x[1]), x.triu(), T.matmul(x, x.t()), T.dot(x[0], x[1])

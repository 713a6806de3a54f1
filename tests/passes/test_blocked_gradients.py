"""Gradients of convolutions, norms and pools whose images are in blocks of channels, against PyTorch; and what is left
between the operators of a training step."""

import numpy as np
import pytest
from lower.accuracy import agrees
from oracles import oracle

import weft
from weft.base.cpu_target import host
from weft.base.dtype import FLOAT32
from weft.core.op import Op
from weft.core.schema import parse
from weft.jit.compile import program

LANES = host().lanes(FLOAT32)

# channels, outputs, groups, kernel, stride, padding, dilation, image
CONVOLUTIONS = [
    (32, 64, 1, 3, 1, 1, 1, (14, 15)),  # Winograd both ways
    (48, 32, 1, 3, 1, 0, 1, (9, 8)),
    (32, 32, 1, 3, 1, 2, 1, (6, 7)),
    (64, 32, 1, 3, 2, 1, 1, (9, 12)),
    (32, 48, 1, 1, 2, 0, 1, (9, 10)),
    (32, 32, 1, 3, 1, 2, 2, (8, 9)),
    (32, 32, 1, (1, 5), (1, 3), (0, 2), 1, (5, 16)),
    (64, 32, 2, 3, 1, 1, 1, (7, 6)),
    (48, 48, 48, 3, 1, 1, 1, (8, 8)),
    (24, 40, 1, 3, 1, 1, 1, (7, 9)),  # half blocks
    (20, 12, 1, 3, 2, 1, 1, (9, 9)),  # a quarter, where vectors are long
    (7, 13, 1, 3, 1, 1, 1, (8, 7)),  # no blocks at all
    (3, 32, 1, 5, 2, 2, 1, (12, 11)),
]
FILTERS = 6  # of the network below
MOST_KERNELS = 114  # besides Winograd's, whose number is up to the machine, where all images are in blocks


def twice(value):
    return value if isinstance(value, tuple) else (value, value)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_gradients_of_convolutions_between_blocked_images(case):
    """Of relu(conv(relu(x))): what is before and after keeps its blocks, too."""
    torch = oracle("torch")
    channels, outputs, groups, kernel, stride, padding, dilation, image = case
    rng = np.random.default_rng(channels + outputs)
    down, across = twice(kernel)
    x = rng.standard_normal((2, channels, *image)).astype("f")
    w = rng.standard_normal((outputs, channels // groups, down, across)).astype("f")
    given = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (x, w)]
    made = torch.nn.functional.conv2d(torch.relu(given[0]), given[1], None, stride, padding, dilation, groups)
    ograd = rng.standard_normal(made.shape).astype("f")
    torch.relu(made).backward(torch.tensor(ograd, dtype=torch.float64))

    def step(x, w, g):
        y = weft.nn.functional.conv2d(weft.relu(x), w, None, stride, padding, dilation, groups)
        return weft.autograd.grad(weft.relu(y), [x, w], g)

    leaves = [weft.from_numpy(value).requires_grad_() for value in (x, w)]
    for found, leaf in zip(weft.compile(step, fullgraph=True)(*leaves, weft.from_numpy(ograd)), given):
        agrees(found.numpy(), leaf.grad.numpy())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("tile", "shape"), [(2, (LANES, 5, 3, 3)), (4, (3 * LANES, 2 * LANES, 3, 3))])
def test_filters_for_winograd_may_be_turned(tile, shape, turned):
    w = np.random.default_rng(tile).standard_normal(shape).astype("f")
    given = w.swapaxes(0, 1)[:, :, ::-1, ::-1].copy() if turned else w
    made = weft.symbol._winograd_weight(weft.symbol.Variable("w"), tile=tile, lanes=LANES, turned=turned)
    (found,) = weft.compile(made, shape={"w": given.shape}).run({"w": given})
    op = Op.get("_winograd_weight")
    expected = Op.reference[op](parse(op.parser, {"tile": str(tile), "lanes": str(LANES)}, "test"), w)
    agrees(found, expected)


def blocks(lib, channels, pool):
    """Two convolutions with norms and a way around them, then a pool."""
    nn, functional = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self, inputs, stride):
            super().__init__()
            self.first = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])
            self.short = nn.Identity() if stride == 1 else nn.Conv2d(inputs, channels, 1, stride)

        def forward(self, x):
            made = functional.relu(self.norms[0](self.first(x)))
            return functional.relu(self.norms[1](self.second(made)) + self.short(x))

    stem = nn.Conv2d(3, channels, 3, padding=1)
    pools = {"max": nn.MaxPool2d(3, 2, 1), "avg": nn.AvgPool2d(2)}
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)]
    return nn.Sequential(stem, nn.ReLU(), pools[pool], Block(channels, 1), Block(channels, 2), *head)


def stepped(lib, model, compiled):
    def step(x, labels):
        loss = lib.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        return loss

    return lib.compile(step, fullgraph=True) if compiled else step


@pytest.mark.parametrize("pool", ["max", "avg"])
@pytest.mark.parametrize("channels", [32, 24, 10])
def test_a_training_step_of_a_residual_network(monkeypatch, channels, pool):
    """The gradients of all parameters are PyTorch's, and only filters change their layout, and what enters."""
    torch = oracle("torch")
    programs = []
    assemble = program.assemble
    monkeypatch.setattr(program, "assemble", lambda *given: programs.append(assemble(*given)) or programs[-1])
    rng = np.random.default_rng(channels)
    images, labels = rng.standard_normal((2, 3, 18, 20)).astype("f"), rng.integers(0, 5, 2)
    theirs, ours = blocks(torch, channels, pool).double(), blocks(weft, channels, pool)
    ours.load_state_dict({key: weft.from_numpy(v.numpy().copy()) for key, v in theirs.float().state_dict().items()})
    theirs = theirs.double()
    stepped(torch, theirs, False)(torch.tensor(images, dtype=torch.float64), torch.tensor(labels))
    stepped(weft, ours, True)(weft.from_numpy(images), weft.from_numpy(labels))
    for (name, want), (_, found) in zip(theirs.named_parameters(), ours.named_parameters()):
        scale = max(float(want.grad.abs().max()), 1e-3)
        assert np.abs(found.grad.numpy() - want.grad.numpy()).max() <= 5e-5 * scale, name
    if channels % LANES == 0:
        moved = [k for made in programs for k in made.kernels if "__layout_transform__" in k.operators]
        edges = {"max": 2, "avg": 3}  # before the last pool and behind it, and of memory whose shape alone is read
        assert len(moved) <= FILTERS + edges[pool]
        kernels = [k.operators for made in programs for k in made.kernels]
        assert sum(not any("_winograd" in name for name in names) for names in kernels) <= MOST_KERNELS

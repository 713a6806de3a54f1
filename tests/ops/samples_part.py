"""Samples of the operators that take regular parts of tensors."""

from sample import Sample, floats, samples

# shape, start, length, step, seen as
PARTS = [
    ((4, 5), (1, 0), (2, 3), (1, 2), (2, 3)),
    ((4, 5), (3, 1), (1, 4), (1, 1), (4,)),
    ((6,), (0,), (3,), (2,), (3, 1)),
    ((2, 3, 4), (0, 2, 1), (2, 1, 2), (1, 1, 2), (2, 1, 2)),
    ((3, 2), (3, 0), (0, 2), (1, 1), (0, 2)),
    ((0, 3), (0, 1), (0, 2), (1, 1), (0, 2)),
    ((), (), (), (), (1,)),
]


def _attrs(start, length, step, seen):
    return {"start": start, "length": length, "step": step, "shape": seen}


def _part(x, start, length, step, seen):
    slices = tuple(slice(a, a + n * s, s) for a, n, s in zip(start, length, step))
    return x[slices].reshape(seen)


@samples("part")
def part(rng, torch):
    for shape, *bounds in PARTS:
        run = lambda x, b=bounds: _part(x, *b)
        yield Sample([floats(rng, shape)], _attrs(*bounds), run)


@samples("_part_grad")
def part_grad(rng, torch):
    for shape, *bounds in PARTS:

        def run(g, x, b=bounds):
            x = x.clone().requires_grad_()
            return torch.autograd.grad(_part(x, *b), x, g)[0]

        yield Sample([floats(rng, bounds[-1]), floats(rng, shape)], _attrs(*bounds), run)

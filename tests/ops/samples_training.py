"""Samples of the operators that a build puts in place of gradients of convolutions and of norms.

Their oracles are PyTorch's unfold, einsum and moments, in float64 where they add up."""

from sample import Sample, floats, samples


@samples("_patches")
def patches(rng, torch):
    def unfolded(x, size, strides, pads, dilation):
        top, left, bottom, right = pads
        padded = torch.nn.functional.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom))
        columns = torch.nn.functional.unfold(padded, size, dilation, 0, strides)
        spans = [(n - 1) * d + 1 for n, d in zip(size, dilation)]
        places = [(extent - span) // s + 1 for extent, span, s in zip(padded.shape[2:], spans, strides)]
        split = columns.reshape(x.shape[0], x.shape[3], *size, *places)
        return split.permute(0, 4, 5, 2, 3, 1)

    for shape, size, strides, pads, dilation in [
        ((2, 5, 4, 3), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
        ((1, 4, 7, 8), (2, 3), (2, 1), (0, 1, 2, 0), (1, 2)),
        ((3, 6, 5, 2), (1, 1), (2, 3), (0, 0, 0, 0), (1, 1)),
        ((1, 1, 2, 1), (1, 2), (1, 1), (0, 0, 0, 0), (1, 1)),
    ]:
        run = lambda x, *given, a=(size, strides, pads, dilation): unfolded(x, *a)
        attrs = {"kernel_size": size, "strides": strides, "padding": pads, "dilation": dilation}
        yield Sample([floats(rng, shape)], attrs, run)


@samples("_pixel_products")
def pixel_products(rng, torch):
    run = lambda a, b: torch.einsum("pki,pkj->pij", a.double(), b.double()).float()
    for parts, pixels, rows, columns in [(1, 5, 3, 4), (3, 4, 8, 2), (2, 1, 1, 1)]:
        yield Sample([floats(rng, (parts, pixels, rows)), floats(rng, (parts, pixels, columns))], {}, run)


@samples("_filter_sums")
def filter_sums(rng, torch):
    def total(x, channels, depth, size):
        whole = x.double().sum(0)[:channels, : depth * size[0] * size[1]].float()
        return whole.reshape(channels, *size, depth).permute(0, 3, 1, 2)

    for shape, channels, depth, size in [
        ((3, 4, 16), 4, 4, (2, 2)),
        ((2, 8, 8), 5, 2, (1, 3)),
        ((1, 1, 1), 1, 1, (1, 1)),
    ]:
        run = lambda x, a=(channels, depth, size): total(x, *a)
        yield Sample([floats(rng, shape)], {"channels": channels, "depth": depth, "kernel_size": size}, run)


@samples("_channel_moments")
def channel_moments(rng, torch):
    run = lambda x: (x.double().mean(0).float(), x.double().var(0, correction=0).float())
    for shape in [(6, 4), (9, 1), (1, 3)]:
        yield Sample([floats(rng, shape)], {}, run)


@samples("_channel_slopes")
def channel_slopes(rng, torch):
    run = lambda g, x, mean: ((g.double() * (x.double() - mean)).sum(0).float(), g.double().sum(0).float())
    for shape in [(6, 4), (9, 1), (1, 3)]:
        yield Sample([floats(rng, shape), floats(rng, shape), floats(rng, shape[1:])], {}, run)


@samples("_channel_scaled")
def channel_scaled(rng, torch):
    run = lambda x, mean, factor, shift: (x - mean) * factor + shift
    for shape in [(2, 3, 4), (5, 1), (3,)]:
        yield Sample([floats(rng, shape), *(floats(rng, shape[-1:]) for _ in range(3))], {}, run)


@samples("_channel_tilted")
def channel_tilted(rng, torch):
    run = lambda g, x, mean, factor, slope, shift: g * factor + (x - mean) * slope + shift
    for shape in [(2, 3, 4), (5, 1), (3,)]:
        vectors = [floats(rng, shape[-1:]) for _ in range(4)]
        yield Sample([floats(rng, shape), floats(rng, shape), *vectors], {}, run)

"""Linear layers, convolutions, pads, and layers that move elements, beside PyTorch's."""

import numpy as np
import pytest
from oracles import oracle
from twin_modules import compare, made_alike, same_call, same_state, same_text

import weft


def array(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def case(name, *args, on, **kwargs):
    """A class, its arguments, and the shape of its input, or the shapes of several."""
    shapes = on if isinstance(on, list) else [on]
    told = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
    return pytest.param(name, args, kwargs, shapes, id=f"{name}({told}) on {shapes}")


def double(library):
    return library.float64


LINEAR = [
    case("Identity", 3, any=1, on=(2, 3)),
    case("Linear", 3, 4, on=(2, 3)),
    case("Linear", 3, 4, bias=False, on=(3,)),
    case("Linear", 3, 1, on=(2, 5, 3)),
    case("Linear", 3, 0, on=(2, 3)),
    case("Bilinear", 3, 4, 2, on=[(5, 3), (5, 4)]),
    case("Bilinear", 3, 4, 2, bias=False, on=[(2, 5, 3), (2, 5, 4)]),
    case("Bilinear", 1, 2, 3, on=[(1,), (2,)]),
]

CONVOLUTIONS = [
    case("Conv1d", 4, 6, 3, on=(2, 4, 9)),
    case("Conv1d", 4, 6, 3, 2, 1, 2, 2, False, on=(2, 4, 9)),
    case("Conv1d", 4, 6, 4, padding="same", dilation=2, on=(4, 9)),
    case("Conv1d", 4, 6, 4, padding="same", padding_mode="reflect", on=(2, 4, 9)),
    case("Conv1d", 4, 4, (3,), stride=(2,), padding=(2,), padding_mode="circular", groups=4, on=(4, 9)),
    case("Conv2d", 3, 4, 3, on=(2, 3, 6, 5)),
    case("Conv2d", 3, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), on=(2, 3, 6, 5)),
    case("Conv2d", 4, 6, 3, padding=1, groups=2, padding_mode="reflect", on=(2, 4, 6, 5)),
    case("Conv2d", 4, 6, (3, 1), padding=(2, 1), padding_mode="replicate", bias=False, on=(4, 6, 5)),
    case("Conv2d", 4, 6, (4, 3), padding="same", padding_mode="circular", on=(1, 4, 6, 5)),
    case("Conv2d", 4, 6, 2, padding="valid", stride=2, on=(1, 4, 6, 5)),
    case("Conv3d", 2, 4, 2, on=(2, 2, 3, 4, 5)),
    case("Conv3d", 2, 4, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 2), groups=2, on=(2, 3, 4, 5)),
    case("Conv3d", 2, 4, 3, padding=1, padding_mode="replicate", bias=False, on=(1, 2, 3, 4, 5)),
    case("Conv3d", 2, 4, 2, padding="same", padding_mode="circular", dilation=2, on=(1, 2, 3, 4, 5)),
    case("ConvTranspose1d", 4, 6, 3, on=(2, 4, 5)),
    case("ConvTranspose1d", 4, 6, 3, 2, 1, 1, 2, False, 3, on=(2, 4, 5)),
    case("ConvTranspose1d", 4, 6, (2,), stride=(3,), output_padding=(2,), on=(4, 5)),
    case("ConvTranspose2d", 4, 3, 3, on=(2, 4, 4, 5)),
    case("ConvTranspose2d", 4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, on=(2, 4, 4, 5)),
    case("ConvTranspose2d", 4, 3, 3, padding=1, dilation=(2, 1), bias=False, on=(4, 4, 5)),
    case("ConvTranspose3d", 2, 4, 2, on=(2, 2, 3, 2, 4)),
    case("ConvTranspose3d", 2, 4, (1, 2, 3), (2, 1, 2), 0, (1, 0, 1), 2, on=(2, 3, 2, 4)),
    case("ConvTranspose3d", 2, 4, 3, padding=1, dilation=2, bias=False, on=(1, 2, 3, 4, 4)),
]

PADS = [
    case(f"{kind}Pad{rank}d", padding, *((1.5,) if kind == "Constant" else ()), on=(2, 2, 4, 5, 4)[: rank + lead])
    for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular")
    for rank in (1, 2, 3)
    for padding, lead in ((2, 2), ((1, 2, 3, 1, 2, 3)[: 2 * rank], 2), ((0, 1) * rank, 1))
]

MOVES = [
    case("PixelShuffle", 2, on=(2, 8, 3, 2)),
    case("PixelShuffle", 3, on=(9, 2, 2)),
    case("PixelShuffle", 1, on=(1, 2, 4, 2, 2)),
    case("PixelUnshuffle", 2, on=(2, 3, 4, 6)),
    case("PixelUnshuffle", 3, on=(1, 3, 6)),
    case("PixelUnshuffle", 1, on=(2, 3, 4, 6)),
    case("ChannelShuffle", 2, on=(2, 6, 3, 2)),
    case("ChannelShuffle", 3, on=(1, 6, 4)),
    case("ChannelShuffle", 1, on=(1, 4, 2, 2)),
    case("Fold", (4, 5), 2, on=(2, 12, 12)),
    case("Fold", (4, 5), (2, 3), 1, (1, 0), (2, 1), on=(12, 9)),
    case("Fold", 4, 2, dilation=2, padding=1, on=(1, 4, 16)),
    case("Unfold", 2, on=(2, 3, 4, 5)),
    case("Unfold", (2, 3), 1, (1, 0), (2, 1), on=(2, 4, 5)),
    case("Unfold", 2, dilation=2, padding=1, on=(1, 3, 4, 4)),
    case("Upsample", 7, on=(2, 3, 4)),
    case("Upsample", (7, 3), mode="nearest-exact", on=(2, 3, 4, 5)),
    case("Upsample", scale_factor=2, mode="linear", on=(2, 3, 4)),
    case("Upsample", scale_factor=(1.5, 2.7), mode="bilinear", on=(2, 3, 4, 5)),
    case("Upsample", scale_factor=1.7, mode="bilinear", recompute_scale_factor=True, on=(2, 3, 4, 5)),
    case("Upsample", scale_factor=0.6, mode="bicubic", align_corners=True, on=(2, 3, 6, 5)),
    case("Upsample", (5, 6), mode="bicubic", on=(2, 3, 4, 5)),
    case("Upsample", (5, 6, 3), mode="trilinear", align_corners=False, on=(1, 2, 3, 4, 2)),
    case("Upsample", scale_factor=2.0, mode="nearest", on=(1, 2, 3, 4, 2)),
    case("UpsamplingNearest2d", 7, on=(2, 3, 4, 5)),
    case("UpsamplingNearest2d", scale_factor=(2, 3), on=(2, 3, 4, 5)),
    case("UpsamplingNearest2d", (3, 9), on=(1, 1, 4, 5)),
    case("UpsamplingBilinear2d", 7, on=(2, 3, 4, 5)),
    case("UpsamplingBilinear2d", scale_factor=2, on=(2, 3, 4, 5)),
    case("UpsamplingBilinear2d", (3, 9), on=(1, 1, 4, 5)),
]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(("name", "args", "kwargs", "shapes"), [*LINEAR, *CONVOLUTIONS, *PADS, *MOVES])
def test_layer(name, args, kwargs, shapes):
    inputs = [array(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    compare(name, *args, inputs=inputs, **kwargs)


@pytest.mark.parametrize(
    ("name", "args", "shape"),
    [
        ("Linear", (3, 4), (2, 3)),
        ("Conv2d", (3, 4, 3), (1, 3, 5, 5)),
        ("ConvTranspose1d", (3, 4, 3), (1, 3, 5)),
        ("BatchNorm1d", (3,), (4, 3)),
        ("InstanceNorm1d", (3, 1e-5, 0.1, True, True), (4, 3, 5)),
        ("LayerNorm", (3,), (4, 3)),
        ("RMSNorm", (3,), (4, 3)),
        ("GroupNorm", (1, 3), (4, 3)),
    ],
)
def test_parameters_take_a_dtype_and_a_device(name, args, shape):
    ours, _ = compare(name, *args, dtype=double, device="cpu", inputs=[array(*shape).astype(np.float64)])
    assert {str(value.dtype) for value in ours.parameters()} == {"weft.float64"}


SIZED = [
    ("ConvTranspose1d", (2, 3, 3, 2), (1, 2, 4), (10,)),
    ("ConvTranspose1d", (2, 3, 3, 2, 1), (2, 4), (8,)),
    ("ConvTranspose2d", (2, 3, 3, (2, 3), 1), (1, 2, 4, 5), (8, 15)),
    ("ConvTranspose2d", (2, 3, 3, 2, 1), (1, 2, 4, 5), (1, 3, 7, 10)),
    ("ConvTranspose3d", (2, 3, 2, 2), (2, 3, 2, 4), (7, 4, 9)),
]


@pytest.mark.parametrize(("name", "args", "shape", "size"), SIZED)
def test_transposed_convolution_of_a_size(name, args, shape, size):
    compare(name, *args, inputs=[array(*shape)], named_inputs={"output_size": size})


LAZY = [
    ("LazyLinear", (4,), {}, (2, 5, 3)),
    ("LazyLinear", (4, False), {}, (3,)),
    ("LazyLinear", (4,), {"dtype": double}, (2, 3)),
    ("LazyConv1d", (4, 3), {}, (2, 3, 9)),
    ("LazyConv1d", (4, 3), {"padding": "same", "padding_mode": "reflect"}, (3, 9)),
    ("LazyConv1d", (6, 3, 2, 1, 2, 3, False), {}, (2, 3, 9)),
    ("LazyConv2d", (4, 3), {}, (2, 3, 6, 5)),
    ("LazyConv2d", (4, (3, 2)), {"groups": 2, "bias": False}, (4, 6, 5)),
    ("LazyConv2d", (4, 3, 1, 1), {"padding_mode": "circular", "dtype": double}, (2, 3, 6, 5)),
    ("LazyConv3d", (4, 2), {}, (2, 3, 3, 2, 4)),
    ("LazyConv3d", (4, 2, 2), {"groups": 2}, (4, 3, 2, 4)),
    ("LazyConv3d", (4, (1, 2, 1)), {"bias": False}, (1, 3, 3, 2, 4)),
    ("LazyConvTranspose1d", (4, 3), {}, (2, 3, 5)),
    ("LazyConvTranspose1d", (4, 3, 2, 1, 1, 2), {}, (4, 5)),
    ("LazyConvTranspose1d", (4, 3), {"bias": False, "dilation": 2}, (2, 3, 5)),
    ("LazyConvTranspose2d", (4, 3), {}, (2, 3, 4, 5)),
    ("LazyConvTranspose2d", (4, 3, 2, 1, 1, 2), {}, (4, 4, 5)),
    ("LazyConvTranspose2d", (4, 3), {"bias": False, "dilation": 2}, (2, 3, 4, 5)),
    ("LazyConvTranspose3d", (4, 2), {}, (2, 3, 3, 2, 4)),
    ("LazyConvTranspose3d", (4, 2, 2, 0, 1, 2), {}, (4, 3, 2, 4)),
    ("LazyConvTranspose3d", (4, 2), {"bias": False, "dilation": 2}, (1, 3, 3, 2, 4)),
    ("LazyBatchNorm1d", (), {}, (4, 3)),
    ("LazyBatchNorm1d", (1e-3, None), {"bias": False}, (4, 3, 5)),
    ("LazyBatchNorm1d", (), {"affine": False}, (4, 3)),
    ("LazyBatchNorm2d", (), {}, (4, 3, 2, 5)),
    ("LazyBatchNorm2d", (), {"track_running_stats": False}, (4, 3, 2, 5)),
    ("LazyBatchNorm2d", (), {"affine": False, "dtype": double}, (4, 3, 2, 5)),
    ("LazyBatchNorm3d", (), {}, (4, 3, 2, 2, 3)),
    ("LazyBatchNorm3d", (1e-3, 0.5), {}, (4, 3, 2, 2, 3)),
    ("LazyBatchNorm3d", (), {"track_running_stats": False}, (4, 3, 2, 2, 3)),
    ("LazyInstanceNorm1d", (), {}, (4, 3, 5)),
    ("LazyInstanceNorm1d", (), {"affine": False}, (4, 3, 5)),
    ("LazyInstanceNorm1d", (1e-3, 0.5, True, False), {"bias": False}, (4, 3, 5)),
    ("LazyInstanceNorm2d", (), {}, (4, 3, 2, 5)),
    ("LazyInstanceNorm2d", (), {"affine": False}, (4, 3, 2, 5)),
    ("LazyInstanceNorm2d", (), {"track_running_stats": False, "dtype": double}, (4, 3, 2, 5)),
    ("LazyInstanceNorm3d", (), {}, (4, 3, 2, 2, 3)),
    ("LazyInstanceNorm3d", (), {"affine": False}, (4, 3, 2, 2, 3)),
    ("LazyInstanceNorm3d", (1e-3, 0.5, True, False), {}, (4, 3, 2, 2, 3)),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), LAZY)
def test_lazy_layer(name, args, kwargs, shape):
    """Before the first call, in it with the parameters that it draws, and as the class it becomes."""
    ours, theirs = made_alike(name, *args, **kwargs)
    same_text(ours, theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    kind = np.float64 if "dtype" in kwargs else np.float32
    for _ in range(2):
        same_call(ours, theirs, [array(*shape).astype(kind)], {})
        same_state(ours, theirs, 1e-5, 1e-5)
        same_text(ours, theirs)
        assert type(ours).__name__ == type(theirs).__name__ == name.removeprefix("Lazy")


@pytest.mark.parametrize(
    ("lazy", "args", "plain", "shape"),
    [
        ("LazyLinear", (4,), (3, 4), (2, 3)),
        ("LazyConv2d", (4, 3), (3, 4, 3), (1, 3, 5, 5)),
        ("LazyConvTranspose1d", (4, 3), (3, 4, 3), (1, 3, 5)),
        ("LazyBatchNorm1d", (), (3,), (4, 3)),
    ],
)
def test_lazy_layer_takes_a_state(lazy, args, plain, shape):
    ours, theirs = made_alike(lazy, *args)
    sources = made_alike(lazy.removeprefix("Lazy"), *plain)
    for layer, source in zip((ours, theirs), sources):
        layer.load_state_dict(source.state_dict())
    same_state(ours, theirs, 1e-6, 1e-6)
    same_call(ours, theirs, [array(*shape)], {})
    same_text(ours, sources[1])  # PyTorch's own tell no channels after that


WRONG_ARGUMENTS = [
    ("Bilinear", (0, 2, 3), {}),
    ("Conv1d", (3, 4, 3), {"groups": 0}),
    ("Conv2d", (3, 4, 3), {"groups": 2}),
    ("Conv3d", (4, 3, 3), {"groups": 2}),
    ("Conv2d", (3, 4, 3), {"padding": "full"}),
    ("Conv2d", (3, 4, 3, 2), {"padding": "same"}),
    ("Conv2d", (3, 4, 3), {"padding_mode": "mirror"}),
    ("ConvTranspose1d", (3, 4, 3), {"padding_mode": "reflect"}),
    ("ConvTranspose2d", (3, 4, 3), {"padding_mode": "circular"}),
    ("ConvTranspose3d", (4, 3, 3), {"groups": 2}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), WRONG_ARGUMENTS)
def test_wrong_arguments(name, args, kwargs):
    for library in (weft, oracle("torch")):
        with pytest.raises(ValueError, match=r"groups|padding|in1_features"):
            getattr(library.nn, name)(*args, **kwargs)


WRONG_INPUTS = [
    ("Linear", (3, 4), {}, [(2, 4)], RuntimeError),
    ("Bilinear", (3, 4, 2), {}, [(2, 3), (3, 4)], RuntimeError),
    ("Bilinear", (3, 4, 2), {}, [(2, 3), (2, 3)], RuntimeError),
    ("Conv1d", (3, 4, 3), {}, [(2, 4, 5)], RuntimeError),
    ("Conv2d", (3, 4, 3), {}, [(3, 5)], RuntimeError),
    ("Conv2d", (3, 4, 3), {}, [(1, 3, 2, 5)], RuntimeError),
    ("Conv2d", (3, 4, 3), {"padding": 5, "padding_mode": "reflect"}, [(1, 3, 5, 5)], RuntimeError),
    ("Conv3d", (3, 4, 3), {}, [(3, 3, 3)], RuntimeError),
    ("ConvTranspose2d", (3, 4, 3), {}, [(1, 4, 3, 3)], RuntimeError),
    ("ConvTranspose2d", (3, 4, 3, 1, 0, 1), {}, [(1, 3, 3, 3)], RuntimeError),
    ("LazyConv2d", (4, 3), {}, [(3, 5)], RuntimeError),
    ("LazyConv1d", (4, 3), {"groups": 2}, [(3, 5)], ValueError),
    ("ReflectionPad1d", (4,), {}, [(1, 2, 4)], RuntimeError),
    ("ReflectionPad2d", (1,), {}, [(2, 4)], RuntimeError),
    ("ReplicationPad3d", (1,), {}, [(2, 4, 3)], RuntimeError),
    ("ConstantPad1d", ((-3, -3), 1.0), {}, [(1, 4)], RuntimeError),
    ("CircularPad1d", (1,), {}, [(4,)], ValueError),
    ("CircularPad2d", (1,), {}, [(2, 4)], ValueError),
    ("CircularPad3d", (5,), {}, [(1, 2, 3, 4)], RuntimeError),
    ("PixelShuffle", (2,), {}, [(3, 2, 2)], RuntimeError),
    ("PixelUnshuffle", (2,), {}, [(3, 3, 2)], RuntimeError),
    ("ChannelShuffle", (2,), {}, [(1, 3, 2)], RuntimeError),
    ("Fold", (4, 2), {}, [(1, 5, 9)], RuntimeError),
    ("Unfold", (5,), {}, [(1, 1, 4, 4)], RuntimeError),
    ("Upsample", (), {}, [(1, 1, 4)], ValueError),
    ("Upsample", (3, 2.0), {}, [(1, 1, 4)], ValueError),
    ("Upsample", (3,), {"mode": "bilinear"}, [(1, 1, 4)], NotImplementedError),
    ("Upsample", (3,), {"align_corners": True}, [(1, 1, 4)], ValueError),
    ("UpsamplingNearest2d", ((3, 3, 3),), {}, [(1, 1, 4, 4)], ValueError),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "shapes", "error"), WRONG_INPUTS)
def test_wrong_inputs(name, args, kwargs, shapes, error):
    for library in (weft, oracle("torch")):
        layer = getattr(library.nn, name)(*args, **kwargs)
        with pytest.raises(error):
            layer(*[library.ones(*shape) for shape in shapes])


@pytest.mark.parametrize("size", [(9,), (12,), (1, 3, 4, 10), (10, 10)])
def test_sizes_that_no_convolution_came_from(size):
    for library in (weft, oracle("torch")):
        layer = library.nn.ConvTranspose1d(2, 3, 3, 2, padding=1)
        with pytest.raises(ValueError, match="output"):
            layer(library.ones(1, 2, 4), output_size=size)


def test_subclasses_may_bring_their_own_weight():
    """`_conv_forward` runs a convolution with weights that a subclass makes."""
    made = []
    for library in (weft, oracle("torch")):

        class Standardised(library.nn.Conv2d):
            def forward(self, input):
                centred = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
                return self._conv_forward(input, centred, self.bias)

        library.manual_seed(0)
        layer = Standardised(3, 4, 3, padding=1, padding_mode="circular")
        made.append(layer(library.from_numpy(array(1, 3, 5, 5))).detach().numpy())
    np.testing.assert_allclose(*made, 1e-4, 1e-5)


def test_classes_are_where_users_look():
    """Bases by which networks are told apart."""
    torch = oracle("torch")
    for name in ("conv._ConvNd", "batchnorm._BatchNorm", "batchnorm._NormBase", "instancenorm._InstanceNorm"):
        file, base = name.split(".")
        ours, theirs = (getattr(getattr(library.nn.modules, file), base) for library in (weft, torch))
        for member in dir(torch.nn):
            found = getattr(torch.nn, member)
            if isinstance(found, type) and issubclass(found, theirs):
                assert issubclass(getattr(weft.nn, member), ours)


def test_a_network_learns_as_pytorchs_does():
    """Three steps of gradient descent, a network of most families, in training and in use."""
    images, targets = array(4, 3, 7, 7), array(4, 5, seed=1)
    made = []
    for library in (weft, oracle("torch")):
        nn, F = library.nn, library.nn.functional
        library.manual_seed(3)
        first = nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.MaxPool2d(3, 2, 1))
        middle = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding="same", groups=4), nn.GroupNorm(2, 8), nn.AvgPool2d(2, ceil_mode=True)
        )
        last = nn.Sequential(nn.ConvTranspose2d(8, 4, 2, 2), nn.InstanceNorm2d(4, affine=True), nn.AdaptiveAvgPool2d(2))
        head = nn.Sequential(nn.Linear(16, 6), nn.LayerNorm(6), nn.Linear(6, 5))
        net = nn.ModuleList([first, middle, last, head])
        x, y = library.from_numpy(images), library.from_numpy(targets)
        losses = []
        for step in range(4):
            net.train(step < 3)
            middle_out = middle(F.relu(first(x)))
            loss = F.mse_loss(head(F.relu(last(middle_out)).flatten(1)), y)
            losses.append(loss.item())
            net.zero_grad()
            loss.backward()
            with library.no_grad():
                for parameter in net.parameters():
                    parameter -= 0.02 * parameter.grad
        made.append((losses, net))
    np.testing.assert_allclose(made[0][0], made[1][0], 1e-4)
    assert made[0][0][2] < made[0][0][0]
    same_state(made[0][1], made[1][1], 1e-3, 1e-4)

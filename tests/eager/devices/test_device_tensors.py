"""Tensors on a GPU, without one: a driver of Python runs the kernels as their loops say. Values are PyTorch's."""

import copy
import gc
import io
import pickle

import numpy as np
import pytest
from oracles import oracle

import weft
from weft import nn
from weft.base.errors import Error, InvalidType, NoDevice, RunError

torch = oracle("torch")
rng = np.random.default_rng(3)
pytestmark = pytest.mark.usefixtures("gpu")


def numbers(*shape):
    return rng.standard_normal(shape).astype("float32")


def same(found, wanted):
    assert found.is_cuda
    np.testing.assert_allclose(found.detach().cpu().numpy(), wanted.detach().numpy(), rtol=2e-5, atol=2e-5)


def test_there_and_back():
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    y = x.to("cuda")
    assert (str(y.device), y.is_cuda, y.is_cpu, y.get_device(), y.data_ptr() == x.data_ptr()) == (
        "cuda:0",
        True,
        False,
        0,
        False,
    )
    assert y.to("cuda:0") is y
    assert y.cuda() is y
    assert y.cpu().tolist() == x.tolist()
    assert x.to(y).device == y.device
    assert y.to("cpu", weft.int64).tolist() == [[1, 2], [3, 4]]
    assert weft.tensor([1, 2]).to(0).device == weft.device("cuda", 0)
    assert y.to(weft.float64).dtype == weft.float64
    assert (y.sum().item(), float(y[0, 1]), bool(y[0, 0] > 0), int(y[1, 1])) == (10.0, 2.0, True, 4)


def test_what_is_printed_is_copied():
    y = weft.tensor([1.5, 2.0], device="cuda")
    assert repr(y) == "tensor([1.5000, 2.0000], device='cuda:0')"
    assert repr(y.requires_grad_() * 2) == "tensor([3., 4.], device='cuda:0', grad_fn=<MulBackward0>)"


def test_numpy_is_refused_as_users_know_it():
    y = weft.ones(2, device="cuda")
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy\.\n.*Tensor\.cpu\(\)"):
        y.numpy()
    with pytest.raises(InvalidType, match="can't convert cuda:0"):
        np.asarray(y)
    assert y.numpy(force=True).tolist() == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda m, at: m.zeros(2, 3, **at),
        lambda m, at: m.ones((2,), dtype=m.int64, **at),
        lambda m, at: m.full((2, 2), 7.5, **at),
        lambda m, at: m.arange(1, 9, 2, **at),
        lambda m, at: m.linspace(0, 1, 5, **at),
        lambda m, at: m.eye(3, **at),
        lambda m, at: m.tensor([[True], [False]], **at),
        lambda m, at: m.as_tensor([1.0, 2.0], **at),
        lambda m, at: m.empty(2, 0, **at),
    ],
)
def test_made_on_the_device(make):
    found, wanted = make(weft, {"device": "cuda"}), make(torch, {})
    assert str(found.dtype).partition(".")[2] == str(wanted.dtype).partition(".")[2]
    same(found, wanted)


def test_random_numbers_are_the_generators():
    def drawn(**at):
        weft.manual_seed(3)
        return [weft.randn(4, **at), weft.rand(2, 2, **at), weft.randint(0, 9, (5,), **at), weft.randperm(6, **at)]

    for there, here in zip(drawn(device="cuda"), drawn()):
        assert there.is_cuda
        assert there.cpu().tolist() == here.tolist()


def test_tensors_of_two_devices_do_not_meet():
    there, here = weft.ones(2, device="cuda"), weft.ones(2)
    with pytest.raises(
        RunError, match=r"same device.*cuda:0 and cpu\n.*tensor 1 \[2\] on cuda:0, tensor 2 \[2\] on cpu\n.*to\(other"
    ):
        there + here
    with pytest.raises(RunError, match="same device"):
        weft.cat([there, here])
    assert (there + weft.tensor(2.0)).cpu().tolist() == [3, 3]  # numbers go with all
    assert there[weft.tensor([1, 0])].cpu().tolist() == [1, 1]  # and so do indices
    assert here.copy_(there * 5).tolist() == [5, 5]
    here[0] = there[1] + 1
    assert (here.tolist(), here.is_cpu) == ([2, 5], True)
    assert there.copy_(here).cpu().tolist() == [2, 5]
    assert (there.type_as(here).is_cpu, here.type_as(there).type()) == (True, "weft.cuda.FloatTensor")


def test_views_and_writes():
    x = numbers(4, 6)
    t, w = torch.tensor(x), weft.tensor(x).cuda()
    for m in (t, w):
        m[1:3, ::2] *= 3
        m[:, 1].add_(1)
        m.t()[0].fill_(2)
        m[m > 1] = -1
        m[[0, 2]] = m[[3, 1]]
        m[-1] = m[0].clone()
    same(w, t)
    same(w.t(), t.t())
    same(w[:, ::2].reshape(-1), t[:, ::2].reshape(-1))
    same(w.view(2, 12)[1], t.view(2, 12)[1])
    assert (w.t().stride(), w[1:].storage_offset()) == (t.t().stride(), t[1:].storage_offset())
    w[1:].copy_(w[:-1].clone())
    t[1:].copy_(t[:-1].clone())
    same(w, t)
    same(w.expand(2, 4, 6).contiguous(), t.expand(2, 4, 6).contiguous())
    same(w.transpose(0, 1).clone(), t.transpose(0, 1).clone())


def test_writes_to_overlapping_views():
    x = weft.arange(8.0, device="cuda")
    x[1:] = x[:-1]
    assert x.cpu().tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_gradients_of_views_that_are_written_to():
    x = numbers(3, 4)

    def run(m, leaf):
        y = leaf * 2
        y[0] = leaf[1] * leaf[2]
        y[:, 1:3].mul_(3)
        (y * m.arange(12.0, device=leaf.device).reshape(3, 4)).sum().backward()
        return leaf.grad

    same(run(weft, weft.tensor(x, device="cuda", requires_grad=True)), run(torch, torch.tensor(x, requires_grad=True)))


def test_gradients_go_back_to_where_tensors_came_from():
    x = numbers(3)
    w, t = weft.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    (w.cuda().exp().sum() * 2).cpu().backward()
    (t.exp().sum() * 2).backward()
    assert w.grad.is_cpu
    np.testing.assert_allclose(w.grad.numpy(), t.grad.numpy(), rtol=1e-6)


def test_gradients_add_up_and_gradients_of_gradients():
    x = numbers(4)
    w, t = weft.tensor(x, device="cuda", requires_grad=True), torch.tensor(x, requires_grad=True)
    for leaf in (w, t):
        (leaf * leaf).sum().backward()
        (leaf.sin() + leaf.sin()).sum().backward()
    same(w.grad, t.grad)
    first = weft.autograd.grad((w**3).sum(), w, create_graph=True)[0]
    second = torch.autograd.grad((t**3).sum(), t, create_graph=True)[0]
    same(weft.autograd.grad(first.sum(), w)[0], torch.autograd.grad(second.sum(), t)[0])


class Perceptron:
    shape, classes = (6, 10), 4

    @staticmethod
    def made(n):
        return n.Sequential(n.Linear(10, 8), n.GELU(), n.LayerNorm(8), n.Linear(8, 4))


class Convolutional:
    shape, classes = (3, 2, 6, 6), 3

    @staticmethod
    def made(n):
        return n.Sequential(
            n.Conv2d(2, 4, 3, padding=1, bias=False),
            n.BatchNorm2d(4),
            n.ReLU(),
            n.MaxPool2d(2),
            n.Flatten(),
            n.Linear(36, 3),
        )


@pytest.mark.parametrize(
    ("network", "optimiser", "options"),
    [
        (Perceptron, "SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        (Perceptron, "AdamW", {"lr": 0.02}),
        (Convolutional, "Adam", {"lr": 0.01}),
    ],
)
def test_training(network, optimiser, options):
    torch.manual_seed(0)
    theirs, ours = network.made(torch.nn), network.made(nn)
    ours.load_state_dict({name: weft.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    assert ours.to("cuda") is ours
    x, y = numbers(*network.shape), rng.integers(0, network.classes, network.shape[0])
    steps = [getattr(m.optim, optimiser)(n.parameters(), **options) for m, n in ((torch, theirs), (weft, ours))]
    data = (torch.tensor(x), torch.tensor(y)), (weft.tensor(x).cuda(), weft.tensor(y, device="cuda"))
    for _ in range(3):
        losses = []
        for m, model, step, (inputs, labels) in zip((torch, weft), (theirs, ours), steps, data):
            loss = m.nn.functional.cross_entropy(model(inputs), labels)
            step.zero_grad()
            loss.backward()
            step.step()
            losses.append(loss.item())
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    for (name, found), wanted in zip(ours.state_dict().items(), theirs.state_dict().values()):
        assert found.is_cuda, name
        np.testing.assert_allclose(found.cpu().numpy(), wanted.numpy(), rtol=2e-3, atol=2e-4, err_msg=name)


def test_modules_move_and_are_saved(tmp_path):
    model = nn.Linear(3, 2).cuda()
    assert {p.device.type for p in model.parameters()} == {"cuda"}
    weft.save(model.state_dict(), tmp_path / "model.pt")
    assert torch.load(tmp_path / "model.pt", map_location="cpu")["weight"].tolist() == model.weight.cpu().tolist()
    there, here = weft.load(tmp_path / "model.pt"), weft.load(tmp_path / "model.pt", map_location="cpu")
    assert (there["bias"].device.type, here["bias"].device.type) == ("cuda", "cpu")
    file = io.BytesIO()
    weft.save(here, file)
    file.seek(0)
    again = weft.load(file, map_location=weft.device("cuda"))
    assert again["weight"].cpu().tolist() == model.weight.tolist()
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert made.weight.is_cuda
        assert made.weight.tolist() == model.weight.tolist()
        assert made.weight.data_ptr() != model.weight.data_ptr()
    assert model.cpu().weight.is_cpu


def test_memory_is_shared_with_other_libraries():
    x = weft.arange(6.0, device="cuda").reshape(2, 3)
    told = x.__cuda_array_interface__
    assert (told["shape"], told["typestr"], told["data"][0]) == ((2, 3), "<f4", x.data_ptr())
    y = weft.from_dlpack(x)
    y[0, 0] = 9
    assert x.tolist()[0][0] == 9
    assert x.__dlpack_device__() == (2, 0)
    with pytest.raises(AttributeError, match="non-CUDA"):
        weft.ones(2).__cuda_array_interface__
    with pytest.raises(Error, match="require"):
        x.clone().requires_grad_().__dlpack__()


def test_what_has_no_kernel_goes_to_the_host():
    x = numbers(4, 4)
    same(weft.linalg.inv(weft.tensor(x).cuda()), torch.linalg.inv(torch.tensor(x)))
    z = weft.fft.fft(weft.tensor(x).cuda())
    assert z.is_cuda
    np.testing.assert_allclose(z.cpu().numpy(), np.fft.fft(x), rtol=1e-4, atol=1e-4)
    found = weft.nn.functional.embedding(weft.tensor([[0, 2]]).cuda(), weft.tensor(x).cuda())
    same(found, torch.nn.functional.embedding(torch.tensor([[0, 2]]), torch.tensor(x)))
    with pytest.raises(IndexError):
        weft.tensor(x).cuda()[weft.tensor([4]).cuda()]


def test_mixed_precision():
    """Which functions run in which dtype on GPUs is in PyTorch's documentation of autocast."""
    x = numbers(8, 16)
    a = weft.tensor(x).cuda()
    with weft.autocast("cuda"):
        dtypes = [(a @ a.t()).dtype, a.exp().dtype, a.sum().dtype, (a + a).dtype, weft.cat([a, a.half()]).dtype]
        here = weft.ones(2, 2) @ weft.ones(2, 2)
    assert dtypes == [weft.float16, weft.float32, weft.float32, weft.float32, weft.float32]
    assert here.dtype == weft.float32
    torch.manual_seed(0)
    theirs, ours = torch.nn.Linear(16, 4), nn.Linear(16, 4)
    ours.load_state_dict({name: weft.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    ours.cuda()
    step, scaler = weft.optim.SGD(ours.parameters(), lr=0.1), weft.amp.GradScaler("cuda")
    with weft.autocast("cuda", dtype=weft.float16):
        loss = nn.functional.mse_loss(ours(a), weft.zeros(8, 4, device="cuda"))
    scaler.scale(loss).backward()
    scaler.step(step)
    scaler.update()
    wanted = torch.nn.functional.mse_loss(theirs(torch.tensor(x)), torch.zeros(8, 4))
    wanted.backward()
    torch.optim.SGD(theirs.parameters(), lr=0.1).step()
    assert loss.dtype == weft.float32
    assert loss.item() == pytest.approx(wanted.item(), rel=5e-3)
    np.testing.assert_allclose(ours.weight.detach().cpu().numpy(), theirs.weight.detach().numpy(), atol=1e-3)


def test_functions_of_functions():
    x = numbers(3, 4)
    found = weft.vmap(weft.func.grad(lambda row: row.sin().sum()))(weft.tensor(x).cuda())
    same(found, torch.tensor(np.cos(x)))


@pytest.mark.parametrize(
    ("name", "options"),
    [("RMSprop", {"centered": True}), ("NAdam", {}), ("Adagrad", {}), ("Adamax", {}), ("SGD", {"maximize": True})],
)
def test_optimisers(name, options):
    x, grads = numbers(5), numbers(3, 5)
    w, t = weft.tensor(x, device="cuda", requires_grad=True), torch.tensor(x, requires_grad=True)
    for m, p, at in ((weft, w, "cuda"), (torch, t, "cpu")):
        step = getattr(m.optim, name)([p], lr=0.01, **options)
        for grad in grads:
            p.grad = m.tensor(grad, device=at)
            step.step()
    same(w, t)


def test_memory_is_counted_and_given_back():
    gc.collect()  # what other tests left
    before = weft.cuda.memory_allocated()
    x = weft.zeros(1000, device="cuda")
    assert weft.cuda.memory_allocated() == before + 4000
    del x
    assert weft.cuda.memory_allocated() == before
    weft.cuda.synchronize()
    with pytest.raises(MemoryError, match="cannot allocate"):
        weft.empty(1 << 33, dtype=weft.int8, device="cuda")


def test_streams_wait_for_each_other():
    """The driver of the fixture finds memory that two streams use in no order."""
    x, side = weft.arange(6.0, device="cuda"), weft.cuda.Stream()
    with weft.cuda.stream(side):
        y = (x * 2).reshape(2, 3).t()
        z = y.contiguous()
    x.add_(1)
    with weft.cuda.stream(side):
        z += x[:3].reshape(3, 1)
    assert (z + y).tolist() == [[1, 13], [6, 18], [11, 23]]
    del x, y, z


def test_two_devices():
    first, second = (weft.arange(4.0).to(f"cuda:{number}") for number in range(2))
    assert [str(x.device) for x in (second, second * 2, second.to("cuda:0"))] == ["cuda:1", "cuda:1", "cuda:0"]
    assert (second[1:] + second[:-1]).tolist() == [1, 3, 5]
    with pytest.raises(RunError, match="cuda:0 and cuda:1"):
        first + second
    assert first.copy_(second * 3).tolist() == [0, 3, 6, 9]


def test_devices_that_are_not_there():
    with pytest.raises(NoDevice, match="no device cuda:3"):
        weft.ones(2).to("cuda:3")
    with pytest.raises(NoDevice, match="no device 'xpu'"):
        weft.ones(2).to("xpu")

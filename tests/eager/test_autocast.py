"""autocast and GradScaler against PyTorch's on the processor."""

import threading

import numpy as np
import pytest
from oracles import oracle

import weft

# The shapes of float inputs and what is called with them, by a name of the function; F is nn.functional.
CASES = {
    "matmul": ([(3, 4), (4, 5)], lambda m, F, a, b: m.matmul(a, b)),
    "operator": ([(3, 4), (4,)], lambda m, F, a, b: a @ b),
    "mm": ([(3, 4), (4, 5)], lambda m, F, a, b: m.mm(a, b)),
    "bmm": ([(2, 3, 4), (2, 4, 5)], lambda m, F, a, b: m.bmm(a, b)),
    "addmm": ([(3, 5), (3, 4), (4, 5)], lambda m, F, a, b, c: m.addmm(a, b, c)),
    "addbmm": ([(3, 5), (2, 3, 4), (2, 4, 5)], lambda m, F, a, b, c: m.addbmm(a, b, c)),
    "baddbmm": ([(2, 3, 5), (2, 3, 4), (2, 4, 5)], lambda m, F, a, b, c: m.baddbmm(a, b, c)),
    "linear": ([(3, 4), (5, 4), (5,)], lambda m, F, a, b, c: F.linear(a, b, c)),
    "linear by name": ([(3, 4), (5, 4), (5,)], lambda m, F, a, b, c: F.linear(a, b, bias=c)),
    "conv1d": ([(2, 3, 8), (4, 3, 3)], lambda m, F, a, b: F.conv1d(a, b)),
    "conv2d": ([(2, 3, 8, 8), (4, 3, 3, 3)], lambda m, F, a, b: m.conv2d(a, b)),
    "conv3d": ([(1, 2, 4, 4, 4), (2, 2, 3, 3, 3)], lambda m, F, a, b: F.conv3d(a, b)),
    "conv_transpose2d": ([(2, 3, 4, 4), (3, 4, 3, 3)], lambda m, F, a, b: F.conv_transpose2d(a, b)),
    "prelu": ([(3, 4), (1,)], lambda m, F, a, b: F.prelu(a, b)),
    "attention": ([(2, 3, 4)] * 3, lambda m, F, a, b, c: F.scaled_dot_product_attention(a, b, c)),
    "einsum": ([(3, 4), (4, 5)], lambda m, F, a, b: m.einsum("ij,jk->ik", a, b)),
    "tensordot": ([(3, 4), (4, 5)], lambda m, F, a, b: m.tensordot(a, b, 1)),
    "multi_dot": ([(3, 4), (4, 5), (5, 2)], lambda m, F, a, b, c: m.linalg.multi_dot([a, b, c])),
    "inner": ([(3, 4), (5, 4)], lambda m, F, a, b: m.inner(a, b)),
    "vecdot": ([(3, 4), (3, 4)], lambda m, F, a, b: m.linalg.vecdot(a, b)),
    "bilinear": ([(3, 4), (3, 5), (2, 4, 5)], lambda m, F, a, b, c: F.bilinear(a, b, c)),
    "mv": ([(3, 4), (4,)], lambda m, F, a, b: m.mv(a, b)),
    "add": ([(3, 4), (3, 4)], lambda m, F, a, b: a + b),
    "softmax": ([(3, 4)], lambda m, F, a: F.softmax(a, -1)),
    "layer_norm": ([(3, 4)], lambda m, F, a: F.layer_norm(a, (4,))),
    "prod": ([(3, 4)], lambda m, F, a: a.prod()),
    "trace": ([(4, 4)], lambda m, F, a: m.trace(a)),
    "cdist": ([(3, 4), (5, 4)], lambda m, F, a, b: m.cdist(a, b)),
    "quantile": ([(8,)], lambda m, F, a: m.quantile(a, 0.3)),
    "mse_loss": ([(3, 4), (3, 4)], lambda m, F, a, b: F.mse_loss(a, b)),
    "l1_loss": ([(3, 4), (3, 4)], lambda m, F, a, b: F.l1_loss(a, b)),
    "kl_div": ([(3, 4), (3, 4)], lambda m, F, a, b: F.kl_div(a, b, reduction="sum")),
    "cross_entropy": ([(3, 4)], lambda m, F, a: F.cross_entropy(a, m.tensor([1, 0, 3]))),
    "reflected": ([(1, 2, 6)], lambda m, F, a: F.pad(a, (1, 2), mode="reflect")),
    "padded": ([(1, 2, 6)], lambda m, F, a: F.pad(a, (1, 2))),
    "avg_pool3d": ([(1, 2, 4, 4, 4)], lambda m, F, a: F.avg_pool3d(a, 2)),
    "inv": ([(4, 4)], lambda m, F, a: m.linalg.inv(a + 3 * m.eye(4, dtype=a.dtype))),
    "svdvals": ([(4, 3)], lambda m, F, a: m.linalg.svdvals(a)),
    "rfft": ([(8,)], lambda m, F, a: m.fft.rfft(a)),
    "cat": ([(3, 4), (3, 4)], lambda m, F, a, b: m.cat([a, b])),
    "cat of two kinds": ([(3, 4), (3, 4)], lambda m, F, a, b: m.cat([a.float(), b.to(m.bfloat16)])),
    "stack of two kinds": ([(3, 4), (3, 4)], lambda m, F, a, b: m.stack([a.to(m.bfloat16), b.float()])),
}
ROUGH = {"float32": 3e-2, "float64": 1e-12}


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_functions_run_in_pytorchs_dtypes(name, kind):
    torch = oracle("torch")
    shapes, call = CASES[name]
    rng = np.random.default_rng(len(name))
    arrays = [rng.normal(size=shape) * 0.7 for shape in shapes]
    results = []
    for module in (torch, weft):
        inputs = [module.tensor(array.tolist(), dtype=getattr(module, kind)) for array in arrays]
        with module.autocast("cpu", dtype=module.bfloat16):
            results.append(call(module, module.nn.functional, *inputs))
    expected, found = results
    assert str(found.dtype).partition(".")[2] == str(expected.dtype).partition(".")[2]
    wide = "complex64" if expected.is_complex() else "float64"
    loose = ROUGH.get(kind, 3e-2)
    left, right = found.to(getattr(weft, wide)).numpy(), expected.to(getattr(torch, wide)).numpy()
    np.testing.assert_allclose(left, right, rtol=loose, atol=loose)


def test_gradients_have_the_dtype_of_parameters():
    torch = oracle("torch")
    rng = np.random.default_rng(3)
    x, weight, bias = (rng.normal(size=shape).astype("float32") for shape in ((5, 4), (3, 4), (3,)))
    found = []
    for module in (torch, weft):
        w, b = (module.tensor(array.tolist(), requires_grad=True) for array in (weight, bias))
        with module.autocast("cpu"):
            y = module.nn.functional.linear(module.tensor(x.tolist()), w, b)
            loss = module.nn.functional.mse_loss(y, module.ones(5, 3))
        loss.backward()
        assert (y.dtype, loss.dtype, w.grad.dtype) == (module.bfloat16, module.float32, module.float32)
        found.append([w.grad.numpy(), b.grad.numpy()])
    for expected, got in zip(*found):
        np.testing.assert_allclose(got, expected, rtol=3e-2, atol=3e-2)


def test_parameters_are_cast_once(monkeypatch):
    w = weft.randn(3, 3, requires_grad=True)
    casts = []
    plain = weft.Tensor._cast
    monkeypatch.setattr(weft.Tensor, "_cast", lambda self, kind: casts.append(self) or plain(self, kind))

    def count(**options):
        casts.clear()
        x = weft.ones(2, 3, dtype=weft.bfloat16)
        with weft.autocast("cpu", **options):
            for _ in range(3):
                x @ w
            with weft.no_grad():
                w.mul_(2)
            changed = (x @ w).float()
        assert weft.allclose(changed, x.float() @ w, rtol=0.05, atol=0.05)
        return sum(tensor is w for tensor in casts)

    assert count() == 2  # and once more after the write
    assert count(cache_enabled=False) == 4


def test_casts_without_a_graph_are_not_kept_for_one():
    w = weft.randn(3, 3, requires_grad=True)
    with weft.autocast("cpu"):
        with weft.no_grad():
            w @ w
        (weft.ones(2, 3) @ w).float().sum().backward()
    assert w.grad is not None


def test_blocks_nest_and_end():
    a = weft.randn(2, 2)
    with weft.autocast("cpu", dtype=weft.float16):
        assert (a @ a).dtype is weft.float16
        with weft.autocast("cpu", enabled=False):
            assert (a @ a).dtype is weft.float32
            with weft.autocast("cpu", dtype=weft.bfloat16):
                assert (a @ a).dtype is weft.bfloat16
        assert weft.is_autocast_enabled("cpu")
        assert not weft.is_autocast_enabled()
        assert weft.get_autocast_dtype("cpu") is weft.float16
    with pytest.raises(KeyError), weft.autocast("cpu"):
        raise KeyError
    assert not weft.is_autocast_enabled("cpu")
    assert weft.get_autocast_dtype("cpu") is weft.bfloat16
    assert (a @ a).dtype is weft.float32


def test_as_a_decorator_even_of_what_calls_itself():
    @weft.autocast("cpu")
    def power(a, times):
        return a @ a if not times else power(a, times - 1) @ a

    assert power(weft.eye(2), 3).dtype is weft.bfloat16
    assert power.__name__ == "power"


def test_a_block_is_of_its_thread():
    found = []
    with weft.autocast("cpu"):
        thread = threading.Thread(target=lambda: found.append((weft.eye(2) @ weft.eye(2)).dtype))
        thread.start()
        thread.join()
    assert found == [weft.float32]


def test_results_in_given_memory_and_in_place_keep_their_dtype():
    a, out = weft.randn(2, 2), weft.empty(2, 2)
    with weft.autocast("cpu"):
        weft.matmul(a, a, out=out)
        assert weft.ones(2, 2).addmm_(a, a).dtype is weft.float32
    assert weft.equal(out, a @ a)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device_type": "cuda"}, "CUDA is not available"),
        ({"device_type": "cpu", "dtype": weft.float32}, "target dtype is not supported"),
    ],
)
def test_what_cannot_be_is_disabled_with_a_warning(arguments, message):
    with pytest.warns(UserWarning, match=message):
        block = weft.autocast(**arguments)
    with block:
        assert (weft.eye(2) @ weft.eye(2)).dtype is weft.float32


@pytest.mark.parametrize(("name", "kind"), [("nope", RuntimeError), (3, ValueError)])
def test_wrong_devices(name, kind):
    with pytest.raises(kind):
        weft.autocast(name)


def test_old_names_of_questions():
    with weft.autocast("cpu", dtype=weft.float16):
        for name in ("is_autocast_cpu_enabled", "get_autocast_cpu_dtype", "get_autocast_gpu_dtype"):
            with pytest.warns(DeprecationWarning, match="deprecated"):
                assert getattr(weft, name)() in (True, weft.float16)


def test_old_names_of_cuda():
    with pytest.warns(FutureWarning, match="deprecated"), pytest.warns(UserWarning, match="not available"):
        assert not weft.cuda.amp.autocast()._enabled
    with pytest.warns(FutureWarning, match="deprecated"), pytest.warns(UserWarning, match="not available"):
        assert not weft.cuda.amp.GradScaler().is_enabled()


def _noting(module, cast):
    """What an own function and its gradient see, within a block and outside."""
    notes = []

    class Double(module.autograd.Function):
        @staticmethod
        @module.amp.custom_fwd(device_type="cpu", cast_inputs=cast and getattr(module, cast))
        def forward(ctx, x):
            notes.append((str(x.dtype).rpartition(".")[2], module.is_autocast_enabled("cpu")))
            return x * 2

        @staticmethod
        @module.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            notes.append(module.is_autocast_enabled("cpu"))
            return grad * 2

    x = module.ones(2, dtype=module.bfloat16, requires_grad=True)
    with module.autocast("cpu"):
        y = Double.apply(x)
    y.sum().backward()
    Double.apply(x)
    return notes


@pytest.mark.parametrize("cast", [None, "float32"])
def test_functions_of_the_users_own(cast):
    assert _noting(weft, cast) == _noting(oracle("torch"), cast)


class Descent:
    """What GradScaler needs of an optimiser."""

    def __init__(self, parameters):
        self.param_groups = [{"params": parameters}]
        self.steps = 0

    def step(self):
        self.steps += 1
        return "stepped"


def test_scaler_follows_overflows():
    torch = oracle("torch")
    rng = np.random.default_rng(1)
    turns = [rng.normal(size=3) * (np.inf if turn in (3, 7) else 1.0) for turn in range(10)]
    logs = []
    for module in (torch, weft):
        scaler = module.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, backoff_factor=0.25)
        p = module.ones(3, requires_grad=True)
        optimizer, log = Descent([p]), []
        for values in turns:
            p.grad = scaler.scale(module.tensor(values.tolist()))
            if len(log) % 2:
                scaler.unscale_(optimizer)
            log.append(scaler.step(optimizer))
            log.append([round(x, 4) for x in p.grad.tolist() if np.isfinite(x)])
            scaler.update()
            log.append(scaler.state_dict())
        other = module.amp.GradScaler("cpu")
        other.load_state_dict(scaler.state_dict())
        logs.append([*log, optimizer.steps, other.get_scale()])
    assert logs[0] == logs[1]


def test_scaler_says_what_is_wrong():
    scaler = weft.amp.GradScaler("cpu")
    p = weft.ones(2, requires_grad=True)
    optimizer = Descent([p])
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.step(optimizer)
    scaler = weft.amp.GradScaler("cpu")
    p.grad = weft.ones(2)
    scaler.step(optimizer)
    for call in (scaler.step, scaler.unscale_):
        with pytest.raises(RuntimeError, match="step"):
            call(optimizer)
    scaler.update(3.0)
    assert scaler.get_scale() == 3.0
    with pytest.raises(ValueError, match="outputs must be"):
        scaler.scale("text")
    with pytest.raises(RuntimeError, match="empty"):
        scaler.load_state_dict({})
    assert [x.tolist() for x in scaler.scale((p.detach(), [p.detach()][0]))] == [[3.0, 3.0]] * 2


def test_a_disabled_scaler_does_nothing():
    scaler = weft.amp.GradScaler("cpu", enabled=False)
    p = weft.ones(2, requires_grad=True)
    optimizer = Descent([p])
    assert scaler.scale(p) is p
    assert scaler.step(optimizer) == "stepped"
    assert scaler.state_dict() == {}
    scaler.unscale_(optimizer)
    scaler.update()
    assert scaler.get_scale() == 1.0
    assert not scaler.is_enabled()


def _trained(module):
    """Losses of a few steps of a small network with everything: autocast, scaling, clipping, steps."""
    module.manual_seed(0)
    nn = module.nn
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    optimizer = module.optim.SGD(net.parameters(), lr=0.05)
    scaler = module.amp.GradScaler("cpu", init_scale=1024.0)
    x, y = module.randn(16, 1, 8, 8), module.randint(0, 10, (16,))
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        with module.autocast("cpu", dtype=module.bfloat16):
            loss = nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def test_training():
    np.testing.assert_allclose(_trained(weft), _trained(oracle("torch")), rtol=2e-3)


MODULES = {
    "Bilinear": (8, 8, 3),
    "GRU": (8, 8),
    "GRUCell": (8, 8),
    "LSTM": (8, 8),
    "LSTMCell": (8, 8),
    "LayerNorm": (8,),
    "Linear": (8, 3),
    "MultiheadAttention": (8, 2),
    "RNN": (8, 8),
    "RNNCell": (8, 8),
    "TransformerEncoderLayer": (8, 2),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_give_pytorchs_dtypes(name):
    kinds = []
    for module in (oracle("torch"), weft):
        net = getattr(module.nn, name)(*MODULES[name])
        x = module.randn(5, 2, 8)
        inputs = [x[0]] if name.endswith("Cell") else [x] * {"Bilinear": 2, "MultiheadAttention": 3}.get(name, 1)
        with module.autocast("cpu"):
            found = net(*inputs)
        while isinstance(found, tuple):
            found = found[0]
        found.float().square().sum().backward()
        assert {p.grad.dtype for p in net.parameters() if p.grad is not None} == {module.float32}
        kinds.append(str(found.dtype).partition(".")[2])
    assert kinds[0] == kinds[1]

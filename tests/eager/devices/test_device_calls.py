"""What a call on small tensors of a GPU asks of the driver, when it is made again: one entry of the context, and what
runs."""

import sys
import threading

import numpy as np
import pytest

import weft

ENTER, LEAVE, LAUNCH = "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuLaunchKernelEx"


def there(*shape):
    return weft.tensor(np.random.default_rng(5).standard_normal(shape).astype("float32")).cuda()


def asked(gpu, call):
    """The driver's calls, once all that is made once is there."""
    for _ in range(2):
        call()
    before = len(gpu.calls)
    call()
    return gpu.calls[before:]


@pytest.mark.parametrize(
    "function",
    [lambda a, b: a + b, lambda a, b: a * 2.0, lambda a, b: a.relu(), lambda a, b: a.softmax(-1), lambda a, b: a.sum()],
)
def test_one_kernel(gpu, function):
    a, b = there(4, 6), there(4, 6)
    assert asked(gpu, lambda: function(a, b)) == [ENTER, LAUNCH, LEAVE]


def test_what_has_history_costs_the_driver_no_more(gpu):
    a, w = there(4, 6), there(4, 6).requires_grad_()
    assert asked(gpu, lambda: a + w) == [ENTER, LAUNCH, LEAVE]


def test_products_enter_the_context_once(gpu):
    a, b = there(8, 8), there(8, 8)
    calls = asked(gpu, lambda: a @ b)
    assert (calls[0], calls[-1], set(calls[1:-1])) == (ENTER, LEAVE, {LAUNCH})


def test_in_place_is_a_kernel_and_a_copy(gpu):
    a, b = there(4, 6), there(4, 6)
    assert asked(gpu, lambda: a.add_(b)) == [ENTER, LAUNCH, LEAVE, ENTER, "cuMemcpyDtoDAsync_v2", LEAVE]


def test_views_ask_for_nothing(gpu):
    a = there(4, 6)
    assert asked(gpu, lambda: a.t()[1:].unsqueeze(0)) == []


def test_memory_of_another_stream_is_waited_for(gpu):
    """The same call as before, on a stream that has to wait and of which others have to."""
    a, b, side = there(4, 6), there(4, 6), weft.cuda.Stream()
    wanted = (a + b).cpu()
    asked(gpu, lambda: a + b)
    with weft.cuda.stream(side):
        before = len(gpu.calls)
        made = a + b
        assert gpu.calls[before:].count("cuStreamWaitEvent") == 2
        assert gpu.calls[before:].count(ENTER) == 1
    a = b = None  # freed on the stream that they are of
    assert weft.equal((made + 0).cpu(), wanted)


@pytest.fixture
def impatient():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_call_at_once(gpu, impatient):
    """A call's parameters are written and given to the driver by one thread at a time."""
    values = [there(3, 5) for _ in range(4)]
    wanted = [(value.cpu() + value.cpu()).tolist() for value in values]
    found = [[] for _ in values]

    def work(number):
        for _ in range(20):
            found[number].append(values[number] + values[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(values))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[made.tolist() for made in some] for some in found] == [[one] * 20 for one in wanted]


def test_elements_that_lie_in_order_are_copied_as_bytes(gpu):
    x = weft.arange(12.0, device="cuda")
    x[4:8] = x[:4]
    x[1:5] = x[:4]  # of which some are the same
    assert x.tolist() == [0, 0, 1, 2, 3, 1, 2, 3, 8, 9, 10, 11]
    y = x.clone()
    x.copy_(x)
    assert x.tolist() == y.tolist()


def test_memory_without_elements(gpu):
    x = weft.ones(0, 3, device="cuda")
    assert ((x + 1).shape, x.sum().item(), x.t().sum(1).tolist(), weft.cat([x, x]).shape) == (
        (0, 3),
        0,
        [0] * 3,
        (0, 3),
    )
    assert (x.data_ptr() == x.t().data_ptr(), x[:, 1:].numel()) == (True, 0)

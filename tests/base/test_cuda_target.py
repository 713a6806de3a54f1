"""GPUs as targets: text, facts from a driver's answers, errors."""

import pytest

import weft
from weft.base.cuda_target import CudaTarget, DeviceFacts, target_of

A100 = DeviceFacts(8, 0, 108, 166912, 40 << 20, 1410000, 1215000, 5120, 12040)
H100_OLD = DeviceFacts(9, 0, 132, 232448, 50 << 20, 1980000, 2619000, 5120, 12000)


def test_text_is_read_back():
    target = CudaTarget.create("cuda -arch=sm_80 -sms=108")
    assert weft.Target.create(str(target)) == target
    assert (target.sm, target.ptx, target.shared_bytes, target.has_own_code) == (80, 78, 166912, False)


def test_what_a_driver_says_becomes_facts():
    target = target_of(A100)
    assert (target.arch, target.sms, target.l2_bytes) == ("sm_80", 108, 40 << 20)
    assert 1300 < target.memory_rate < 1555  # the maker says 1555 GB/s
    assert target.tensor_rate("float16") / 1e12 == pytest.approx(312, rel=0.01)  # and 312 TFLOPS
    assert target.scalar_rate / 1e12 == pytest.approx(39, rel=0.01) or target.scalar_rate > 19e12


def test_rates_of_workstations():
    """An A10 and an L4, as their maker's tables have them."""
    a10 = CudaTarget().changed(arch="sm_86", sms=72, clock_mhz=1695)
    l4 = CudaTarget().changed(arch="sm_89", sms=58, clock_mhz=2040)
    assert a10.tensor_rate("float16") / 1e12 == pytest.approx(125, rel=0.01)
    assert l4.tensor_rate("bfloat16") / 1e12 == pytest.approx(121, rel=0.01)
    assert a10.tensor_rate("float32") / 1e12 == pytest.approx(62.5, rel=0.01)


def test_an_old_driver_gets_the_ptx_that_it_reads():
    assert target_of(H100_OLD).ptx == 80
    assert target_of(H100_OLD._replace(driver=13000)).ptx == 81


@pytest.mark.parametrize(
    "text", ["cuda -arch=sm_20", "cuda -arch=ninety", "cuda -sms=0", "cuda -sms=x", "cuda -threads=3", "cuda -arch="]
)
def test_what_makes_no_target_is_an_error(text):
    with pytest.raises(weft.Error):
        weft.Target.create(text)


def test_options_change_a_target_and_unknown_ones_are_named():
    assert CudaTarget().changed(sms=10).sms == 10
    with pytest.raises(weft.Error, match="cores"):
        CudaTarget().changed(cores=1)


def test_a_cpu_is_no_gpu():
    with pytest.raises(weft.Error, match="no GPU"):
        CudaTarget.create("cpu")

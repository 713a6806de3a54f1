"""Code for other machines: it is made and saved here, and a run says what it is for. Headers of object files tell, by
the ELF standard, for what machine they are."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from compiler.models import convolutional, floats

import weft
from weft import symbol as sym
from weft.base.cpu_target import host
from weft.base.errors import InvalidValue, Unsupported
from weft.ops.control_flow import scan
from weft.runtime.artifact import load_program

MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}  # e_machine
OTHER = "aarch64" if host().arch != "aarch64" else "x86_64"
TARGETS = {
    "aarch64": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
    "x86_64": "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3",
    "riscv64": "llvm -mtriple=riscv64-linux-gnu",
}


def machine_of(code):
    assert code[:4] == b"\x7fELF"
    return int.from_bytes(code[18:20], "little")


@pytest.fixture
def rng():
    return np.random.default_rng(29)


@pytest.mark.parametrize("arch", [OTHER, "riscv64"])
def test_code_for_another_architecture_is_saved(arch, rng, tmp_path):
    x = floats(rng, (2, 3, 9, 9))
    model = weft.compile(convolutional(rng), shape={"x": x.shape}, target=TARGETS[arch])
    assert model.program.objects
    assert {machine_of(code) for code in model.program.objects} == {MACHINES[arch]}
    assert f"kernels for {model._source.target.isa}" in repr(model)
    assert len(model.report().kernels) == len(model.program.kernels)
    model.save(tmp_path / "model.weft")
    refused = f"(?s)another processor.*compiled for {arch}-linux-gnu.*this machine is {host().triple}.*target="
    for run in (
        lambda: model(x),
        lambda: model.bind(),
        lambda: copy.copy(model)(x),
        lambda: model.run({"x": x}, out={}),
    ):
        with pytest.raises(Unsupported, match=refused):
            run()
    with pytest.raises(Unsupported, match=refused):
        load_program(tmp_path / "model.weft")
    again = pickle.loads(pickle.dumps(model))
    assert again.program.target == model.program.target


@pytest.mark.skipif(host().isa not in ("avx2", "avx512"), reason="this machine has no instructions to leave out")
def test_instructions_that_are_not_here(rng, tmp_path):
    """On a machine held to SSE, code for AVX2 is made and does not run; where AVX2 is, what was saved runs."""
    symbol, params = convolutional(rng)
    x = floats(rng, (2, 3, 9, 9))
    with weft.config.override(isa="sse"):
        model = weft.compile((symbol, params), shape={"x": x.shape}, target="llvm -mcpu=x86-64-v3")
        model.save(tmp_path / "model.weft")
        with pytest.raises(Unsupported, match=r"(?s)another processor.*x86-64-v3.* with .*avx2.*; this machine is"):
            model(x)
    (right,) = weft.compile((symbol, params), shape={"x": x.shape})(x)
    np.testing.assert_allclose(weft.runtime.load(tmp_path / "model.weft")(x)[0], right, rtol=1e-4, atol=1e-6)


def test_nothing_is_compiled_for_a_run_that_cannot_be(rng):
    model = weft.compile(sym.relu(sym.Variable("x")), shape={"x": ("n", 2)}, target=TARGETS[OTHER])
    with pytest.raises(Unsupported, match="another processor"):
        model(floats(rng, (3, 2)))
    assert model.compilations == 0


def test_control_flow_for_another_machine(rng, tmp_path):
    """Subgraphs are compiled where they run."""
    x, state = sym.Variable("x", shape=(5, 3)), sym.Variable("state", shape=(3,))
    model = weft.compile(scan(lambda item, s, _: ([s[0]], [s[0] + item[0]]), [x], [state]), target=TARGETS[OTHER])
    model.save(tmp_path / "model.weft")
    with pytest.raises(Unsupported, match="another processor"):
        model(floats(rng, (5, 3)), floats(rng, (3,)))


def test_options_are_checked_for_other_machines_too():
    symbol = sym.relu(sym.Variable("x", shape=(2,)))
    with pytest.raises(InvalidValue, match="-2 threads"):
        weft.compile(symbol, target=TARGETS[OTHER], threads=-2)
    with pytest.raises(Unsupported, match="no code can be made for 'nonsense-linux'"):
        weft.compile(symbol, target="llvm -mtriple=nonsense-linux")

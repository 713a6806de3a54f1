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
from weft.base.cpu_target import CpuTarget, host
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
    assert f"kernels for {model.source.target.isa}" in repr(model)
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


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v2", "x86-64-v3", "skylake-avx512", "sapphirerapids"])
@pytest.mark.skipif(host().arch != "x86_64", reason="CPUs of x86_64")
def test_code_for_other_cpus_of_this_architecture(cpu, rng, tmp_path):
    """It runs where its instructions are, with equal results, and says which are missing elsewhere."""
    model = convolutional(rng)
    x = floats(rng, (2, 3, 9, 9))
    target = CpuTarget.create(f"llvm -mcpu={cpu}")
    weft.compile(model, shape={"x": x.shape}, target=target).save(tmp_path / "model.weft")
    missing = {part[1:] for part in target.features.split(",") if part[0] == "+" and not host().has(part[1:])}
    if missing:
        with pytest.raises(Unsupported, match=rf"(?s)another processor.*with {', '.join(sorted(missing))};"):
            weft.runtime.load(tmp_path / "model.weft")
    else:
        (right,) = weft.compile(model, shape={"x": x.shape})(x)
        found = weft.runtime.load(tmp_path / "model.weft")
        assert f"for {target.isa}" in repr(found)
        np.testing.assert_allclose(found(x)[0], right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("triple", "magic"),
    [("x86_64-pc-windows-msvc", b"\x64\x86"), ("x86_64-apple-darwin", b"\xcf\xfa\xed\xfe")],
    ids=["windows", "darwin"],
)
def test_code_for_another_system(triple, magic, rng, tmp_path):
    """Objects of another format are not loaded, though the instructions are those of this machine."""
    if CpuTarget.create(f"llvm -mtriple={triple}").object_format == host().object_format:
        pytest.skip("it is this system")
    x = floats(rng, (2, 3, 9, 9))
    model = weft.compile(convolutional(rng), shape={"x": x.shape}, target=f"llvm -mtriple={triple}")
    assert all(code.startswith(magic) for code in model.program.objects)
    model.save(tmp_path / "model.weft")
    for run in (lambda: model(x), lambda: weft.runtime.load(tmp_path / "model.weft")):
        with pytest.raises(Unsupported, match=f"(?s)compiled for {triple}.*objects.*this machine is {host().triple}"):
            run()


def test_a_compiled_model_is_no_archive_of_tensors(rng, tmp_path):
    weft.compile(sym.relu(sym.Variable("x", shape=(2,))), target=TARGETS[OTHER]).save(tmp_path / "model.weft")
    with pytest.raises(weft.Error, match=r"(?s)a compiled model.*weft\.runtime\.load"):
        weft.load(tmp_path / "model.weft")


@pytest.mark.parametrize(
    "triple",
    ["nvptx64-nvidia-cuda", "amdgcn-amd-amdhsa", "bpf", "avr", "armv7-linux-gnueabihf", "i686-linux-gnu", "wasm32"]
    + ["aarch64_be-linux-gnu", "x86_64-unknown-linux-gnux32"],
)
def test_machines_that_no_code_is_made_for(triple):
    """LLVM would end the process for some of them."""
    with pytest.raises(Unsupported, match=f"(?s)no code can be made for '{triple}'.*try:.*aarch64"):
        weft.compile(sym.relu(sym.Variable("x", shape=(2,))), target=f"llvm -mtriple={triple}")


def test_options_are_checked_for_other_machines_too():
    symbol = sym.relu(sym.Variable("x", shape=(2,)))
    with pytest.raises(InvalidValue, match="-2 threads"):
        weft.compile(symbol, target=TARGETS[OTHER], threads=-2)
    with pytest.raises(Unsupported, match="no code can be made for 'nonsense-linux'"):
        weft.compile(symbol, target="llvm -mtriple=nonsense-linux")

import dataclasses
import re

import llvmlite.binding as llvm
import pytest

from weft.base import config
from weft.base.cpu_facts import facts_of
from weft.base.cpu_target import _KNOWN_CPUS, CpuTarget, detect, host
from weft.base.dtype import DTYPES
from weft.base.errors import InvalidType, InvalidValue, Unsupported
from weft.base.machine import CpuInfo, machine, usable_cores

CACHES = (49152, 2097152, 33554432)
SSE = "sse2 pni ssse3 sse4_1 sse4_2 popcnt cx16 lahf_lm"
AVX2 = SSE + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
AVX512 = AVX2 + " avx512f avx512bw avx512cd avx512dq avx512vl"
ICELAKE = AVX512 + (
    " avx512ifma avx512vbmi avx512_vbmi2 avx512_vnni avx512_bitalg avx512_vpopcntdq gfni vaes vpclmulqdq"
)
SAPPHIRE = ICELAKE + " avx512_bf16 avx512_fp16 avx_vnni amx_tile amx_bf16 amx_int8"


def x86(flags, vendor="GenuineIntel", family=6, model=0, cores=4):
    return detect("x86_64", CpuInfo(vendor, family, model, frozenset(flags.split())), CACHES, cores)


@pytest.mark.parametrize(
    ("flags", "cpu", "isa", "bits"),
    [
        ("", "x86-64", "generic", 128),
        ("sse2 pni ssse3", "x86-64", "generic", 128),
        (SSE, "x86-64-v2", "sse", 128),
        (SSE + " avx", "x86-64-v2", "sse", 128),
        (AVX2, "x86-64-v3", "avx2", 256),
        (AVX2.replace(" movbe", ""), "x86-64-v2", "avx2", 256),
        (AVX2.replace(" fma", ""), "x86-64-v2", "sse", 128),
        (AVX2 + " avx512f avx512cd", "x86-64-v3", "avx2", 256),
        (AVX512, "x86-64-v4", "avx512", 512),
        (SAPPHIRE, "x86-64-v4", "avx512", 512),
    ],
)
def test_levels(flags, cpu, isa, bits):
    target = x86(flags)
    assert (target.cpu, target.isa, target.vector_bits) == (cpu, isa, bits)
    assert (target.caches, target.cores, target.kind) == (CACHES, 4, "cpu")


@pytest.mark.parametrize(
    ("vendor", "family", "model", "flags", "bits", "unit_bits"),
    [
        ("GenuineIntel", 6, 143, SAPPHIRE, 512, 512),
        ("GenuineIntel", 6, 63, AVX2, 256, 256),
        ("AuthenticAMD", 25, 17, ICELAKE, 512, 256),  # Zen 4 takes a vector in halves
        ("AuthenticAMD", 26, 2, ICELAKE, 512, 512),
        ("AuthenticAMD", 25, 1, AVX2, 256, 256),
        ("AuthenticAMD", 23, 1, AVX2, 256, 128),  # Zen 1 too
    ],
)
def test_the_width_of_units(vendor, family, model, flags, bits, unit_bits):
    target = x86(flags, vendor, family, model)
    assert (target.vector_bits, target.unit_bits) == (bits, unit_bits)
    assert CpuTarget.create(str(target)) == target
    narrow = target.with_isa("sse")
    assert (narrow.vector_bits, narrow.unit_bits) == (128, 128)


def test_facts_are_of_the_units_and_not_of_the_vectors_alone():
    """From the makers' tables: products and sums in a cycle of two units, in float32, at 2.6 to 3.7 GHz."""
    for isa, bits, cycle in (
        ("avx512", 512, 64),
        ("avx512", 256, 32),
        ("avx2", 256, 32),
        ("neon", 256, 32),
        ("neon", 128, 16),
    ):
        facts = facts_of(isa, bits, CACHES)
        assert 2.5e9 < facts.flops / cycle < 3.8e9
        assert facts.far_rate < facts.near_rate
    speeds = [facts_of(*key, CACHES).flops for key in (("avx512", 512), ("avx512", 256), ("avx2", 128), ("sse", 128))]
    assert speeds == sorted(speeds, reverse=True)
    assert facts_of("generic", 128, CACHES).caches == CACHES


@pytest.mark.parametrize(
    ("vendor", "family", "model", "flags", "cpu"),
    [
        ("GenuineIntel", 6, 143, SAPPHIRE, "sapphirerapids"),
        ("GenuineIntel", 6, 207, SAPPHIRE, "emeraldrapids"),
        ("GenuineIntel", 6, 143, SAPPHIRE.replace(" avx512_fp16", ""), "x86-64-v4"),
        ("GenuineIntel", 6, 143, AVX2, "x86-64-v3"),
        ("GenuineIntel", 6, 85, AVX512, "skylake-avx512"),
        ("GenuineIntel", 6, 85, AVX512 + " avx512_vnni", "cascadelake"),
        ("GenuineIntel", 6, 106, ICELAKE, "icelake-server"),
        ("AuthenticAMD", 25, 17, ICELAKE + " avx512_bf16", "znver4"),
        ("AuthenticAMD", 26, 2, ICELAKE + " avx512_bf16 avx_vnni", "znver5"),
        ("GenuineIntel", 6, 173, SAPPHIRE, "graniterapids"),
        ("GenuineIntel", 6, 151, AVX2 + " avx_vnni gfni vaes vpclmulqdq", "alderlake"),
        ("AuthenticAMD", 6, 143, SAPPHIRE, "x86-64-v4"),
    ],
)
def test_names_only_when_certain(vendor, family, model, flags, cpu):
    assert x86(flags, vendor, family, model).cpu == cpu


def test_features_are_llvms_names():
    target = x86(SAPPHIRE)
    for feature in ("sse4.2", "lzcnt", "bmi", "avx512vnni", "avx512bf16", "amx-tile"):
        assert target.has(feature)
        assert f"+{feature}" in target.features.split(",")
    assert not target.has("avx512_vnni")
    assert target.features.endswith(",-prefer-256-bit")
    assert "prefer" not in x86(AVX2).features


def test_other_architectures():
    arm = detect("aarch64", CpuInfo(), CACHES, 2)
    assert (arm.isa, arm.vector_bits, arm.features) == ("neon", 128, "+neon")
    other = detect("riscv64", CpuInfo(), CACHES, 2)
    assert (other.isa, other.vector_bits, other.features) == ("generic", 128, "")
    with pytest.raises(Unsupported, match="sse code cannot run on generic"):
        arm.with_isa("sse")
    assert arm.has_fma
    assert arm.has_half_floats
    assert not other.has_fma


NEOVERSE_N1 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
NEOVERSE_V1 = NEOVERSE_N1 + " sha3 sm3 sm4 sha512 sve asimdfhm ssbs svei8mm svebf16 i8mm bf16"


@pytest.mark.parametrize(
    ("part", "flags", "cpu", "unit_bits"),
    [
        (0xD0C, NEOVERSE_N1, "neoverse-n1", 128),
        (0xD40, NEOVERSE_V1, "neoverse-v1", 256),  # four units of 128 bits
        (0xD40, NEOVERSE_V1.replace(" sve", ""), "generic", 128),
        (0xD08, "fp asimd", "cortex-a72", 128),
        (0x123, NEOVERSE_V1, "generic", 128),
    ],
)
def test_arm_servers(part, flags, cpu, unit_bits):
    target = detect("aarch64", CpuInfo("0x41", 8, part, frozenset(flags.split())), CACHES, 2)
    assert (target.cpu, target.isa, target.vector_bits, target.unit_bits) == (cpu, "neon", 128, unit_bits)
    assert target.has("i8mm") == ("i8mm" in flags.split())
    assert CpuTarget.create(str(target)) == target
    if cpu != "generic":
        assert CpuTarget.create(f"llvm -mtriple={target.triple} -mcpu={cpu}", caches=CACHES, cores=2) == target


@pytest.mark.parametrize(
    ("isa", "cpu", "bits", "on", "off"),
    [
        ("sse", "x86-64-v2", 128, ["sse4.2", "popcnt"], ["avx", "fma", "f16c", "bmi2"]),
        ("avx2", "x86-64-v3", 256, ["avx2", "fma", "f16c"], ["avx512f", "avxvnni", "amx-tile"]),
        ("avx512", "x86-64-v4", 512, ["avx512bw", "avx512vl"], ["avx512vnni", "avx512bf16"]),
    ],
)
def test_with_isa(isa, cpu, bits, on, off):
    target = x86(SAPPHIRE, model=143).with_isa(isa)
    assert (target.cpu, target.isa, target.vector_bits) == (cpu, isa, bits)
    assert all(target.has(feature) for feature in on)
    assert not any(target.has(feature) for feature in off)
    assert target.with_isa(isa) == target
    assert x86(AVX512).with_isa(isa) == target


@pytest.mark.parametrize(
    ("flags", "isa", "missing"),
    [
        (AVX2, "avx512", "avx512bw, avx512cd, avx512dq, avx512f, avx512vl"),
        (SSE, "avx2", "avx2, f16c, fma"),
        ("sse2", "sse", "sse4.2"),
    ],
)
def test_with_isa_the_cpu_lacks(flags, isa, missing):
    with pytest.raises(Unsupported, match=f"{isa} code cannot run") as caught:
        x86(flags).with_isa(isa)
    assert caught.value.why == f"it lacks {missing}"


@pytest.mark.parametrize("isa", ["avx", "", "AVX2", None, "neon"])
def test_unknown_isa(isa):
    with pytest.raises(InvalidValue, match="unknown isa"):
        x86(SAPPHIRE).with_isa(isa)


@pytest.mark.parametrize("name", DTYPES)
def test_lanes(name):
    bytes_of = {"bool": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}
    size = bytes_of.get(name) or int(re.sub(r"\D", "", name)) // 8
    for flags, bits in ((SSE, 128), (AVX2, 256), (AVX512, 512)):
        assert x86(flags).lanes(name) * size * 8 == bits


def test_host_is_this_machine(monkeypatch):
    monkeypatch.delenv("WEFT_ISA", raising=False)
    assert host() is host()
    assert host().arch == machine()
    assert host().cores == usable_cores()


@pytest.mark.skipif(machine() != "x86_64", reason="instruction sets of x86")
def test_host_follows_the_setting(monkeypatch):
    monkeypatch.setenv("WEFT_ISA", "sse")
    assert (host().isa, host().vector_bits) == ("sse", 128)
    monkeypatch.delenv("WEFT_ISA")
    with config.override(isa="sse"):
        assert host().cpu == "x86-64-v2"
        assert CpuTarget.create("llvm").isa == "sse"
    with config.override(isa="mmx"), pytest.raises(InvalidValue, match="unknown isa 'mmx'"):
        host()


@pytest.mark.parametrize("flags", ["", SSE, AVX2, AVX512, SAPPHIRE])
def test_text_there_and_back(flags):
    target = x86(flags, model=143, cores=3)
    assert CpuTarget.create(str(target)) == target
    assert CpuTarget.create("cpu" + str(target).removeprefix("llvm")) == target
    arm = detect("aarch64", CpuInfo(), CACHES, 2)
    assert CpuTarget.create(str(arm)) == arm
    bare = detect("riscv64", CpuInfo(), CACHES, 2)
    assert CpuTarget.create(str(bare)) == bare


def test_create():
    assert CpuTarget.create("cpu") == CpuTarget.create("llvm") == CpuTarget.create() == host()
    assert CpuTarget.create("llvm -mcpu=native") == host()
    assert CpuTarget.create(host()) == host()
    assert CpuTarget.create("llvm -num-cores=7").cores == 7
    haswell = CpuTarget.create("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell", cores=2)
    assert (haswell.isa, haswell.vector_bits, haswell.cores) == ("avx2", 256, 2)
    assert haswell.caches == host().caches
    wide = CpuTarget.create(haswell, cpu="x86-64-v4", caches=CACHES)
    assert (wide.isa, wide.vector_bits, wide.caches) == ("avx512", 512, CACHES)
    narrow = CpuTarget.create("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell -vector-bits=128")
    assert (narrow.isa, narrow.vector_bits) == ("avx2", 128)
    named = CpuTarget.create("llvm -mtriple=x86_64-unknown-linux-gnu -mattr=+sse4.2,-avx")
    assert (named.cpu, named.isa, named.features) == ("x86-64", "sse", "+sse4.2,-avx")
    assert CpuTarget.create("llvm -mtriple=arm64-apple-darwin").isa == "neon"


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("rocm", {}, InvalidValue, "unknown target 'rocm'"),
        ("", {}, InvalidValue, "unknown target ''"),
        (None, {}, InvalidType, "text or a Target, not None"),
        ("llvm -mfpu=1", {}, InvalidValue, "'-mfpu=1' of a target is not understood"),
        ("llvm -mcpu", {}, InvalidValue, "'-mcpu' of a target"),
        ("llvm -mcpu=", {}, InvalidValue, "'-mcpu=' of a target"),
        ("llvm -num-cores=two", {}, InvalidValue, "expected a whole number"),
        ("llvm -num-cores=0", {}, InvalidValue, "0 cores"),
        ("llvm -caches=1,2", {}, InvalidValue, "caches"),
        ("llvm -caches=1,2,x", {}, InvalidValue, "expected a whole number"),
        ("llvm -vector-bits=100", {}, InvalidValue, "vectors of 100 bits"),
        ("llvm -mattr=avx2", {}, InvalidValue, "each has a sign"),
        ("llvm -mtriple=x86_64-a-b -mcpu=z80", {}, InvalidValue, "CPU 'z80' are not known"),
        ("llvm -mtriple=aarch64-a-b -mcpu=haswell", {}, InvalidValue, "a CPU of x86_64, not of"),
        ("llvm -mtriple=x86_64-a-b -mcpu=neoverse-n1", {}, InvalidValue, "a CPU of aarch64, not of"),
        ("llvm -mtriple=aarch64-a-b -mcpu=z80", {}, InvalidValue, "(?s)CPU 'z80' are not known.*neoverse.*neon"),
        ("llvm", {"width": 3}, InvalidValue, "unknown options of a target: width"),
        ("llvm", {"cores": 1.5}, InvalidValue, "1.5 cores"),
        ("llvm", {"caches": [1, 2, 3]}, InvalidValue, "caches"),
        ("llvm", {"features": "+a b"}, InvalidType, "without spaces"),
    ],
)
def test_create_refused(text, options, error, message):
    with pytest.raises(error, match=message):
        CpuTarget.create(text, **options)


def test_is_a_frozen_key():
    target = x86(AVX2)
    assert len({target, x86(AVX2), x86(SSE)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        target.cores = 9


# LLVM itself as the oracle: does it know our names, and which registers does it use?
def _machine_of(target):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(cpu=target.cpu, features=target.features, opt=3)


def _assembly(target, text):
    module = llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}')
    return _machine_of(target).emit_assembly(module)


def _fma(lanes):
    vector = f"<{lanes} x float>"
    return (
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})\n"
        f"define {vector} @f({vector} %a, {vector} %b) {{\n"
        f"  %c = call {vector} @llvm.fma.v{lanes}f32({vector} %a, {vector} %b, {vector} %a)\n"
        f"  ret {vector} %c\n}}\n"
    )


@pytest.mark.parametrize(("arch", "cpu"), [(arch, cpu) for arch, cpus in _KNOWN_CPUS.items() for cpu in cpus])
def test_llvm_knows_our_names(arch, cpu, capfd):
    target = CpuTarget.create(f"llvm -mtriple={arch}-unknown-linux-gnu -mcpu={cpu}")
    assert _assembly(target, "define i32 @f() {\n  ret i32 1\n}\n")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("flags", "register"), [(AVX2, "ymm"), (AVX512, "zmm"), (SAPPHIRE, "zmm")])
def test_llvm_uses_the_whole_register(flags, register):
    target = x86(flags)
    text = _assembly(target, _fma(target.lanes("float32")))
    assert re.search(rf"vfmadd\d+ps\s.*%{register}", text)


@pytest.mark.parametrize(("isa", "absent"), [("sse", "ymm|zmm|vfmadd|%k"), ("avx2", "zmm|%k")])
def test_llvm_stays_inside_the_isa(isa, absent):
    text = _assembly(x86(SAPPHIRE).with_isa(isa), _fma(16))
    assert not re.search(absent, text)


@pytest.mark.skipif(machine() != "x86_64", reason="CPU names of x86")
def test_host_agrees_with_llvm(monkeypatch):
    monkeypatch.delenv("WEFT_ISA", raising=False)
    theirs = llvm.get_host_cpu_features()
    ours = {part[1:] for part in host().features.split(",") if part.startswith("+")}
    assert {feature for feature in ours if not theirs[feature]} == set()
    assert host().cpu in (llvm.get_host_cpu_name(), *(f"x86-64-v{n}" for n in (2, 3, 4)), "x86-64")

"""CPUs as targets. Text or nothing comes in; LLVM's triple, CPU and features, the width of vectors and of the units
that compute them, cache sizes and the number of cores come out.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from . import config
from .cpu_facts import CpuFacts, facts_of
from .dtype import as_dtype
from .errors import InvalidType, InvalidValue, Unsupported
from .machine import CpuInfo, machine, read_caches, read_cpuinfo, triple, usable_cores
from .target import Target as Target
from .target import register_target
from .tile_unit import tiles_work

# Linux's name of a flag -> LLVM's. These are the features that LLVM uses by itself in numeric code;
# instructions that need an explicit intrinsic are not listed, except those our templates ask for.
_LLVM_NAME = {
    "sse2": "sse2",
    "pni": "sse3",
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "popcnt": "popcnt",
    "cx16": "cx16",
    "lahf_lm": "sahf",
    "avx": "avx",
    "avx2": "avx2",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "f16c": "f16c",
    "fma": "fma",
    "abm": "lzcnt",
    "movbe": "movbe",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx_vnni": "avxvnni",
    "gfni": "gfni",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
}

_V1 = frozenset({"sse2"})
_V2 = _V1 | {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf"}
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
_AVX512 = frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})
_V4 = _V3 | _AVX512
_LEVELS = {"x86-64": _V1, "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}

# What has to be there for an instruction set to be used, and all that it may use.
_NEEDED = {
    "sse": frozenset({"sse4.2"}),
    "avx2": frozenset({"avx2", "fma", "f16c"}),
    "avx512": _AVX512 | {"avx2", "fma", "f16c"},
}
_ALLOWED = {"sse": _V2, "avx2": _V3, "avx512": _V4}
_VECTOR_BITS = {"avx512": 512, "avx2": 256, "sse": 128, "neon": 128, "generic": 128}

_SKYLAKE_X = _V4
_ICELAKE = _V4 | {
    "avx512ifma",
    "avx512vbmi",
    "avx512vbmi2",
    "avx512vnni",
    "avx512bitalg",
    "avx512vpopcntdq",
    "gfni",
    "vaes",
    "vpclmulqdq",
}
_ZEN4 = _ICELAKE | {"avx512bf16"}
_SAPPHIRE = _ZEN4 | {"avx512fp16", "avxvnni"}
_AMX = frozenset({"amx-tile", "amx-bf16", "amx-int8"})
_ALDERLAKE = _V3 | {"avxvnni", "gfni", "vaes", "vpclmulqdq"}

# LLVM's name of a CPU -> the features above that the name turns on. A name is used, for its
# scheduling model, only if every one of them is there: hypervisors hide some.
_NAMED = {
    "haswell": _V3,
    "broadwell": _V3,
    "skylake": _V3,
    "skylake-avx512": _SKYLAKE_X,
    "cascadelake": _SKYLAKE_X | {"avx512vnni"},
    "icelake-server": _ICELAKE,
    "sapphirerapids": _SAPPHIRE | _AMX,
    "emeraldrapids": _SAPPHIRE | _AMX,
    "graniterapids": _SAPPHIRE | _AMX,
    "alderlake": _ALDERLAKE,
    "raptorlake": _ALDERLAKE,
    "znver1": _V3,
    "znver2": _V3,
    "znver3": _V3 | {"vaes", "vpclmulqdq"},
    "znver4": _ZEN4,
    "znver5": _ZEN4 | {"avxvnni"},
}
_NEON = frozenset({"neon"})
_N1 = _NEON | {"dotprod", "fullfp16"}
_M2 = _N1 | {"bf16", "i8mm"}
_NEOVERSE_V1 = _M2 | {"sve"}
_N2 = _NEOVERSE_V1 | {"sve2"}
_NAMED_ARM = {
    "generic": _NEON,
    "cortex-a53": _NEON,
    "cortex-a72": _NEON,
    "cortex-a76": _N1,
    "neoverse-n1": _N1,
    "neoverse-n2": _N2,
    "neoverse-v1": _NEOVERSE_V1,
    "neoverse-v2": _N2,
    "apple-m1": _N1,
    "apple-m2": _M2,
}
_KNOWN_CPUS = {"x86_64": {**_LEVELS, **_NAMED}, "aarch64": _NAMED_ARM}
_GENERIC = {"generic": frozenset[str]()}  # all that is known of other architectures
_EXAMPLES = {"x86_64": "+avx2,+fma,+f16c", "aarch64": "+neon"}

# CPUs whose units are not as wide as the vectors of their instructions (see `CpuTarget.unit_bits`).
_UNIT_BITS = {"znver1": 128, "znver4": 256, "neoverse-v1": 256, "neoverse-v2": 256, "apple-m1": 256, "apple-m2": 256}
# CPUs whose instruction for pairs of bfloat16 takes as long as one for float32; elsewhere it takes four times as long.
_WHOLE_PAIRS = frozenset({"znver4", "znver5"})
_INTEL, _AMD, _ARM = "GenuineIntel", "AuthenticAMD", "0x41"
# Of several names for one model the first whose features are all there is taken.
_NAMES_OF_MODEL = {
    (_INTEL, 6, 63): ("haswell",),
    (_INTEL, 6, 79): ("broadwell",),
    (_INTEL, 6, 94): ("skylake",),
    (_INTEL, 6, 85): ("cascadelake", "skylake-avx512"),
    (_INTEL, 6, 106): ("icelake-server",),
    (_INTEL, 6, 143): ("sapphirerapids",),
    (_INTEL, 6, 173): ("graniterapids",),
    (_INTEL, 6, 207): ("emeraldrapids",),
    (_INTEL, 6, 151): ("alderlake",),
    (_INTEL, 6, 154): ("alderlake",),
    (_INTEL, 6, 183): ("raptorlake",),
    (_AMD, 23, 1): ("znver1",),
    (_AMD, 23, 49): ("znver2",),
    (_AMD, 23, 113): ("znver2",),
    (_AMD, 25, 1): ("znver3",),
    (_AMD, 25, 33): ("znver3",),
    (_AMD, 25, 17): ("znver4",),
    (_AMD, 25, 97): ("znver4",),
    (_AMD, 25, 160): ("znver4",),
    (_AMD, 26, 2): ("znver5",),
    (_AMD, 26, 17): ("znver5",),
    (_AMD, 26, 68): ("znver5",),
    (_ARM, 8, 0xD03): ("cortex-a53",),
    (_ARM, 8, 0xD08): ("cortex-a72",),
    (_ARM, 8, 0xD0B): ("cortex-a76",),
    (_ARM, 8, 0xD0C): ("neoverse-n1",),
    (_ARM, 8, 0xD40): ("neoverse-v1",),
    (_ARM, 8, 0xD49): ("neoverse-n2",),
    (_ARM, 8, 0xD4F): ("neoverse-v2",),
}
_COFF, _MACHO = ("windows", "win32", "mingw", "cygwin", "uefi"), ("darwin", "macos", "ios")


@dataclass(frozen=True, slots=True)
class CpuTarget(Target):
    """A CPU that LLVM makes code for. `features` is LLVM's feature string: together with `triple` and
    `cpu` it determines the machine code. `unit_bits` is how many bits each of two units computes at once: half a vector
    on a CPU that takes vectors in halves, two vectors on one that has four units.

    >>> t = CpuTarget.create("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3", cores=4)
    >>> t.isa, t.vector_bits, t.lanes("float32"), t.cores
    ('avx2', 256, 8, 4)
    >>> CpuTarget.create(str(t)) == t
    True
    """

    kind: ClassVar[str] = "cpu"
    triple: str
    cpu: str
    features: str
    vector_bits: int
    unit_bits: int
    caches: tuple[int, int, int]
    cores: int

    def __post_init__(self) -> None:
        for field in ("triple", "cpu", "features"):
            text = getattr(self, field)
            if not isinstance(text, str) or len(text.split()) > 1:
                raise InvalidType(f"{field} of a target is a string without spaces, not {text!r}")
        for what, bits in (("vectors", self.vector_bits), ("units", self.unit_bits)):
            if bits not in (128, 256, 512):
                raise InvalidValue(f"{what} of {bits} bits", why="128, 256 or 512")
        _features(self.features)
        told = isinstance(self.caches, tuple) and len(self.caches) == 3
        if not told or not all(map(_is_positive, (*self.caches, self.cores))):
            raise InvalidValue(
                f"caches {self.caches} and {self.cores} cores",
                why="expected the bytes of L1 data, L2 and L3, and a number of cores, all positive",
            )

    @staticmethod
    def create(target: str | Target = "cpu", **options: Any) -> CpuTarget:
        """The same as `Target.create`, of a CPU. Without -mtriple, -mcpu and -mattr it is the host. What is not told
        is taken from the host, or follows from the CPU: features from its name, the width of vectors from features.
        Options: triple, cpu, features, vector_bits, unit_bits, caches, cores."""
        made = Target.create(target, **options)
        if not isinstance(made, CpuTarget):
            raise InvalidValue(f"{made} is no CPU", hint='Target.create("cpu")')
        return made

    def changed(self, **options: Any) -> CpuTarget:
        return _changed(self, _checked(options))

    @property
    def facts(self) -> CpuFacts:
        """How fast one core is, and what its caches hold."""
        return facts_of(self.isa, self.unit_bits, self.caches, self._pair_gain, self.cpu)

    @property
    def _pair_gain(self) -> float:
        """How much faster than products of floats those of pairs of bfloat16 are."""
        if self.has("amx-bf16"):
            return 4.5  # 4.6 to 5.2 of products of 128 rows, measured on Emerald Rapids by kernels of the same form
        if self.isa == "avx512" and self.has("avx512bf16"):
            # Intel's have avx512fp16, or split the instruction in two: half the speed of float32, measured on Sapphire
            # Rapids. AMD's take it as any product: measured on Zen 4.
            return 2.0 if self.cpu in _WHOLE_PAIRS else 0.5
        return 0.0

    @property
    def nanoseconds_per_operation(self) -> float:
        return self.facts.nanoseconds_per_operation

    @property
    def arch(self) -> str:
        return machine(self.triple.partition("-")[0])

    @property
    def object_format(self) -> str:
        """What its objects are files of, by which they are loaded and called: elf, coff or mach-o."""
        words = self.triple.partition("-")[2]
        return "coff" if any(map(words.count, _COFF)) else "mach-o" if any(map(words.count, _MACHO)) else "elf"

    @property
    def isa(self) -> str:
        """The instruction set: avx512, avx2, sse, neon or generic."""
        return _isa(self.triple, self.features)

    def has(self, feature: str) -> bool:
        """Whether an LLVM feature such as avx512bf16 is on."""
        return feature in _enabled(self.features)

    @property
    def has_fma(self) -> bool:
        """Whether an instruction multiplies vectors and adds to the product, rounding once."""
        return self.isa == "neon" or self.has("fma")

    @property
    def has_half_floats(self) -> bool:
        """Whether instructions convert vectors between float16 and float32."""
        return self.isa == "neon" or self.has("f16c")

    def lanes(self, dtype: object) -> int:
        """How many elements of a dtype one vector holds.

        >>> CpuTarget.create("llvm -mtriple=x86_64-linux -mcpu=x86-64-v4").lanes("bfloat16")
        32
        """
        return max(1, self.vector_bits // (as_dtype(dtype).itemsize * 8))

    def with_isa(self, isa: str) -> CpuTarget:
        """This target held to an instruction set, the same on every machine that has it: sse (128
        bits, SSE4.2), avx2 (with FMA and F16C) or avx512 (F, BW, CD, DQ, VL)."""
        if isa not in _NEEDED:
            raise InvalidValue(f"unknown isa {isa!r}", why="isas: " + ", ".join(_NEEDED))
        mine = _enabled(self.features) if self.arch == "x86_64" else frozenset[str]()
        missing = _NEEDED[isa] - mine
        if missing:
            raise Unsupported(
                f"{isa} code cannot run on {self.cpu} ({self.arch}, {self.isa})",
                why="it lacks " + ", ".join(sorted(missing)),
                hint="unset WEFT_ISA, or choose a smaller instruction set",
            )
        kept = mine & _ALLOWED[isa]
        bits = _VECTOR_BITS[isa]
        narrow = dataclasses.replace(self, cpu=_level_of(kept), features=_show(kept), vector_bits=bits)
        return dataclasses.replace(narrow, unit_bits=min(self.unit_bits, bits))

    def __str__(self) -> str:
        attributes = f" -mattr={self.features}" if self.features else ""
        return (
            f"llvm -mtriple={self.triple} -mcpu={self.cpu}{attributes} "
            f"-vector-bits={self.vector_bits} -unit-bits={self.unit_bits} -caches={','.join(map(str, self.caches))} "
            f"-num-cores={self.cores}"
        )


def host() -> CpuTarget:
    """The machine this program runs on, held to the setting `isa` (WEFT_ISA) if there is one."""
    isa = config.get("isa")
    return _detected() if isa is None else _detected().with_isa(isa)


@functools.cache
def _detected() -> CpuTarget:
    cpu = read_cpuinfo()
    if "amx_tile" in cpu.flags and not tiles_work():
        cpu = cpu._replace(flags=frozenset(flag for flag in cpu.flags if not flag.startswith("amx")))
    return detect(machine(), cpu, read_caches(), usable_cores())


def detect(arch: str, cpu: CpuInfo, caches: tuple[int, int, int], cores: int) -> CpuTarget:
    """The target of a machine that is described by these facts."""
    known = _KNOWN_CPUS.get(arch, _GENERIC)
    least = next(iter(known))
    features = known[least] | {_LLVM_NAME[flag] for flag in cpu.flags & _LLVM_NAME.keys()}
    named = _NAMES_OF_MODEL.get((cpu.vendor, cpu.family, cpu.model), ())
    otherwise = _level_of(features) if arch == "x86_64" else least
    name = next((name for name in named if known[name] <= features), otherwise)
    text = _show(features)
    bits = _VECTOR_BITS[_isa(arch, text)]
    # Zen 4 takes 512 bits in two halves, and Zen 1 took 256 so; a hypervisor may hide their names.
    units = 128 if (cpu.family, cpu.model) < (23, 48) else 256 if cpu.family < 26 else 512
    unit_bits = min(bits, units) if cpu.vendor == _AMD else _UNIT_BITS.get(name, bits)
    return CpuTarget(triple(arch), name, text, bits, unit_bits, caches, cores)


def _level_of(features: Collection[str]) -> str:
    return [name for name, level in _LEVELS.items() if level <= set(features)][-1]


@functools.lru_cache(64)
def _isa(triple: str, features: str) -> str:
    arch = machine(triple.partition("-")[0])
    if arch == "aarch64":
        return "neon"
    return _isa_of(_enabled(features)) if arch == "x86_64" else "generic"


def _isa_of(features: Collection[str]) -> str:
    fitting = [isa for isa, needed in _NEEDED.items() if needed <= set(features)]
    return fitting[-1] if fitting else "generic"


def _show(features: Collection[str]) -> str:
    # LLVM prefers 256-bit vectors on most CPUs with AVX-512 unless it is told otherwise.
    wide = ["-prefer-256-bit"] if _isa_of(features) == "avx512" else []
    return ",".join([f"+{name}" for name in sorted(features)] + wide)


def _enabled(features: str) -> frozenset[str]:
    return frozenset(part[1:] for part in features.split(",") if part.startswith("+"))


def _is_positive(value: object) -> bool:
    return type(value) is int and value > 0


def _changed(base: CpuTarget, given: dict[str, Any]) -> CpuTarget:
    """The base with other fields; what follows from a field that changed is worked out again."""
    if not given.keys() & {"triple", "cpu", "features"}:
        return dataclasses.replace(base, **given)
    arch = machine(given.get("triple", base.triple).partition("-")[0])
    cpu = given.get("cpu", next(iter(_KNOWN_CPUS.get(arch, _GENERIC))))
    features = given["features"] if "features" in given else _features_of(cpu, arch)
    known = {**given, "cpu": cpu, "features": features, "vector_bits": 128, "unit_bits": 128}
    draft = dataclasses.replace(base, **known)
    bits = given.get("vector_bits", _VECTOR_BITS[draft.isa])
    unit_bits = given.get("unit_bits", _UNIT_BITS.get(cpu, bits))
    return dataclasses.replace(draft, vector_bits=bits, unit_bits=unit_bits)


def _features_of(cpu: str, arch: str) -> str:
    known = _KNOWN_CPUS.get(arch, _GENERIC)
    if cpu in known:
        return _show(known[cpu])
    others = [other for other, cpus in _KNOWN_CPUS.items() if cpu in cpus]
    if others:
        raise InvalidValue(f"{cpu} is a CPU of {others[0]}, not of {arch}", hint=f"-mtriple={others[0]}-linux-gnu")
    raise InvalidValue(
        f"the features of CPU {cpu!r} are not known",
        why=f"known of {arch} are " + ", ".join(known),
        hint=f"name them, as in -mattr={_EXAMPLES.get(arch, '+feature')}",
    )


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("expected a whole number")
    return int(text)


def _three(text: str) -> tuple[int, ...]:
    return tuple(map(_whole, text.split(",")))


def _features(text: str) -> str:
    if any(part[:1] not in ("+", "-") or len(part) < 2 for part in text.split(",") if text):
        raise InvalidValue(f"features {text!r}", why="each has a sign, as in +avx2,-fma")
    return text


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "-mtriple": ("triple", str),
    "-mcpu": ("cpu", str),
    "-mattr": ("features", _features),
    "-vector-bits": ("vector_bits", _whole),
    "-unit-bits": ("unit_bits", _whole),
    "-caches": ("caches", _three),
    "-num-cores": ("cores", _whole),
}


def _parse_option(word: str) -> tuple[str, Any]:
    option, equals, text = word.partition("=")
    if option not in _OPTIONS or not equals or not text:
        raise InvalidValue(
            f"option {word!r} of a target is not understood",
            why="options: " + ", ".join(f"{known}=..." for known in _OPTIONS),
        )
    field, parse = _OPTIONS[option]
    try:
        return field, parse(text)
    except ValueError as error:
        raise InvalidValue(f"option {word!r} of a target", why=str(error)) from None


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    fields = [field for field, _ in _OPTIONS.values()]
    unknown = options.keys() - set(fields)
    if unknown:
        raise InvalidValue(
            "unknown options of a target: " + ", ".join(sorted(unknown)), why="options: " + ", ".join(fields)
        )
    return {field: value for field, value in options.items() if value is not None}


def _parsed(words: Sequence[str], **options: Any) -> CpuTarget:
    given = dict(_parse_option(word) for word in words) | _checked(options)
    if given.get("cpu") == "native":
        del given["cpu"]
    return _changed(host(), given)


register_target("cpu", _parsed)
register_target("llvm", _parsed)

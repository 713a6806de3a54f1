"""Devices, libraries and networks that weft does not have: questions are answered, what needs them refuses."""

import importlib

import numpy as np
import pytest
from oracles import oracle

import weft

ANSWERED = """
cuda.is_available() cuda.device_count() cuda.is_initialized() cuda.manual_seed(3) cuda.manual_seed_all(3) cuda.seed()
cuda.empty_cache() cuda.memory_allocated() cuda.max_memory_allocated() cuda.memory_reserved() cuda.max_memory_reserved()
cuda.memory_stats() cuda.get_arch_list() cuda.get_gencode_flags() cuda.get_rng_state_all() cuda.set_rng_state_all([])
cuda.is_bf16_supported() cuda.is_tf32_supported() cuda.default_generators cuda.has_magma cuda.device(-1).__enter__()
accelerator.is_available() accelerator.device_count() accelerator.current_accelerator() mps.is_available()
mps.device_count() mps.manual_seed(1) xpu.is_available() xpu.device_count() xpu.empty_cache() mtia.is_available()
backends.cudnn.is_available() backends.cudnn.version() backends.cudnn.enabled backends.cudnn.benchmark
backends.cudnn.deterministic backends.cudnn.allow_tf32 backends.mps.is_available() backends.mps.is_built()
backends.cuda.is_built() backends.cuda.matmul.allow_tf32 backends.cuda.flash_sdp_enabled()
backends.opt_einsum.is_available() backends.mha.get_fastpath_enabled() compiler.is_compiling() compiler.is_exporting()
version.cuda version.hip version.debug is_vulkan_available() pi e inf newaxis get_float32_matmul_precision()
are_deterministic_algorithms_enabled() get_default_device().type
""".split()


@pytest.mark.parametrize("text", ANSWERED)
def test_answers_are_pytorchs_without_a_device(text):
    expected = eval(text, vars(oracle("torch")).copy())
    names = {text.partition(".")[0].partition("(")[0]: getattr(weft, text.partition(".")[0].partition("(")[0])}
    found = eval(text, names)
    assert found == expected
    assert type(found) is type(expected)


REFUSED = """
cuda.current_device() cuda.get_device_name() cuda.get_device_capability(0) cuda.get_device_properties(0)
cuda.synchronize() cuda.current_stream() cuda.init() cuda.mem_get_info() cuda.Stream() cuda.Event() cuda.CUDAGraph()
cuda.device(0).__enter__() cuda.set_device(0) cuda.get_rng_state() xpu.current_device() mps.synchronize()
accelerator.synchronize() accelerator.current_device_index() ones(2).cuda() ones(2).to('cuda') ones(2,device='cuda:1')
ones(2).to(device('mps')) ones(1).xpu() Generator('cuda') cuda.nvtx.range_push('a')
""".split()


@pytest.mark.parametrize("text", REFUSED)
def test_what_needs_a_device_refuses(text):
    """A RuntimeError and an AssertionError, since PyTorch raises the one or the other by how it was built."""
    names = {name: getattr(weft, name) for name in "cuda xpu mps accelerator ones device Generator".split()}
    with pytest.raises(RuntimeError, match=r"there is none|has no device") as caught:
        eval(text, names)
    assert isinstance(caught.value, AssertionError)
    with pytest.raises((RuntimeError, AssertionError, AttributeError)):
        eval(text, vars(oracle("torch")).copy())


def test_what_refuses_the_seed_of_a_word():
    with pytest.raises(ValueError, match="word"):
        weft.cuda.manual_seed("word")


def test_types_of_cuda_tensors_have_no_instances():
    assert not isinstance(weft.ones(2), weft.cuda.FloatTensor)
    with pytest.raises(TypeError, match=r"cuda\.FloatTensor not available"):
        weft.cuda.FloatTensor(2)
    with pytest.raises(RuntimeError, match="a CUDA device is needed"), weft.cuda.stream("one"):
        pass
    with weft.cuda.stream(None), weft.cuda.device_of(weft.ones(2)):
        pass


def test_switches_are_kept():
    cudnn = importlib.import_module("weft.backends.cudnn")
    assert cudnn is weft.backends.cudnn
    with cudnn.flags(enabled=True, benchmark=True):
        assert cudnn.benchmark
        assert cudnn.enabled
        assert not cudnn.deterministic
    assert not cudnn.benchmark
    with pytest.raises(TypeError, match="nonsense"), cudnn.flags(nonsense=True):
        pass
    weft.backends.cuda.matmul.allow_tf32 = True
    assert weft.get_float32_matmul_precision() == "high"
    weft.backends.cuda.matmul.allow_tf32 = False
    assert weft.get_float32_matmul_precision() == "highest"
    weft.backends.cuda.enable_flash_sdp(False)
    assert not weft.backends.cuda.flash_sdp_enabled()
    assert weft.backends.cuda.math_sdp_enabled()
    weft.backends.cuda.enable_flash_sdp(True)
    with pytest.raises(AttributeError):
        weft.backends.cuda.matmul.nonsense = 3


def test_the_processors_vectors_are_told():
    told = weft.backends.cpu.get_cpu_capability()
    assert {"AVX512": 512, "AVX2": 256, "DEFAULT": 128}[told] == weft.Target.create("cpu").vector_bits


HUBCONF = """
from beside import offset
dependencies = ["numpy"]

def shifted(a, b=1):
    "a and what is beside"
    return a + b + offset

def _hidden():
    pass

number = 3
"""


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    (tmp_path / "beside.py").write_text("offset = 10\n")
    return tmp_path


def test_hub_loads_from_a_folder(repository):
    assert weft.hub.load(str(repository), "shifted", 5, b=2, source="local") == 17
    assert weft.hub.list(repository) == ["shifted"]
    assert weft.hub.help(repository, "shifted") == "a and what is beside"


@pytest.mark.parametrize(
    ("entry", "source", "kind", "message"),
    [
        ("number", "local", RuntimeError, "Cannot find callable number in hubconf"),
        (3, "local", ValueError, "name of an entry point"),
        ("shifted", "elsewhere", ValueError, "Unknown source"),
        ("shifted", "github", NotImplementedError, "reaches no network"),
    ],
)
def test_hub_refuses(repository, entry, source, kind, message):
    with pytest.raises(kind, match=message):
        weft.hub.load(repository, entry, source=source)


def test_hub_tells_what_is_missing(repository, tmp_path):
    (repository / "hubconf.py").write_text("dependencies = ['nonsense_of_no_one']\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: nonsense_of_no_one"):
        weft.hub.list(repository)
    with pytest.raises(FileNotFoundError, match=r"hubconf\.py"):
        weft.hub.load(tmp_path / "nowhere", "f", source="local")
    with pytest.raises(NotImplementedError, match="reaches no network"):
        weft.hub.help("owner/name", "f")


def test_hub_takes_weights_that_are_there(tmp_path):
    before = weft.hub.get_dir()
    try:
        weft.hub.set_dir(tmp_path)
        assert weft.hub.get_dir() == str(tmp_path)
        with pytest.raises(NotImplementedError, match=r"put the file at .*net\.pth"):
            weft.hub.load_state_dict_from_url("https://models.example/net.pth")
        (tmp_path / "checkpoints").mkdir()
        weft.save({"weight": weft.arange(3)}, tmp_path / "checkpoints" / "net.pth")
        found = weft.hub.load_state_dict_from_url("https://models.example/net.pth")
        assert found["weight"].tolist() == [0, 1, 2]
    finally:
        weft.hub.set_dir(before)
    with pytest.raises(NotImplementedError, match="cannot be downloaded"):
        weft.hub.download_url_to_file("https://models.example/net.pth", "net.pth")


def test_constants():
    assert np.isnan(weft.nan)
    assert weft.ones(2)[weft.newaxis].shape == (1, 2)
    assert issubclass(weft.OutOfMemoryError, RuntimeError)
    assert issubclass(weft.AcceleratorError, RuntimeError)

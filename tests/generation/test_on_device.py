"""Decoders on a GPU without one: a driver of Python checks every call, and kernels run as their loops do in the
interpreter. Scores are those of the CPU, token by token, and of PyTorch in float64 for the whole sequence."""

import gc
from collections import Counter

import numpy as np
import pytest
from runtime.interpreted_cuda import interpreted
from runtime.test_cuda_executor import fake_driver

import weft
from weft.base.errors import InvalidValue, NoDevice, OutOfMemory, Unsupported
from weft.generation import Generator, decoders
from weft.generation.decoders import Turns
from weft.runtime.cuda.stream import Stream

torch = pytest.importorskip("torch")
from generation.test_generator import gpt2, llama, wanted_scores  # noqa: E402

VOCABULARY = 7
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12}


@pytest.fixture
def gpu(monkeypatch, request):
    monkeypatch.setitem(decoders.TURNS, "cuda", Turns(3, 1))
    with fake_driver(**getattr(request, "param", {})) as fake, interpreted(fake):
        yield fake
        gc.collect()


class Idle(dict):
    """Kernels that do nothing."""

    def __missing__(self, name):
        return lambda fake, launched: None


@pytest.fixture
def idle(monkeypatch, request):
    """A GPU of which only calls count."""
    monkeypatch.setitem(decoders.TURNS, "cuda", Turns(3, 1))
    with fake_driver(**getattr(request, "param", {})) as fake:
        fake.kernels = Idle()
        yield fake
        gc.collect()


def tiny_gpt2(**settings):
    return gpt2(**{"vocab_size": VOCABULARY, "n_positions": 24, "n_embd": 8, "n_layer": 1, "n_head": 2, **settings})


def tiny_llama(**settings):
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 24}
    return llama(**{**sizes, **heads, **settings})


def tokens_of(count):
    return np.random.default_rng(2).integers(0, VOCABULARY, count).tolist()


def on_gpu(model, weights="fp32", **options):
    return Generator(model, weights, target="cuda -arch=sm_90a", **options)


def stepped(generator, tokens, first):
    """Scores after the first tokens, and after each that follows."""
    found = [generator.feed(tokens[:first]).copy()]
    return np.stack([*found, *(generator.feed([token]).copy() for token in tokens[first:])])


def test_a_token(gpu):
    model = tiny_gpt2(n_embd=4, n_head=1)
    found = on_gpu(model).feed([3])
    np.testing.assert_allclose(found, wanted_scores(model, [3])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_prompt_and_a_token(gpu):
    model, tokens = tiny_gpt2(), tokens_of(4)
    found = stepped(on_gpu(model), tokens, 3)
    np.testing.assert_allclose(found, wanted_scores(model, tokens)[2:], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, stepped(Generator(model), tokens, 3), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "first", "count"),
    [
        (lambda: tiny_gpt2(n_layer=2, n_embd=6), 1, 3),
        (lambda: tiny_gpt2(n_head=1, n_embd=4), 15, 18),  # over several blocks of the cache
        (lambda: tiny_llama(num_hidden_layers=2, hidden_size=4, head_dim=2), 5, 7),  # the last turn is not full
        (lambda: tiny_llama(head_dim=4, tie_word_embeddings=True, num_key_value_heads=None), 1, 3),
        (lambda: tiny_llama(attention_bias=True, mlp_bias=True, head_norms=True, rope_scaling=YARN), 2, 4),
        (lambda: tiny_llama(attention_bias=True, output_bias=False, hidden_act="gelu_pytorch_tanh"), 2, 3),
    ],
)
def test_scores_of_steps_are_those_of_the_whole(gpu, make, first, count):
    model, tokens = make(), tokens_of(count)
    generator, beside = on_gpu(model), Generator(model)
    found = stepped(generator, tokens, first)
    np.testing.assert_allclose(found, wanted_scores(model, tokens)[first - 1 :], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, stepped(beside, tokens, first), rtol=1e-4, atol=1e-5)
    here, there = beside._decoder._caches[0], generator._decoder._caches[0]
    whole, rest = divmod(count, 16)
    for name, axis in (("keys", 3), ("values", 2)):  # the cache has what the CPU's has
        pair = [np.moveaxis(array, axis + 1, 1) for array in (getattr(there, name).numpy(), getattr(here, name))]
        for a, b in ((0, whole), (whole, whole + 1)):
            end = 16 if a == 0 and whole else rest
            np.testing.assert_allclose(pair[0][a:b, :end], pair[1][a:b, :end], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "off"), [("fp16", 4e-3), ("bf16", 4e-2)])
@pytest.mark.parametrize("make", [tiny_gpt2, tiny_llama])
def test_weights_and_caches_of_16_bits(gpu, make, weights, off):
    model, tokens = make(), tokens_of(4)
    generator = on_gpu(model, weights)
    found = stepped(generator, tokens, 3)
    wanted = wanted_scores(model, tokens)[2:]
    assert 0 < np.abs(found - wanted).max() <= off * np.abs(wanted).max()
    assert generator._decoder._caches[0].keys.dtype.itemsize == 2
    assert generator.weight_bytes * 2 <= Generator(model).weight_bytes


@pytest.mark.slow
def test_tokens_are_those_of_the_cpu(gpu):
    model, prompt = tiny_llama(hidden_size=4, head_dim=2), [3]
    generator = on_gpu(model, "tf32")
    found = generator.generate(prompt, 4)
    assert found == Generator(model).generate(prompt, 4)
    generator.generate(prompt, 1)
    assert generator.generate([found[0]], 2, keep=True) == found[1:3]


def test_a_token_is_one_graph_and_one_copy_each_way(idle):
    generator = on_gpu(tiny_gpt2(n_embd=4, n_head=1))
    generator.feed([1])
    before = Counter(idle.calls)
    generator.feed([2])
    found = Counter(idle.calls) - before
    asked = {name: count for name, count in found.items() if not name.startswith(("cuCtx", "cuEvent"))}
    copies = {"cuMemcpyHtoDAsync_v2": 1, "cuMemcpyDtoHAsync_v2": 1}
    assert asked == {**copies, "cuGraphLaunch": 1, "cuStreamSynchronize": 1}


def test_programs_share_weights_on_the_device(idle):
    generator = on_gpu(tiny_gpt2(n_layer=2))
    one, many = (step._run._loaded for step in generator._decoder._steps.values())
    assert one.places == many.places
    assert len(set(one.places)) > 20
    kept = sum(constant.nbytes for constant in generator._decoder.constants)
    own = [what for address, what in idle.memory.items() if address <= min(one.places) < address + len(what[0])]
    assert len(own) == 1
    assert kept <= len(own[0][0]) <= kept + 256 * len(one.places)
    del generator, one, many, own
    gc.collect()
    again = on_gpu(tiny_gpt2(n_layer=2))  # nothing of it is there any more
    assert again.length == 0


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [{"devices": 2}], indirect=True)
def test_other_streams_and_another_device(gpu):
    """Where a generator was made its memory is; whoever uses it may work elsewhere."""
    model = tiny_gpt2(n_embd=4, n_head=1)
    with weft.cuda.device(1):
        generator = on_gpu(model)
        stream = Stream(1)
    assert str(generator._decoder._caches[0].keys.device) == "cuda(1)"
    scores = [generator.feed([3]).copy()]
    with stream:
        scores.append(generator.feed([1]).copy())
    scores.append(generator.feed([4]).copy())
    np.testing.assert_allclose(scores, wanted_scores(model, [3, 1, 4]), rtol=1e-4, atol=1e-5)


# Errors


def test_a_window_is_the_longest_context(idle):
    """Caches of GPUs are no rings: every token that there is may be seen."""
    model = tiny_llama(sliding_window=5)
    assert on_gpu(model).context == 5
    with pytest.raises(InvalidValue, match="from 1 to 5: its sliding_window"):
        on_gpu(model, context=6)


def test_a_context_ends(idle):
    generator = on_gpu(tiny_gpt2(n_embd=4, n_head=1), context=3)
    with pytest.raises(InvalidValue, match="room for 3"):
        generator.feed([1] * 4)
    generator.feed([1, 2, 3])
    with pytest.raises(InvalidValue, match="1 tokens after 3"):
        generator.feed([1])
    generator.reset()
    assert generator.feed([1]).shape == (VOCABULARY,)


@pytest.mark.parametrize("idle", [{"memory": 600 << 10}], indirect=True)
def test_a_cache_that_the_device_cannot_hold(idle):
    model = tiny_gpt2(n_positions=8192)  # of 8192 * 16 numbers; the table of positions fits
    with pytest.raises(OutOfMemory, match=r"a cache of 8192 tokens is 512\.0 kB(.|\n)*context="):
        on_gpu(model, context=8192)
    gc.collect()


@pytest.mark.parametrize("idle", [{"memory": 1 << 12}], indirect=True)
def test_weights_that_the_device_cannot_hold(idle):
    with pytest.raises(OutOfMemory, match=r"a decoder's weights(.|\n)*cuda:0(.|\n)*fp16"):
        on_gpu(tiny_gpt2(n_layer=2))
    gc.collect()


@pytest.mark.parametrize(
    ("weights", "target", "kind", "told"),
    [
        ("int4", "cuda", InvalidValue, "on cuda they are fp32, tf32, fp16, bf16"),
        ("fp16", "cpu", InvalidValue, "on cpu they are"),
        ("fp32", "cuda:1", InvalidValue, r"with weft\.cuda\.device\(1\)"),
        ("fp32", "llvm -mtriple=aarch64-linux", Unsupported, "aarch64"),
    ],
)
def test_weights_and_targets_that_are_not_there(idle, weights, target, kind, told):
    with pytest.raises(kind, match=told):
        Generator(tiny_gpt2(), weights, target=target).feed([1])


def test_model_files_stay_on_the_cpu(idle):
    with pytest.raises(Unsupported, match=r"decoder\.onnx"):
        Generator("decoder.onnx", target="cuda")


@pytest.mark.skipif(weft.cuda.is_available(), reason="there is one")
def test_without_a_device():
    with pytest.raises(NoDevice, match="CUDA device is needed"):
        on_gpu(tiny_gpt2())

"""Decoders token by token: scores of every step are those of the whole sequence, which PyTorch computes in float64."""

import gc
import json
import weakref
from functools import partial

import numpy as np
import pytest

import weft
from weft.generation import GPT2, Generator, GPT2Settings, Llama, LlamaSettings, Sampler, load

torch = pytest.importorskip("torch")
from generation.torch_decoders import gpt2_scores, llama_scores  # noqa: E402

VOCABULARY = 67


def gpt2(**settings):
    sizes = {"vocab_size": VOCABULARY, "n_positions": 70, "n_embd": 36, "n_layer": 2, "n_head": 3, **settings}
    return with_random_parameters(GPT2(GPT2Settings(**sizes)))


def llama(**settings):
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 40,
        "intermediate_size": 51,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 70,
        **settings,
    }
    return with_random_parameters(Llama(LlamaSettings(**sizes)))


def with_random_parameters(model):
    weft.manual_seed(5)
    for name, parameter in model.named_parameters():
        noise = weft.randn(parameter.shape)
        is_norm = parameter.ndim == 1 and name.endswith("weight")
        parameter.data.copy_(1 + 0.3 * noise if is_norm else 0.25 * noise)
    return model


def parameters(model):
    return {name: torch.from_numpy(value.numpy().astype("d")) for name, value in model.state_dict().items()}


def wanted_scores(model, tokens, params=None):
    scores = gpt2_scores if isinstance(model, GPT2) else llama_scores
    return scores(params or parameters(model), model.settings, torch.tensor(tokens)).numpy()


def tokens_of(count, seed=1):
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).tolist()


def stepped_scores(generator, tokens, first):
    """Scores after token number `first` - 1, and after each one that follows."""
    found = [generator.feed(tokens[:first]).copy()]
    return np.stack([*found, *(generator.feed([token]).copy() for token in tokens[first:])])


@pytest.mark.parametrize("make", [gpt2, llama, lambda: llama(tie_word_embeddings=True, num_key_value_heads=None)])
@pytest.mark.parametrize("first", [1, 39])
def test_scores_of_steps_are_those_of_the_whole(make, first):
    """Over several blocks of the cache; prompts of one token, and of more than are read at once."""
    model, tokens = make(), tokens_of(60)
    found = stepped_scores(Generator(model), tokens, first)
    np.testing.assert_allclose(found, wanted_scores(model, tokens)[first - 1 :], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_modules_compute_the_same(make):
    model, tokens = make(), tokens_of(20)
    with weft.no_grad():
        found = model(weft.tensor(tokens)).numpy()
    np.testing.assert_allclose(found, wanted_scores(model, tokens), rtol=1e-4, atol=1e-4)


def dequantised(matrix, bits, group):
    """What levels stand for, by numpy: rounded to the nearest of them."""
    exact = np.empty(matrix.shape)
    for n in range(len(matrix)):
        for k in range(0, matrix.shape[1], group):
            part = matrix[n, k : k + group].astype(np.float32)
            scale = np.float32(np.float16(np.abs(part).max() / np.float32((127, 7)[bits == 4])))
            exact[n, k : k + group] = np.rint(part * (np.float32(1) / scale)).astype("d") * scale
    return exact


def scores_of_levels(model, tokens, bits):
    """Scores after each token, with the weights of products as their levels say."""
    params = {}
    for name, value in parameters(model).items():
        array, is_turned = value.numpy(), ".c_" in name
        if array.ndim == 2 and ("proj" in name or is_turned):
            array = dequantised(array.T, bits, 16).T if is_turned else dequantised(array, bits, 16)
        params[name] = torch.from_numpy(np.ascontiguousarray(array))
    head = "wte.weight" if "wte.weight" in params else "lm_head.weight"
    scored = torch.from_numpy(dequantised(params[head].numpy(), bits, 16))
    return wanted_scores(model, tokens, {**params, "head" if head == "wte.weight" else head: scored})


@pytest.mark.parametrize(("weights", "bits"), [("int8", 8), ("int4", 4)])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_levels_compute_what_they_stand_for(make, weights, bits):
    model, tokens = make(), tokens_of(45)
    wanted = scores_of_levels(model, tokens, bits)
    for first in (1, 40):
        found = stepped_scores(Generator(model, weights, group=16), tokens, first)
        largest = np.abs(wanted).max()
        np.testing.assert_allclose(found / largest, wanted[first - 1 :] / largest, rtol=0, atol=5e-4)


@pytest.mark.parametrize("make", [gpt2, partial(llama, hidden_size=80, intermediate_size=102)])
def test_weights_of_bfloat16(make):
    """Products with rounded weights, and rows that are rounded too where the CPU multiplies pairs."""
    model, tokens = make(), tokens_of(45)
    plain = wanted_scores(model, tokens)
    largest = np.abs(plain).max()
    for first in (1, 40):
        found = stepped_scores(Generator(model, "bf16"), tokens, first)
        off = np.abs(found - plain[first - 1 :]).max() / largest
        assert 1e-5 < off < 0.03


def test_weights_are_kept_once():
    """Packed; the parameters as they were given go with the model."""
    model = gpt2(n_embd=192, n_head=4)
    generator = Generator(model)
    watched = [weakref.ref(parameter) for parameter in model.parameters()]
    del model
    gc.collect()
    assert not any(reference() is not None for reference in watched)
    kept = sum(constant.nbytes for constant in generator._decoder.constants)
    tables = (VOCABULARY + 70) * 192 * 4
    assert kept <= 1.1 * (generator.weight_bytes + tables)


@pytest.mark.parametrize("weights", ["fp32", "bf16", "int8", "int4"])
def test_any_number_of_threads_gives_the_same_bits(weights):
    model, tokens = gpt2(n_embd=192, n_head=4), tokens_of(41)
    one, two = (stepped_scores(Generator(model, weights, threads=n), tokens, 36) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_tokens_come_one_by_one():
    model, prompt = gpt2(), tokens_of(7)
    generator = Generator(model)
    found = generator.generate(prompt, 20)
    told = list(prompt)
    for token in found:  # the best after all before it
        assert token == wanted_scores(model, told)[-1].argmax()
        told.append(token)
    stream = generator.stream(prompt, 3)
    assert generator.length == 7
    assert next(stream) == found[0]
    assert list(stream) == found[1:3]
    assert generator.generate(prompt, 20, stop=[found[4]]) == found[: found.index(found[4]) + 1]
    generator.generate(prompt, 5)
    assert generator.length == 7 + 4
    kept = generator.generate([found[4]], 4, keep=True)
    assert kept == found[5:9]


def test_a_context_ends():
    generator = Generator(gpt2(), context=20)
    assert len(generator.generate(tokens_of(15))) == 6  # the last is not read
    with pytest.raises(weft.Error, match="room for 20"):
        generator.generate(tokens_of(21), 1)
    generator.generate(tokens_of(15))
    with pytest.raises(weft.Error, match="1 tokens after 20"):
        generator.feed([1])


def test_the_cache_stays_where_it_is():
    generator = Generator(gpt2())
    generator.feed(tokens_of(3))
    keys = generator._decoder._caches[0].keys
    before, address = keys.copy(), keys.ctypes.data
    generator.feed([5])
    assert generator._decoder._caches[0].keys is keys
    assert keys.ctypes.data == address
    changed = np.argwhere(keys != before)
    assert set(changed[:, 0]) == {0}
    assert set(changed[:, 4]) == {3}  # one token of one block


def test_draws_follow_probabilities():
    scores = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    count = 4000
    draws = lambda **options: np.bincount([sampler(scores) for sampler in [Sampler(**options)] * count], minlength=4)
    np.testing.assert_allclose(draws(temperature=1.0, seed=1) / count, [0.1, 0.4, 0.2, 0.3], atol=0.03)
    squares = np.array([0.01, 0.16, 0.04, 0.09])
    np.testing.assert_allclose(draws(temperature=0.5, seed=2) / count, squares / squares.sum(), atol=0.03)
    np.testing.assert_allclose(draws(temperature=1.0, top_k=2, seed=3) / count, [0, 4 / 7, 0, 3 / 7], atol=0.03)
    np.testing.assert_allclose(draws(temperature=1.0, top_p=0.75, seed=4) / count, [0, 4 / 9, 2 / 9, 3 / 9], atol=0.03)
    np.testing.assert_allclose(draws(temperature=1.0, top_p=0.3, seed=4) / count, [0, 1, 0, 0])
    assert (draws() == [0, count, 0, 0]).all()
    same = [[sampler(scores) for _ in range(50)] for sampler in (Sampler(1.0, seed=9), Sampler(1.0, seed=9))]
    assert same[0] == same[1]


def test_the_most_likely_of_many():
    """The set that numpy finds by sorting all, where few tokens make the share and where many do."""
    generator = np.random.default_rng(3)
    for width, share in ((0.01, 0.9), (3.0, 0.5), (3.0, 0.99), (1.0, 1.0)):
        scores = (width * generator.standard_normal(1000)).astype("float32")
        p = np.exp(scores.astype("d"))
        order = np.argsort(-p)
        likely = set(order[: int((np.cumsum((p / p.sum())[order]) < share).sum()) + 1].tolist())
        sampler = Sampler(1.0, top_p=share, seed=5)
        drawn = {sampler(scores) for _ in range(3000)}
        assert drawn <= likely
        assert len(drawn) >= min(len(likely) / 2, 100)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: Generator(gpt2(), "int3"), "int3"),
        (lambda: Generator(gpt2(), context=71), "from 1 to 70"),
        (lambda: Generator(weft.nn.Linear(3, 3)), "no decoder"),
        (lambda: Generator(gpt2()).feed([]), "one or more"),
        (lambda: Generator(gpt2()).feed([0.5]), "whole numbers"),
        (lambda: Generator(gpt2()).feed([VOCABULARY]), str(VOCABULARY)),
        (lambda: Generator(gpt2()).feed([-1]), "-1"),
        (lambda: Generator(gpt2()).generate([1], -1), "0 or more"),
        (lambda: Sampler(temperature=-1), "0 or more"),
        (lambda: Sampler(1.0, top_p=0), "above 0"),
        (lambda: Sampler(1.0, top_k=0), "one or more"),
        (lambda: Sampler()(np.array([1, np.nan], "float32")), "score is nan"),
        (lambda: Sampler(1.0)(np.array([1, np.nan], "float32")), "score is nan"),
        (lambda: Sampler(1.0)(np.full(3, -np.inf, "float32")), "score is -inf"),
        (lambda: GPT2Settings(n_embd=10, n_head=3), "heads"),
        (lambda: GPT2Settings(n_embd="10"), "n_embd is '10'"),
        (lambda: LlamaSettings(num_attention_heads=4, num_key_value_heads=3), "share"),
    ],
)
def test_errors_say_what_is_wrong(wrong, told):
    with pytest.raises(weft.Error, match=told):
        wrong()


def saved(model, folder, prefix, kind):
    from weft.eager.archive.safetensors import save_safetensors

    tensors = {prefix + name: value for name, value in model.state_dict().items()}
    config = {"model_type": kind, **{k: v for k, v in vars(model.settings).items() if v is not None}}
    (folder / "config.json").write_text(json.dumps(config))
    return tensors, save_safetensors


@pytest.mark.parametrize(("make", "kind"), [(gpt2, "gpt2"), (llama, "llama")])
def test_folders_as_they_are_published(make, kind, tmp_path):
    model, tokens = make(), tokens_of(6)
    tensors, save = saved(model, tmp_path, {"gpt2": "transformer.", "llama": "model."}[kind], kind)
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, some in parts.items():
        save({name: tensors[name] for name in some}, tmp_path / file)
    index = {"weight_map": {name: file for file, some in parts.items() for name in some}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = Generator(load(tmp_path)).feed(tokens)
    np.testing.assert_allclose(found, wanted_scores(model, tokens)[-1], rtol=1e-4, atol=1e-4)


def test_folders_that_lack_something(tmp_path):
    with pytest.raises(weft.Error, match=r"config\.json"):
        load(tmp_path)
    model = gpt2()
    tensors, save = saved(model, tmp_path, "", "gpt2")
    with pytest.raises(weft.Error, match=r"model\.safetensors"):
        load(tmp_path)
    save({name: value for name, value in tensors.items() if name != "ln_f.bias"}, tmp_path / "model.safetensors")
    with pytest.raises(weft.Error, match=r"ln_f\.bias"):
        load(tmp_path)
    save({**tensors, "other": tensors["ln_f.bias"]}, tmp_path / "model.safetensors")
    with pytest.raises(weft.Error, match="other"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "rope_scaling": {"factor": 8}}))
    with pytest.raises(weft.Error, match="rope_scaling"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "rwkv"}))
    with pytest.raises(weft.Error, match="rwkv"):
        load(tmp_path)

"""Layers of which tokens see the last ones alone: scores are those of PyTorch in float64 for the whole text, which is
several windows long, and memory is that of the window."""

import numpy as np
import pytest

import weft
from weft.generation import Generator

torch = pytest.importorskip("torch")
from generation.test_generator import llama, scores_of_levels, stepped_scores, tokens_of, wanted_scores  # noqa: E402

LENGTH = 150
FULL, NEAR = "full_attention", "sliding_attention"
KINDS = {
    "one token": {"sliding_window": 1},
    "two": {"sliding_window": 2},
    "a block": {"sliding_window": 16},
    "a block and one": {"sliding_window": 17},
    "more than a prompt's part": {"sliding_window": 41},
    "last layers": {"sliding_window": 20, "max_window_layers": 1},
    "some layers": {"sliding_window": 20, "num_hidden_layers": 3, "layer_types": (NEAR, FULL, NEAR)},
    "no layer": {"sliding_window": 20, "layer_types": (FULL, FULL)},
}


def made(**settings):
    return llama(max_position_embeddings=LENGTH, **settings)


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("first", [1, 107])
def test_scores_of_steps_are_those_of_the_whole(settings, first):
    model, tokens = made(**settings), tokens_of(LENGTH)
    found = stepped_scores(Generator(model), tokens, first)
    np.testing.assert_allclose(found, wanted_scores(model, tokens)[first - 1 :], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_modules_compute_the_same(settings):
    model, tokens = made(**settings), tokens_of(60)
    with weft.no_grad():
        found = model(weft.tensor(tokens)).numpy()
    np.testing.assert_allclose(found, wanted_scores(model, tokens), rtol=1e-4, atol=1e-4)


def test_windows_count():
    """What is compared above is far from the scores of all tokens, and of a window of one more."""
    tokens = tokens_of(60)
    scores = [wanted_scores(made(sliding_window=window), tokens)[-1] for window in (None, 20, 21)]
    assert np.abs(scores[1] - scores[0]).max() > 0.1
    assert np.abs(scores[1] - scores[2]).max() > 0.01


@pytest.mark.parametrize(("weights", "bits"), [("int8", 8), ("int4", 4)])
def test_levels(weights, bits):
    model, tokens = made(sliding_window=20, max_window_layers=1), tokens_of(100)
    wanted = scores_of_levels(model, tokens, bits)[79:]
    found = stepped_scores(Generator(model, weights, group=16), tokens, 80)
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(found / largest, wanted / largest, rtol=0, atol=5e-4)


def test_weights_of_bfloat16():
    """On average, rounded weights move scores as far as they do without a window; the farthest one tells little."""
    model, tokens = made(sliding_window=20, hidden_size=80, intermediate_size=102), tokens_of(100)
    wanted = wanted_scores(model, tokens)[79:]
    found = stepped_scores(Generator(model, "bf16"), tokens, 80)
    assert 1e-5 < np.sqrt(np.square(found - wanted).mean() / np.square(wanted).mean()) < 0.03


def test_any_number_of_threads_gives_the_same_bits():
    model, tokens = made(sliding_window=20, max_window_layers=1), tokens_of(100)
    one, two = (stepped_scores(Generator(model, threads=threads), tokens, 71) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_texts_begin_anew():
    """What the ring has of another text is not seen."""
    model, tokens = made(sliding_window=20), tokens_of(90)
    generator = Generator(model)
    generator.feed(tokens_of(LENGTH, seed=7))
    generator.reset()
    np.testing.assert_allclose(
        stepped_scores(generator, tokens, 3), wanted_scores(model, tokens)[2:], rtol=1e-4, atol=1e-4
    )
    with pytest.raises(weft.Error, match=f"room for {LENGTH}"):
        generator.feed(tokens)


@pytest.mark.parametrize(("window", "blocks"), [(1, 1), (2, 1), (17, 1), (18, 2), (100, 7)])
def test_memory_is_that_of_the_window(window, blocks):
    """Of layers that see all tokens, it is that of the context."""
    model = llama(max_position_embeddings=3000, sliding_window=window, max_window_layers=1)
    for context in (200, 3000):
        caches = Generator(model, context=context)._decoder._caches
        assert [len(cache.keys) for cache in caches] == [-(-context // 16), blocks]
        assert [cache.keys.shape[1] for cache in caches] == [1, 1]
    (cache,) = Generator(made(sliding_window=window), context=window)._decoder._caches
    assert len(cache.keys) == -(-window // 16)  # a window that is no shorter than the context is none

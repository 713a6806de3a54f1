"""Decoders that write a text token by token, with lengths that are open in the file: each step gives what PyTorch, or
ONNX Runtime, gives."""

import decoders
import numpy as np
import pytest
from onnx_runs import onnxruntime_run

import weft

pytestmark = pytest.mark.filterwarnings("ignore")  # of the exporter, about traces
STEPS = [3, pytest.param(10, marks=pytest.mark.slow)]
PROMPT = np.array([[3, 1, 4, 1, 5]])


def check(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", ["gpt2", "llama"])
@pytest.mark.parametrize("steps", STEPS)
def test_decoder_of_pytorch(make, steps):
    decoder = getattr(decoders, make)()
    tokens, cache = PROMPT, decoders.empty_cache(decoder)
    with weft.compile(decoders.exported(decoder)) as compiled:
        for _ in range(steps):
            expected = decoders.torch_step(decoder, tokens, cache)
            check(compiled.run(dict(zip(["tokens", *decoders.names("past")], [tokens, *cache]))), expected)
            tokens, cache = expected[0][:, -1:].argmax(-1), expected[1:]
        assert compiled.compilations <= 2  # of a cache that is empty, and of any other


@pytest.mark.parametrize("steps", STEPS)
def test_decoder_of_the_model_builder(steps):
    """Operators of com.microsoft, with weights of four bits."""
    builder = decoders.Generative()
    model, tokens, cache = builder.model(), PROMPT, builder.empty_cache()
    with weft.compile(model) as compiled:
        for _ in range(steps):
            mask = np.ones((1, tokens.shape[1] + cache[0].shape[2]), np.int64)
            inputs = {"tokens": tokens, "attention_mask": mask, **dict(zip(decoders.names("past"), cache))}
            expected = onnxruntime_run(model, inputs)
            check(compiled.run(inputs), expected)
            tokens, cache = expected[0][:, -1:].argmax(-1), expected[1:]

"""Decoders that write a text token by token: each step gives what PyTorch, or ONNX Runtime, gives."""

import decoders
import numpy as np
import pytest
from onnx_runs import onnxruntime_run

import weft

pytestmark = pytest.mark.filterwarnings("ignore")  # of the exporter, about traces


def check_step(model, inputs, expected):
    with weft.compile(model, shape={name: x.shape for name, x in inputs.items()}) as compiled:
        for ours, theirs in zip(compiled.run(inputs), expected, strict=True):
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", ["gpt2", "llama"])
def test_prompt_and_token(make):
    decoder = getattr(decoders, make)()
    model = decoders.exported(decoder)
    tokens, cache = np.array([[3, 1, 4, 1, 5]]), decoders.empty_cache(decoder)
    for _ in range(2):
        logits, *grown = decoders.torch_step(decoder, tokens, cache)
        inputs = dict(zip(["tokens", *decoders.names("past")], [tokens, *cache]))
        check_step(model, inputs, [logits, *grown])
        tokens, cache = logits[:, -1:].argmax(-1), grown


def test_prompt_and_token_of_the_model_builder():
    """Operators of com.microsoft, with weights of four bits."""
    builder = decoders.Generative()
    model, tokens, cache = builder.model(), np.array([[3, 1, 4, 1, 5]]), builder.empty_cache()
    for _ in range(2):
        mask = np.ones((1, tokens.shape[1] + cache[0].shape[2]), np.int64)
        inputs = {"tokens": tokens, "attention_mask": mask, **dict(zip(decoders.names("past"), cache))}
        logits, *grown = onnxruntime_run(model, inputs)
        check_step(model, inputs, [logits, *grown])
        tokens, cache = logits[:, -1:].argmax(-1), grown

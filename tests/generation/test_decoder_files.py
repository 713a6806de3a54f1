"""Decoders from ONNX files with caches among inputs and outputs: scores of every step are those of PyTorch."""

import numpy as np
import pytest

import weft
from weft.generation import Generator

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
from compiler.test_open_decoders import PAST, SIZE, WORDS, Gpt, Llama, exported  # noqa: E402


class WithMask(torch.nn.Module):
    """The same with a mask and positions, as files of transformers have them."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.kept = inner, inner.kept

    def forward(self, input_ids, attention_mask, position_ids, *past):
        scores, *kept = self.inner(input_ids, *past)
        seen = attention_mask.sum() + position_ids[0, -1]
        return scores * (seen / (2 * attention_mask.shape[1] - 1)), *kept  # 1, if both are what they should be


def written(network, path):
    exported(network, path)
    return path


def with_mask(path):
    network = WithMask(Gpt().eval())
    example = [torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 8, dtype=torch.long)]
    example += [torch.arange(5, 8)[None], *(torch.randn(1, network.kept, 5, SIZE) for _ in PAST)]
    names = ["input_ids", "attention_mask", "position_ids", *PAST]
    axes = {"input_ids": {1: "length"}, "attention_mask": {1: "total"}, "position_ids": {1: "length"}}
    axes |= {name: {2: "past"} for name in PAST}
    torch.onnx.export(network, tuple(example), str(path), input_names=names, dynamic_axes=axes, dynamo=False)
    return network.inner


@pytest.mark.parametrize("kind", ["gpt", "llama", "mask"])
def test_scores_are_those_of_the_whole(kind, tmp_path):
    torch.manual_seed(8)
    path = tmp_path / "decoder.onnx"
    network = with_mask(path) if kind == "mask" else {"gpt": Gpt, "llama": Llama}[kind]().eval()
    generator = Generator(path if kind == "mask" else written(network, path))
    prompt = [3, 1, 4, 1, 5]
    tokens = generator.generate(prompt, 6)
    assert len(tokens) == 6
    assert (generator.vocabulary, generator.length) == (WORDS, len(prompt) + 5)
    told = list(prompt)
    for token in tokens:
        with torch.no_grad():
            scores = network(torch.tensor([told]), *(torch.zeros(1, network.kept, 0, SIZE) for _ in PAST))[0]
        assert token == int(scores[0, -1].argmax())
        told.append(token)
    generator.reset()
    np.testing.assert_allclose(generator.feed(told[:-1]), scores[0, -1].numpy(), rtol=1e-3, atol=1e-3)


def test_what_is_no_decoder(tmp_path):
    x = weft.symbol.Variable("x", shape=(2, 3))
    weft.frontend.to_onnx(weft.symbol.relu(x), {}, tmp_path / "relu.onnx")
    with pytest.raises(weft.Error, match="no decoder with caches"):
        Generator(tmp_path / "relu.onnx")

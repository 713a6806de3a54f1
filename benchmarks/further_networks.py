#!/usr/bin/env python3
"""Exports further networks to a folder of ONNX files, each of the size people use it in, for benchmarks/folder.py.

    python benchmarks/further_networks.py /tmp/further                  # all
    python benchmarks/further_networks.py /tmp/further swin_t vocoder

Needs what benchmarks/export_networks.py needs. Weights are random.
"""

from __future__ import annotations

import argparse
import pathlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from architectures import FirstMap, Named, WithCache, torchvision_operators
from export_networks import SEED, calibrate, disturb
from torch import Tensor, nn
from torch.nn import functional


class Network(NamedTuple):
    """A module and what it is given."""

    build: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, Tensor]]


FURTHER: dict[str, Network] = {}


def image(side: int) -> Callable[[], dict[str, Tensor]]:
    return lambda: {"image": torch.randn(1, 3, side, side)}


def _torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from torchvision import models  # after its operators are there

        network: nn.Module = models.get_model(name, weights=None, **options)
        return FirstMap(network) if "weights_backbone" in options else network

    return build


for _name in """alexnet convnext_tiny efficientnet_v2_s mnasnet1_0 mobilenet_v3_large regnet_y_400mf resnet18
    resnext50_32x4d shufflenet_v2_x1_0 swin_t""".split():
    FURTHER[_name] = Network(_torchvision(_name), image(224))
FURTHER["googlenet"] = Network(_torchvision("googlenet", aux_logits=False, init_weights=False), image(224))
for _name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
    FURTHER[_name] = Network(_torchvision(_name, weights_backbone=None), image(224))


# transformers


def _transformers(
    family: str, task: str, inputs: Mapping[str, Callable[[], Tensor]], output: str, settings: Mapping[str, Any]
) -> Network:
    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{family}Config")(**settings)
        return Named(getattr(transformers, f"{family}{task}")(config), list(inputs), [output])

    return Network(build, lambda: {name: make() for name, make in inputs.items()})


FURTHER["segformer"] = _transformers(
    "Segformer", "ForSemanticSegmentation", {"pixel_values": lambda: torch.randn(1, 3, 224, 224)}, "logits", {}
)
FURTHER["wav2vec2"] = _transformers(
    "Wav2Vec2", "Model", {"input_values": lambda: torch.randn(1, 16000)}, "last_hidden_state", {"num_hidden_layers": 2}
)
FURTHER["distilbert"] = _transformers(
    "DistilBert", "Model", {"input_ids": lambda: torch.randint(0, 1000, (1, 64))}, "last_hidden_state", {"n_layers": 3}
)


def _past() -> dict[str, Tensor]:
    names = [f"past_{kind}{layer}" for layer in range(4) for kind in ("key", "value")]
    return {"ids": torch.randint(0, 1000, (1, 1)), **{name: torch.randn(1, 12, 128, 64) for name in names}}


def _gpt2() -> nn.Module:
    import transformers

    return WithCache(transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4, vocab_size=1000)))


def _llama() -> nn.Module:
    import transformers

    settings = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 12}
    return WithCache(transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=1000, **settings)))


FURTHER["gpt2_with_cache"] = Network(_gpt2, _past)
FURTHER["llama_with_cache"] = Network(_llama, _past)


# Sound


class Residual(nn.Module):
    """Dilated convolutions around which the signal goes as well."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, dilation=d, padding=d * (kernel - 1) // 2) for d in (1, 3, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = x + convolution(functional.leaky_relu(x, 0.1))
        return x


class Vocoder(nn.Module):
    """From frames of a spectrum to samples, as HiFi-GAN and the decoder of VITS do it."""

    def __init__(self, channels: int = 256) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, channels, 7, padding=3)
        stages = []
        for rate in (8, 8, 2, 2):
            half = channels // 2
            up = nn.ConvTranspose1d(channels, half, 2 * rate, rate, padding=rate // 2)
            stages.append(nn.ModuleList([up, *(Residual(half, kernel) for kernel in (3, 7, 11))]))
            channels = half
        self.stages = nn.ModuleList(stages)
        self.last = nn.Conv1d(channels, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for stage in self.stages:
            up, *blocks = list(stage)  # type: ignore[arg-type]
            x = up(functional.leaky_relu(x, 0.1))
            x = torch.stack([block(x) for block in blocks]).mean(0)
        return torch.tanh(self.last(functional.leaky_relu(x)))


class Separator(nn.Module):
    """From a mixture to two voices, as Conv-TasNet does it: masks in a learned basis."""

    def __init__(self, basis: int = 512, width: int = 128, layers: int = 8) -> None:
        super().__init__()
        self.encode = nn.Conv1d(1, basis, 16, stride=8, bias=False)
        self.narrow = nn.Sequential(nn.GroupNorm(1, basis), nn.Conv1d(basis, width, 1))
        self.blocks = nn.ModuleList(self._block(width, basis, 2**k) for k in range(layers))
        self.mask = nn.Sequential(nn.PReLU(), nn.Conv1d(width, 2 * basis, 1), nn.Sigmoid())
        self.decode = nn.ConvTranspose1d(basis, 1, 16, stride=8, bias=False)
        self.basis = basis

    @staticmethod
    def _block(width: int, inner: int, dilation: int) -> nn.Module:
        depthwise = nn.Conv1d(inner, inner, 3, dilation=dilation, padding=dilation, groups=inner)
        ends = nn.Conv1d(width, inner, 1), nn.Conv1d(inner, width, 1)
        return nn.Sequential(
            ends[0], nn.PReLU(), nn.GroupNorm(1, inner), depthwise, nn.PReLU(), nn.GroupNorm(1, inner), ends[1]
        )

    def forward(self, x: Tensor) -> Tensor:
        found = self.encode(x)
        inner = self.narrow(found)
        for block in self.blocks:
            inner = inner + block(inner)
        masks = self.mask(inner).reshape(x.shape[0] * 2, self.basis, -1)
        voices: Tensor = self.decode(masks * found.repeat_interleave(2, 0))
        return voices


FURTHER["vocoder"] = Network(Vocoder, lambda: {"frames": torch.randn(1, 80, 32)})
FURTHER["separator"] = Network(Separator, lambda: {"mixture": torch.randn(1, 1, 8000)})


# Small ones


class Recognizer(nn.Module):
    """Recurrent over a few frames, as detectors of voice are."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 64, 16, stride=8)
        self.cells = nn.LSTM(64, 64)
        self.last = nn.Linear(64, 1)

    def forward(self, samples: Tensor) -> Tensor:
        frames = torch.relu(self.first(samples)).permute(2, 0, 1)
        return torch.sigmoid(self.last(self.cells(frames)[0]))


def _many_small() -> nn.Module:
    layers = [layer for _ in range(20) for layer in (nn.Linear(24, 24), nn.LayerNorm(24), nn.Tanh())]
    return nn.Sequential(*layers)


def _classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5), nn.Softmax(-1))


FURTHER["recognizer"] = Network(Recognizer, lambda: {"samples": torch.randn(1, 1, 576)})
FURTHER["many_small"] = Network(_many_small, lambda: {"x": torch.randn(4, 24)})
FURTHER["classifier"] = Network(_classifier, lambda: {"x": torch.randn(1, 30)})


def export(name: str, folder: pathlib.Path) -> None:
    torch.manual_seed(SEED)
    network, inputs = FURTHER[name].build().eval(), FURTHER[name].inputs()
    disturb(network)
    if list(inputs) == ["image"]:
        calibrate(network, inputs["image"])
    path = str(folder / f"{name}.onnx")
    torch.onnx.export(
        network, tuple(inputs.values()), path, input_names=list(inputs), dynamo=False, opset_version=17, verbose=False
    )
    print(name, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="where the files go")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of them")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in FURTHER]
    if unknown:
        parser.error(f"no network {unknown[0]!r}; there are {', '.join(FURTHER)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    with torchvision_operators():
        for name in options.names or FURTHER:
            export(name, options.folder)


if __name__ == "__main__":
    main()

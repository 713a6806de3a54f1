#!/usr/bin/env python3
"""Writes nine networks as ONNX files with inputs and outputs to compare with.

Needs packages that only machines for measuring have; a virtual environment of its own is best:

    pip install torch==2.13.0 onnx onnxscript pillow transformers typer
    pip install --no-deps torchvision==0.28.0
    python benchmarks/export_networks.py /tmp/networks            # all nine
    python benchmarks/export_networks.py /tmp/networks bert vgg16
    python benchmarks/export_networks.py /tmp/networks --batch 8  # NAME.b8.onnx, NAME.b8.npz

For each network there is NAME.onnx (tensors "input" and "output") and NAME.npz with the arrays x
and y: an input, and what PyTorch makes of it. Every parameter is random, and batch norms have
statistics near those of the activations, so that a wrong kernel shows in the output.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
import torch
from torch import Tensor, nn

SEED = 2024
IMAGE_SIZES = {
    "resnet50": 224,
    "mobilenet_v2": 224,
    "vgg16": 224,
    "densenet121": 224,
    "efficientnet_b0": 224,
    "squeezenet1_1": 224,
    "inception_v3": 299,
    "vit_b_16": 224,
}
BERT_TOKENS = 128
NETWORKS = (*IMAGE_SIZES, "bert")

# Operators that torchvision's compiled half would bring. A wheel that was built for another torch
# cannot load it, and importing torchvision then trips over their absence; no network calls them.
_ABSENT = (
    "nms(Tensor boxes, Tensor scores, float limit) -> Tensor",
    "qnms(Tensor boxes, Tensor scores, float limit) -> Tensor",
    "roi_align(Tensor x, Tensor rois, float scale, SymInt h, SymInt w, int ratio, bool aligned) -> Tensor",
    "_roi_align_backward(Tensor g, Tensor rois, float scale, SymInt ph, SymInt pw, SymInt n,"
    " SymInt c, SymInt h, SymInt w, int ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor x, Tensor rois, float scale, SymInt h, SymInt w) -> (Tensor, Tensor)",
    "_roi_pool_backward(Tensor x) -> Tensor",
    "ps_roi_align(Tensor x) -> (Tensor, Tensor)",
    "_ps_roi_align_backward(Tensor x) -> Tensor",
    "ps_roi_pool(Tensor x) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward(Tensor x) -> Tensor",
    "deform_conv2d(Tensor x) -> Tensor",
    "_deform_conv2d_backward(Tensor x) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@contextmanager
def declared_operators() -> Iterator[torch.library.Library]:
    """Declares those that the compiled half does not bring, while the library object lives."""
    found = importlib.util.find_spec("torchvision")
    for place in found.submodule_search_locations or () if found else ():
        for half in pathlib.Path(place).glob("_C*.so"):
            with suppress(OSError):
                torch.ops.load_library(str(half))
    library = torch.library.Library("torchvision", "FRAGMENT")
    for declaration in _ABSENT:
        if not hasattr(torch.ops.torchvision, declaration.partition("(")[0]):
            library.define(declaration)
    yield library
    del library


def image_network(name: str, batch: int) -> tuple[nn.Module, Tensor]:
    from torchvision import models  # after the operators are declared

    size = IMAGE_SIZES[name]
    return models.get_model(name, weights=None).eval(), torch.randn(batch, 3, size, size)


class LastHiddenState(nn.Module):
    """A BERT encoder from token ids to vectors."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(attn_implementation="sdpa")
        self.encoder = BertModel(config, add_pooling_layer=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.encoder(input_ids=ids).last_hidden_state


def bert(batch: int) -> tuple[nn.Module, Tensor]:
    return LastHiddenState().eval(), torch.randint(0, 30_000, (batch, BERT_TOKENS))


def build(name: str, batch: int) -> tuple[nn.Module, Tensor]:
    return bert(batch) if name == "bert" else image_network(name, batch)


@torch.no_grad()
def disturb(network: nn.Module) -> None:
    """Moves every parameter away from where initialisers put it, above all zeros and ones."""
    for parameter in network.parameters():
        parameter += 0.02 * torch.randn_like(parameter)


@torch.no_grad()
def calibrate(network: nn.Module, x: Tensor) -> None:
    """Gives batch norms the statistics of one batch, then disturbs these too."""
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    network(torch.cat([x, torch.randn_like(x)]))
    network.eval()
    for norm in norms:
        shift = 0.1 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean)
        norm.running_mean += shift
        norm.running_var *= torch.empty_like(norm.running_var).uniform_(0.8, 1.25)
        norm.running_var.clamp_(min=1e-4)


def made(name: str, batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A network with the parameters that are written, and its input."""
    torch.manual_seed(SEED)
    network, x = build(name, batch)
    disturb(network)
    calibrate(network, x)
    return network, x


def export(name: str, folder: pathlib.Path, batch: int = 1, report: Callable[[str], None] = print) -> None:
    """Writes NAME.onnx and NAME.npz."""
    network, x = made(name, batch)
    stem = name if batch == 1 else f"{name}.b{batch}"
    with torch.no_grad():
        y = network(x)
    torch.onnx.export(
        network,
        (x,),
        str(folder / f"{stem}.onnx"),
        input_names=["input"],
        output_names=["output"],
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    np.savez(folder / f"{stem}.npz", x=x.numpy(), y=y.numpy())
    report(f"{name}: output {tuple(y.shape)}, largest magnitude {y.abs().max().item():.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="where the files go")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of them")
    parser.add_argument("--batch", type=int, default=1, help="images or texts of an input")
    options = parser.parse_intermixed_args()
    unknown = [name for name in options.names if name not in NETWORKS]
    if unknown:
        parser.error(f"no network {unknown[0]!r}; there are {', '.join(NETWORKS)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    with declared_operators():
        for name in options.names or NETWORKS:
            export(name, options.folder, options.batch)


if __name__ == "__main__":
    main()

"""Fine-tuning an ONNX model: its graph runs on tensors, which record gradients, and its weights are parameters of a
module. The shipped network for digits, light on dark, learns to read them dark on light; then it is an ONNX file again.

It prints the loss as it goes, and the share of held-out negatives that are right before and after, the latter by the
written file, compiled.

python examples/finetune_onnx.py
python examples/finetune_onnx.py --save negatives.onnx
"""

import argparse
import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.progress import track

import weft
from weft import nn
from weft.graph import IndexedGraph
from weft.utils.data import DataLoader, RandomSampler, TensorDataset

DATA = files("weft") / "data"
BATCH = 64


class OnnxNetwork(nn.Module):
    """The graph of a model with one input and one output. Running means and variances of norms stay as they are."""

    def __init__(self, model):
        super().__init__()
        self.symbol, arrays = weft.frontend.from_onnx(model)
        (self.output,) = self.symbol.outputs
        self.nodes = IndexedGraph(self.symbol.outputs).nodes  # each after those it reads
        self.own = {name: name.replace(".", "_") for name in arrays}  # names of parameters have no dots
        for name, array in arrays.items():
            value = weft.from_numpy(array.asnumpy())
            if value.is_floating_point() and "running_" not in name:
                self.register_parameter(self.own[name], nn.Parameter(value))
            else:
                self.register_buffer(self.own[name], value)

    def forward(self, x):
        values = {}
        for node in self.nodes:
            if node.is_variable:
                values[node] = [getattr(self, self.own[node.name]) if node.name in self.own else x]
            else:
                inputs = [values[entry.node][entry.index] for entry in node.inputs]
                settings = {name: text for name, text in node.attrs.items() if not name.startswith("__")}
                made = node.op(*inputs, **settings)  # an operator of the registry, called on tensors
                values[node] = made if isinstance(made, list) else [made]
        return values[self.output.node][self.output.index]

    def save(self, path, shape):
        """Writes the model with the weights that it has now."""
        arrays = {name: getattr(self, own).detach().numpy() for name, own in self.own.items()}
        weft.frontend.to_onnx(self.symbol, arrays, path, shape=shape)


def negatives(name):
    """Images of (count, 1, 8, 8) between 0 and 1, dark on light, with their labels."""
    with np.load(DATA / f"{name}.npz") as data:
        images = weft.from_numpy((1 - data["images"] / 16).astype("float32"))
        return TensorDataset(images, weft.from_numpy(data["labels"].astype("int64")))


def right(path, dataset):
    """The share of images that a compiled file says the right digit of."""
    images, labels = (tensor.numpy() for tensor in dataset.tensors)
    (logits,) = weft.compile(path).run({"input": images})
    return (logits.argmax(1) == labels).mean()


def main():
    options = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    options.add_argument("--steps", type=int, default=200, help="batches to learn from (default: 200)")
    options.add_argument("--save", type=Path, help="where the new model goes (default: nowhere)")
    given = options.parse_args()

    weft.manual_seed(0)
    data, held_out = negatives("digits_train"), negatives("digits")
    sampler = RandomSampler(data, replacement=True, num_samples=given.steps * BATCH)
    network = OnnxNetwork(DATA / "digits.onnx")
    optimizer = weft.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    print(f"before: {right(DATA / 'digits.onnx', held_out):.2%} of {len(held_out)} held-out negatives")
    batches = DataLoader(data, BATCH, sampler=sampler)
    for step, (images, labels) in enumerate(track(batches, "learns", transient=True, disable=not sys.stdout.isatty())):
        loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if step % max(given.steps // 10, 1) == 0 or step == given.steps - 1:
            print(f"step {step:3}  loss {loss.item():.4f}")
    with TemporaryDirectory() as folder:
        path = given.save or Path(folder) / "negatives.onnx"
        network.save(path, {"input": ("batch", 1, 8, 8)})
        print(f"after: {right(path, held_out):.2%} of {len(held_out)} held-out negatives, read by {path.name}")


if __name__ == "__main__":
    main()

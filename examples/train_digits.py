"""A training loop on tensors: a small convolutional network on handwritten digits, then saved.

python examples/train_digits.py
"""

import time
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import weft
import weft.nn.functional as F

EPOCHS, BATCH, RATE = 12, 64, 3e-3


def digits(name):
    """Images of (count, 1, 8, 8) between 0 and 1, and labels."""
    with np.load(files("weft") / "data" / f"{name}.npz") as data:
        images = weft.from_numpy((data["images"] / 16).astype("float32"))
        return images, weft.from_numpy(data["labels"].astype("int64"))


def parameters():
    """Random weights, scaled by the square root of their fan-in; zero biases."""

    def layer(*shape):
        scale = (2 / np.prod(shape[1:])) ** 0.5
        weight = weft.randn(*shape) * scale
        return weight.requires_grad_(), weft.zeros(shape[0], requires_grad=True)

    made = {}
    for name, shape in {"c1": (16, 1, 3, 3), "c2": (32, 16, 3, 3), "fc": (10, 32 * 16)}.items():
        made[f"{name}.weight"], made[f"{name}.bias"] = layer(*shape)
    return made


def network(p, x):
    x = F.relu(F.conv2d(x, p["c1.weight"], p["c1.bias"], padding=1))
    x = F.relu(F.conv2d(x, p["c2.weight"], p["c2.bias"], padding=1))
    x = F.max_pool2d(x, 2)
    return F.linear(x.flatten(1), p["fc.weight"], p["fc.bias"])


def accuracy(p, images, labels):
    with weft.no_grad():
        return (network(p, images).argmax(dim=1) == labels).float().mean().item()


class Adam:
    """Steps by the running mean of gradients over the root of that of their squares."""

    def __init__(self, tensors, rate, means=(0.9, 0.999)):
        self.tensors, self.rate, self.means, self.steps = list(tensors), rate, means, 0
        self.state = [(weft.zeros_like(t), weft.zeros_like(t)) for t in self.tensors]

    @weft.no_grad()
    def step(self):
        self.steps += 1
        first, second = self.means
        rate = self.rate * (1 - second**self.steps) ** 0.5 / (1 - first**self.steps)
        for tensor, (mean, square) in zip(self.tensors, self.state):
            mean.mul_(first).add_(tensor.grad, alpha=1 - first)
            square.mul_(second).add_(tensor.grad * tensor.grad, alpha=1 - second)
            tensor.sub_(mean / (square.sqrt() + 1e-8) * rate)
            tensor.grad = None


def main():
    weft.manual_seed(0)
    start = time.perf_counter()
    images, labels = digits("digits_train")
    held_out = digits("digits")
    p = parameters()
    optimizer = Adam(p.values(), RATE)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in weft.randperm(len(images)).split(BATCH):
            loss = F.cross_entropy(network(p, images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        shown = total / len(images)
        print(f"epoch {epoch + 1:2}  loss {shown:.4f}  held out {accuracy(p, *held_out):.2%}")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "digits.pt"
        weft.save({name: tensor.detach() for name, tensor in p.items()}, path)
        reloaded = weft.load(path)
    print(f"reloaded: {accuracy(reloaded, *held_out):.2%} of {len(held_out[1])} held-out digits")
    print(f"{time.perf_counter() - start:.1f} s")
    return accuracy(reloaded, *held_out)


if __name__ == "__main__":
    main()

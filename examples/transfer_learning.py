"""Transfer learning: a ResNet-18 with torchvision's parameter names takes up trained weights, gets a new last layer,
and learns to read handwritten digits.

`--weights` is a state_dict that torchvision or weft saved. Without one, a narrow network first learns which way digits
are turned, which needs no labels, and its state_dict is saved and loaded. It prints what was loaded, and the share of
held-out digits that are right: with the last layer trained alone, then with all of them.

python examples/transfer_learning.py
python examples/transfer_learning.py --weights resnet18-f37072fd.pth
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
from weft.nn import functional as F


class BasicBlock(nn.Module):
    """Two convolutions and a way past them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        shrunk = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.downsample = nn.Sequential(*shrunk if stride > 1 else [])

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.downsample(x))


class ResNet18(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for number in range(4):
            outputs, inputs, stride = width << number, width << max(number - 1, 0), 2 if number else 1
            blocks = BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def digits(name):
    """Colour images of (count, 3, 32, 32), about as bright as photographs are scaled to be, and labels."""
    with np.load(files("weft") / "data" / f"{name}.npz") as data:
        images = weft.from_numpy((data["images"] / 8 - 1).astype("float32"))
        labels = weft.from_numpy(data["labels"].astype("int64"))
    return F.interpolate(images, scale_factor=4, mode="bilinear").expand(-1, 3, -1, -1), labels


def train(model, images, labels, steps, what, rate=3e-3):
    optimizer = weft.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    model.train()
    for _ in track(range(steps), what, transient=True, disable=not sys.stdout.isatty()):
        batch = weft.randint(len(images), (32,))
        optimizer.zero_grad()
        F.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()


@weft.no_grad()
def accuracy(model, images, labels):
    model.eval()
    found = weft.cat([model(batch).argmax(1) for batch in images.split(60)])
    return (found == labels).float().mean().item()


def pretrained(path, images, steps):
    """Writes the weights of a narrow network that tells by how many quarters images are turned."""
    model = ResNet18(classes=4, width=8)
    turned = weft.cat([weft.rot90(images, quarters, (2, 3)) for quarters in range(4)])
    train(model, turned, weft.arange(4).repeat_interleave(len(images)), steps, "turns ")
    weft.save(model.state_dict(), path)


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    options.add_argument("--weights", type=Path, help="a state_dict of a ResNet-18 (default: makes one)")
    options.add_argument("--steps", type=int, default=100, help="batches of each training (default: 100)")
    given = options.parse_args()

    weft.manual_seed(0)
    images, labels = digits("digits_train")
    held_out = digits("digits")
    with TemporaryDirectory() as folder:
        path = given.weights or Path(folder) / "turned.pth"
        if given.weights is None:
            pretrained(path, images, given.steps)
        weights = weft.load(path)
    classes, width = len(weights["fc.bias"]), len(weights["bn1.bias"])
    model = ResNet18(classes, width)
    print(f"{path.name}: {model.load_state_dict(weights)}, {classes} classes, {width} channels")

    model.requires_grad_(False)
    model.fc = nn.Linear(model.fc.in_features, 10)
    train(model, images, labels, given.steps, "last  ")
    print(f"last layer: {accuracy(model, *held_out):.2%} of {len(held_out[1])} held-out digits")
    train(model.requires_grad_(), images, labels, given.steps, "all   ", rate=1e-3)
    print(f"all layers: {accuracy(model, *held_out):.2%} of {len(held_out[1])} held-out digits")


if __name__ == "__main__":
    main()

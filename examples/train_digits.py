"""A training loop on tensors: a small convolutional network on handwritten digits, then saved and loaded again.

It prints the loss of each epoch with the share of held-out digits that are right, and that share by what was saved.

python examples/train_digits.py
"""

import argparse
import sys
import time
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.progress import track

import weft
from weft import nn
from weft.utils.data import DataLoader, TensorDataset


def digits(name):
    """Images of (count, 1, 8, 8) between 0 and 1, with their labels."""
    with np.load(files("weft") / "data" / f"{name}.npz") as data:
        images = weft.from_numpy((data["images"] / 16).astype("float32"))
        return TensorDataset(images, weft.from_numpy(data["labels"].astype("int64")))


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 16, 10),
    )


def train_epoch(model, loader, optimizer):
    """Each batch once; the mean loss."""
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
    return total / len(loader.dataset)


@weft.no_grad()
def accuracy(model, dataset):
    model.eval()
    images, labels = dataset.tensors
    return (model(images).argmax(dim=1) == labels).float().mean().item()


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--epochs", type=int, default=12, help="how often each digit is seen (default: 12)")
    epochs = options.parse_args().epochs
    start = time.perf_counter()

    weft.manual_seed(0)
    held_out = digits("digits")
    loader = DataLoader(digits("digits_train"), batch_size=64, shuffle=True)
    model = network()
    optimizer = weft.optim.AdamW(model.parameters(), lr=8e-3)
    schedule = weft.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in track(range(epochs), "epochs", transient=True, disable=not sys.stdout.isatty()):
        loss = train_epoch(model, loader, optimizer)
        schedule.step()
        print(f"epoch {epoch + 1:2}  loss {loss:.4f}  held out {accuracy(model, held_out):.2%}")

    with TemporaryDirectory() as folder:
        path = Path(folder) / "digits.pt"
        weft.save(model.state_dict(), path)
        reloaded = network()
        reloaded.load_state_dict(weft.load(path))
    print(f"reloaded: {accuracy(reloaded, held_out):.2%} of {len(held_out)} held-out digits")
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()

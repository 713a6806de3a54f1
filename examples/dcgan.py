"""Two convolutional networks against each other: one draws digits, the other tells them from handwritten ones.

It prints both losses as they go, then some of the digits that were drawn, and a score from 1 to 10 of them, of what
was drawn at first, and of handwritten digits: how well the shipped classifier tells which digit each one is, and how
evenly all digits are there.

python examples/dcgan.py
"""

import argparse
import sys
from importlib.resources import files

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.progress import track

import weft
from weft import nn
from weft.tools.demo import picture
from weft.utils.data import DataLoader, RandomSampler, TensorDataset

DATA = files("weft") / "data"
BATCH, CODE, WIDTH = 64, 32, 32


def digits():
    """Images of (count, 1, 8, 8) between -1 and 1."""
    with np.load(DATA / "digits_train.npz") as data:
        return weft.from_numpy((data["images"] / 8 - 1).astype("float32"))


def generator():
    """Numbers of (count, CODE, 1, 1) to images."""
    return nn.Sequential(
        nn.ConvTranspose2d(CODE, 2 * WIDTH, 2, bias=False),  # 2 x 2
        nn.BatchNorm2d(2 * WIDTH),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1, bias=False),  # 4 x 4
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        nn.ConvTranspose2d(WIDTH, 1, 4, stride=2, padding=1),  # 8 x 8
        nn.Tanh(),
    )


def discriminator():
    """Images to one number each: above 0 says handwritten."""
    return nn.Sequential(
        nn.Conv2d(1, WIDTH, 4, stride=2, padding=1),  # 4 x 4
        nn.LeakyReLU(0.2),
        nn.Conv2d(WIDTH, 2 * WIDTH, 4, stride=2, padding=1, bias=False),  # 2 x 2
        nn.BatchNorm2d(2 * WIDTH),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * WIDTH, 1, 2),
        nn.Flatten(0),
    )


def begin(layer):
    """Weights that such pairs of networks learn well from."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(layer.weight, 0.0, 0.05)
    elif isinstance(layer, nn.BatchNorm2d):
        nn.init.normal_(layer.weight, 1.0, 0.05)


def drawn(network, count):
    return network(weft.randn(count, CODE, 1, 1))


def descend(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def score(classifier, images):
    """exp(mean KL(p(digit | image), p(digit))): 1 where images say nothing of digits, 10 where all ten are clear."""
    (logits,) = classifier.run({"input": (images.detach().numpy() + 1) / 2})
    each = weft.from_numpy(logits).softmax(1)
    return (each * (each.log() - each.mean(0).log())).sum(1).mean().exp().item()


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--steps", type=int, default=1000, help="batches of each network (default: 1000)")
    steps = options.parse_args().steps

    weft.manual_seed(0)
    images = TensorDataset(digits())
    loader = DataLoader(images, BATCH, sampler=RandomSampler(images, replacement=True, num_samples=steps * BATCH))
    artist, critic = generator().apply(begin), discriminator().apply(begin)
    artist_steps, critic_steps = (weft.optim.Adam(n.parameters(), 1e-3, betas=(0.5, 0.999)) for n in (artist, critic))
    judge = nn.BCEWithLogitsLoss()
    classifier = weft.compile(DATA / "digits.onnx")
    first = score(classifier, drawn(artist, 512))
    yes, no = weft.ones(BATCH), weft.zeros(BATCH)
    for step, (real,) in enumerate(track(loader, "draws", transient=True, disable=not sys.stdout.isatty())):
        fake = drawn(artist, BATCH)
        told_apart = descend(critic_steps, judge(critic(real), 0.9 * yes) + judge(critic(fake.detach()), no))
        fooled = descend(artist_steps, judge(critic(fake), yes))
        if step % max(steps // 10, 1) == 0 or step == steps - 1:
            print(f"step {step:4}  critic {told_apart:.3f}  artist {fooled:.3f}")

    made = drawn(artist.eval(), 512)
    console = Console()
    pixels = ((made[:16, 0].detach() + 1) * 8).round().int().numpy()
    console.print(Columns([picture(image, console.color_system is not None) for image in pixels], padding=(0, 2)))
    best = score(classifier, images.tensors[0])
    print(f"score {score(classifier, made):.2f}, at first {first:.2f}, of handwritten digits {best:.2f}")


if __name__ == "__main__":
    main()

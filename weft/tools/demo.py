"""The demo: a small trained network that the package ships, from its file to predictions.

Handwritten digits of 8 x 8 pixels that it was not trained on come in; pictures of them, what the
network says, and how long that takes go out.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from ..compiler.model import Model, compile
from ..runtime.program import Array

DATA = Path(__file__).parent.parent / "data"
SHOWN = 10
BRIGHTEST = 16


def held_out_digits() -> tuple[Array, Array]:
    """Images of (count, 1, 8, 8) pixels from 0 to 16, and their labels."""
    with np.load(DATA / "digits.npz", allow_pickle=False) as file:
        return file["images"], file["labels"]


def predict(model: Model, images: Array) -> Array:
    """The digit that the network sees in each image."""
    (logits,) = model((images / BRIGHTEST).astype("float32"))
    return np.asarray(logits.argmax(axis=1))


def picture(image: Array, colours: bool = True) -> Text:
    """Pixels as half-block characters, two rows of pixels a line.

    >>> print(picture(np.array([[16, 0, 0, 16], [0, 16, 0, 16]]), colours=False))
    ▀▄ █
    """
    text = Text()
    for upper, lower in zip(image[::2], image[1::2]):
        for top, bottom in zip(upper, lower):
            if colours:
                text.append("▀", f"{_grey(top)} on {_grey(bottom)}")
            else:
                text.append(" ▄▀█"[2 * (top > BRIGHTEST // 3) + (bottom > BRIGHTEST // 3)])
        text.append("\n")
    text.right_crop(1)
    return text


def _grey(pixel: int) -> str:
    level = 20 + int(pixel) * 235 // BRIGHTEST
    return f"rgb({level},{level},{level})"


def card(image: Array, label: int, predicted: int, colours: bool) -> Panel:
    """One digit: its picture, what the network says, and whether that is so."""
    right = predicted == label
    verdict = f"{predicted} ✓" if right else f"{predicted} ✗ is {label}"
    title = Text(verdict, "bold green" if right else "bold red")
    return Panel(picture(image, colours), title=title, expand=False, padding=0)


def chosen(labels: Array) -> list[int]:
    """One sample of each digit, in order."""
    return [int(np.flatnonzero(labels == digit)[0]) for digit in range(SHOWN)]


def best_time(model: Model, images: Array, runs: int = 200) -> float:
    """Seconds of the fastest run."""
    inputs = {model.inputs[0].name: (images / BRIGHTEST).astype("float32")}
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        model.run(inputs)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main(console: Console | None = None) -> float:
    """Runs the demo; the accuracy over all held-out samples comes back."""
    console = console or Console()
    images, labels = held_out_digits()
    model = compile(DATA / "digits.onnx")
    one = chosen(labels)
    predictions = predict(model, images)
    console.print("[bold]weft: a trained network, from an ONNX file to native code[/bold]")
    console.print(str(model.report()), highlight=False, markup=False)
    colours = console.color_system is not None
    cards = [card(images[i, 0], labels[i], predictions[i], colours) for i in one]
    console.print(Columns(cards, padding=(0, 1)))
    accuracy = float((predictions == labels).mean())
    single, batch = best_time(model, images[:1]), best_time(model, images, runs=20)
    each = batch / len(labels)
    console.print(
        f"{accuracy:.1%} of {len(labels)} digits it was not trained on are right; "
        f"one takes {1e6 * single:.0f} microseconds, in a batch {1e6 * each:.1f} each",
        highlight=False,
        soft_wrap=True,
    )
    return accuracy

"""Inputs that are like what people give trained models, made without the internet: lines and pages of text by Pillow,
speech by espeak-ng, tones by numpy, files and sentences of Python's standard library.

Everything is the same in every run on one machine; fonts, voices and files are those that are there.
"""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import sys
import sysconfig
import wave
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Array

FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "/System/Library/Fonts")
VOICES = ("en", "en-us", "en-gb-scotland", "de", "fr", "es", "it", "pt")
RATE = 16000


class Missing(Exception):
    """What inputs are made with is not installed; its text says what to do."""


# Text of the standard library


@cache
def sentences(fewest: int = 6, most: int = 30) -> list[str]:
    """Sentences of docstrings, of so many words, without names that only code has."""
    found: dict[str, None] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for text in _docstrings(path):
            for sentence in " ".join(text.split()).split(". "):
                words = sentence.strip(".").split()
                plain = all(word.strip(",;:()'\"?!-").isalpha() for word in words)
                if fewest <= len(words) <= most and plain and words[0][:1].isupper():
                    found[" ".join(words)] = None
    return list(found)


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def files(each: int, fewest_bytes: int = 64) -> list[Path]:
    """Files of the standard library and of installed packages: so many of each suffix, the first by their paths."""
    found: dict[str, list[Path]] = {}
    for folder in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("include")):
        for path in sorted(Path(folder).rglob("*")):
            of_kind = found.setdefault(path.suffix, [])
            if len(of_kind) < each and path.is_file() and path.stat().st_size >= fewest_bytes:
                of_kind.append(path)
    return [path for kind in sorted(found) for path in found[kind]]


# Pictures


def _pillow() -> Any:
    try:
        from PIL import Image, ImageDraw, ImageFilter, ImageFont
    except ImportError:
        raise Missing("Pillow draws the pictures: pip install pillow") from None
    return Image, ImageDraw, ImageFilter, ImageFont


@cache
def fonts() -> list[str]:
    """Latin text fonts that are installed; none of them has signs alone."""
    found = [path for folder in FONT_FOLDERS for path in sorted(Path(folder).rglob("*.ttf"))]
    return [str(path) for path in found if not any(word in path.name for word in ("Symbol", "Math", "Emoji", "Ding"))]


def _font(number: int, size: int) -> Any:
    *_, makers = _pillow()
    known = fonts()
    return makers.truetype(known[number % len(known)], size) if known else makers.load_default(size)


def line_of_text(text: str, height: int, width: int, rng: np.random.Generator) -> Array:
    """A picture of one line, as wide as its text and then of the given size: levels of (height, width, 3)."""
    image, draw, effects, _ = _pillow()
    font = _font(int(rng.integers(1000)), int(rng.integers(28, 44)))
    left, top, right, bottom = font.getbbox(text)
    margin = int(rng.integers(4, 12))
    light, dark = rng.integers(170, 256, 3), rng.integers(0, 90, 3)
    if rng.random() < 0.2:
        light, dark = dark, light
    size = (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin)
    made = image.new("RGB", size, tuple(map(int, light)))
    draw.Draw(made).text((margin - left, margin - top), text, font=font, fill=tuple(map(int, dark)))
    made = made.rotate(float(rng.uniform(-1.5, 1.5)), image.Resampling.BICUBIC, fillcolor=tuple(map(int, light)))
    made = made.filter(effects.GaussianBlur(float(rng.uniform(0, 1.0))))
    fitted = made.resize((min(width, round(height * made.width / made.height)), height), image.Resampling.BILINEAR)
    levels = np.asarray(fitted, np.float32) + rng.normal(0, rng.uniform(0, 8), (height, fitted.width, 1))
    return np.asarray(np.clip(levels, 0, 255), np.float32)


def page(height: int, width: int, rng: np.random.Generator, turned: int = 0) -> Array:
    """A page with a title, paragraphs and a ruled table, turned by so many quarters: levels of (height, width, 3)."""
    image, draw, _, _ = _pillow()
    made = image.new("RGB", (width, height), tuple(map(int, rng.integers(225, 256, 3))))
    pen, texts, at = draw.Draw(made), sentences(), int(rng.integers(20, 50))
    title, body = _font(int(rng.integers(1000)), 34), _font(int(rng.integers(1000)), int(rng.integers(14, 20)))
    pen.text((width // 6, at), texts[int(rng.integers(len(texts)))][:32], font=title, fill=(10, 10, 10))
    at += 60
    while at < height - 60:
        if rng.random() < 0.15 and at < height - 180:
            at = _table(pen, body, at, width, rng)
        for _ in range(int(rng.integers(2, 7))):
            words = " ".join(texts[int(k)] for k in rng.integers(len(texts), size=3))
            if at < height - 30:
                pen.text((40, at), words[: (width - 80) // 9], font=body, fill=(20, 20, 20))
            at += 24
        at += int(rng.integers(12, 40))
    return np.asarray(np.rot90(np.asarray(made, np.float32), turned))


def _table(pen: Any, font: Any, at: int, width: int, rng: np.random.Generator) -> int:
    rows, columns = int(rng.integers(3, 6)), int(rng.integers(3, 5))
    step = (width - 80) // columns
    for row in range(rows + 1):
        pen.line([(40, at + 28 * row), (40 + step * columns, at + 28 * row)], fill=(0, 0, 0))
    for column in range(columns + 1):
        pen.line([(40 + step * column, at), (40 + step * column, at + 28 * rows)], fill=(0, 0, 0))
    for row in range(rows):
        for column in range(columns):
            pen.text((48 + step * column, at + 28 * row + 6), f"{rng.integers(10000) / 10}", font=font, fill=(0, 0, 0))
    return at + 28 * rows + 20


def captcha(height: int, rng: np.random.Generator) -> Array:
    """Letters and digits, each turned, with lines across: levels of (height, width)."""
    image, draw, _, _ = _pillow()
    signs = rng.choice(list("abcdefghkmnpqrstuvwxyzABCDEFGHKLMNPQRSTUVWXYZ23456789"), 4)
    made = image.new("L", (40 * 4 + 20, 64), int(rng.integers(200, 256)))
    for place, sign in enumerate(signs):
        one = image.new("L", (56, 56), 0)
        font = _font(int(rng.integers(1000)), int(rng.integers(34, 44)))
        draw.Draw(one).text((12, 4), str(sign), font=font, fill=255)
        one = one.rotate(float(rng.uniform(-25, 25)), image.Resampling.BICUBIC)
        made.paste(int(rng.integers(0, 110)), (4 + 40 * place, int(rng.integers(0, 8))), one)
    pen = draw.Draw(made)
    for _ in range(3):
        ends = [(int(rng.integers(made.width)), int(rng.integers(made.height))) for _ in range(2)]
        pen.line(ends, fill=int(rng.integers(80, 180)))
    fitted = made.resize((round(made.width * height / made.height), height), image.Resampling.LANCZOS)
    return np.asarray(fitted, np.float32)


def resized(levels: Array, height: int, width: int) -> Array:
    image, *_ = _pillow()
    made = image.fromarray(np.clip(levels, 0, 255).astype(np.uint8)).resize((width, height), image.Resampling.BILINEAR)
    return np.asarray(made, np.float32)


# Sound


def speech(text: str, voice: str = "en", speed: int = 160, pitch: int = 50) -> Array:
    """What espeak-ng says, at 16000 samples a second, from -1 to 1."""
    if shutil.which("espeak-ng") is None:
        raise Missing("espeak-ng speaks: apt install espeak-ng")
    command = ["espeak-ng", "--stdout", "-v", voice, "-s", str(speed), "-p", str(pitch), text]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(data)) as sound:
        rate, raw = sound.getframerate(), sound.readframes(1 << 30)
    return at_rate(np.frombuffer(raw, np.int16) / 32768.0, rate, RATE)


def at_rate(samples: Array, before: int, after: int) -> Array:
    """The same sound at another rate, without what the slower of them cannot hold."""
    count = round(len(samples) * after / before)
    spectrum = np.fft.rfft(samples)[: count // 2 + 1]
    return np.asarray(np.fft.irfft(spectrum, count) * count / len(samples), np.float32)


def spoken(seconds: float, rng: np.random.Generator, texts: Sequence[str] = ()) -> Array:
    """Speech with silence between, some noise, and a voice that changes."""
    pieces, count = [], 0
    while count < seconds * RATE:
        known = list(texts) or sentences()
        voice, text = VOICES[int(rng.integers(len(VOICES)))], known[int(rng.integers(len(known)))]
        one = speech(text, voice, int(rng.integers(120, 200)), int(rng.integers(20, 80))) * rng.uniform(0.2, 1.0)
        gap = np.zeros(int(rng.uniform(0.2, 1.5) * RATE))
        pieces += [one, gap]
        count += len(one) + len(gap)
    made = np.concatenate(pieces)[: int(seconds * RATE)]
    return np.asarray(made + rng.normal(0, rng.uniform(0.0005, 0.01), made.shape), np.float32)


def melody(seconds: float, rate: int, rng: np.random.Generator) -> Array:
    """Plucked tones with harmonics, some together, at pitches of a keyboard."""
    made, count = np.zeros(int(seconds * rate)), int(seconds * rate)
    for start in np.arange(0, seconds, 0.25):
        for _ in range(int(rng.integers(0, 3))):
            pitch, length = 440 * 2 ** (int(rng.integers(-24, 24)) / 12), rng.uniform(0.2, 0.8)
            times = np.arange(int(length * rate)) / rate
            parts = [np.sin(2 * np.pi * pitch * k * times) * np.exp(-times * 3 * k) / k for k in range(1, 6)]
            first = int(start * rate)
            one = 0.2 * rng.uniform(0.3, 1) * np.sum(parts, axis=0)[: count - first]
            made[first : first + len(one)] += one
    return np.asarray(made + rng.normal(0, 0.001, count), np.float32)


if __name__ == "__main__":
    print(f"{len(sentences())} sentences, {len(fonts())} fonts", file=sys.stderr)

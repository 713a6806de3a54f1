"""A transformer that writes text, a character at a time: it learns from The Zen of Python, which Python has inside.

It prints the loss as it goes, the text it writes after "Beautiful", and how many of its words are words of the Zen.

python examples/character_transformer.py
"""

import argparse
import codecs
import contextlib
import io
import sys

from rich.progress import track

import weft
from weft import nn

with contextlib.redirect_stdout(io.StringIO()):  # it prints itself when it is imported
    import this

TEXT = codecs.decode(this.s, "rot13")
LENGTH, BATCH = 48, 24


class Writer(nn.Module):
    """Scores of the next character after each of a text, of which it sees the last `LENGTH`."""

    def __init__(self, letters, width=64, heads=4, layers=2):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.scores = nn.Linear(width, letters)

    def forward(self, text):
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.letters(text) + self.places(weft.arange(length))
        return self.scores(self.body(x, mask=mask, is_causal=True))


class Alphabet:
    """The characters of a text as numbers, and back."""

    def __init__(self, text):
        self.letters = sorted(set(text))

    def encode(self, text):
        return weft.tensor([self.letters.index(letter) for letter in text])

    def decode(self, numbers):
        return "".join(self.letters[number] for number in numbers.tolist())


@weft.no_grad()
def write(model, text, count, temperature):
    """`text` and `count` characters that follow it, drawn from the model's probabilities."""
    model.eval()
    for _ in range(count):
        scores = model(text[None, -LENGTH:])[0, -1]
        text = weft.cat([text, weft.multinomial((scores / temperature).softmax(0), 1)])
    return text


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--steps", type=int, default=400, help="batches to learn from (default: 400)")
    options.add_argument("--letters", type=int, default=300, help="characters to write (default: 300)")
    options.add_argument("--temperature", type=float, default=0.3, help="how free it writes (default: 0.3)")
    given = options.parse_args()

    weft.manual_seed(0)
    alphabet = Alphabet(TEXT)
    text = alphabet.encode(TEXT)
    windows = text.unfold(0, LENGTH + 1, 1)  # every place of the text, with what follows
    model = Writer(len(alphabet.letters))
    optimizer = weft.optim.AdamW(model.parameters(), lr=6e-3)
    schedule = weft.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=given.steps)
    for step in track(range(given.steps), "reads", transient=True, disable=not sys.stdout.isatty()):
        batch = windows[weft.randint(len(windows), (BATCH,))]
        scores = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(given.steps // 10, 1) == 0 or step == given.steps - 1:
            print(f"step {step:3}  loss {loss.item():.3f}")

    written = alphabet.decode(write(model, alphabet.encode("Beautiful"), given.letters, given.temperature))
    print(f"\n{written}\n")
    words = written.split()[:-1]  # the last may be cut
    known = sum(word in TEXT.split() for word in words)
    print(f"{known} of {len(words)} words are of the Zen")


if __name__ == "__main__":
    main()

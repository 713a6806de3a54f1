"""Numbers of uneven length turned around: packed sequences into a GRU, a decoder that looks back at them."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, random_split

PAD, START, END, WORDS, WIDTH = 0, 1, 2, 10, 16


class Reversals(Dataset):
    def __init__(self, count, longest=6):
        lengths = torch.randint(2, longest + 1, (count,)).tolist()
        self.rows = [torch.randint(3, WORDS, (length,)) for length in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row, end = self.rows[index], torch.tensor([END])
        return torch.cat([row, end]), torch.cat([row.flip(0), end])


def collate(pairs):
    """Rows filled up to the longest, with their lengths, in order of length."""
    pairs = sorted(pairs, key=lambda pair: -len(pair[0]))
    sources, targets = zip(*pairs)
    lengths = torch.tensor([len(source) for source in sources])
    return pad_sequence(sources, padding_value=PAD), lengths, pad_sequence(targets, padding_value=PAD)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        self.gru = nn.GRU(WIDTH, WIDTH // 2, num_layers=2, dropout=0.1, bidirectional=True)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths)
        states, last = self.gru(packed)
        states, _ = pad_packed_sequence(states)
        return states, torch.cat([last[-2], last[-1]], dim=1)


class Decoder(nn.Module):
    """A word at a time, from the word before it and what attention finds in the source."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.score = nn.Bilinear(WIDTH, WIDTH, 1)
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.out = nn.Linear(2 * WIDTH, WORDS)

    def forward(self, word, hidden, states, mask):
        scores = self.score(hidden.expand_as(states).contiguous(), states).squeeze(2)
        shares = F.softmax(scores.masked_fill(mask, -1e9), dim=0)
        found = torch.sum(shares.unsqueeze(2) * states, dim=0)
        hidden = self.cell(torch.cat([self.embedding(word), found], dim=1), hidden)
        return self.out(torch.cat([hidden, found], dim=1)), hidden


def decode(encoder, decoder, sources, lengths, targets, forced):
    states, hidden = encoder(sources, lengths)
    word, logits = torch.full((sources.size(1),), START), []
    for target in targets:
        scores, hidden = decoder(word, hidden, states, sources == PAD)
        logits.append(scores)
        word = target if random.random() < forced else scores.topk(1)[1].squeeze(1).detach()
    return torch.stack(logits)


def main(steps=20):
    torch.manual_seed(21)
    random.seed(3)
    train, held = random_split(Reversals(40), [0.8, 0.2])
    encoder, decoder = Encoder(), Decoder()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = optim.Adamax([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-2, total_steps=steps + 1)
    losses = []
    while len(losses) < steps:
        for batch in DataLoader(train, batch_size=8, shuffle=True, collate_fn=collate):
            optimizer.zero_grad()
            loss = criterion(decode(encoder, decoder, *batch, forced=0.7).flatten(0, 1), batch[2].flatten())
            loss.backward()
            nn.utils.clip_grad_value_([*encoder.parameters(), *decoder.parameters()], 0.5)
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
            scheduler.step()
    encoder.eval()
    batch = collate(list(held))
    with torch.inference_mode():
        logits = decode(encoder, decoder, *batch, forced=1.0)
    return [*losses, criterion(logits.transpose(1, 2), batch[2]).item()]


if __name__ == "__main__":
    print(main())

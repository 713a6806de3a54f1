"""Training for thousands of small steps holds no more memory at its end than when it was warm."""

from __future__ import annotations

import gc
import resource
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest

import weft
from weft import nn, optim
from weft.utils.data import DataLoader, TensorDataset

STATM = Path("/proc/self/statm")
WARM, STEPS = 200, 2000


def perceptron(width):
    """Rows of numbers, their classes, and a network that reads the rows."""
    rows = weft.randn(128, width)
    model = nn.Sequential(nn.Linear(width, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    return rows, (rows.sum(1) > 0).long(), model


class Reader(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(20, width), nn.LSTM(width, width), nn.Linear(width, 2)

    def forward(self, words):
        return self.head(self.rnn(self.table(words.t()))[0][-1])


def recurrent(width):
    words = weft.randint(0, 20, (128, 5))
    return words, (words[:, 0] > words[:, 1]).long(), Reader(width)


def training(rows, labels, model):
    """The losses of a training without end."""
    loader = DataLoader(TensorDataset(rows, labels), batch_size=16, shuffle=True)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 500, 0.5)
    criterion = nn.CrossEntropyLoss()
    while True:
        for batch, wanted in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch), wanted)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield loss.item()


def resident():
    return int(STATM.read_text().split()[1]) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.skipif(not STATM.exists(), reason="asks Linux for the memory of the process")
@pytest.mark.parametrize("make", [perceptron, recurrent])
def test_memory_stays_flat(make):
    weft.manual_seed(0)
    losses = training(*make(8))
    first = sum(islice(losses, WARM)) / WARM
    pages = resident()
    tracemalloc.start()
    try:
        sum(islice(losses, WARM))  # fills what Python keeps for reuse
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0]
        last = sum(islice(losses, STEPS)) / STEPS
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - traced
    finally:
        tracemalloc.stop()
    assert last < first  # it learns
    assert grown < 100 * STEPS  # a float kept from each step with its place in a list is 32 bytes, a batch 500
    assert resident() - pages < 16 << 20


@pytest.mark.parametrize("make", [perceptron, recurrent])
def test_a_step_leaves_no_cycles(make):
    """What a step made goes with its last name: no collection has to find it."""
    losses = training(*make(8))
    next(losses)
    gc.collect()
    gc.disable()
    try:
        assert all(loss > 0 for loss in islice(losses, 20))
        assert gc.collect() == 0
    finally:
        gc.enable()

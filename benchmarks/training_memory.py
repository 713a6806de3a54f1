#!/usr/bin/env python3
"""Memory of a training that goes on: batches of a loader, a small network, Adam and a schedule, in a process of its
own.

    python benchmarks/training_memory.py          memory after 10,000 steps over that after 1,000
    python benchmarks/training_memory.py steps    one process: megabytes after each
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice

from open_sizes import resident

import weft
from weft import nn, optim
from weft.utils.data import DataLoader, TensorDataset

WARM, STEPS = 1_000, 10_000


def training() -> Iterator[float]:
    """The losses of a training without end."""
    weft.manual_seed(0)
    rows = weft.randn(512, 16)
    loader = DataLoader(TensorDataset(rows, (rows.sum(1) > 0).long()), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 500, 0.9)
    criterion = nn.CrossEntropyLoss()
    while True:
        for batch, wanted in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch), wanted)
            loss.backward()
            optimizer.step()
            scheduler.step()
            yield loss.item()


def megabytes() -> list[float]:
    """After the first steps, and after all."""
    losses, found = training(), []
    for count in (WARM, STEPS - WARM):
        sum(islice(losses, count))
        found.append(resident() / 2**20)
    return found


def measure() -> list[float]:
    """The same, of another process."""
    command = [sys.executable, __file__, "steps"]
    found: list[float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(megabytes()))
    else:
        first, last = measure()
        print(f"{first:.1f} MB after {WARM} steps, {last:.1f} MB after {STEPS}: {last / first:.3f}")

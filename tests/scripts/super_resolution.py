"""Pictures made larger: convolutions at the small size, then channels shuffled into pixels."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

FACTOR = 2
SIZE = 16


class Waves(Dataset):
    """Smooth random pictures with their halves: sums of plane waves of random direction and phase."""

    def __init__(self, count, waves=3):
        self.directions = torch.empty(count, waves, 2).uniform_(-6, 6)
        self.phases = torch.rand(count, waves) * 2 * math.pi
        ticks = torch.linspace(0, 1, SIZE)
        self.grid = torch.stack(torch.meshgrid(ticks, ticks, indexing="ij"), dim=-1)

    def __len__(self):
        return len(self.directions)

    def __getitem__(self, index):
        angles = torch.einsum("hwc,nc->nhw", self.grid, self.directions[index])
        target = torch.sin(angles + self.phases[index][:, None, None]).mean(0, keepdim=True)
        small = F.avg_pool2d(target.unsqueeze(0), FACTOR).squeeze(0)
        return small, target


class Enlarge(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(1, 16, 5, 1, 2)
        self.conv2 = nn.Conv2d(16, 16, 3, 1, 1)
        self.conv3 = nn.Conv2d(16, 8, 3, 1, 1)
        self.conv4 = nn.Conv2d(8, factor**2, 3, 1, 1)
        self.shuffle = nn.PixelShuffle(factor)
        self.initialize()

    def initialize(self):
        gain = nn.init.calculate_gain("relu")
        for conv in (self.conv1, self.conv2, self.conv3):
            nn.init.orthogonal_(conv.weight, gain)
        nn.init.orthogonal_(self.conv4.weight)

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.conv3(x))
        return self.shuffle(self.conv4(x))


def decibels(error):
    return 10 * math.log10(1 / error)


def evaluate(model, loader, criterion):
    model.eval()
    with torch.no_grad():
        ratios = [decibels(criterion(model(small), target).item()) for small, target in loader]
    model.train()
    return sum(ratios) / len(ratios)


def main(steps=20):
    torch.manual_seed(123)
    train, test = DataLoader(Waves(24), batch_size=6, shuffle=True), DataLoader(Waves(8), batch_size=4)
    model = Enlarge(FACTOR)
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=0.002)
    losses = []
    while len(losses) < steps:
        for small, target in train:
            optimizer.zero_grad()
            loss = criterion(model(small), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return [*losses[:steps], evaluate(model, test, criterion)]


if __name__ == "__main__":
    print(main())

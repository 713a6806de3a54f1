"""Two towers with one set of weights: pairs by a contrastive loss, triplets by a margin, rare classes drawn oftener."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

CLASSES, SIZE = 4, 12


class Blobs(Dataset):
    """Noisy pictures of a few classes, with another one of the same class and one of the next class."""

    def __init__(self, counts):
        self.labels = torch.repeat_interleave(torch.arange(CLASSES), torch.tensor(counts))
        centers = torch.randn(CLASSES, 1, SIZE, SIZE)
        self.pictures = centers[self.labels] + 0.7 * torch.randn(len(self.labels), 1, SIZE, SIZE)
        self.members = [(self.labels == label).nonzero().flatten() for label in range(CLASSES)]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        label = int(self.labels[index])
        return self.pictures[index], self.pick(label), self.pick((label + 1) % CLASSES), label

    def pick(self, label):
        members = self.members[label]
        return self.pictures[members[torch.randint(len(members), (1,)).item()]]

    def weights(self):
        """Drawn by these, every class is as likely as the others."""
        return (1.0 / torch.bincount(self.labels).float())[self.labels]


class ContrastiveLoss(nn.Module):
    """Pairs alike are drawn together; others are pushed apart until a margin is between them."""

    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, left, right, alike):
        distance = F.pairwise_distance(left, right)
        apart = torch.clamp(self.margin - distance, min=0.0)
        return torch.mean(alike * distance.pow(2) + (1 - alike) * apart.pow(2))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.PReLU(8)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 3 * 3, 32), nn.Sigmoid(), nn.Linear(32, 8))
        self.apply(self.initialize)

    @staticmethod
    def initialize(layer):
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            layer.bias.data.fill_(0.01)

    def forward(self, x):
        return self.head(self.features(x))


def main(steps=20):
    torch.manual_seed(5)
    data = Blobs([24, 12, 6, 3])
    loader = DataLoader(data, batch_size=8, sampler=WeightedRandomSampler(data.weights(), 40), drop_last=True)
    tower = Tower()
    contrastive, triplet = ContrastiveLoss(margin=1.5), nn.TripletMarginLoss(margin=1.0)
    optimizer = optim.Adadelta(tower.parameters(), lr=0.5)
    losses = []
    while len(losses) < steps:
        for anchor, alike, other, label in loader:
            optimizer.zero_grad()
            a, p, n = tower(anchor), tower(alike), tower(other)
            shuffled = torch.randperm(len(label))
            same = (label == label[shuffled]).float()
            loss = triplet(a, p, n) + contrastive(a, p[shuffled], same)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses[:steps]


if __name__ == "__main__":
    print(main())

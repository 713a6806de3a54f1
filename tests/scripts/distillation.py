"""A small network taught by a larger one: soft targets, features caught by hooks, frozen layers, mixed batches."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, RandomSampler, Subset, TensorDataset

CLASSES, SIZE, TEMPERATURE = 5, 8, 3.0


class Separable(nn.Sequential):
    """A convolution of each channel on its own, then one across channels."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__(
            nn.Conv2d(inputs, inputs, 3, stride, padding=1, groups=inputs, bias=False),
            nn.GroupNorm(2, inputs),
            nn.Hardswish(),
            nn.Conv2d(inputs, outputs, 1),
            nn.BatchNorm2d(outputs, momentum=0.2),
            nn.Mish(),
        )


def make_network(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding="same"),
        nn.ReLU6(),
        Separable(width, 2 * width, stride=2),
        Separable(2 * width, 2 * width),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(2 * width, CLASSES),
    )


def make_data():
    centers = torch.randn(CLASSES, 3, SIZE, SIZE)
    parts = []
    for noise in (0.5, 1.0):
        labels = torch.multinomial(torch.tensor([3.0, 2.0, 1.0, 1.0, 1.0]), 24, replacement=True)
        parts.append(TensorDataset(centers[labels] + torch.normal(0.0, noise, (24, 3, SIZE, SIZE)), labels))
    return ConcatDataset([parts[0], Subset(parts[1], torch.randperm(24).tolist()[:16])])


def mix(pictures, labels):
    """Pictures and their classes blended with those of a random order."""
    share, order = torch.distributions.Beta(0.4, 0.4).sample(), torch.randperm(len(labels))
    classes = F.one_hot(labels, CLASSES).float()
    return torch.lerp(pictures[order], pictures, share), torch.lerp(classes[order], classes, share)


def train(model, loader, optimizer, criterion, steps):
    losses = []
    while len(losses) < steps:
        for pictures, labels in loader:
            pictures, classes = mix(pictures, labels)
            loss = criterion(pictures, model(pictures), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses[:steps]


def main(steps=20):
    torch.manual_seed(17)
    data = make_data()
    loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 8, drop_last=False))
    teacher, student = make_network(8), make_network(4)
    optimizer = optim.SGD(teacher.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    losses = train(teacher, loader, optimizer, lambda _, given, wanted: F.cross_entropy(given, wanted), steps)

    teacher = copy.deepcopy(teacher).eval().requires_grad_(False)
    seen = {}
    handles = [
        network[3].register_forward_hook(lambda module, inputs, output, name=name: seen.update({name: output}))
        for name, network in (("teacher", teacher), ("student", student))
    ]
    lift = nn.LazyConv2d(16, 1)
    lift(torch.zeros(1, 8, 4, 4))

    def distill(pictures, given, wanted):
        soft = F.log_softmax(teacher(pictures) / TEMPERATURE, dim=1)
        loss = nn.KLDivLoss(reduction="batchmean", log_target=True)(F.log_softmax(given / TEMPERATURE, 1), soft)
        hint = F.huber_loss(lift(seen["student"]), seen["teacher"])
        return TEMPERATURE**2 * loss + hint + F.cross_entropy(given, wanted)

    optimizer = optim.RAdam([{"params": student.parameters()}, {"params": lift.parameters(), "lr": 1e-2}], lr=3e-3)
    losses += train(student, loader, optimizer, distill, steps)
    for handle in handles:
        handle.remove()
    return losses


if __name__ == "__main__":
    print(main())

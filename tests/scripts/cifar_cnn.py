"""A convolutional classifier of small colour images: batch normalisation, Nesterov momentum, held-out accuracy."""

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset, random_split

CLASSES = 5


class Blobs(Dataset):
    """Colour images whose class is told by the tint of a random square."""

    def __init__(self, count):
        tints = torch.randn(CLASSES, 3, 1, 1)
        self.images = 0.5 * torch.randn(count, 3, 16, 16)
        self.labels = torch.randint(CLASSES, (count,))
        corners = torch.randint(0, 8, (count, 2))
        for image, label, (top, left) in zip(self.images, self.labels, corners.tolist()):
            image[:, top : top + 8, left : left + 8] += tints[label]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], int(self.labels[index])


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class ConvNet(nn.Module):
    def __init__(self, num_classes=CLASSES):
        super().__init__()
        self.features = nn.Sequential(block(3, 8), block(8, 16))
        self.pool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Linear(16 * 2 * 2, num_classes)

    def forward(self, x):
        x = self.pool(self.features(x))
        return self.classifier(x.view(x.size(0), -1))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    correct = total = 0
    for images, labels in loader:
        _, predicted = torch.max(model(images), 1)
        total += labels.size(0)
        correct += (predicted == labels).sum().item()
    return correct / total


def main(steps=20):
    torch.manual_seed(7)
    train_set, test_set = random_split(Blobs(80), [64, 16], generator=torch.Generator().manual_seed(42))
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=8)
    model = ConvNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, nesterov=True)

    losses = []
    while len(losses) < steps:
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        losses.append(1 - accuracy(model, test_loader))
    return losses[:steps]


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.6f}")

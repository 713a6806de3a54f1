"""A convolutional classifier of small grey images: dropout, Adadelta, a learning rate that falls by epochs."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Subset, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(0.1)
        self.dropout2 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(16 * 6 * 6, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def make_digits(count):
    """Images that are one of ten patterns each, under noise."""
    patterns = torch.rand(10, 1, 16, 16)
    labels = torch.randint(0, 10, (count,))
    images = patterns[labels] + 0.2 * torch.randn(count, 1, 16, 16)
    return TensorDataset((images - images.mean()) / images.std(), labels)


def evaluate(model, device, loader):
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            prediction = output.argmax(dim=1, keepdim=True)
            correct += prediction.eq(target.view_as(prediction)).sum().item()
    return loss / len(loader.dataset), correct / len(loader.dataset)


def main(steps=20):
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    digits = make_digits(96)
    train_loader = DataLoader(Subset(digits, range(72)), batch_size=16, shuffle=True)
    test_loader = DataLoader(Subset(digits, range(72, 96)), batch_size=24)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=2.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)

    losses = []
    while len(losses) < steps:
        model.train()
        for data, target in train_loader:
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        losses.append(evaluate(model, device, test_loader)[0])
        scheduler.step()
    return losses[:steps]


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.6f}")

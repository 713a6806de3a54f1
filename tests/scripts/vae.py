"""A variational autoencoder of binary images: reparametrised samples, reconstruction plus divergence, Adam."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader

SIDE, LATENT = 10, 4


class VAE(nn.Module):
    def __init__(self, hidden=32, latent=LATENT):
        super().__init__()
        self.fc1 = nn.Linear(SIDE * SIDE, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, SIDE * SIDE)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, SIDE * SIDE))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    """-E[log p(x|z)] + KL(q(z|x) || N(0, 1))"""
    bce = F.binary_cross_entropy(recon_x, x.view(-1, SIDE * SIDE), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def make_bars(count):
    """Images of a bright row and a bright column each, with some pixels flipped."""
    rows, columns = torch.randint(SIDE, (2, count))
    images = torch.full((count, 1, SIDE, SIDE), 0.05)
    images[torch.arange(count), 0, rows] = 0.95
    images[torch.arange(count), 0, :, columns] = 0.95
    return torch.bernoulli(images)


def main(steps=20):
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(make_bars(90), batch_size=24, shuffle=True)
    model = VAE().to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    losses = []
    while len(losses) < steps:
        model.train()
        total = 0
        for data in loader:
            data = data.to(device)
            optimizer.zero_grad()
            recon_batch, mu, logvar = model(data)
            loss = loss_function(recon_batch, data, mu, logvar)
            loss.backward()
            total += loss.item()
            optimizer.step()
            losses.append(loss.item() / len(data))
        losses.append(total / len(loader.dataset))

        # how undecided the pixels of new images are
        model.eval()
        with torch.no_grad():
            sample = model.decode(torch.randn(16, LATENT, device=device)).cpu()
            losses.append(F.binary_cross_entropy(sample, sample.round()).item())
    return losses[:steps]


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.6f}")

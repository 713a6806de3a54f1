"""Two networks against each other: a generator of images, and one that tells them from data."""

import torch
import torch.nn as nn
import torch.optim as optim

NZ, NGF, NDF, NC, BATCH = 8, 8, 8, 1, 8


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        m.weight.data.normal_(1.0, 0.02)
        m.bias.data.fill_(0)


def generator():
    return nn.Sequential(
        nn.ConvTranspose2d(NZ, NGF * 2, 4, 1, 0, bias=False),  # 4 x 4
        nn.BatchNorm2d(NGF * 2),
        nn.ReLU(True),
        nn.ConvTranspose2d(NGF * 2, NGF, 4, 2, 1, bias=False),  # 8 x 8
        nn.BatchNorm2d(NGF),
        nn.ReLU(True),
        nn.ConvTranspose2d(NGF, NC, 4, 2, 1, bias=False),  # 16 x 16
        nn.Tanh(),
    )


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(NC, NDF, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(NDF, NDF * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(NDF * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(NDF * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, images):
        return self.main(images).view(-1, 1).squeeze(1)


def real_images(count):
    """Smooth waves of random direction and phase."""
    grid = torch.linspace(-3, 3, 16)
    angles = 6.28 * torch.rand(2, count, 1, 1)
    waves = torch.sin(grid.view(1, -1, 1) * angles[0].cos() + grid * angles[0].sin() + angles[1])
    return waves.unsqueeze(1)


def main(steps=20):
    torch.manual_seed(999)
    netG = generator().apply(weights_init)
    netD = Discriminator().apply(weights_init)
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))

    losses = []
    while len(losses) < steps:
        # log D(x) + log(1 - D(G(z))) for the discriminator
        netD.zero_grad()
        label = torch.full((BATCH,), 1.0)
        errD_real = criterion(netD(real_images(BATCH)), label)
        errD_real.backward()
        fake = netG(torch.randn(BATCH, NZ, 1, 1))
        label.fill_(0.0)
        errD_fake = criterion(netD(fake.detach()), label)
        errD_fake.backward()
        optimizerD.step()

        # log D(G(z)) for the generator
        netG.zero_grad()
        label.fill_(1.0)
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()
        losses += [(errD_real + errD_fake).item(), errG.item()]
    return losses[:steps]


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.6f}")

"""A network that paints pictures in a style: its loss compares features of a frozen network and their Gram matrices."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

SIZE = 16
CONTENT, STYLE, SMOOTH = 1.0, 10.0, 1e-3


class ConvLayer(nn.Module):
    """A convolution over edges that are mirrored, after growing the picture where that is asked for."""

    def __init__(self, inputs, outputs, kernel, stride=1, grow=None):
        super().__init__()
        self.grow = grow
        self.pad = nn.ReflectionPad2d(kernel // 2)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride)

    def forward(self, x):
        if self.grow is not None:
            x = F.interpolate(x, scale_factor=self.grow, mode="nearest")
        return self.conv(self.pad(x))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.norm1 = ConvLayer(channels, channels, 3), nn.InstanceNorm2d(channels, affine=True)
        self.conv2, self.norm2 = ConvLayer(channels, channels, 3), nn.InstanceNorm2d(channels, affine=True)

    def forward(self, x):
        return x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))


class Painter(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.down = nn.ModuleList([ConvLayer(3, width, 5), ConvLayer(width, 2 * width, 3, stride=2)])
        self.middle = nn.Sequential(*[Residual(2 * width) for _ in range(2)])
        self.up = ConvLayer(2 * width, width, 3, grow=2)
        self.norms = nn.ModuleList([nn.InstanceNorm2d(c, affine=True) for c in (width, 2 * width, width)])
        self.out = ConvLayer(width, 3, 5)

    def forward(self, x):
        for conv, norm in zip(self.down, self.norms):
            x = F.relu(norm(conv(x)))
        x = F.relu(self.norms[-1](self.up(self.middle(x))))
        return self.out(x)


class Critic(nn.Module):
    """A random network whose layers are looked at, and never trained."""

    def __init__(self):
        super().__init__()
        self.slices = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)])
        self.pool = nn.AvgPool2d(2)
        for parameter in self.parameters():
            parameter.requires_grad = False

    def forward(self, x):
        first = F.relu(self.slices[0](x))
        return first, F.relu(self.slices[1](self.pool(first)))


def gram(features):
    batch, channels, height, width = features.size()
    flat = features.view(batch, channels, height * width)
    return flat.bmm(flat.transpose(1, 2)) / (channels * height * width)


def main(steps=20):
    torch.manual_seed(42)
    painter, critic = Painter(), Critic().eval()
    optimizer = optim.Adam(painter.parameters(), lr=3e-3)
    with torch.no_grad():
        style = [gram(f) for f in critic(torch.rand(1, 3, SIZE, SIZE).expand(2, -1, -1, -1))]
    losses = []
    for _ in range(steps):
        content = torch.rand(2, 3, SIZE, SIZE)
        painted = painter(content)
        seen, wanted = critic(painted), critic(content)
        loss = CONTENT * F.mse_loss(seen[1], wanted[1])
        loss = loss + STYLE * sum(F.mse_loss(gram(f), target, reduction="sum") for f, target in zip(seen, style))
        loss = loss + SMOOTH * (painted[..., 1:, :] - painted[..., :-1, :]).abs().sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(painter.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main())

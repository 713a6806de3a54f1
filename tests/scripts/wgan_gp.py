"""A generator of points on rings: a critic whose slope is held near one, and averaged weights for the samples."""

import math

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, IterableDataset

NOISE, BATCH, PENALTY = 4, 16, 10.0


class Rings(IterableDataset):
    """Points without end on two circles."""

    def __iter__(self):
        while True:
            angle = torch.rand(()) * 2 * math.pi
            radius = 1.0 + torch.randint(0, 2, ()).item()
            yield torch.stack([angle.cos(), angle.sin()]) * radius + 0.05 * torch.randn(2)


def mlp(inputs, outputs, last=None, width=24):
    layers = [nn.Linear(inputs, width), nn.LeakyReLU(0.2, inplace=True), nn.Linear(width, width), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs), *([last] if last else []))


def gradient_penalty(critic, real, fake):
    share = torch.rand(real.size(0), 1)
    between = torch.lerp(real, fake, share).requires_grad_(True)
    scores = critic(between)
    (slopes,) = torch.autograd.grad(
        outputs=scores, inputs=between, grad_outputs=torch.ones_like(scores), create_graph=True, retain_graph=True
    )
    return ((slopes.norm(2, dim=1) - 1) ** 2).mean()


def main(steps=20):
    torch.manual_seed(9)
    generator, critic = mlp(NOISE, 2, nn.Hardtanh(-3.0, 3.0)), mlp(2, 1)
    critic[0] = nn.utils.parametrizations.spectral_norm(critic[0])
    average = optim.swa_utils.AveragedModel(generator, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for_generator = optim.RMSprop(generator.parameters(), lr=1e-3, alpha=0.9)
    for_critic = optim.NAdam(critic.parameters(), lr=2e-3)
    points = iter(DataLoader(Rings(), batch_size=BATCH))
    losses = []
    for _ in range(steps):
        for _ in range(2):
            real = next(points)
            with torch.no_grad():
                fake = generator(torch.randn(BATCH, NOISE))
            distance = critic(fake).mean() - critic(real).mean()
            loss = distance + PENALTY * gradient_penalty(critic, real, fake)
            for_critic.zero_grad()
            loss.backward()
            for_critic.step()
        for parameter in critic.parameters():
            parameter.requires_grad_(False)
        judged = -critic(generator(torch.randn(BATCH, NOISE))).mean()
        for_generator.zero_grad()
        judged.backward()
        for_generator.step()
        for parameter in critic.parameters():
            parameter.requires_grad_(True)
        average.update_parameters(generator)
        losses.append(loss.item())
    with torch.no_grad():
        samples = average(torch.randn(64, NOISE))
    return [*losses, samples.norm(dim=1).mean().item()]


if __name__ == "__main__":
    print(main())

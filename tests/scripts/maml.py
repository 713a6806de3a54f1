"""Learning to learn: weights from which one step of descent fits any sine, by gradients through that step."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

RATE = 0.05


class Regressor(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.out = nn.Linear(width, 1)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return self.scale * self.out(self.layers(x))


def sample_task(points=10):
    """Points of one sine of random height and phase: some to learn from, some to be judged by."""
    height, phase = torch.empty(1).uniform_(0.1, 5.0), torch.rand(1) * 3.14
    x = torch.empty(2, points, 1).uniform_(-5.0, 5.0)
    y = height * torch.sin(x + phase)
    return (x[0], y[0]), (x[1], y[1])


def adapt(model, parameters, x, y, first_order=False):
    """The parameters after a step of descent, as a function of those before it."""
    loss = F.mse_loss(torch.func.functional_call(model, parameters, (x,)), y)
    slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=not first_order)
    return {name: value - RATE * slope for (name, value), slope in zip(parameters.items(), slopes)}


def sharpness(model, x, y):
    """The curvature of the loss along its own gradient: a product with the Hessian, without the Hessian."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    slopes = torch.autograd.grad(F.mse_loss(model(x), y), parameters, create_graph=True)
    square = sum((slope * slope.detach()).sum() for slope in slopes)
    products = torch.autograd.grad(square, parameters)
    return sum((product * slope).sum() for product, slope in zip(products, slopes)).item()


def main(steps=20, tasks=4):
    torch.manual_seed(11)
    model = Regressor()
    optimizer = optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(tasks):
            (x, y), (judged_x, judged_y) = sample_task()
            parameters = dict(model.named_parameters())
            for _ in range(2):
                parameters = adapt(model, parameters, x, y, first_order=step % 4 == 3)
            total = total + F.mse_loss(torch.func.functional_call(model, parameters, (judged_x,)), judged_y) / tasks
        total.backward()
        optimizer.step()
        losses.append(total.item())
    (x, y), _ = sample_task()
    return [*losses, sharpness(model, x, y)]


if __name__ == "__main__":
    print(main())

"""A polynomial fitted three ways: a layer over powers, weights kept by hand, and gradients asked for by name."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

DEGREE = 4


def make_features(x):
    """A matrix whose columns are x, x^2, ..., x^DEGREE."""
    x = x.unsqueeze(1)
    return torch.cat([x**power for power in range(1, DEGREE + 1)], 1)


def make_batch(weight, bias, size=32):
    x = torch.rand(size) * 2 - 1
    features = make_features(x)
    return features, features.mm(weight) + bias + 0.01 * torch.randn(size, 1)


def describe(weight, bias):
    terms = [f"{w:+.2f} x^{power}" for power, w in enumerate(weight.view(-1).tolist(), 1)]
    return "y = " + " ".join([*terms, f"{bias.item():+.2f}"])


def fit_layer(weight, bias, steps):
    """A linear layer, with an optimiser that has momentum."""
    layer = nn.Linear(DEGREE, 1)
    optimizer = optim.SGD(layer.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    losses = []
    for _ in range(steps):
        x, y = make_batch(weight, bias)
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(layer(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, describe(layer.weight, layer.bias)


def fit_by_hand(weight, bias, steps):
    """Two leaves and a rate: the update is written out, and gradients are cleared by hand."""
    w = torch.randn(DEGREE, 1, requires_grad=True)
    b = torch.zeros(1, requires_grad=True)
    losses = []
    for _ in range(steps):
        x, y = make_batch(weight, bias)
        loss = (x @ w + b - y).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for leaf in (w, b):
                leaf -= 0.2 * leaf.grad
                leaf.grad.zero_()
        losses.append(loss.item())
    return losses, describe(w, b)


def fit_functionally(weight, bias, steps):
    """The gradients come back from a call, and each step makes new leaves."""
    w, b = torch.randn(DEGREE, 1), torch.zeros(1)
    losses = []
    for _ in range(steps):
        x, y = make_batch(weight, bias)
        w, b = w.detach().requires_grad_(), b.detach().requires_grad_()
        loss = F.mse_loss(torch.addmm(b, x, w), y) + 1e-3 * w.abs().sum()
        slope_w, slope_b = torch.autograd.grad(loss, (w, b))
        w, b = w - 0.2 * slope_w, b - 0.2 * slope_b
        losses.append(loss.item())
    return losses, describe(w, b)


def main(steps=20):
    torch.manual_seed(0)
    weight, bias = torch.randn(DEGREE, 1) * 5, torch.randn(1) * 5
    losses = []
    for fit in (fit_layer, fit_by_hand, fit_functionally):
        found, polynomial = fit(weight, bias, steps)
        assert polynomial.count("x^") == DEGREE
        losses += found
    return losses


if __name__ == "__main__":
    print(main())

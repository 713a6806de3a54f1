"""Sine waves learnt by two LSTM cells in float64 with L-BFGS, and training taken up again from saved states."""

import io

import torch
import torch.nn as nn
import torch.optim as optim

STEPS = 5  # a step searches along a line, so that rounding grows from one to the next
COUNT, LENGTH, PERIOD = 6, 16, 8


class Sequence(nn.Module):
    def __init__(self, hidden=10):
        super().__init__()
        self.hidden = hidden
        self.lstm1 = nn.LSTMCell(1, hidden)
        self.lstm2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, waves, future=0):
        """What follows each point of the waves, then `future` points told from the model's own words."""
        zeros = [torch.zeros(waves.size(0), self.hidden, dtype=torch.double) for _ in range(4)]
        state1, state2 = (zeros[0], zeros[1]), (zeros[2], zeros[3])
        outputs = []
        for point in waves.split(1, dim=1):
            state1 = self.lstm1(point, state1)
            state2 = self.lstm2(state1[0], state2)
            outputs.append(self.linear(state2[0]))
        for _ in range(future):
            state1 = self.lstm1(outputs[-1], state1)
            state2 = self.lstm2(state1[0], state2)
            outputs.append(self.linear(state2[0]))
        return torch.cat(outputs, dim=1)


def make_waves():
    shifts = torch.randint(-4 * PERIOD, 4 * PERIOD, (COUNT, 1))
    return torch.sin((torch.arange(LENGTH) + shifts).double() / PERIOD * 4)


def make_trainer(waves):
    """A model, its optimiser, and a function that takes one step and tells the loss before it."""
    inputs, targets = waves[2:, :-1], waves[2:, 1:]
    model = Sequence().double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(model.parameters(), lr=0.8, max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        return loss

    return model, optimizer, lambda: optimizer.step(closure).item()


def main(steps=STEPS):
    torch.manual_seed(0)
    waves = make_waves()
    model, optimizer, step = make_trainer(waves)
    losses = [step() for _ in range(steps)]

    # A second model starts where the first one stands: the same steps follow.
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    saved.seek(0)
    states = torch.load(saved)
    again, optimizer, step_again = make_trainer(waves)
    again.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    for _ in range(2):
        losses.append(step())
        assert abs(losses[-1] - step_again()) < 1e-9

    with torch.no_grad():
        told = again(waves[:2, :-1], future=5)
        losses.append(nn.functional.mse_loss(told[:, :-5], waves[:2, 1:]).item())
        losses += told[0, -5:].tolist()
    return losses


if __name__ == "__main__":
    print(main())

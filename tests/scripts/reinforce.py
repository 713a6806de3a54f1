"""Policy gradient on a chain of cells: a step right leads to the prize, and the floor slips at times."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

GAMMA = 0.95


class Chain:
    """Cells in a row: the walk starts in the middle, ends at either end, and only the right end pays."""

    actions = 3

    def __init__(self, length=9, slip=0.1, seed=0):
        self.length, self.slip, self.luck = length, slip, random.Random(seed)

    def reset(self):
        self.cell = self.length // 2
        return self.observe()

    def step(self, action):
        move = self.luck.choice([-1, 0, 1]) if self.luck.random() < self.slip else action - 1
        self.cell += move
        done = self.cell in (0, self.length - 1)
        reward = 1.0 if self.cell == self.length - 1 else -0.02
        return self.observe(), reward, done

    def observe(self):
        place = torch.zeros(self.length)
        place[self.cell] = 1.0
        return place


class Policy(nn.Module):
    def __init__(self, cells, actions):
        super().__init__()
        self.hidden = nn.Linear(cells, 24)
        self.dropout = nn.Dropout(p=0.2)
        self.actions = nn.Linear(24, actions)

    def forward(self, x):
        return F.softmax(self.actions(F.relu(self.dropout(self.hidden(x)))), dim=-1)


def play(environment, policy, limit=30):
    """One walk: its rewards, and the log probability and entropy of each choice."""
    observation, done = environment.reset(), False
    rewards, scores, entropies = [], [], []
    while not done and len(rewards) < limit:
        choice = Categorical(policy(observation.unsqueeze(0)))
        action = choice.sample()
        observation, reward, done = environment.step(action.item())
        rewards.append(reward)
        scores.append(choice.log_prob(action))
        entropies.append(choice.entropy())
    return rewards, torch.cat(scores), torch.cat(entropies)


def discount(rewards):
    """The returns of a walk, each from its step to the end."""
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + GAMMA * total
        returns.insert(0, total)
    return torch.tensor(returns)


def main(steps=20):
    torch.manual_seed(1)
    environment = Chain(seed=2)
    policy = Policy(environment.length, environment.actions)
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        rewards, scores, entropies = play(environment, policy)
        loss = -(scores * discount(rewards)).sum() - 0.01 * entropies.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main())

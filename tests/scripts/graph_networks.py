"""Nodes of a graph told apart from a few labels: a graph convolution, and attention over neighbours."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

NODES, FEATURES, CLASSES = 48, 12, 3


def make_graph():
    """Communities with many links inside and few between them, and features that hint at the community."""
    labels = torch.arange(NODES) % CLASSES
    chances = torch.where(labels[:, None] == labels[None, :], 0.3, 0.03)
    upper = torch.bernoulli(chances).triu(diagonal=1)
    adjacency = upper + upper.t() + torch.eye(NODES)
    features = torch.randn(NODES, FEATURES)
    features[torch.arange(NODES), labels] += 1.5
    return adjacency, F.normalize(features, p=1, dim=1), labels


def symmetric(adjacency):
    """D^-1/2 A D^-1/2."""
    scale = adjacency.sum(1).pow(-0.5)
    return scale[:, None] * adjacency * scale[None, :]


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        if bias:
            self.bias = nn.Parameter(torch.zeros(outputs))
        else:
            self.register_parameter("bias", None)
        nn.init.kaiming_normal_(self.weight)

    def forward(self, x, adjacency):
        x = torch.mm(adjacency, torch.mm(x, self.weight))
        return x if self.bias is None else x + self.bias


class GraphAttention(nn.Module):
    """Heads weigh the neighbours of a node by a softmax where strangers have no share."""

    def __init__(self, inputs, outputs, heads):
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self.lift = nn.Linear(inputs, heads * outputs, bias=False)
        self.score = nn.Parameter(torch.empty(heads, 2 * outputs))
        nn.init.xavier_uniform_(self.score, gain=1.4)

    def forward(self, x, adjacency):
        x = self.lift(F.dropout(x, 0.2, training=self.training)).view(-1, self.heads, self.outputs)
        source, target = (torch.einsum("nhd,hd->hn", x, part) for part in self.score.chunk(2, dim=1))
        scores = F.leaky_relu(source.unsqueeze(2) + target.unsqueeze(1), 0.2)
        shares = torch.softmax(scores.masked_fill(adjacency == 0, float("-inf")), dim=-1)
        return torch.matmul(shares, x.permute(1, 0, 2)).permute(1, 0, 2).flatten(1)


class Network(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second, self.dropout = first, second, nn.Dropout(0.3)

    def forward(self, x, adjacency):
        x = self.dropout(F.elu(self.first(x, adjacency)))
        return F.log_softmax(self.second(x, adjacency), dim=1)


def train(network, x, adjacency, labels, steps):
    order = torch.randperm(NODES)
    seen, held = order[:18], order[18:]
    optimizer = optim.Adam(network.parameters(), lr=0.02, weight_decay=5e-4)
    losses = []
    for _ in range(steps):
        network.train()
        optimizer.zero_grad()
        loss = F.nll_loss(network(x, adjacency)[seen], labels[seen])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    network.eval()
    with torch.no_grad():
        right = (network(x, adjacency)[held].argmax(1) == labels[held]).float().mean()
    return [*losses, right.item()]


def main(steps=20):
    torch.manual_seed(7)
    adjacency, x, labels = make_graph()
    convolution = Network(GraphConv(FEATURES, 16), GraphConv(16, CLASSES, bias=False))
    attention = Network(GraphAttention(FEATURES, 6, heads=3), GraphAttention(18, CLASSES, heads=1))
    losses = train(convolution, x, symmetric(adjacency), labels, steps)
    return losses + train(attention, x, adjacency, labels, steps)


if __name__ == "__main__":
    print(main())

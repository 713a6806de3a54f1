"""A language model of words: two layers of LSTM, truncated backpropagation, clipped gradients, plain SGD."""

import torch
import torch.nn as nn

WORDS, BPTT, BATCH = 30, 6, 5


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout=0.2):
        super().__init__()
        self.nhid, self.nlayers = nhid, nlayers
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.init_weights()

    def init_weights(self):
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, tokens, hidden):
        emb = self.drop(self.encoder(tokens))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return decoded.view(-1, decoded.size(-1)), hidden

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, batch, self.nhid), weight.new_zeros(self.nlayers, batch, self.nhid))


def make_corpus(length):
    """Text of a chain in which each word has a few likely followers."""
    followers = torch.softmax(3 * torch.randn(WORDS, WORDS), dim=1)
    words = [0]
    for _ in range(length - 1):
        words.append(torch.multinomial(followers[words[-1]], 1).item())
    return torch.tensor(words)


def batchify(data, batch):
    rows = data.size(0) // batch
    return data.narrow(0, 0, rows * batch).view(batch, -1).t().contiguous()


def get_batch(source, i):
    length = min(BPTT, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].view(-1)


def repackage_hidden(h):
    """The same states, without the history that made them."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def main(steps=20):
    torch.manual_seed(1111)
    train_data = batchify(make_corpus(315), BATCH)
    model = RNNModel(WORDS, ninp=16, nhid=16, nlayers=2)
    criterion = nn.CrossEntropyLoss()
    lr, losses = 2.0, []
    while len(losses) < steps:
        model.train()
        hidden = model.init_hidden(BATCH)
        for i in range(0, train_data.size(0) - 1, BPTT):
            data, targets = get_batch(train_data, i)
            model.zero_grad()
            hidden = repackage_hidden(hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
            losses.append(loss.item())
        lr /= 1.25
    return losses[:steps]


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.6f}")

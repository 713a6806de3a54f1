"""A language model of words: a transformer's encoder under a causal mask, AdamW with a warm-up."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

WORDS, LENGTH, BATCH, WARMUP = 24, 10, 6, 5


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=64):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(1))

    def forward(self, x):
        return self.dropout(x + self.pe[: x.size(0)])


class TransformerModel(nn.Module):
    def __init__(self, ntoken, d_model, nhead, d_hid, nlayers, dropout=0.1):
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(ntoken, d_model)
        self.pos_encoder = PositionalEncoding(d_model, dropout)
        layer = nn.TransformerEncoderLayer(d_model, nhead, d_hid, dropout)
        self.encoder = nn.TransformerEncoder(layer, nlayers, enable_nested_tensor=False)
        self.linear = nn.Linear(d_model, ntoken)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, src, src_mask):
        x = self.embedding(src) * math.sqrt(self.d_model)
        x = self.encoder(self.pos_encoder(x), src_mask)
        return F.log_softmax(self.linear(x), dim=-1)


def make_batches(count):
    """Sequences that count up by a step of their own, with a word in ten replaced by noise."""
    start = torch.randint(WORDS, (count, 1, BATCH))
    stride = torch.randint(1, 4, (count, 1, BATCH))
    words = (start + stride * torch.arange(LENGTH + 1).view(1, -1, 1)) % WORDS
    noise = torch.rand(words.shape) < 0.1
    return torch.where(noise, torch.randint_like(words, WORDS), words)


def main(steps=20):
    torch.manual_seed(3)
    batches = make_batches(steps)
    model = TransformerModel(WORDS, d_model=16, nhead=2, d_hid=32, nlayers=2)
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    criterion = nn.NLLLoss()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98), weight_decay=0.01)
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))

    model.train()
    losses = []
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        output = model(batch[:-1], mask)
        loss = criterion(output.view(-1, WORDS), batch[1:].reshape(-1))
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.6f}")

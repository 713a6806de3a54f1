"""Pictures cut into patches and read by a transformer, twice: layers of the library, and blocks written out."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

SIZE, PATCH, WIDTH, HEADS, CLASSES = 12, 4, 16, 4, 5


class Block(nn.Module):
    """Attention, then a small network; each reads normal values and adds to what it read."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width, eps=1e-6)
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, kernel_size=PATCH, stride=PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.empty(1, 1 + (SIZE // PATCH) ** 2, WIDTH))
        self.encoder = encoder
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        nn.init.trunc_normal_(self.token, std=0.02)
        nn.init.trunc_normal_(self.places, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.encoder(x))[:, 0])


def make_encoders():
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 2 * WIDTH, 0.1, activation="gelu", batch_first=True, norm_first=True
    )
    yield nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    yield nn.Sequential(*[Block(WIDTH, HEADS) for _ in range(2)])


def train(model, data, steps):
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = optim.AdamW(
        [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}], lr=3e-3
    )
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps, eta_min=1e-5)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    losses = []
    while len(losses) < steps:
        for pictures, labels in DataLoader(data, batch_size=8, shuffle=True):
            loss = criterion(model(pictures), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    return [*losses, scheduler.get_last_lr()[0]]


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    pictures, labels = data.tensors
    return F.cross_entropy(model(pictures), labels).item()


def main(steps=20):
    torch.manual_seed(3)
    labels = torch.randint(0, CLASSES, (32,))
    pictures = torch.randn(CLASSES, 3, SIZE, SIZE)[labels] + torch.randn(32, 3, SIZE, SIZE)
    data = TensorDataset(pictures, labels)
    losses = []
    for encoder in make_encoders():
        model = VisionTransformer(encoder)
        losses += train(model, data, steps)
        losses.append(evaluate(model, data))
    return losses


if __name__ == "__main__":
    print(main())

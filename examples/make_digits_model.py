"""Trains the small network that the demo runs, and writes it with the samples.

    pip install torch==2.13.0 scikit-learn onnx
    python examples/make_digits_model.py weft/data

scikit-learn ships 1,797 handwritten digits of 8x8 pixels; a fifth is held out and never trained on.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

EPOCHS = 60


def network() -> nn.Sequential:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, 16), *block(16, 32), nn.MaxPool2d(2), *block(32, 64), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64, 10)
    )


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    steps = EPOCHS * (len(images) // 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    for step in range(steps):
        batch = torch.randint(0, len(images), (64,))
        shift = tuple(torch.randint(-1, 2, (2,)).tolist())
        moved = torch.roll(images[batch], shift, (2, 3))
        loss = nn.functional.cross_entropy(model(moved), labels[batch], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0:
            print(f"step {step}/{steps} loss {loss.item():.3f}", flush=True)
    model.eval()


def to_onnx(model: nn.Sequential) -> onnx.ModelProto:
    nodes, weights, value = [], [], "input"

    def constant(name: str, tensor: torch.Tensor) -> str:
        weights.append(numpy_helper.from_array(tensor.detach().numpy(), name))
        return name

    for number, layer in enumerate(model):
        name = f"layer{number}"
        match layer:
            case nn.Conv2d():
                args = [constant(f"{name}.{k}", v) for k, v in layer.named_parameters()]
                attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
                op = "Conv"
            case nn.BatchNorm2d():
                keys = ("weight", "bias", "running_mean", "running_var")
                args = [constant(f"{name}.{key}", getattr(layer, key)) for key in keys]
                op, attrs = "BatchNormalization", {"epsilon": layer.eps}
            case nn.ReLU():
                op, args, attrs = "Relu", [], {}
            case nn.MaxPool2d() | nn.AvgPool2d():
                size = [layer.kernel_size] * 2
                op = "MaxPool" if isinstance(layer, nn.MaxPool2d) else "AveragePool"
                args, attrs = [], {"kernel_shape": size, "strides": size}
            case nn.Flatten():
                op, args, attrs = "Flatten", [], {"axis": 1}
            case nn.Linear():
                args = [constant(f"{name}.{k}", v) for k, v in layer.named_parameters()]
                op, attrs = "Gemm", {"transB": 1}
        output = "logits" if number == len(model) - 1 else name
        nodes.append(helper.make_node(op, [value, *args], [output], name, **attrs))
        value = output
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def main(folder: Path) -> None:
    torch.manual_seed(0)
    data = load_digits()
    images = (data.images[:, None] / 16).astype("float32")
    split = train_test_split(images, data.target, test_size=0.2, random_state=0, stratify=data.target)
    train_x, test_x, train_y, test_y = split
    model = network()
    train(model, torch.tensor(train_x), torch.tensor(train_y))
    with torch.no_grad():
        logits = model(torch.tensor(test_x)).numpy()
    print(f"held-out accuracy {(logits.argmax(1) == test_y).mean():.4f} of {len(test_y)}")
    onnx.save(to_onnx(model), folder / "digits.onnx")
    for name, x, y in (("digits", test_x, test_y), ("digits_train", train_x, train_y)):
        pixels = np.round(x * 16).astype("uint8")
        np.savez_compressed(folder / f"{name}.npz", images=pixels, labels=y.astype("uint8"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Trains a perceptron on the shipped handwritten digits: loss, gradients and updates in one graph.

python examples/train_symbolic.py
"""

import numpy as np

import weft
from weft import symbol as sym
from weft.tools.demo import DATA

BATCH, STEPS, HELD_OUT = 30, 300, 60


def load() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DATA / "digits.npz", allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    return (images.reshape(len(images), -1) / 16).astype("float32"), labels


def main() -> None:
    x, labels = load()
    one_hot = np.eye(10, dtype="float32")[labels]

    net = sym.Variable("x", shape=(BATCH, 64))
    for number, units in enumerate((32, 10)):
        net = sym.dense(sym.relu(net) if number else net, units=units, name=f"fc{number}")
    scores = sym.log_softmax(net)
    loss = sym.sum(scores * sym.Variable("label", shape=(BATCH, 10))) * (-1 / BATCH)
    weights = [v for v in net.list_input_variables() if v.attr("name") != "x"]
    updates = weft.compiler.optimizer.Adam(learning_rate=0.01).minimize(loss, weights)

    step, lib, state = weft.compiler.build(sym.Group([loss, scores, updates]), "llvm")
    module = weft.runtime.create(step, lib)
    module.set_input(**state)
    random = np.random.default_rng(0)
    for weight in weights:
        name = weight.attr("name")
        shape = module.get_input(name).shape
        module.set_input(name, (random.standard_normal(shape) * 0.1).astype("float32"))

    train = len(x) - HELD_OUT
    for number in range(STEPS):
        batch = random.integers(0, train, BATCH)
        module.run(x=x[batch], label=one_hot[batch])
        if number % 50 == 0 or number == STEPS - 1:
            print(f"step {number:3}  loss {module.get_output(0).asnumpy().item():.4f}")

    infer, code, _ = weft.compiler.build(scores, "llvm")
    trained = weft.runtime.create(infer, code)
    trained.set_input(**{w.attr("name"): module.get_input(w.attr("name")) for w in weights})
    right = 0
    for start in range(train, len(x), BATCH):
        trained.run(x=x[start : start + BATCH])
        found = trained.get_output(0).asnumpy().argmax(axis=1)
        right += int((found == labels[start : start + BATCH]).sum())
    print(f"{right} of {HELD_OUT} held-out digits are right")


if __name__ == "__main__":
    main()

"""A new operator: registered, checked, composed, differentiated, compiled and run, and applied to
tensors.

python examples/new_op.py
"""

import numpy as np

import weft
from weft import symbol as sym
from weft import te
from weft.core.schema import FLOAT, attr, schema
from weft.ops import F, pointwise, unary


@schema
class SwishAttrs:
    beta: float = attr(FLOAT, "how steep the gate is", default=1.0, low=0)


def slope(ctx, grad):
    (x,), (y,), beta = ctx.inputs, ctx.outputs, ctx.params.beta
    return [grad * (y * beta + F.sigmoid(x * beta) * (1 - y * beta))]


swish = unary("my_swish", "x * sigmoid(beta * x)", level=10, attrs=SwishAttrs)
swish.reference = lambda p, x: (x / (1 + np.exp(-p.beta * x))).astype(x.dtype)
swish.compute = pointwise(lambda p, x: x * te.sigmoid(x * p.beta))
swish.gradient = slope


def main() -> None:
    weft.testing.check_op("my_swish")
    print("my_swish: inference, reference, body, machine code and gradient agree")

    net = sym.my_swish(sym.dense(sym.Variable("x"), units=8, name="fc"), beta=2.0)
    rng = np.random.default_rng(0)
    params = {"fc_weight": rng.standard_normal((8, 4)), "fc_bias": rng.standard_normal(8)}
    params = {name: value.astype("float32") for name, value in params.items()}
    model = weft.compile(net, shape={"x": (2, 4)}, params=params)
    x = rng.standard_normal((2, 4)).astype("float32")
    hidden = x @ params["fc_weight"].T + params["fc_bias"]
    error = np.abs(model(x)[0] - hidden / (1 + np.exp(-2 * hidden))).max()
    print(f"compiled with dense: {len(model.report().host_steps)} host steps, error {error:.1e}")

    ones = weft.ones(3, requires_grad=True)
    weft.my_swish(ones, beta=2.0).sum().backward()
    print(f"its slope at 1: {ones.grad[0].item():.4f}")


if __name__ == "__main__":
    main()

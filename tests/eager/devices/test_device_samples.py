"""Functions of the table on a GPU without one, on samples of PyTorch's operator database."""

import pytest
from oracles import installed, skip

if not installed("torch"):
    skip("torch")  # its database names the cases
from samples import failures, names_to_try, torch

pytestmark = pytest.mark.usefixtures("gpu")

# One of each kind of kernel, and of each way in which functions use operators.
TELLING = """
add div pow exp nn.functional.gelu where clamp sigmoid cumsum sum mean var amax argmax norm softmax log_softmax
matmul bmm addmm nn.functional.linear nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.max_pool2d
nn.functional.avg_pool2d nn.functional.layer_norm nn.functional.batch_norm nn.functional.group_norm
nn.functional.cross_entropy nn.functional.embedding nn.functional.scaled_dot_product_attention
nn.functional.interpolate nn.functional.dropout cat stack split index_select gather scatter scatter_add masked_fill
masked_select index_put sort topk unique roll flip tril diag_embed unfold einsum cholesky linalg.svd
linalg.solve fft.rfft nonzero isclose floor_divide repeat kron
""".split()
# What takes long in the interpreter.
SLOW = {"nn.functional.ctc_loss", "grid_sampler_3d", "nn.functional.conv_transpose3d", "nn.functional.grid_sample"}
PARTS = 8
NAMES = [name for name in names_to_try() if name not in SLOW]


def must_agree(names, first):
    tried = 0
    for name in names:
        count, wrong = failures(name, first, (torch.float32,))
        assert not wrong, f"{name}: " + "\n".join(wrong[:3])
        tried += count
    assert tried >= len(names) * 0.8


@pytest.mark.parametrize("part", range(4))
def test_telling_functions(part):
    must_agree(TELLING[part::4], 2)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_functions(part):
    must_agree(NAMES[part::PARTS], 1)

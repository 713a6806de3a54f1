"""vmap of the functions of the table against a loop over the batch, on samples of PyTorch's operator database: values,
and gradients inside and outside of the map."""

from __future__ import annotations

import pytest
from oracles import installed, skip

if not installed("torch"):
    skip("torch")  # its database names the cases
from opinfo import compared
from opinfo_lists import LEFT_OUT
from over_batches import tally

RANDOM = set(
    "bernoulli cauchy exponential geometric log_normal multinomial normal pca_lowrank rand_like randint_like "
    "randn_like svd_lowrank uniform nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d "
    "nn.functional.dropout3d nn.functional.feature_alpha_dropout nn.functional.fractional_max_pool2d "
    "nn.functional.fractional_max_pool3d nn.functional.multi_head_attention_forward nn.functional.rrelu "
    "nn.functional.scaled_dot_product_attention".split()
)
OTHERS = set(
    "empty_like new_empty new_empty_strided "  # memory that nobody set
    "resize_ "  # of a batch it would be another batch
    "nn.functional.batch_norm native_batch_norm "  # running moments that are not batched do not move
    "nn.functional.triplet_margin_with_distance_loss "  # its samples are modules
    "half bfloat16".split()  # sums of gradients are rounded in another order
)
NAMES = [name for name in compared() if name not in {*LEFT_OUT, *RANDOM, *OTHERS}]
FEWEST = 500


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_batches(name):
    _, failed, _ = tally(name, first=2)
    assert failed == []


def test_most_functions_are_compared():
    assert len(NAMES) >= FEWEST

"""What builds put in place of norms and gradients where channels are last: windows laid out, products and sums over
pixels."""

from . import channels, patches

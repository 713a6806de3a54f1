"""Files for TensorBoard: `SummaryWriter` writes what a run tells. The format is written here, so that the package
`tensorboard` is needed only to look at it."""

from .writer import SummaryWriter

__all__ = ["SummaryWriter"]

"""DistributedSampler: the part of an order that one of several processes takes."""

from __future__ import annotations

from collections.abc import Iterator, Sized

from ...base.errors import InvalidValue
from ...eager.functions.random.fill import randperm
from ...eager.random.generator import Generator
from .sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index, from `rank` on. All processes draw one order, from `seed` and the epoch, and get
    the same number of indices: some come twice, or with `drop_last` some are left out.

    >>> [list(DistributedSampler(range(5), 2, rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            raise InvalidValue(
                "DistributedSampler needs to know how many processes there are, and which this one is",
                why="weft has no process groups that it could ask",
                hint="give num_replicas and rank",
            )
        if not 0 <= rank < num_replicas:
            raise InvalidValue(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0

    @property
    def num_samples(self) -> int:
        """How many indices each process gets."""
        size = len(self.dataset)
        return size // self.num_replicas if self.drop_last else -(-size // self.num_replicas)

    @property
    def total_size(self) -> int:
        """How many indices all processes get together."""
        return self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        order: list[int] = list(range(size))
        if self.shuffle:
            order = randperm(size, generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        return iter([order[i % size] for i in range(self.rank, self.total_size, self.num_replicas)])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch begins, so that its order is another one."""
        self.epoch = epoch

"""Datasets that processes load in tests: in a module of their own, which processes that do not fork can import."""

import os
import random
import signal

import weft
from weft.utils.data import Dataset, IterableDataset, get_worker_info


class Told(Dataset):
    """Samples that tell who loaded them."""

    def __init__(self, size=8):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        info = get_worker_info()
        return index, info.id, info.num_workers, info.seed, weft.rand(2).tolist(), random.random()


class Squares(Dataset):
    def __init__(self, size=12):
        self.x = weft.arange(size).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "y": self.x[index] ** 2, "name": str(index)}


class Failing(Squares):
    """Raises what it is given at index 3."""

    def __init__(self, error):
        super().__init__(6)
        self.error = error

    def __getitem__(self, index):
        if index == 3:
            raise self.error
        return index


class Dying(Squares):
    """Ends its process at index 3."""

    def __init__(self, how):
        super().__init__(8)
        self.how = how

    def __getitem__(self, index):
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL) if self.how == "killed" else os._exit(7)
        return index


class Uneven(IterableDataset):
    """Another number of samples from each worker."""

    counts = (5, 1, 8)

    def __iter__(self):
        info = get_worker_info()
        return iter([(info.id, number) for number in range(self.counts[info.id])])


class Settings(Dataset):
    """How a worker is set up."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        product = weft.ones(300, 300) @ weft.ones(300, 300)
        return weft.get_num_threads(), product[0, 0].item(), os.getpid()


def as_they_are(samples):
    return samples


def first(samples):
    return samples[0]


class Interrupted(Squares):
    """Somebody presses Ctrl-C while a process that is being started reads this."""

    def __setstate__(self, state):
        os.kill(os.getpid(), signal.SIGINT)
        self.__dict__.update(state)

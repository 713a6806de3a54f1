"""DataLoader: batches of a dataset, made in this process or by workers."""

from __future__ import annotations

import itertools
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any, Generic, TypeVar

from ...base.errors import InvalidType, InvalidValue
from ...base.machine import usable_cores
from ...eager.random.generator import Generator
from ...eager.torch_core.exception_wrapper import ExceptionWrapper
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .errors import InvalidData
from .fetching import fetcher
from .processes import Processes
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, batches
from .seeds import draw_seed
from .worker import Ended, Job, Task

T_co = TypeVar("T_co", covariant=True)
PREFETCH = 2  # batches that a worker is ahead, if not told otherwise
_FIXED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class _Endless(Sampler[None]):
    """Stands for the order of samples that come in their own."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """Batches of a dataset, in an order that a sampler says.

    With `num_workers` batches are made ahead of time by so many processes and come through shared memory; an exception
    of a worker is raised here, with its traceback as text. Workers have a thread and a seed each: that of the epoch
    plus their number, for weft, Python's `random` and numpy; `worker_init_fn` may seed other libraries.

    >>> [batch.tolist() for batch in DataLoader(range(5), batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset, self.num_workers, self.timeout = dataset, num_workers, timeout
        self.prefetch_factor = PREFETCH if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.generator, self.in_order = worker_init_fn, generator, in_order
        self.multiprocessing_context = multiprocessing_context
        if isinstance(dataset, IterableDataset):
            _check_no_order(shuffle, sampler, batch_sampler)
            sampler = _Endless()
        elif sampler is not None and shuffle:
            raise InvalidValue("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or drop_last or sampler is not None:
                raise InvalidValue(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise InvalidValue("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.sampler, self.batch_sampler = (
            batch_size,
            drop_last,
            sampler,
            batch_sampler,
        )
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)
        self.persistent_workers = persistent_workers
        self._iterator: _Iterator | None = None
        self._said_length: int | None = None
        if num_workers > usable_cores():
            warnings.warn(
                f"This DataLoader will create {num_workers} worker processes in total, where {usable_cores()} of them "
                "can run at once. More than that may be slower, or need more memory than there is.",
                stacklevel=2,
            )
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_made" in vars(self):
            raise InvalidValue(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context of `multiprocessing`, or None for its default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None and not self.num_workers:
            raise InvalidValue(
                "multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
                f"but got num_workers={self.num_workers}"
            )
        if isinstance(context, str):
            methods = multiprocessing.get_all_start_methods()
            if context not in methods:
                raise InvalidValue(
                    f"multiprocessing_context option should specify a valid start method in {methods}, "
                    f"but got multiprocessing_context={context!r}"
                )
            context = multiprocessing.get_context(context)
        if context is not None and not isinstance(context, BaseContext):
            raise InvalidType(
                "multiprocessing_context option should be a valid context object or a string specifying the start "
                f"method, but got multiprocessing_context={context!r:.60}"
            )
        self._context = context

    @property
    def _order(self) -> Iterable[Any]:
        """What workers are asked for, one after the other: lists of indices, or indices where there are no batches."""
        order = self.sampler if self.batch_sampler is None else self.batch_sampler
        assert order is not None
        return order

    def __iter__(self) -> Iterator[T_co]:
        if not self.persistent_workers:
            return _Loaded(self) if self.num_workers else _Made(self)
        if self._iterator is None or self._iterator.is_over():
            self._iterator = _Loaded(self)
        else:
            self._iterator.restart(self)
        return self._iterator

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self._order)  # type: ignore[arg-type]
        self._said_length = length = len(self.dataset)  # type: ignore[arg-type]
        return length if self.batch_size is None else batches(length, self.batch_size, self.drop_last)


def _check_workers(workers: int, timeout: float, prefetch: int | None, persistent: bool) -> None:
    if workers < 0:
        raise InvalidValue("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise InvalidValue("timeout option should be non-negative")
    if not workers and prefetch is not None:
        raise InvalidValue(
            "prefetch_factor option could only be specified in multiprocessing.",
            hint="let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None",
        )
    if prefetch is not None and prefetch < 0:
        raise InvalidValue("prefetch_factor option should be non-negative")
    if persistent and not workers:
        raise InvalidValue("persistent_workers option needs num_workers > 0")


def _check_no_order(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is not None:
            raise InvalidValue(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}",
                hint="the dataset's own __iter__ says the order of its samples",
            )


class _Iterator:
    """One pass over the batches of a loader."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._rewind(loader)
        self._seed = draw_seed(loader.generator)  # PyTorch draws one, with workers and without
        if loader.pin_memory:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be "
                "used.",
                stacklevel=4,
            )

    def _rewind(self, loader: DataLoader[Any]) -> None:
        # A copy: a loader and its persistent iterator that held each other would live on when nobody needs them.
        self._loader = object.__new__(type(loader))
        vars(self._loader).update(vars(loader), _iterator=None)
        self._given, self._indices = 0, iter(loader._order)

    def __iter__(self) -> _Iterator:
        return self

    def __len__(self) -> int:
        return len(self._loader._order)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        batch = self._next()
        self._given += 1
        self._tell_length()
        return batch

    def _next(self) -> Any:
        raise NotImplementedError

    def is_over(self) -> bool:
        """Whether it cannot be used again."""
        return True

    def restart(self, loader: DataLoader[Any]) -> None:
        """Begins another pass with the same workers."""
        raise NotImplementedError

    def _tell_length(self) -> None:
        """Warns when an iterable dataset has more samples than it said, as far as batches can tell."""
        loader = self._loader
        if loader._said_length is None or self._given <= loader._said_length:
            return
        advice = " Each worker iterates the whole dataset: see get_worker_info." if loader.num_workers else ""
        warnings.warn(
            f"Length of IterableDataset {loader.dataset} was reported to be {loader._said_length} (when accessing "
            f"len(dataloader)), but {self._given} samples have been fetched.{advice}",
            stacklevel=3,
        )

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"an iterator of a DataLoader cannot be pickled: {type(self).__name__}")


class _Made(_Iterator):
    """Batches that are made in this process, when they are asked for."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.timeout:
            raise InvalidData(
                f"DataLoader has a timeout of {loader.timeout:g} seconds and no workers",
                why="nothing can be done in this process while it makes a batch itself",
                hint="give num_workers, or timeout=0",
            )
        super().__init__(loader)
        batched = loader.batch_sampler is not None
        self._fetch = fetcher(loader.dataset, batched, loader.collate_fn, loader.drop_last)

    def _next(self) -> Any:
        return self._fetch(next(self._indices))


class _Loaded(_Iterator):
    """Batches that workers make, some ahead of the one that is asked for."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        if not loader.prefetch_factor:
            raise InvalidData("prefetch_factor must be greater than 0 for a DataLoader with workers")
        super().__init__(loader)
        # PyTorch begins twice where there are workers: a sampler that draws when it begins draws the same numbers here.
        self._indices = iter(loader._order)
        job = Job(
            loader.dataset,
            loader.batch_sampler is not None,
            loader.collate_fn,
            loader.drop_last,
            loader.worker_init_fn,
            self._seed,
            loader.num_workers,
        )
        self._processes: Processes | None = Processes(
            loader.multiprocessing_context or multiprocessing.get_context(), job
        )
        self._epoch = 0
        self._begin()

    def _begin(self) -> None:
        workers = len(self._processes or ())
        self._epoch += 1
        self._asked = self._next_number = 0
        self._arrived: dict[int, Any] = {}  # by number of the task
        self._waiting = dict.fromkeys(range(workers), 0)  # tasks that a worker with samples has not answered
        self._turns = itertools.cycle(range(workers))
        for _ in range(workers * (self._loader.prefetch_factor or 0)):
            self._ask()

    def restart(self, loader: DataLoader[Any]) -> None:
        self._rewind(loader)
        self._begin()

    def is_over(self) -> bool:
        return not self._processes

    def _ask(self) -> None:
        """Gives the next task to the worker whose turn it is; if order does not matter, to one that has the fewest."""
        waiting = self._waiting
        if not self._processes or not waiting:
            return
        try:
            indices = next(self._indices)
        except StopIteration:
            return
        fewest = max(waiting.values()) if self._loader.in_order else min(waiting.values())
        worker = next(number for number in self._turns if waiting.get(number, fewest + 1) <= fewest)
        self._processes.ask(worker, Task(self._epoch, self._asked, indices))
        waiting[worker] += 1
        self._asked += 1

    def _next(self) -> Any:
        while self._next_number < self._asked:
            number = self._next_number if self._loader.in_order else next(iter(self._arrived), -1)
            if number not in self._arrived:
                self._listen()
                continue
            outcome = self._arrived.pop(number)
            self._next_number += 1  # how many are done, where they come in any order
            self._ask()
            if isinstance(outcome, ExceptionWrapper):
                outcome.reraise()
            if not isinstance(outcome, Ended):
                return outcome
        if not self._loader.persistent_workers:
            self._stop()
        raise StopIteration

    def _listen(self) -> None:
        """Takes what workers have sent."""
        assert self._processes is not None
        try:
            answers = self._processes.answers(self._loader.timeout)
        except BaseException:  # Ctrl-C as well: an answer may be lost
            self._stop()
            raise
        for worker, (epoch, number, outcome) in answers:
            if epoch != self._epoch:
                continue
            self._arrived[number] = outcome
            if isinstance(outcome, Ended):
                self._waiting.pop(worker, None)
            elif worker in self._waiting:
                self._waiting[worker] -= 1

    def _stop(self) -> None:
        processes, self._processes = self._processes, None
        self._asked = self._next_number
        if processes is not None:
            processes.stop()

"""Batches of a loader by their place in the epoch, and random numbers by their place in the training.

A rank that takes the place of another one begins in the middle of an epoch, and draws the random numbers that the other
one would have drawn. So random numbers are seeded for each batch and each step, from the job's seed, the place, and the
rank; in the worker processes of a DataLoader as well. Of a DataLoader, the batches before that place are not loaded:
only their indices are drawn from the sampler. Batches of an interrupted step are kept, and workers are not restarted.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import random
import sys
from typing import Any, Iterator, Optional

import torch
from torch.utils.data import DataLoader, IterableDataset

END = object()  # follows the last batch of an epoch


def mix(*numbers: int) -> int:
    """Returns a 63-bit hash of integers."""
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), "little") >> 1


def seed_all(value: int) -> None:
    """Seeds PyTorch, NumPy (if loaded) and Python's random."""
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(value)
    random.seed(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(value & 0xFFFFFFFF)


class _Indices(list):
    """Indices of a batch, with the seed of its random numbers."""

    seed: Optional[int] = None


class _BatchSampler:
    """Yields the batches of a batch sampler from `start` on."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.start = inner, 0
        self.key: Optional[tuple[int, ...]] = None  # start of the seeds

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.inner)
        # Samplers draw the order of an epoch with their first index: now, while random numbers are those of the epoch.
        first = next(batches, END)
        numbered = enumerate(itertools.chain(() if first is END else (first,), batches))
        return self._seeded(itertools.islice(numbered, self.start, None), self.key)

    @staticmethod
    def _seeded(numbered: Iterator[tuple[int, Any]], key: Optional[tuple[int, ...]]) -> Iterator[Any]:
        for number, indices in numbered:
            if key is not None and isinstance(indices, (list, tuple)):
                indices = _Indices(indices)
                indices.seed = mix(*key, number)
            yield indices

    def __len__(self) -> int:
        return len(self.inner)


class _Dataset:
    """A dataset that seeds random numbers before it loads a batch."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getitem__(self, index: Any) -> Any:
        return self.inner[index]

    def __getitems__(self, indices: Any) -> Any:
        seed = getattr(indices, "seed", None)
        if seed is not None:
            seed_all(seed)
        load = getattr(self.inner, "__getitems__", None)
        return load(indices) if load is not None else [self.inner[i] for i in indices]

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)  # not unpickled yet
        return getattr(self.inner, name)


class Batches:
    """Batches of a loader, which may be any iterable. `seed`: None leaves random numbers alone."""

    def __init__(self, loader: Any, seed: Optional[int], rank: int) -> None:
        self._loader, self._seed, self._rank = loader, seed, rank
        self._sampler: Optional[_BatchSampler] = None
        self._iterator: Optional[Iterator[Any]] = None
        self._epoch, self._first = -1, 0  # place of the first batch that is kept
        self._kept: list[Any] = []
        plain = isinstance(loader, DataLoader) and type(loader).__iter__ is DataLoader.__iter__
        if plain and loader.batch_sampler is not None and not isinstance(loader.dataset, IterableDataset):
            self._sampler = _BatchSampler(loader.batch_sampler)
            self._loader = copy.copy(loader)
            # DataLoader's own __setattr__ refuses to replace these.
            vars(self._loader).update(dataset=_Dataset(loader.dataset), batch_sampler=self._sampler, _iterator=None)

    def batch(self, epoch: int, number: int) -> Any:
        """Returns the batch with this number in the epoch, or END."""
        if epoch != self._epoch or number < self._first:
            self._begin(epoch, number)
        assert self._iterator is not None
        while number >= self._first + len(self._kept):
            self._seed_for(2, epoch, self._first + len(self._kept))
            self._kept.append(next(self._iterator, END))
        return self._kept[number - self._first]

    def forget(self, number: int) -> None:
        """Drops the batches before the one with this number, as far as they were drawn."""
        drop = min(max(0, number - self._first), len(self._kept))
        del self._kept[:drop]
        self._first += drop

    def _begin(self, epoch: int, number: int) -> None:
        self._epoch, self._first, self._kept, self._iterator = epoch, number, [], None
        samplers = [getattr(self._loader, name, None) for name in ("sampler", "batch_sampler")]
        if self._sampler is not None:
            samplers[1] = self._sampler.inner
            samplers.append(getattr(self._sampler.inner, "sampler", None))
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        self._seed_for(1, epoch, 0)
        if self._sampler is not None:
            self._sampler.start = number
            self._sampler.key = None if self._seed is None else (self._seed, 3, self._rank, epoch)
            self._iterator = iter(self._loader)
            return
        self._iterator = iter(self._loader)
        for skipped in range(number):
            self._seed_for(2, epoch, skipped)
            next(self._iterator, END)

    def _seed_for(self, purpose: int, epoch: int, number: int) -> None:
        if self._seed is not None:
            seed_all(mix(self._seed, purpose, self._rank, epoch, number))

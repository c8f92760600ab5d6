"""Samples of a step, if the script's loader determines them, and how many ranks load different ones."""

from typing import Any, NamedTuple

import torch.distributed as dist

from ringside.real.record.script.steps import ENOUGH, Steps
from ringside.real.record.script.tape import TAPE


class LoadedBatch(NamedTuple):
    """A batch that a loader gave: after how many entries, by which sampler, and samples of all ranks."""

    entries: int
    sampler: int
    samples: int | None


_loads: list[LoadedBatch] = []


def install() -> None:
    """See loaders give batches."""
    from torch.utils.data import dataloader

    iterator: Any = dataloader._BaseDataLoaderIter
    next_index = iterator._next_index

    def counted(self: Any) -> Any:
        given, sampler = next_index(self), self._index_sampler
        ranks = _ranks_of(sampler)
        samples = len(given) * ranks if isinstance(given, list) and ranks else None
        _loads.append(LoadedBatch(len(TAPE.entries), id(sampler), samples))
        return given

    iterator._next_index = counted


def _ranks_of(sampler: Any) -> int | None:
    """Return the number of ranks that a sampler gives samples of their own; None if it does not say."""
    from torch.utils.data.distributed import DistributedSampler

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return 1
    own = getattr(sampler, "sampler", None)
    if isinstance(own, DistributedSampler):
        return own.num_replicas
    # accelerate's, by which Trainer loads too
    return sampler.num_processes if type(sampler).__name__ == "BatchSamplerShard" else None


def of_step(steps: Steps) -> int | None:
    """Return the last step's samples of all ranks; None unless one loader gave as many to the one before."""
    if len(steps.marks) < ENOUGH:
        return None
    first, middle, last = (one.entries for one in steps.bounds())
    before, now = (
        [one for one in _loads if begin <= one.entries < end]
        for begin, end in ((first, middle), (middle, last))
    )
    counts = [one.samples for one in now]
    if len({one.sampler for one in now}) != 1 or counts != [one.samples for one in before]:
        return None
    return None if None in counts else sum(one for one in counts if one)

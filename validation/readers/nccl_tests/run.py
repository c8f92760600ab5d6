"""One nccl-tests run, whichever way it was written down, and the records that it makes.

Times alone are used: releases before mid-2020 printed algbw of all_gather and reduce_scatter with
the factor (n-1)/n already in it (nccl-tests issue 45), so bandwidths are derived anew.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ringside.sim.collective import KINDS
from ringside.sim.record import Record, RecordError
from ringside.validation.readers.reading import NCCL_TESTS_STATISTIC, Reading, dtype_of, kind_at, sound

PROGRAM = re.compile(
    r"\b((?:all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoallv?|sendrecv|gather|scatter|hypercube)"
    r"_perf)(?:_mpi)?\b"
)
"""The name of one of nccl-tests' programs."""

_ALGORITHMS = {
    "nvlstree": "nvls_tree",
    "collnetdirect": "collnet_direct",
    "collnetchain": "collnet_chain",
}


@dataclass(frozen=True, slots=True)
class RankDevice:
    """Where one rank ran. Ranks of one ``group`` form a communicator (NCCL_TESTS_SPLIT)."""

    rank: int
    group: int
    host: str
    gpu: str


@dataclass(frozen=True, slots=True)
class Timing:
    """One half of a row, out of place or in place, in seconds; 0 is unknown, ``None`` unusable."""

    time_s: float | None
    min_s: float = 0.0
    max_s: float = 0.0
    p95_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One size. ``place`` says where it stands in its file."""

    place: str
    nbytes: int
    dtype: str
    redop: str
    out_of_place: Timing | None
    in_place: Timing | None
    iterations: int = 0
    date: str = ""

    def record(self, run: Record) -> Record | None:
        """The record of this row of a ``run``; ``None`` if nothing was measured.

        Out of place, or in place where that is all there is. NCCL returns from a collective over
        nothing without doing it, so a row of 0 bytes has no time of its own.
        """
        for half, in_place in ((self.out_of_place, False), (self.in_place, True)):
            if self.nbytes and half is not None and half.time_s is not None:
                record = replace(
                    run,
                    nbytes=self.nbytes,
                    dtype=dtype_of(self.dtype),
                    redop=self.redop if KINDS[run.collective].reduces else "",
                    in_place=in_place,
                    time_s=half.time_s,
                    min_s=half.min_s,
                    max_s=half.max_s,
                    p95_s=half.p95_s,
                    iterations=self.iterations or run.iterations,
                    date=self.date,
                )
                return sound(record, self.place)
        return None


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """What holds for all rows of one run.

    One process drives ``threads`` threads of ``gpus`` GPUs each; ``tests`` is nccl-tests' own version.
    ``variables`` are the NCCL_* variables that are known to have been set. ``named`` is the number of ranks
    that NCCL's own lines name, 0 where they do not; ``ranks`` how many there are where fewer devices are
    listed, or none.
    """

    place: str
    source: str
    collective: str
    devices: tuple[RankDevice, ...]
    threads: int = 1
    gpus: int = 1
    nccl: str = ""
    tests: str = ""
    iterations: int = 0
    variables: dict[str, str] = field(default_factory=dict)
    named: int = 0
    ranks: int = 0

    @property
    def per_process(self) -> int:
        """How many ranks one process drives."""
        return max(self.threads * self.gpus, 1)

    def reading(self, rows: Iterable[BenchmarkRow]) -> Reading:
        """The rows as records; a run names no machine but its GPUs, so they stand for the cluster."""
        ranks, nodes = self.world()
        kind = kind_at(self.place, self.collective)
        gpu = " + ".join(sorted({device.gpu for device in self.devices}))
        print_ = {"gpu": gpu, "nccl_tests": self.tests, **launched(self.threads, self.gpus), **self.variables}
        if self.is_cut:
            print_["ranks_listed"] = str(len(self.devices))
        shared = Record(
            source=self.source,
            cluster=gpu,
            library="nccl",
            library_version=self.nccl,
            backend="nccl",
            collective=kind,
            algorithm=pin(self.variables.get("NCCL_ALGO", "")),
            protocol=pin(self.variables.get("NCCL_PROTO", "")),
            num_nodes=nodes,
            ranks=ranks,
            nbytes=0,
            time_s=0.0,
            statistic=NCCL_TESTS_STATISTIC,
            iterations=self.iterations,
            fingerprint={key: value for key, value in print_.items() if value},
        )
        found = [row.record(shared) for row in rows]
        records = tuple(record for record in found if record is not None)
        told = f"{self.place}: {ranks} ranks, of which {len(self.devices)} are listed"
        return Reading(records, len(found) - len(records), (told,) if self.is_cut else ())

    @property
    def is_cut(self) -> bool:
        """Whether devices of fewer ranks are listed than took part."""
        return bool(self.devices) and not self.is_split and len(self.devices) < self.world()[0]

    @property
    def has_gaps(self) -> bool:
        """Whether a process before the last is not listed, so that others may be missing behind it."""
        processes = {device.rank // self.per_process for device in self.devices}
        return len(processes) <= max(processes)

    @property
    def is_split(self) -> bool:
        """Whether the ranks form several communicators."""
        return len({device.group for device in self.devices}) > 1

    def _nodes(self, ranks: int) -> int:
        """Machines of so many ranks, one filled after another: the number that the list allows, else 0."""
        steps = range(self.per_process, ranks + 1, self.per_process)
        found = [ranks // each for each in steps if ranks % each == 0 and self._fills(each)]
        return found[0] if len(found) == 1 else 0

    def _fills(self, each: int) -> bool:
        """Whether the listed ranks may stand on machines of so many."""
        pairs = {(device.rank // each, device.host) for device in self.devices}
        return len(pairs) == len({place for place, _ in pairs}) == len({host for _, host in pairs})

    def world(self) -> tuple[int, int]:
        """Ranks and nodes of the communicator that rank 0 belongs to, whose times count; 0 is unknown."""
        if not self.devices and self.ranks:
            return self.ranks, int(self.ranks == self.per_process)
        if not self.devices:
            raise RecordError(
                f"{self.place}: no ranks are listed above; expected a line "
                "'#  Rank  0 Group  0 Pid 123 on host device  0 [0000:02:00] NAME' for each"
            )
        numbers = {device.rank for device in self.devices}
        if len(numbers) < len(self.devices):
            raise RecordError(
                f"{self.place}: a rank is listed twice above: the output of several processes that did not "
                "form one run; expected one list of ranks (build nccl-tests with MPI=1)"
            )
        group = min(self.devices, key=lambda device: device.rank).group
        mine = [device for device in self.devices if device.group == group]
        hosts = len({device.host for device in mine})
        if len(mine) < len(self.devices):
            return len(mine), hosts
        # a process's list of devices is cut off where it grows long (MAX_LINE in nccl-tests), its first never
        listed = -(-(max(numbers) + 1) // self.per_process) * self.per_process
        ranks = max(self.ranks, listed)
        if len(mine) == ranks:
            return ranks, hosts
        return ranks, self._nodes(ranks)


def launched(threads: int, gpus: int) -> dict[str, str]:
    """How the host launches, for a fingerprint: what is more than one."""
    print_ = {"threads_per_process": threads, "gpus_per_thread": gpus}
    return {name: str(count) for name, count in print_.items() if count > 1}


def nccl_version(code: int) -> str:
    """NCCL's version from its number: 22602 is 2.26.2; before 2.9 it was 2804 for 2.8.4."""
    major, rest = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def pin(text: str) -> str:
    """What NCCL_ALGO or NCCL_PROTO fixes, as a record's word for it; ``auto`` where nothing."""
    word = text.lower()
    return _ALGORITHMS.get(word, word) or "auto"

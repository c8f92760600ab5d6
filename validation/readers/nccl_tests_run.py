"""One nccl-tests run, in whatever format, and the records that it makes.

Only times are used: releases before mid-2020 printed algbw of all_gather and reduce_scatter with the factor
(n-1)/n included (nccl-tests issue 45), so bandwidths are derived again.
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
    """The device of one rank. Ranks of one ``group`` form a communicator (NCCL_TESTS_SPLIT)."""

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
    """One size. ``place`` is its place in its file."""

    place: str
    nbytes: int
    dtype: str
    redop: str
    out_of_place: Timing | None
    in_place: Timing | None
    iterations: int = 0
    date: str = ""

    def record(self, run: Record) -> Record | None:
        """Return the record of this row of a ``run``; ``None`` if nothing was measured.

        Out of place, or in place without the former. NCCL returns from a collective over 0 bytes without
        doing it, so such a row has no time of its own.
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
    """The settings of all rows of one run.

    One process drives ``threads`` threads of ``gpus`` GPUs each; ``tests`` is nccl-tests' own version.
    ``variables`` are the NCCL_* variables known to be set. ``named`` is the number of ranks in NCCL's own
    lines, 0 without any; ``ranks`` the number where fewer devices are listed, or none. ``network`` are the
    facts of its NET lines.
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
    network: dict[str, str] = field(default_factory=dict)
    named: int = 0
    ranks: int = 0

    @property
    def per_process(self) -> int:
        """The number of ranks per process."""
        return max(self.threads * self.gpus, 1)

    def reading(self, rows: Iterable[BenchmarkRow]) -> Reading:
        """Return the rows as records; the GPUs stand for the cluster, because a run names no machine."""
        ranks, nodes = self.world()
        kind = kind_at(self.place, self.collective)
        gpu = " + ".join(sorted({device.gpu for device in self.devices}))
        print_ = {
            **{"gpu": gpu, "nccl_tests": self.tests, **self.network},
            **launched(self.threads, self.gpus),
            **self.variables,
        }
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
        converted = [row.record(shared) for row in rows]
        records = tuple(record for record in converted if record is not None)
        note = f"{self.place}: {len(self.devices)} of {ranks} ranks are listed"
        return Reading(records, len(converted) - len(records), (note,) if self.is_cut else ())

    @property
    def is_cut(self) -> bool:
        """Whether devices of fewer ranks are listed than took part."""
        return bool(self.devices) and not self.is_split and len(self.devices) < self.world()[0]

    @property
    def has_gaps(self) -> bool:
        """Whether a process before the last is not listed, so others may be missing after it."""
        processes = {device.rank // self.per_process for device in self.devices}
        return len(processes) <= max(processes)

    @property
    def is_split(self) -> bool:
        """Whether the ranks form several communicators."""
        return len({device.group for device in self.devices}) > 1

    def _nodes(self, ranks: int) -> int:
        """Return the number of machines, filled in order, that the list allows uniquely, else 0."""
        steps = range(self.per_process, ranks + 1, self.per_process)
        counts = [ranks // each for each in steps if ranks % each == 0 and self._fills(each)]
        return counts[0] if len(counts) == 1 else 0

    def _fills(self, each: int) -> bool:
        """Return whether the listed ranks fit machines of ``each`` ranks."""
        pairs = {(device.rank // each, device.host) for device in self.devices}
        return len(pairs) == len({place for place, _ in pairs}) == len({host for _, host in pairs})

    def world(self) -> tuple[int, int]:
        """Return ranks and nodes of rank 0's communicator, whose times count; 0 is unknown."""
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
        # a process's long list of devices is truncated at its end (MAX_LINE in nccl-tests)
        listed = -(-(max(numbers) + 1) // self.per_process) * self.per_process
        ranks = max(self.ranks, listed)
        if len(mine) == ranks:
            return ranks, hosts
        return ranks, self._nodes(ranks)


def launched(threads: int, gpus: int) -> dict[str, str]:
    """Return the launch settings for a fingerprint: those above one."""
    print_ = {"threads_per_process": threads, "gpus_per_thread": gpus}
    return {name: str(count) for name, count in print_.items() if count > 1}


def nccl_version(code: int) -> str:
    """Parse NCCL's version from its number: 22602 is 2.26.2; before 2.9 it was 2804 for 2.8.4."""
    major, rest = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def pin(text: str) -> str:
    """Parse a pin of NCCL_ALGO or NCCL_PROTO to a record's term; ``auto`` for none."""
    word = text.lower()
    return _ALGORITHMS.get(word, word) or "auto"

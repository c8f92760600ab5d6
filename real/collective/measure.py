"""Measure a real collective and write records."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ringside.real.backends import BACKENDS, ON_GPU, ON_SOCKETS, UNDER_TORCHRUN
from ringside.real.collective.job import PING_PONG, CollectiveJob, MpiJob, check_repeats, check_timeout
from ringside.real.launch.follow import Row
from ringside.real.launch.forks import Forks
from ringside.real.launch.mpirun import check_mpi, run_mpi
from ringside.real.launch.torchrun import WorldSpec, run
from ringside.sim.algorithms import schedule
from ringside.sim.collective import KINDS, Collective, itemsize
from ringside.sim.libraries.mpi.traffic import TYPES, forced
from ringside.sim.record import Record
from ringside.topologies.names import one_of
from ringside.topologies.units import format_size

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8")
"""The element types that every backend adds, and in which the contributions and their sums are exact."""

RANKS_PER_CORE = 16
"""The limit on ranks per core of one machine without ``--force``: each rank is a process with torch
loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What to measure: one collective, one algorithm, several sizes.

    ``algorithm`` is ``library`` for the backend's own collective, ``ping_pong`` for a sendrecv of pairs of
    ranks that take turns, else one of Ringside's, whose schedule runs over the backend's sends and receives.
    Sizes are those of nccl-tests; a size that does not divide into equal parts of whole elements is rounded
    down, as in nccl-tests.
    """

    collective: str
    world: WorldSpec
    sizes: Sequence[int]
    backend: str = "gloo"
    algorithm: str = "library"
    dtype: str = "float32"
    iterations: int = 20
    warmup: int = 2
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"unknown backend {self.backend!r}; write {one_of(BACKENDS, self.backend)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown dtype {self.dtype!r}; write {one_of(DTYPES, self.dtype)}")
        if self.world.per_node < 1 or self.world.nodes < 1:
            raise ValueError(
                f"{self.world.per_node} ranks on each of {self.world.nodes} nodes; write 1 or more"
            )
        if self.world.nodes > 1 and self.world.endpoint is None:
            raise ValueError("several nodes need a rendezvous endpoint; add `rdzv_endpoint` HOST:PORT")
        check_repeats(self.iterations, self.warmup)
        check_timeout(self.timeout_s)
        if self.algorithm == PING_PONG:
            if self.collective != "sendrecv" or self.world.ranks < 2:
                raise ValueError(
                    f"{PING_PONG} of {self.collective} on {self.world.ranks} ranks; write sendrecv on 2"
                )
        elif self.algorithm != "library":
            plan = schedule(self.algorithm, Collective(self.collective, self.world.ranks, 0))
            if plan.switches:
                raise ValueError(
                    f"{self.algorithm} reduces in switches, which processes cannot; write another `algorithm`"
                )
            if ":" in plan.algorithm:  # a record names the grid or the radix of its schedule
                object.__setattr__(self, "algorithm", plan.algorithm)
        if self.backend in ON_GPU:
            check_gpus(self.world.per_node)
        if self.backend not in UNDER_TORCHRUN:
            self._check_mpi()

    def _check_mpi(self) -> None:
        """Raise ValueError for what mpirun on this machine cannot do."""
        if self.world.nodes > 1 or self.world.endpoint:
            raise ValueError("mpirun starts ranks on this machine; leave `nnodes` and `rdzv_endpoint` out")
        if self.dtype not in TYPES:
            raise ValueError(f"MPI has no {self.dtype}; write `dtype` with one of {', '.join(TYPES)}")
        if self.algorithm == PING_PONG:
            raise ValueError(f"{PING_PONG} runs over gloo and nccl; write `algorithm` library")
        check_mpi()


def measure(
    measurement: Measurement, on_record: Callable[[Record], None], forks: Forks | None = None
) -> None:
    """Measure under torchrun or mpirun; call ``on_record`` with each size's record as soon as it is measured.

    With ``forks``, ranks over Gloo on this machine are forked, which saves loading torch in each. Raise
    `ringside.real.launch.follow.MeasureError` where a rank dies, hangs or disagrees. A node without rank 0
    produces no records: they are written where rank 0 is.
    """

    def keep(row: Row) -> None:
        on_record(record_of(measurement, row))

    def keep_forked(row: Row) -> None:
        keep({**row, "fingerprint": {**row["fingerprint"], "started_by": "fork"}})

    if forks:
        if measurement.backend not in ON_SOCKETS or measurement.world.nodes > 1:
            raise ValueError(
                f"ranks of {measurement.backend} on {measurement.world.nodes} nodes; "
                "only Gloo's on one are forked"
            )
        forks.run_here(job_of(measurement), measurement.world.ranks, keep_forked)
    elif measurement.backend not in UNDER_TORCHRUN:
        run_mpi(job_of(measurement), measurement.world.ranks, keep)
    else:
        run(job_of(measurement), measurement.world, keep)


def job_of(measurement: Measurement) -> CollectiveJob:
    """Return the job for every rank."""
    return (CollectiveJob if measurement.backend in UNDER_TORCHRUN else MpiJob)(
        collective=measurement.collective,
        algorithm=measurement.algorithm,
        backend=measurement.backend,
        sizes=tuple(dict.fromkeys(_whole_parts(measurement, size) for size in measurement.sizes)),
        dtype=measurement.dtype,
        iterations=measurement.iterations,
        warmup=measurement.warmup,
        timeout_s=measurement.timeout_s,
    )


def check_room(ranks: int, nbytes: int) -> None:
    """Raise ValueError for more ranks, or larger buffers, than this machine can hold."""
    cores = os.cpu_count() or 1
    if ranks > RANKS_PER_CORE * cores:
        raise ValueError(
            f"{ranks} ranks on {cores} cores; the limit is {RANKS_PER_CORE * cores}, "
            f"{RANKS_PER_CORE} per core; write a smaller -g, or --force"
        )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if ranks * nbytes > memory:
        raise ValueError(
            f"{ranks} ranks with {format_size(nbytes)} each need more than this machine's "
            f"{memory / 2**30:.0f} GiB; write a smaller size, or --force"
        )


def warnings(measurement: Measurement) -> list[str]:
    """Return warnings about conditions that degrade this measurement."""
    cores = os.cpu_count() or 1
    if measurement.backend in ON_SOCKETS and measurement.world.per_node > cores:
        return [
            f"{measurement.world.per_node} ranks share {cores} cores: times include waiting for a core "
            f"and say little about the network"
        ]
    return []


def _whole_parts(measurement: Measurement, nbytes: int) -> int:
    """Return the size rounded down so that the library's equal parts are whole elements."""
    parts = (
        measurement.world.ranks
        if KINDS[measurement.collective].blocks and measurement.collective != "sendrecv"
        else 1
    )
    grain = itemsize(measurement.dtype) * (parts if measurement.algorithm == "library" else 1)
    if nbytes and nbytes < grain:
        raise ValueError(f"{nbytes} B is less than one {measurement.dtype} per part; write {grain} or more")
    return nbytes // grain * grain


def record_of(measurement: Measurement, row: Row) -> Record:
    """Return the record of rank 0's row, with all conditions of the measurement."""
    print_ = row["fingerprint"]
    own = measurement.algorithm == "library"
    algorithm, protocol = _pinned(measurement, print_) if own else (measurement.algorithm, "auto")
    return Record(
        source="ringside measure",
        cluster=print_.get("gpu") or print_["cpu"],
        site=print_["host"],
        library=measurement.backend if own else "ideal",
        library_version=print_.get(measurement.backend, print_.get("torch", "")),
        backend=measurement.backend,
        collective=measurement.collective,
        algorithm=algorithm,
        protocol=protocol,
        num_nodes=measurement.world.nodes,
        ranks=measurement.world.ranks,
        nbytes=row["nbytes"],
        dtype=measurement.dtype,
        redop="sum" if KINDS[measurement.collective].reduces else "",
        time_s=row["time_s"],
        statistic="median of the slowest rank",
        min_s=row["min_s"],
        max_s=row["max_s"],
        p95_s=row["p95_s"],
        iterations=measurement.iterations,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=print_,
    )


def _pinned(measurement: Measurement, print_: dict[str, str]) -> tuple[str, str]:
    """Return the algorithm and protocol set by environment variables, as records name them."""
    if measurement.backend in ON_GPU:
        algorithm, protocol = (os.environ.get(name, "auto").lower() for name in ("NCCL_ALGO", "NCCL_PROTO"))
        return algorithm, protocol
    if measurement.backend not in UNDER_TORCHRUN:
        return forced(measurement.collective, print_), "auto"
    return "auto", "auto"


def check_gpus(per_node: int) -> None:
    """Raise ValueError for more NCCL ranks than this machine has GPUs."""
    import torch

    count = torch.cuda.device_count()
    if per_node > count:
        raise ValueError(
            f"{per_node} ranks need {per_node} GPUs and this machine has {count}; write -g {count} "
            f"or less, or use gloo"
            if count
            else "NCCL needs a CUDA GPU and this machine has none; use gloo"
        )

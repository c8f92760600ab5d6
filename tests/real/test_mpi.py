"""Collectives over MPI: exact sums of every schedule, messages for missing parts, real runs."""

import sys
from importlib.util import find_spec
from pathlib import Path
from queue import Queue
from shutil import which
from threading import Thread
from typing import Any

import numpy as np
import pytest

from ringside.real.collective.measure import Measurement, job_of, measure
from ringside.real.launch import mpirun
from ringside.real.launch.torchrun import WorldSpec
from ringside.real.mpi.programs import MpiBuffers, ScheduleProgram
from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import KINDS, Collective
from ringside.sim.libraries.mpi.traffic import NUMBERED, forced, variables
from ringside.sim.record import Record

WAYS = [(kind, name) for name, kinds in ALGORITHMS.items() for kind in kinds]


class Sent:
    """What is on its way: an object with MPI's ``Wait``."""

    def __init__(self, queue: "Queue[Any] | None" = None, into: Any = None) -> None:
        self.queue, self.into = queue, into

    def Wait(self) -> None:  # noqa: N802 (MPI's spelling)
        if self.queue:
            self.into[:] = self.queue.get(timeout=20)


class Communicator:
    """MPI's point-to-point calls between threads."""

    def __init__(self, rank: int, queues: "dict[tuple[int, int, int], Queue[Any]]") -> None:
        self.rank, self.queues = rank, queues

    def Isend(self, data: Any, dst: int, tag: int) -> Sent:  # noqa: N802
        self._queue(self.rank, dst, tag).put(data.copy())
        return Sent()

    def Irecv(self, data: Any, src: int, tag: int) -> Sent:  # noqa: N802
        return Sent(self._queue(src, self.rank, tag), data)

    def _queue(self, src: int, dst: int, tag: int) -> "Queue[Any]":
        return self.queues.setdefault((src, dst, tag), Queue())  # at once, whichever thread comes first


@pytest.mark.parametrize("ranks", [2, 5, 8])
@pytest.mark.parametrize(("kind", "name"), WAYS)
def test_every_schedule_has_exact_results_over_mpis_sends(kind: str, name: str, ranks: int) -> None:
    collective = Collective(kind, ranks, ranks * 24 * 4, dtype="float32")
    plan, queues = schedule(name, collective), dict[tuple[int, int, int], "Queue[Any]"]()
    wrong = [-1] * ranks

    def run(rank: int) -> None:
        buffers = MpiBuffers(collective, plan.chunks, rank)
        program = ScheduleProgram(Communicator(rank, queues), plan, buffers)
        for _ in range(2):
            buffers.reset()
            program.run()
        wrong[rank] = buffers.num_wrong()

    threads = [Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == [0] * ranks


def test_a_wrong_element_is_counted() -> None:
    collective = Collective("all_reduce", 3, 48, dtype="int32")
    buffers = MpiBuffers(collective, schedule("ring", collective).chunks, 0)
    buffers.reset()
    assert buffers.num_wrong() > 0
    assert not np.any(buffers.data == 111)  # every rank contributes to all of it


@pytest.mark.parametrize(
    ("missing", "words"), [("mpirun", "mpirun, which"), ("mpi4py", "mpi4py, which"), ("", "")]
)
def test_what_is_missing_is_said_with_what_to_install(
    missing: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def which(name: str, path: str) -> str | None:
        return None if missing == name else f"/bin/{name}"

    monkeypatch.setattr(mpirun.shutil, "which", which)
    monkeypatch.setattr(mpirun, "find_spec", lambda name: None if missing == name else name)
    if not missing:
        assert mpirun.check_mpi() == "/bin/mpirun"
        return
    with pytest.raises(ValueError, match=rf"MPI needs {words}.* install -e '.\[mpi\]', or .*openmpi"):
        mpirun.check_mpi()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"world": WorldSpec(2, 2, "here:1")}, "mpirun starts ranks on this machine; leave `nnodes`"),
        ({"dtype": "bfloat16"}, "MPI has no bfloat16; write `dtype` with one of float32"),
        ({"algorithm": "ping_pong", "collective": "sendrecv"}, "ping_pong runs over gloo and nccl"),
    ],
)
def test_what_mpi_does_not_run_is_refused(options: dict[str, Any], complaint: str) -> None:
    usual: dict[str, Any] = {
        "collective": "all_reduce", "world": WorldSpec(2), "sizes": [64], "backend": "mpi"
    }  # fmt: skip
    with pytest.raises(ValueError, match=complaint):
        Measurement(**usual | options)


def test_variables_that_force_an_algorithm_are_told_again() -> None:
    for kind, names in NUMBERED.items():
        assert [forced(kind, variables(kind, name)) for name in names] == list(names)
        assert forced(kind, {}) == forced("sendrecv", variables(kind, names[0])) == "auto"
    off = {"OMPI_MCA_coll_tuned_allreduce_algorithm": "4"}
    assert forced("all_reduce", off) == "auto"  # without use_dynamic_rules nothing is forced
    beyond = {**variables("all_reduce", "ring"), "OMPI_MCA_coll_tuned_allreduce_algorithm": "44"}
    assert forced("all_reduce", beyond) == "44"


def test_ranks_of_mpi_are_told_to_run_mpis_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.real.collective.measure.check_mpi", lambda: "/bin/mpirun")
    what = Measurement(collective="all_reduce", world=WorldSpec(2), sizes=[64], backend="mpi")
    assert job_of(what).worker == "ringside.real.mpi.worker"


@pytest.mark.slow
@pytest.mark.skipif(
    not (find_spec("mpi4py") and which("mpirun", path=f"{Path(sys.executable).parent}:/usr/bin")),
    reason="mpi4py or mpirun is not installed: pip install -e '.[mpi]'",
)
@pytest.mark.parametrize(
    ("kind", "algorithm"), [*((kind, "library") for kind in KINDS), ("all_reduce", "rabenseifner")]
)
def test_a_real_run_over_mpi_gives_records(kind: str, algorithm: str) -> None:
    found: list[Record] = []
    what = Measurement(
        collective=kind, world=WorldSpec(3), sizes=[768, 9216], backend="mpi", algorithm=algorithm,
        iterations=2,
    )  # fmt: skip
    measure(what, found.append)
    assert [record.nbytes for record in found] == [768, 9216]
    assert {record.library for record in found} == {"mpi" if algorithm == "library" else "ideal"}
    assert all(record.time_s > 0 and record.backend == "mpi" for record in found)

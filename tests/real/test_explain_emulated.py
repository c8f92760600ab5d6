"""Explain real measurements of a network with one slow link, or one slow host."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

pytest.importorskip("torch")
from ringside.real.collective.links import cluster
from ringside.real.collective.measure import Measurement
from ringside.real.emulate import available
from ringside.real.launch.forks import Forks
from ringside.real.launch.torchrun import WorldSpec
from ringside.sim.calibration import Calibration
from ringside.sim.record import Record
from ringside.topologies import Topology, star
from ringside.validation.calibrate import calibrate
from ringside.validation.explain.schedules import ScheduleFamily
from ringside.validation.explain.verdict import LogVerdict, judge

pytestmark = pytest.mark.netadmin

RATE = 5e6
SIZES = [2**power for power in range(10, 19, 2)]


def log(forks: Forks, slow: Iterable[tuple[str, str]]) -> list[Record]:
    """Measure a ring all-reduce on four hosts, with some directions of cables at a third of the rate.

    Load only adds time, so the fastest of several runs counts.
    """
    graph: Topology = star(4, bandwidth=RATE)
    for link in slow:
        graph.edges[link]["bandwidth"] /= 3
    what = Measurement(
        collective="all_reduce", algorithm="ring", world=WorldSpec(4), sizes=SIZES, iterations=4, warmup=1
    )
    records: list[Record] = []
    with cluster(graph, forks) as up:
        for _ in range(3):
            up.measure(what, records.append)
    by_size = [min((r for r in records if r.nbytes == size), key=lambda r: r.min_s) for size in SIZES]
    return [replace(record, time_s=record.min_s) for record in by_size]


@pytest.fixture(scope="module")
def forks():
    if reason := available():
        pytest.skip(reason)
    with Forks() as shared:
        yield shared


@pytest.fixture
def sound(forks: Forks) -> Calibration:
    """Measure the network without a slow link, once."""
    if not _SOUND:
        _SOUND.append(calibrate(log(forks, ()), "star:4", {"bandwidth": f"{RATE / 1e6}MB/s"}))
    return _SOUND[0]


_SOUND: list[Calibration] = []


def explained(records, sound) -> LogVerdict:
    return judge(ScheduleFamily(records, "star:4", {"bandwidth": f"{RATE / 1e6}MB/s"}, sound))


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param([("gpu1", "switch")], id="link", marks=pytest.mark.slow),
        pytest.param([("gpu2", "switch"), ("switch", "gpu2")], id="host", marks=pytest.mark.proof),
    ],
)
def test_a_slow_link_or_host_is_found_if_only_beside_all_links(forks, sound, slow) -> None:
    verdict = explained(log(forks, slow), sound)
    named = {one.cause.key: one.value for one in verdict.named}
    assert "host_links" in named
    assert set(named) <= {"host_links", "all_links"}
    assert 0.25 <= named["host_links"] <= 0.45  # a third
    assert max(verdict.records[row].nbytes for row in verdict.rows) == SIZES[-1]


@pytest.mark.slow
def test_of_the_same_network_again_nothing_is_named(forks, sound) -> None:
    verdict = explained(log(forks, ()), sound)
    assert not verdict.named
    assert not verdict.departs

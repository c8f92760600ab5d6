from itertools import pairwise

import pytest

from ringside.sim.algorithms.rings import parallel_rings
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.library import Candidate


@pytest.mark.parametrize("kind", parallel_rings.KINDS)
@pytest.mark.parametrize(
    ("machines", "gpus"), [(1, 2), (1, 4), (1, 7), (1, 8), (2, 8), (3, 8), (4, 3), (3, 1)]
)
def test_a_schedule_of_several_rings_is_proved(machines: int, gpus: int, kind: str) -> None:
    for nbytes in (64, 20_000):
        parallel_rings.schedule(Collective(kind, machines * gpus, nbytes), machines).check()


def test_eight_gpus_have_seven_rings_one_on_each_link() -> None:
    rings = parallel_rings.cycles(8)
    links = [link for ring in rings for link in pairwise((*ring, ring[0]))]
    assert len(rings) == 7
    assert len(links) == len(set(links)) == 56


def test_rings_use_every_card_of_several_machines_and_every_link_of_one() -> None:
    for cluster, rate in (("mi300x:1", 7 * 64e9), ("mi300x:2", 8 * 48e9)):
        library = find_library(None, cluster)
        collective = Collective("all_reduce", library.ranks, 1 << 30, dtype="float32")
        answer = library.time(collective, Candidate("ring"))
        sent = 2 * (library.ranks - 1) / library.ranks * collective.nbytes
        assert sent / answer.time_s == pytest.approx(rate, rel=0.01)
        assert "RCCL is not modelled" in answer.caveat

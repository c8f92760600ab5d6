"""The stored graphs of a machine are those that the search finds."""

import json

import pytest

from ringside.sim.libraries.nccl.graph.search import KEPT, graphs, search, search_results
from ringside.sim.libraries.nccl.graph.system import SYSTEMS
from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION

NAMES = sorted(path.stem for path in KEPT.glob("*.json"))
QUICK = ["a100-pcie4", "abci-a100", "aws-p4d", "dgx-a100", "dgx-h100", "rtx4090-pcie"]


def test_graphs_are_kept_of_listed_machines_alone() -> None:
    assert set(NAMES) <= set(SYSTEMS)


@pytest.mark.parametrize("name", QUICK)
def test_what_is_kept_is_what_the_newest_release_finds(name: str) -> None:
    for nodes in (1, 2):
        assert graphs(SYSTEMS[name], nodes, SYSTEMS[name].ranks, DEFAULT_VERSION) == search(
            SYSTEMS[name], nodes, SYSTEMS[name].ranks, DEFAULT_VERSION
        )


@pytest.mark.proof
@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_what_every_release_finds(name: str) -> None:
    kept = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(search_results(SYSTEMS[name]))) == kept

import json
import re
from pathlib import Path

import pytest

from ringside.sim.collective import KINDS
from ringside.sim.libraries.coverage import coverage
from ringside.sim.libraries.find import LIBRARIES

PAGE = Path(__file__).parents[3] / "docs" / "collectives.md"


def test_the_page_shows_what_the_command_prints(on_screen) -> None:
    # 64 ranks take a minute; the proof of them all stands in tests/sim/algorithms/test_schedule.py
    code, out, _ = on_screen("collectives", "--prove", 12)
    assert code == 0
    shown = re.search(r"```text\n(# [0-9]+ of .*?)```", PAGE.read_text(), re.DOTALL)
    assert shown
    assert out == shown[1].replace("1-64", "1-12")


@pytest.mark.parametrize(
    ("cluster", "ranks"), [("star:5", None), ("dgx-h100:2", None), ("dgx-h100:3", 13), ("star:1", None)]
)
def test_every_collective_of_every_library_is_proved_or_refused_with_a_reason(
    json_of, cluster, ranks
) -> None:
    words = ("--ranks", ranks) if ranks else ()
    rows = json_of("collectives", "--cluster", cluster, *words, "--prove", 3)["rows"]
    assert {row["library"] for row in rows} == set(LIBRARIES)
    for library in LIBRARIES:
        assert {row["collective"] for row in rows if row["library"] == library} == set(KINDS)
    for row in rows:
        assert row.get("refused") or row["taken"]
        assert len(row.get("refused", "a reason")) > 5
    answered = {(row["library"], row["collective"]) for row in rows if "taken" in row}
    assert answered >= {(library, kind) for library in ("ideal", "gloo") for kind in KINDS}
    if cluster == "dgx-h100:2":
        assert answered >= {("nccl", kind) for kind in KINDS}


ON_MACHINES = [(1, ranks) for ranks in range(1, 9)] + [(machines, 8 * machines) for machines in range(2, 9)]


@pytest.mark.parametrize(("machines", "ranks"), ON_MACHINES)
def test_nccls_schedules_are_proved_on_so_many_ranks(machines: int, ranks: int) -> None:
    cells = list(coverage(f"dgx-h100:{machines}", ranks, ["nccl"]))
    assert all(cell.proved == (ranks, ranks) for cell in cells if cell.taken and ranks > 1)
    assert {cell.collective for cell in cells if cell.taken} == set(KINDS)
    assert all(cell.refused for cell in cells if not cell.taken)


def test_what_does_not_fit_the_machines_says_what_does(ringside) -> None:
    words = ("--cluster", "dgx-h100:3", "--ranks", 13, "--library", "ideal", "--prove", 0, "--json")
    rows = json.loads(ringside("collectives", *words)[1])["rows"]
    refused = next(
        row["refused"]
        for row in rows
        if (row["algorithm"], row["collective"]) == ("hierarchical", "all_reduce")
    )
    assert "not 5 ranks on a machine and 4 ranks on each of 2 machines; write as many" in refused

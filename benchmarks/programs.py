"""Twelve programs on emulated networks, predicted from ping-pong alone and really run: a table of both.

Run with ``python -m benchmarks.programs [NAME ...] [-o FILE.json]``; exit 1 past the tolerances.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ringside import console
from ringside.topologies import Topology, leaf_spine, star
from ringside.topologies.disk import write_file
from ringside.validation.emulated.plan import MBIT
from ringside.validation.emulated.programs import MEDIAN, WORST, ComparedProgram, ProgramCase, errors, judge

HERE = Path(__file__).resolve().parents[1] / "examples/programs"

RANKS = 4
BANDWIDTH = 100 * MBIT

HEADS = (
    ("program", ""),
    ("network", ""),
    ("ranks", ""),
    ("measured", "(ms)"),
    ("spread", "(%)"),
    ("predicted", "(ms)"),
    ("error", "(%)"),
    ("worst_rank", "(%)"),
)

ON_UPLINKS = ("two_jobs",)
"""Those on two leaves whose uplink has half the bandwidth of the ports; the others run on a star."""


def networks() -> list[tuple[str, Topology, list[ProgramCase]]]:
    """Each network with its programs."""
    files = sorted(HERE.glob("*.py"))
    uplinks = leaf_spine(2, 2, bandwidth=BANDWIDTH, oversubscription=2)
    return [
        ("star", star(RANKS, bandwidth=BANDWIDTH), [_case(f) for f in files if f.stem not in ON_UPLINKS]),
        ("leaf_spine", uplinks, [_case(f) for f in files if f.stem in ON_UPLINKS]),
    ]


def _case(file: Path) -> ProgramCase:
    return ProgramCase(file, RANKS)


def main() -> None:
    """Measure all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these programs")
    parser.add_argument("-o", type=Path, help="a JSON file of all that was found")
    asked = parser.parse_args()
    rows: list[tuple[str, ComparedProgram]] = []
    for name, graph, cases in networks():
        chosen = [case for case in cases if not asked.names or case.script.stem in asked.names]
        if chosen:
            judge(graph, chosen, lambda one, name=name: rows.append((name, one)) or _say(one))
    median, worst = errors([one for _, one in rows])
    console.print_answer("programs", console.TextTable(HEADS, [_row(*row) for row in rows]))
    passed = median <= MEDIAN and worst <= WORST
    print(
        f"# {'pass' if passed else 'FAIL'}  {len(rows)} programs: "
        f"median {median:.1%} (at most {MEDIAN:.0%}), worst {worst:.1%} (at most {WORST:.0%})"
    )
    if asked.o:
        content = [dict(zip((head for head, _ in HEADS), _row(*row), strict=True)) for row in rows]
        write_file(asked.o, json.dumps(content, indent=1) + "\n")
    sys.exit(not passed)


def _say(one: ComparedProgram) -> None:
    print(f"{one.name}: {one.error:+.1%}", file=sys.stderr, flush=True)


def _row(network: str, one: ComparedProgram) -> Sequence[console.Cell]:
    return (
        *(one.name, network, one.ranks, one.measured.makespan_s * 1e3, one.measured.spread * 100),
        *(one.predicted.makespan_s * 1e3, one.error * 100, max(one.rank_errors, key=abs) * 100),
    )


if __name__ == "__main__":
    main()

"""``ringside demo``: the whole path on this machine, from real measurements to a report."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from real.collective.measure import Measurement, measure, warnings
from real.launch.torchrun import WorldSpec
from ringside import console
from ringside.commands.compare import summary_lines
from ringside.report import page
from sim.record import Record, RecordError, write
from topologies.disk import write_file
from topologies.units import format_size
from validation.compare import Compared, compare, summaries

ALGORITHMS = ("ring", "tree", "double_binary_tree", "library")
SIZES = [2**power for power in range(16, 25)]
RANKS = (2, 4)
ITERATIONS = {2: 15, 4: 8}
FITTED = SIZES[::2]
"""Every other size sets the parameters; the sizes between are predicted."""

PAGE = "report.html"


def command(
    output: Annotated[Path, typer.Option("-o", metavar="FOLDER", help="Where the report goes.")] = Path(
        "ringside-demo"
    ),
) -> None:
    """Measure, calibrate, compare and draw on this machine, end to end, in under three minutes."""
    run(output)


def run(output: Path) -> None:
    """Measure, calibrate on every other size, compare on the rest, draw, write the report folder."""
    from ringside.pictures.comparison import draw_comparison

    _claim(output)
    records: list[Record] = []
    with console.progress("measuring", len(RANKS) * len(ALGORITHMS) * len(SIZES)) as bar:
        for ranks in RANKS:
            for algorithm in ALGORITHMS:
                what = Measurement(
                    collective="all_reduce",
                    world=WorldSpec(ranks),
                    sizes=SIZES,
                    algorithm=algorithm,
                    iterations=ITERATIONS[ranks],
                )
                for warning in warnings(what) if algorithm == ALGORITHMS[0] else ():
                    print(f"ringside: {warning}", file=sys.stderr)

                def keep(record: Record) -> None:
                    records.append(record)
                    write(records, output / "records.jsonl")
                    bar.done(f"{record.algorithm}, {record.ranks} ranks, {format_size(record.nbytes)}")

                measure(what, keep)
    compared, reports = _analyse(records, output)
    draw_comparison(compared, output / "comparison.png")
    draw_comparison(compared, output / "comparison.svg")
    picture = (output / "comparison.svg").read_text(encoding="utf-8")
    write_file(output / PAGE, page(compared, picture, reports))
    for ranks in RANKS:
        of_ranks = [row for row in compared if row.record.ranks == ranks]
        print(f"# {ranks} ranks")
        print("\n".join(summary_lines(summaries(of_ranks))))
    print(f"report: {output / PAGE}")


def _analyse(records: list[Record], output: Path) -> tuple[list[Compared], list[str]]:
    """Each rank count for itself: four ranks on two cores are another machine than two ranks."""
    from validation.calibrate import calibrate, report

    compared, reports = [], []
    for ranks in RANKS:
        own = [record for record in records if record.ranks == ranks]
        found = calibrate([record for record in own if record.nbytes in FITTED], "star")
        found.write(output / f"calibration-{ranks}-ranks.yaml")
        compared += compare(own, "star", calibration=found)
        reports.append(f"{ranks} ranks: {report(found)}")
    return compared, reports


def _claim(output: Path) -> None:
    """Make the folder; one that holds anything but an earlier report is somebody else's."""
    if output.exists() and not output.is_dir():
        raise RecordError(f"{output} is a file; write another folder after -o")
    if output.is_dir() and any(output.iterdir()) and not (output / PAGE).exists():
        raise RecordError(f"{output} holds other files; write an empty or a new folder after -o")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"{output}: cannot be made: {error.strerror}; write another folder after -o"
        ) from None

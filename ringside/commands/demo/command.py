"""``ringside demo``: measure, calibrate and compare on this machine, and write a report."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ringside import console
from ringside.commands.compare.command import compared_page
from ringside.real.launch.follow import check_torch
from ringside.real.launch.forks import Forks
from ringside.real.questions.collective_measurement import CollectiveMeasurement
from ringside.report.page import Page, write_page
from ringside.sim.record import Record, RecordError, write
from ringside.topologies.units import format_size
from ringside.validation.compare import Compared, compare, headline, summaries, summary_lines

ALGORITHMS = ("ring", "tree", "double_binary_tree", "library")
SIZES = tuple(2**power for power in range(16, 25))
RANKS = (2, 4)
ITERATIONS = {2: 15, 4: 8}
FITTED = SIZES[::2]
"""Every other size sets the parameters; the sizes between are predicted."""

PAGE = "report.html"

MEANING = (
    "each algorithm is one schedule: the same list of transfers was simulated and sent for real by "
    "torch.distributed; Gloo's own all-reduce is shown for comparison",
    "measured is the median over iterations of the slowest rank; every result was checked against the "
    "exact sum",
    "hollow points set the parameters, filled ones were held out: only their error measures the model",
    "spread is half the distance from the fastest iteration to the 95th percentile: an error below it is "
    "within measurement noise",
    "alpha is the latency of a message, beta the transfer time per byte, gamma the reduction time per "
    "byte, launch the overhead of a collective before its first message; if the rows cannot separate "
    "two of them, one is fixed and the report says so",
    "with more ranks than cores, ranks wait for a core and not for the network: do not use these "
    "parameters elsewhere",
)

ON_A_CLUSTER = """\
ringside measure all_reduce --backend nccl -g 8 --nnodes 2 --rdzv-endpoint node0:29500 \\
    -b 1M -e 1G -f 4 -o fit.jsonl
ringside measure all_reduce --backend nccl -g 8 --nnodes 2 --rdzv-endpoint node0:29500 \\
    -b 2M -e 512M -f 4 -o rest.jsonl
ringside calibrate fit.jsonl --cluster dgx-h100 -o h100.yaml
ringside compare rest.jsonl --cluster dgx-h100 --calibration h100.yaml --html h100.html
"""


def command(
    output: Annotated[
        Path, typer.Option("-o", metavar="FOLDER", help="Write the report to this folder.")
    ] = Path("ringside-demo"),
) -> None:
    """Measure, calibrate, compare and draw on this machine, end to end, in under three minutes."""
    from ringside.pictures.collectives.curves import draw_comparison

    check_torch()
    _claim(output)
    records: list[Record] = []
    # on other systems a process with torch loaded must not be forked
    starting: AbstractContextManager[Forks | None] = Forks() if sys.platform == "linux" else nullcontext()
    count = len(RANKS) * len(ALGORITHMS) * len(SIZES)
    with starting as forks, console.progress("measuring", count) as bar:
        for ranks in RANKS:
            for algorithm in ALGORITHMS:
                question = CollectiveMeasurement(
                    collective="all_reduce", ranks=ranks, size=SIZES, algorithm=algorithm,
                    iterations=ITERATIONS[ranks],
                )  # fmt: skip
                for warning in question.warnings if algorithm == ALGORITHMS[0] else ():
                    print(f"ringside: {warning}", file=sys.stderr)

                def keep(record: Record) -> None:
                    records.append(record)
                    write(records, output / "records.jsonl")
                    bar.done(f"{record.algorithm}, {record.ranks} ranks, {format_size(record.nbytes)}")

                question.ask(on_record=keep, forks=forks)
    compared, reports = _analyse(records, output)
    draw_comparison(compared, output / "comparison.png")
    draw_comparison(compared, output / "comparison.svg")
    files = [file for file in sorted(output.iterdir()) if file.name != PAGE]
    write_page(_page(compared, reports), output / PAGE, files)
    lines = []
    for ranks in RANKS:
        of_ranks = [row for row in compared if row.record.ranks == ranks]
        lines += [f"{ranks} ranks, {line}" for line in summary_lines(summaries(of_ranks))]
    few = [row for row in compared if row.record.ranks == RANKS[0]]
    console.print_answer(f"on {RANKS[0]} ranks: {headline(summaries(few))} Report: {output / PAGE}", *lines)


def _analyse(records: list[Record], output: Path) -> tuple[list[Compared], dict[str, str]]:
    """Calibrate each rank count separately: more ranks per core act as another machine."""
    from ringside.validation.calibrate import calibrate, report

    compared, reports = [], {}
    for ranks in RANKS:
        own = [record for record in records if record.ranks == ranks]
        calibration = calibrate([record for record in own if record.nbytes in FITTED], "star")
        calibration.write(output / f"calibration-{ranks}-ranks.yaml")
        compared += compare(own, "star", calibration=calibration)
        reports[f"Fit on {ranks} ranks"] = report(calibration)
    return compared, reports


def _page(compared: Sequence[Compared], reports: Mapping[str, str]) -> Page:
    """Build the page of the comparison, with an explanation for newcomers."""
    first = compared[0].record
    machine = f"{first.fingerprint['cores']} cores, torch {first.library_version}, Gloo over loopback"
    notes = [f"measured on this machine: {machine}, {first.date[:10]}", *MEANING]
    rows = [asdict(row.record) | {"predicted_s": row.predicted_s, "error": row.error, "set": row.set}
            for row in compared]  # fmt: skip
    page = compared_page("All-reduce here, predicted and measured", compared, notes, {"rows": rows})
    few = [row for row in compared if row.record.ranks == RANKS[0]]
    sentence = headline(summaries(few))
    return replace(
        page,
        headline=f"On {RANKS[0]} ranks: {sentence[0].lower()}{sentence[1:]}",
        texts={**reports, "On your own cluster, on every node": ON_A_CLUSTER},
    )


def _claim(output: Path) -> None:
    """Make the folder; raise RecordError for one with files other than an earlier report."""
    if output.exists() and not output.is_dir():
        raise RecordError(f"{output} is a file; write another folder after -o")
    if output.is_dir() and any(output.iterdir()) and not (output / PAGE).exists():
        raise RecordError(f"{output} contains other files; write an empty or a new folder after -o")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"cannot create {output}: {error.strerror}; write another folder after -o"
        ) from None

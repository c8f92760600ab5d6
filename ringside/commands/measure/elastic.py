"""``ringside measure elastic``: kill ranks of a torchrun job; measure and predict its goodput."""

import json
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from ringside import console
from ringside.pictures.style import check_format
from ringside.real.collective.measure import check_room
from ringside.real.elastic.job import ElasticJob
from ringside.real.elastic.measure import measure_elastic, seeded_kills
from ringside.sim.goodput.elastic import SCHEMA, ElasticRun, Restarted
from ringside.topologies.disk import add_lines, check_outputs, is_stream, write_file
from ringside.topologies.units import parse_duration, parse_size
from ringside.validation.elastic import ComparedRun, compare_runs

_MOST_KILLS = 100

HEADS = (
    *(("checkpoint", "every"), ("kills", ""), ("redone", "steps"), ("save", "(ms)"), ("restart", "(s)")),
    *(("wall", "(s)"), ("measured", "(%)"), ("predicted", "(%)"), ("error", "(points)")),
)


def run(
    output: Path,
    *,
    intervals: str,
    steps: int,
    step: str,
    checkpoint: str,
    kills: int,
    seed: int,
    ranks: int,
    timeout_s: float,
    plot: Path | None,
    as_json: bool,
    force: bool,
) -> None:
    """Measure a run for each interval, with kills at the same seeded moments; print, write and draw.

    The file contains every finished run, even if a later one fails.
    """
    check_format(plot)
    check_outputs([output, plot])
    if ranks < 2:
        raise ValueError(f"{ranks} ranks: none is left after a kill; write 2 or more")
    if not 0 <= kills <= _MOST_KILLS:
        raise ValueError(f"--kills {kills}; write 0 to {_MOST_KILLS}")
    if seed < 0:
        raise ValueError(f"--seed {seed}; write 0 or more")
    every = _counts(intervals)
    if not is_stream(output):
        _check_runs(output)
    if plot and (len(every) < 2 or not kills):
        raise ValueError("a prediction needs two intervals and a kill; remove --plot, or write more")
    with tempfile.TemporaryDirectory(prefix="ringside-") as folder:
        jobs = [
            ElasticJob(
                folder=f"{folder}/{number}", steps=steps, interval=interval, step_s=parse_duration(step),
                checkpoint_bytes=parse_size(checkpoint), timeout_s=timeout_s,
            )
            for number, interval in enumerate(every)
        ]  # fmt: skip
        if not force:
            check_room(ranks, jobs[0].checkpoint_bytes)
        runs = _measured(jobs, output, kills, seed, ranks)
    compared = compare_runs(runs) if len(runs) > 1 and kills else []
    if plot:
        from ringside.pictures.measured.elastic import draw_elastic

        draw_elastic(compared, plot)
    if as_json:
        inputs = {
            "intervals": every,
            "steps": steps,
            "step": step,
            "kills": kills,
            "seed": seed,
            "ranks": ranks,
        }
        rows = [_row(one, _of(one, compared)) for one in runs]
        console.print_json("elastic_runs", {"inputs": inputs, "rows": rows})
    else:
        _print(runs, compared, output)


def _counts(text: str) -> list[int]:
    """Parse the intervals, which must be distinct."""
    words = text.split(",")
    if not all(word.isascii() and word.isdecimal() and len(word) < 8 and int(word) for word in words):
        raise ValueError(f"invalid --interval {text!r}; write for example 2,5,10,20,40")
    if len(set(map(int, words))) < len(words):
        raise ValueError(f"--interval {text!r} has a duplicate; write each once")
    return [int(word) for word in words]


def _measured(
    jobs: Sequence[ElasticJob], output: Path, kills: int, seed: int, ranks: int
) -> list[ElasticRun]:
    runs: list[ElasticRun] = []
    grows = not is_stream(output)
    try:
        with console.progress("starting", len(jobs)) as bar:
            for job in jobs:
                Path(job.folder).mkdir()
                moments = seeded_kills(kills, job.steps * job.step_s, ranks, seed)
                runs.append(measure_elastic(job, ranks, moments))
                if grows:
                    add_lines(output, runs[-1].line())
                bar.done(f"a checkpoint every {job.interval} steps")
    finally:
        if runs and not grows:
            write_file(output, "".join(run.line() for run in runs))
    return runs


def _check_runs(output: Path) -> None:
    """Raise ValueError for a file without elastic runs."""
    if not output.exists():
        return
    with suppress(UnicodeDecodeError):
        text = output.read_text(encoding="utf-8")
        if not text or text.startswith(json.dumps({"schema": SCHEMA})[:-1]):
            return
    raise ValueError(f"{output} contains no elastic runs; write another name after -o")


def _of(run: ElasticRun, compared: Sequence[ComparedRun]) -> ComparedRun | None:
    """Return the run's prediction, if any."""
    return next((one for one in compared if one.run is run), None)


def _row(run: ElasticRun, compared: ComparedRun | None) -> dict[str, Any]:
    predicted = compared and {
        "goodput": compared.predicted, "error": compared.error, "wall_s": compared.life.wall_s,
        "shares": compared.predicted_shares, "measured_shares": compared.measured_shares,
    }  # fmt: skip
    return {**asdict(run), "goodput": run.goodput, "redone": run.redone, "predicted": predicted}


def _print(runs: Sequence[ElasticRun], compared: Sequence[ComparedRun], output: Path) -> None:
    first = runs[0]
    restarts = [restart for one in runs for restart in one.restarts]
    lines = [
        f"{first.steps} steps of {fmean(s for one in runs for s in one.steps_s) * 1e3:.0f} ms on "
        f"{first.ranks} ranks over gloo, killed and restarted by torchrun; the sum of all steps was "
        f"checked; runs in {output}"
    ]
    if restarts:
        stages = (f"{_words(name)} {fmean(getattr(r, name) for r in restarts):.2f}" for name in _STAGES)
        lines.append(f"mean restart of {len(restarts)}, in seconds: {', '.join(stages)}")
    if compared:
        lines.append(
            "predicted from the steps, checkpoints and restarts of the other runs, with the same kills"
        )
        worst = max(compared, key=lambda one: abs(one.error))
        lines.append(f"worst error {abs(worst.error) * 100:.1f} points, every {worst.run.interval} steps")
    console.print_table(lines, HEADS, [_cells(one, _of(one, compared)) for one in runs])


_STAGES = tuple(field.name for field in fields(Restarted))


def _words(stage: str) -> str:
    return stage.removesuffix("_s")


def _cells(run: ElasticRun, compared: ComparedRun | None) -> tuple[console.Cell, ...]:
    restart = fmean(one.whole_s for one in run.restarts) if run.restarts else 0.0
    predicted = (compared.predicted * 100, compared.error * 100) if compared else ("-", "-")
    return (
        *(run.interval, len(run.restarts), run.redone, fmean(run.saves_s) * 1e3, restart),
        *(run.wall_s, run.goodput * 100, *predicted),
    )

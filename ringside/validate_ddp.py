"""Predicted and measured training steps on emulated networks: a table, and a picture of each."""

from collections.abc import Iterable
from pathlib import Path

from ringside import console
from validation.ddp_steps import Judged, Trial, judge, table
from validation.scenes import MBIT


def run(plan: Iterable[Trial], pictures: Path | None) -> list[Judged]:
    """Judge every trial, print the table; draw both timelines of each into the folder ``pictures``."""
    trials, judged = list(plan), list[Judged]()
    with console.progress("building networks", len(trials)) as bar:

        def keep(one: Judged) -> None:
            judged.append(one)
            if pictures:
                _draw(one, pictures)
            bar.done(_name(one.trial))

        judge(trials, keep)
    print(table(judged), end="")
    return judged


def _draw(one: Judged, folder: Path) -> None:
    from ringside.plots_training import draw_timelines

    folder.mkdir(parents=True, exist_ok=True)
    steps = {"predicted": one.predicted, "measured": one.measured.median}
    draw_timelines(steps, folder / f"{_name(one.trial)}.svg")


def _name(trial: Trial) -> str:
    workers = f"{trial.workers}-worker{'s' if trial.workers > 1 else ''}"
    return f"{trial.bandwidth / MBIT:.0f}Mbps-{trial.cap_mb:g}MiB-{workers}"

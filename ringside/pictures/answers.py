"""The picture of each kind of answer: ``answer.plot()`` and ``--plot`` draw the same."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside.sim.questions.answer import Answer

if TYPE_CHECKING:  # each picture imports what it needs when it is drawn
    from ringside.sim.questions.algorithm_choice import AlgorithmPicks
    from ringside.sim.questions.cluster_facts import ClusterLinks, Connections
    from ringside.sim.questions.collective_time import CollectiveTimes
    from ringside.sim.questions.program_time import ProgramTimes
    from ringside.validation.questions.job_goodput import JobGoodputs
    from ringside.validation.questions.job_profile import ProfiledJob
    from ringside.validation.questions.layout_search import RankedLayouts
    from ringside.validation.questions.recorded import StepOfRecording
    from ringside.validation.questions.step_time import DataParallelSteps, StepUnderLayout

_TIMES = {"measured": "calibrated", "model": "closed-form"}
"""Names in pictures for the times of engines that do not simulate."""


def draw(answer: Answer, path: Path) -> None:
    """Draw an answer; one without a picture of its own gets a bar for each row."""
    disturbed = getattr(answer, "disturbed", None)
    if disturbed:
        from ringside.pictures.jobs.program import draw_disturbed

        return draw_disturbed(answer.headline, disturbed, path)
    return _PICTURES.get(type(answer).__name__, _bars)(answer, path)


def _curves(answer: "CollectiveTimes", path: Path) -> None:
    """Draw times and bus bandwidths against nodes, or against sizes of one cluster.

    Of several named algorithms each has a curve, unless there are several sizes and counts of nodes.
    """
    from ringside.pictures.collectives.curves import Point, draw_curves

    compares = answer.question.compares and 1 in (len(answer.by_nodes), len(answer.first.predictions))
    points = (
        [
            Point(count, one.collective, one.time_s, (one.time_lo_s, one.time_hi_s), algorithm)
            for (count, algorithm), predictions in answer.by_algorithm().items()
            for one in predictions
        ]
        if compares
        else [
            Point(count, one.collective, one.time_s, (one.time_lo_s, one.time_hi_s), one.algorithm)
            for count, predicted in answer.by_nodes.items()
            for one in predicted.predictions
        ]
    )
    engines = {one.engine for one in answer.predictions}
    times = " and ".join(sorted({_TIMES.get(engine, "simulated") for engine in engines}))
    question, library = answer.question, answer.first.library.name
    title = f"{question.kind} on {question.cluster}: {library}, {times} times"
    if compares and any(one.protocol not in ("", "auto") for one in answer.predictions):
        title += " of each algorithm by its fastest protocol"
    draw_curves(points, title, path, by_algorithm=compares)


def _picks(answer: "AlgorithmPicks", path: Path) -> None:
    from ringside.pictures.collectives.picks import draw_picks
    from ringside.sim.libraries.find import LIBRARIES

    library, question = answer.library, answer.question
    whose = " ".join(filter(None, (LIBRARIES[library.name].title, library.version)))
    title = f"{question.collective} on {question.cluster}: {whose}, {answer.clock} times"
    draw_picks(answer.picks, title, path)


def _links(answer: "ClusterLinks", path: Path) -> None:
    from ringside.pictures.topology import draw_topology

    draw_topology(answer.graph, path)


def _connections(answer: "Connections", path: Path) -> None:
    from ringside.pictures.collectives.schedule import draw_schedule

    question = answer.question
    draw_schedule(answer.links, f"{question.schedule} all_reduce on {question.machines}", path)


def _timelines(answer: "DataParallelSteps", path: Path) -> None:
    from ringside.pictures.jobs.training import draw_timelines

    step = answer.steps[0].step
    draw_timelines({f"{step.workload} on {step.ranks} ranks": step}, path)


def _pipeline(answer: "StepUnderLayout | StepOfRecording", path: Path) -> None:
    from ringside.pictures.jobs.pipeline import draw_pipeline

    draw_pipeline(answer.step, path)


def _best_layout(answer: "RankedLayouts", path: Path) -> None:
    from ringside.pictures.jobs.pipeline import draw_pipeline

    if answer.best is None:
        raise ValueError(f"{path}: there is no step to draw: {answer.headline}")
    draw_pipeline(answer.best, path)


def _goodput(answer: "JobGoodputs", path: Path) -> None:
    from ringside.pictures.jobs.goodput import draw_goodput

    title = answer.question.known.title if answer.question.known else ""
    lives = list(answer.curve) or list(answer.goodputs)
    draw_goodput(answer.job, title, lives, answer.goodputs[0], answer.best_interval_s, path)


def _program(answer: "ProgramTimes", path: Path) -> None:
    from ringside.pictures.jobs.program import draw_program

    draw_program(answer.jobs[0].timeline, path)


def _hang(answer: Any, path: Path) -> None:
    from ringside.pictures.jobs.hang import draw_hang

    draw_hang(answer, path)


def _trace(answer: "ProfiledJob", path: Path) -> None:
    from ringside.pictures.jobs.program import draw_trace

    if answer.replays is None:
        raise ValueError(f"{path}: the trace is not replayed; ask it with is_replayed=True")
    draw_trace(answer.replays, path)


def _comparison(answer: Any, path: Path) -> None:
    from ringside.pictures.collectives.curves import draw_comparison

    draw_comparison(answer.comparisons.compared, path)


def _pairs(answer: Any, path: Path) -> None:
    from ringside.pictures.measured.pairs import draw_pairs

    draw_pairs(answer, path)


def _scorecard(answer: Any, path: Path) -> None:
    from ringside.pictures.measured.scorecard import draw_scorecard

    draw_scorecard(answer.scores, path)


_PICTURES: Mapping[str, Callable[[Any, Path], None]] = {
    "CollectiveTimes": _curves, "AlgorithmPicks": _picks, "ClusterLinks": _links,
    "Connections": _connections, "DataParallelSteps": _timelines, "StepUnderLayout": _pipeline,
    "StepOfRecording": _pipeline, "RankedLayouts": _best_layout, "JobGoodputs": _goodput,
    "ProgramTimes": _program, "HangAnswer": _hang, "ProfiledJob": _trace, "ComparisonAnswer": _comparison,
    "PairsVerdict": _pairs, "ScorecardAnswer": _scorecard,
}  # fmt: skip

MOST_BARS = 40


def _bars(answer: Answer, path: Path) -> None:
    """Draw a bar for each row: its first figure, by the columns before it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from ringside.pictures.style import DURATIONS, STYLE, save

    rows = list(answer.rows)[:MOST_BARS]
    floats = [name for name in (rows[0] if rows else ()) if all(type(row.get(name)) is float for row in rows)]
    if not floats:
        raise ValueError(f"{path}: {type(answer).__name__} has no figures to draw; to_frame() has its rows")
    figure_of = next((name for name in floats if name.endswith("_s")), floats[0])
    before = list(rows[0])[: list(rows[0]).index(figure_of)]
    labels = [name for name in before if all(isinstance(row[name], str | int) for row in rows)]
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(7, 1.2 + 0.25 * len(rows)))
        axes = figure.subplots()
        axes.barh(range(len(rows)), [row[figure_of] for row in rows], color="#0072b2")
        axes.set_yticks(range(len(rows)), [" ".join(str(row[name]) for name in labels) for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel(figure_of.removesuffix("_s").replace("_", " "))
        if figure_of.endswith("_s"):
            axes.xaxis.set_major_formatter(DURATIONS)
        axes.set_title(answer.headline, wrap=True, fontsize="small")
        save(figure, path)

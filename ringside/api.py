"""The commands as functions that return results; `ringside` exports them."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside.sim import pick as picking
from ringside.sim.calibration import Calibration
from ringside.sim.collective import kind_of
from ringside.sim.goodput.formulas import best_interval
from ringside.sim.goodput.job import LongJob
from ringside.sim.goodput.published import published
from ringside.sim.goodput.study import Goodput, study
from ringside.sim.libraries.find import LIBRARIES, Options, check_pickable, default_library, find_library
from ringside.sim.pick import Pick, default_of, doubt_of, times_of
from ringside.sim.questions.question import options_of
from ringside.sim.record import Record
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.step import ParallelStep
from ringside.topologies.placement import EVEN
from ringside.validation import readers
from ringside.validation.pairs import Verdict, judge_files
from ringside.validation.questions.question import question
from ringside.validation.questions.step_time import StepTime

if TYPE_CHECKING:
    from pandas import DataFrame


def pick(
    collective: str,
    cluster: str,
    nodes: Sequence[int],
    sizes: Sequence[int],
    *,
    library: str | None = None,
    settings: Mapping[str, str] | None = None,
    dtype: str = "float32",
    redop: str = "sum",
    network: str = "fifo",
    calibration: Calibration | str | None = "auto",
    by: str = "pair",
    ranks: int | None = None,
    placement: str = EVEN,
) -> list[Pick]:
    """Return the fastest algorithm at each number of machines (or of ranks) and each size in bytes.

    ``cluster`` is a name without a count; ``settings`` change its figures. The default ``library`` is NCCL on
    machines that NCCL's model knows, else ``ideal``. ``calibration`` ``auto`` uses the shipped measurements
    of the machine, ``None`` the estimates of NCCL's tuner. ``network`` is `ringside.sim.predict.predict`'s.
    ``by`` ``algorithm`` lets each compete with its fastest protocol. ``ranks`` ranks run at each number of
    machines, all by default, placed by ``placement``: equally many on every machine (``even``), or one
    machine full after another (``packed``).
    """
    name = library or default_library(cluster)
    check_pickable(name)
    kind = kind_of(collective)
    libraries = {
        count: find_library(
            name,
            f"{cluster}:{count}",
            settings,
            ranks=ranks,
            calibration=calibration,
            options=Options(network=network, placement=placement),
        )
        for count in nodes
    }
    default = None
    for bound in libraries.values():
        bound.check_pick(kind)
    if LIBRARIES[name].by_default:
        default = default_of(libraries.__getitem__, kind, dtype, redop)
    words = kind, dtype, redop
    times, doubt = times_of(libraries.__getitem__, *words), doubt_of(libraries.__getitem__, *words)
    return picking.pick(times, nodes, sizes, error=doubt, default=default, by=by)


def train(model: str, cluster: str, **options: Any) -> TrainingStep | ParallelStep:
    """Return one training step of ``model`` on a cluster, by name or file: under DistributedDataParallel.

    Under any other layout it is a `ringside.sim.training.step.ParallelStep`. ``options`` are the
    fields of `ringside.validation.questions.step_time.StepTime`, which are the options of ``ringside train``
    (docs/defaults.md), including those of a layout (docs/parallel.md): ``strategy``, ``tp``, ``pp``,
    ``schedule`` and so on. ``measured`` may be a pair of samples/s of all ranks and the number of ranks.
    """
    step_time = _step_time("train", model, cluster, options)
    disturbances = step_time.disturbances
    if names := disturbances.changed(*(one.name for one in options_of(disturbances))):
        raise ValueError(
            f"`{names[0]}` disturbs a step, and train() returns an undisturbed one; leave it out"
        )
    return step_time.step()


def _step_time(function: str, model: str, cluster: str, options: Mapping[str, Any]) -> StepTime:
    """Return the question; raise TypeError for options that no training has."""
    known = [one.name for one in options_of(StepTime)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"{function}() has no option {unknown[0]!r}; write one of {', '.join(known)}")
    return question(model, cluster, **options)


def goodput(
    job: LongJob | str, interval_s: float | None = None, *, trials: int = 40, seed: int = 0
) -> Goodput:
    """Return the goodput of a long job with failures and checkpoints, by formula and by simulation.

    ``job`` is a `ringside.sim.goodput.job.LongJob`, or the name of a published training. ``interval_s`` is
    the training between two checkpoints, by default the best one.
    """
    what = published(job).job if isinstance(job, str) else job
    every = min(best_interval(what), what.work_s) if interval_s is None else interval_s
    return study(what, every, trials=trials, seed=seed)


def sweep(
    study: Mapping[str, object] | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> "DataFrame":
    """Run one command at many points, in parallel; return one row per point, as in `docs/sweep.md`.

    ``study`` is a YAML file, or its content. Rows are kept in ``folder``, a new one or that of this study,
    which then continues. ``workers`` are processes of this machine, by default one per core; ``scheduler`` is
    a Dask cluster's address instead. Processes begin by importing the calling script, so it must call this
    below ``if __name__ == "__main__":``. Raise `ringside.studies.study.StudyError` for an invalid study, or a
    folder of another one.
    """
    from ringside.studies.folder import opened
    from ringside.studies.run import run
    from ringside.studies.study import made
    from ringside.studies.study import read as read_study
    from ringside.studies.workers import check_address

    parsed = made(study, "study") if isinstance(study, Mapping) else read_study(Path(study))
    if scheduler is not None:
        check_address(scheduler)
    with opened(Path(folder), parsed) as at:
        run(at, lambda _: None, workers=workers, scheduler=scheduler)
        return at.read()


def read(*files: str | PathLike[str]) -> list[Record]:
    """Read the measurements in files: records, nccl-tests' text or JSON, published rows.

    Rows without a usable time are left out. Raise `ringside.sim.record.RecordError` for a file without any.
    """
    return [record for file in files for record in readers.read(Path(file)).records]


def pairs(*files: str | PathLike[str], ranks: int = 2) -> Verdict:
    """Find the slow nodes and links of a cluster, from measurements between every two of its nodes.

    Files are logs of two nodes each, folders of them, or CSV tables. ``ranks`` are a run's, on both nodes
    together, for files that do not give them. `rows` accepts the verdict's ``nodes``, ``pairs`` and
    ``matrices``. Raise `ringside.sim.record.RecordError` where no pair was measured.
    """
    return judge_files([Path(file) for file in files], ranks)

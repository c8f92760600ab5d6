"""What the commands do, as functions that return results; `ringside` hands them on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, get_type_hints, overload

from ringside.searched import TOP, Layouts, find_layouts
from ringside.sim import pick as picking
from ringside.sim.calibration import Calibration
from ringside.sim.collective import kind_of
from ringside.sim.goodput.formulas import best_interval
from ringside.sim.goodput.job import LongJob
from ringside.sim.goodput.published import published
from ringside.sim.goodput.study import Goodput, study
from ringside.sim.libraries.find import LIBRARIES, Options, check_pickable, default_library, find_library
from ringside.sim.pick import Pick, default_of, doubt_of, times_of
from ringside.sim.record import Record
from ringside.sim.training.parallel.step import ParallelStep
from ringside.sim.training.step import TrainingStep
from ringside.topologies.placement import EVEN
from ringside.validation import readers
from ringside.validation.pairs import Verdict, judge_files
from ringside.validation.questions.question import Laid, Trains, TrainsLaid, question

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
    """The quickest algorithm on each count of machines (or of ranks) and at each size in bytes.

    ``cluster`` is a name without a count; ``settings`` change its figures. Without a ``library`` it is
    NCCL on machines that NCCL's model knows, else ``ideal``. ``calibration`` ``auto`` goes by the
    measurements that are shipped of the machine, ``None`` by what NCCL's tuner believes.
    ``network`` is `ringside.sim.predict.predict`'s. ``by`` ``algorithm`` lets each compete with its quickest
    protocol. There are ``ranks`` on each count of machines, all by default, which stand there by
    ``placement``: as many on every machine (``even``), or one machine full after another (``packed``).
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


@overload
def train(model: str, cluster: str, **words: Unpack[Trains]) -> TrainingStep: ...


@overload
def train(model: str, cluster: str, **words: Unpack[TrainsLaid]) -> ParallelStep: ...


def train(model: str, cluster: str, **words: Unpack[TrainsLaid]) -> TrainingStep | ParallelStep:
    """One training step of ``model`` on a cluster by name, or in a file: under DistributedDataParallel.

    Under any other layout it is a `ringside.sim.training.parallel.step.ParallelStep`. ``words`` are the
    options of ``ringside train`` (docs/defaults.md), those that say a layout (docs/parallel.md) among them:
    ``strategy``, ``tp``, ``pp``, ``schedule`` and so on.

    ``model`` is a name (``resnet50``, ``gpt2-xl:512``), ``FILE.py:NAME``, a workload's YAML file or
    measured steps. ``batch`` is of one rank and pass. ``measured`` is a throughput (samples/s of all
    ranks together) and the ranks it was measured on, which then sets the pace of compute. ``ddp`` is a
    `ringside.sim.training.ddp.job.DataParallel`. ``slowdown`` are stragglers: the factor by which a rank
    takes longer; ``spread`` and ``contention`` are `ringside.validation.questions.training.Training`'s.
    ``network``, ``placement`` and ``calibration`` are as `pick`'s.
    """
    check_words("train", words)
    return question(model, cluster, **words).step()


def check_words(function: str, said: Iterable[str]) -> None:
    """Refuse words that no training has."""
    known = get_type_hints(TrainsLaid)
    unknown = sorted(set(said) - known.keys())
    if unknown:
        raise TypeError(f"{function}() knows no {unknown[0]!r}; it knows {', '.join(known)}")


def search(
    model: str,
    cluster: str,
    *,
    global_batch: int | None = None,
    top: int = TOP,
    reserve: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
    **words: Unpack[TrainsLaid],
) -> Layouts:
    """The ``top`` quickest layouts of a training on all ranks of a cluster, as ``ringside train --search``.

    ``words`` are as in `train`; those of a layout are held. All layouts have ``global_batch`` samples a step,
    and leave ``reserve`` bytes of each GPU free, those of `ringside.sim.training.room` where None. ``tell``
    is told how far it is; Control-C ends the search with what it knows.
    """
    check_words("search", words)
    held = {name: value for name, value in words.items() if name in Laid.__annotations__}
    return find_layouts(
        question(model, cluster, **words), held, global_batch=global_batch, top=top, reserve=reserve,
        tell=tell,
    )  # fmt: skip


def goodput(
    job: LongJob | str, interval_s: float | None = None, *, trials: int = 40, seed: int = 0
) -> Goodput:
    """What failures, checkpoints and restarts leave of a long job's time, by formula and by simulation.

    ``job`` is a `ringside.sim.goodput.job.LongJob`, or the name of a published training. ``interval_s`` is
    the training between two checkpoints; without one it is the best.
    """
    what = published(job).job if isinstance(job, str) else job
    every = min(best_interval(what), what.work_s) if interval_s is None else interval_s
    return study(what, every, trials=trials, seed=seed)


def measure(
    collective: str,
    sizes: Sequence[int],
    *,
    ranks: int = 2,
    backend: str = "gloo",
    algorithm: str = "library",
    dtype: str = "float32",
    iterations: int = 20,
    warmup: int = 2,
    timeout_s: float = 60.0,
    on_record: Callable[[Record], None] = lambda _: None,
) -> list[Record]:
    """Run a collective for real on this machine, under torchrun, at each size in bytes.

    PyTorch must be there. ``algorithm`` is ``library`` for the backend's own, or one of Ringside's,
    whose schedule is run. ``on_record`` is called with each record as it comes, so that nothing is lost
    where a later one fails.
    """
    from ringside.real.collective.measure import Measurement, check_room
    from ringside.real.collective.measure import measure as run
    from ringside.real.launch.torchrun import WorldSpec

    what = Measurement(
        collective=kind_of(collective), world=WorldSpec(ranks), sizes=sizes, backend=backend,
        algorithm=algorithm, dtype=dtype, iterations=iterations, warmup=warmup, timeout_s=timeout_s,
    )  # fmt: skip
    check_room(ranks, max(sizes))
    found: list[Record] = []

    def keep(record: Record) -> None:
        found.append(record)
        on_record(record)

    run(what, keep)
    return found


def sweep(
    study: Mapping[str, object] | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> "DataFrame":
    """One command line asked at many points, in parallel: a row for each, as `docs/sweep.md` tells.

    ``study`` is a YAML file, or what would stand in one. Rows are kept in ``folder``, a new one or that of
    this study, which then goes on where it was. ``workers`` are processes of this machine, one a core
    unless it is said; ``scheduler`` is a Dask cluster's address in place of them. Processes begin by
    importing the script that calls this, so it must call it below ``if __name__ == "__main__":``.
    Raise `ringside.studies.study.StudyError` for a study that cannot be made, or a folder of another one.
    """
    from ringside.studies.folder import opened
    from ringside.studies.run import run
    from ringside.studies.study import made
    from ringside.studies.study import read as read_study
    from ringside.studies.workers import check_address

    found = made(study, "study") if isinstance(study, Mapping) else read_study(Path(study))
    if scheduler is not None:
        check_address(scheduler)
    with opened(Path(folder), found) as at:
        run(at, lambda _: None, workers=workers, scheduler=scheduler)
        return at.read()


def read(*files: str | PathLike[str]) -> list[Record]:
    """The measurements in files: records, nccl-tests' text or JSON, published rows.

    Rows without a usable time are left out. Raise `ringside.sim.record.RecordError` for a file that holds
    none.
    """
    return [record for file in files for record in readers.read(Path(file)).records]


def pairs(*files: str | PathLike[str], ranks: int = 2) -> Verdict:
    """Which node or link of a cluster is slow, from a measurement between every two of its nodes.

    Files are logs of two nodes each, folders of them, or CSV tables. ``ranks`` are a run's, on both nodes
    together, where a file does not say it. `rows` takes the verdict's ``nodes``, ``pairs`` and
    ``matrices``. Raise `ringside.sim.record.RecordError` where no pair was measured.
    """
    return judge_files([Path(file) for file in files], ranks)

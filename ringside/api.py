"""What the commands do, as functions that return results; `ringside` hands them on."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from real.model.find import Training
from ringside.trained import trained
from sim import pick as picking
from sim.calibration import Calibration
from sim.collective import kind_of
from sim.libraries.find import Options, check_pickable, default_library, find_library
from sim.libraries.library import Library
from sim.libraries.nccl.tuning.tuner import check_function
from sim.pick import Pick, default_of, doubt_of, times_of
from sim.record import Record
from sim.training.ddp.job import DataParallel
from sim.training.ddp.simulate import simulate_step
from sim.training.groups import process_group
from sim.training.step import TrainingStep
from sim.workload.devices import device as find_device
from sim.workload.devices import device_of
from validation import readers
from validation.pairs import Verdict, judge_files


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
) -> list[Pick]:
    """The quickest algorithm on each count of machines (or of ranks) and at each size in bytes.

    ``cluster`` is a name without a count; ``settings`` change its figures. Without a ``library`` it is
    NCCL on machines that NCCL's model knows, else ``ideal``. ``calibration`` ``auto`` goes by the
    measurements that are shipped of the machine, ``None`` by what NCCL's tuner believes.
    ``network`` is `sim.predict.predict`'s. ``by`` ``algorithm`` lets each compete with its quickest protocol.
    """
    name = library or default_library(cluster)
    check_pickable(name)
    kind = kind_of(collective)
    libraries = {
        count: find_library(
            name, f"{cluster}:{count}", settings, options=Options(network=network), calibration=calibration
        )
        for count in nodes
    }
    default = None
    if name == "nccl":
        check_function(kind)
    if name != "ideal":
        default = default_of(libraries.__getitem__, kind, dtype, redop)
    words = kind, dtype, redop
    times, doubt = times_of(libraries.__getitem__, *words), doubt_of(libraries.__getitem__, *words)
    return picking.pick(times, nodes, sizes, error=doubt, default=default, by=by)


def train(
    model: str,
    cluster: str,
    *,
    settings: Mapping[str, str] | None = None,
    library: str = "auto",
    ranks: int | None = None,
    batch: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    dtype: str | None = None,
    compute_efficiency: float | None = None,
    measured: tuple[float, int] | None = None,
    optimizer: str = "adam",
    ddp: DataParallel | None = None,
    slowdown: Mapping[int, float] | None = None,
    spread: float | None = None,
    contention: float | None = None,
    network: str = "fifo",
    calibration: Calibration | str | None = "auto",
) -> TrainingStep:
    """One training step of ``model`` under DistributedDataParallel on a cluster by name, or in a file.

    ``model`` is a name (``resnet50``, ``gpt2-xl:512``), ``FILE.py:NAME``, a workload's YAML file or
    measured steps. ``batch`` is of one rank and pass. ``measured`` is a throughput (samples/s of all
    ranks together) and the ranks it was measured on, which then sets the pace of compute. ``slowdown``
    are stragglers: the factor by which a rank takes longer; ``spread`` and
    ``contention`` are `real.model.find.Training`'s. ``network`` and ``calibration`` are as `pick`'s.
    """
    gpu = find_device(device or device_of(cluster, settings))

    def group(count: int | None) -> Library:
        return find_library(
            None if library == "auto" else library, cluster, settings, ranks=count,
            options=Options(network=network), calibration=calibration,
        )  # fmt: skip

    found = group(ranks)
    training = Training(
        model=model, batch=batch, device=device, precision=precision, dtype=dtype,
        compute_efficiency=compute_efficiency, measured=measured, optimizer=optimizer,
        ddp=ddp or DataParallel(), slowdown=slowdown or {}, spread=spread,
        contention=contention,
    )  # fmt: skip
    what = trained(training, gpu, group)
    return simulate_step(what.sized(None), process_group(found), training.ddp, what.costs_on(found))


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
    from real.collective.measure import Measurement, check_room
    from real.collective.measure import measure as run
    from real.launch.torchrun import WorldSpec

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


def read(*files: str | PathLike[str]) -> list[Record]:
    """The measurements in files: records, nccl-tests' text or JSON, published rows.

    Rows without a usable time are left out. Raise `sim.record.RecordError` for a file that holds none.
    """
    return [record for file in files for record in readers.read(Path(file)).records]


def pairs(*files: str | PathLike[str], ranks: int = 2) -> Verdict:
    """Which node or link of a cluster is slow, from a measurement between every two of its nodes.

    Files are logs of two nodes each, folders of them, or CSV tables. ``ranks`` are a run's, on both nodes
    together, where a file does not say it. `rows` takes the verdict's ``nodes``, ``pairs`` and
    ``matrices``. Raise `sim.record.RecordError` where no pair was measured.
    """
    return judge_files([Path(file) for file in files], ranks)

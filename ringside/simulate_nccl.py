"""``ringside simulate --library nccl``: what NCCL chooses at every size, and every choice that it weighed."""

import math
from typing import Any

from ringside import console
from ringside.request import Request, inputs_of
from sim.collective import KINDS, Collective, itemsize
from sim.engine.timeline import Timeline
from sim.libraries.nccl.cluster import communicators
from sim.libraries.nccl.communicator import Communicator, Settings
from sim.libraries.nccl.constants import DEFAULT_VERSION
from sim.libraries.nccl.library import LAUNCH_S, Plan, model, simulated_model
from sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS
from sim.libraries.nccl.pins import Pins
from sim.libraries.nccl.tuning.tuner import cost_table
from topologies import parse_settings
from topologies.disk import write_file

HEADS = (
    *(("size", "(B)"), ("time", "(us)"), ("algbw", "(GB/s)"), ("busbw", "(GB/s)")),
    *(("algorithm", ""), ("protocol", ""), ("channels", ""), ("engine", ""), ("tuner", "(us)")),
)


def run(request: Request, kind: str, sizes: list[int], *, as_json: bool) -> None:
    """Choose and time each size and print the rows, with the tuner's time of every pair beside them."""
    engine = "model" if request.engine == "auto" else request.engine
    if engine not in ("model", "simpy"):
        raise ValueError(f"{engine!r} is no engine for nccl; write model or simpy")
    if request.trace and engine != "simpy":
        raise ValueError("NCCL's model has no timeline; add --engine simpy")
    if request.calibration != "none":
        raise ValueError("NCCL's times are not calibrated yet; leave --calibration out")
    comm = communicator_of(request)
    count = comm.ranks if comm else 1
    rows = []
    with console.simulating("simulating", len(sizes)) as bar:
        for nbytes in sizes:
            collective = Collective(kind, count, nbytes, itemsize(request.dtype))
            plan, timeline = _plan(request, collective, comm, engine)
            rows.append(_row(request, collective, comm, plan, engine))
            if request.trace and timeline:
                write_file(request.trace, timeline.dumps())
            bar.done(f"simulated {nbytes} B")
    version = request.nccl_version or DEFAULT_VERSION
    inputs = inputs_of(request, "nccl", count) | {"nccl_version": version}
    whose = "the tuner's" if engine == "model" else "the engine's"
    note = f"time_s is {whose} time plus {LAUNCH_S * 1e6:g} us for the launch; it is not calibrated"
    if as_json:
        console.print_json("simulate", {"inputs": inputs, "note": note, "rows": rows})
    else:
        _print(inputs, note, rows)


def settings_of(algorithm: str, protocol: str, version: str | None) -> Settings:
    """The pins and the release, from the words of the command line."""
    unset = {"auto": ""}
    return Settings(
        version or DEFAULT_VERSION, Pins(unset.get(algorithm, algorithm), unset.get(protocol, protocol))
    )


def communicator_of(request: Request) -> Communicator | None:
    """The one communicator that the cluster's name means; None for a single rank."""
    settings = settings_of(request.algorithm, request.protocol, request.nccl_version)
    values = parse_settings(list(request.settings))
    found = communicators(request.cluster, values, None, request.ranks, settings, request.nccl_graph)
    return next(iter(found.values()))


def _plan(
    request: Request, collective: Collective, comm: Communicator | None, engine: str
) -> tuple[Plan, Timeline | None]:
    if engine == "model":
        return model(collective, comm, request.dtype, request.redop), None
    traced = request.trace is not None
    return simulated_model(collective, comm, request.dtype, request.redop, traced=traced)


def _row(
    request: Request, collective: Collective, comm: Communicator | None, plan: Plan, engine: str
) -> dict[str, Any]:
    algbw = collective.nbytes / plan.time_s / 1e9
    return {
        "size_bytes": collective.nbytes,
        "time_s": plan.time_s,
        "time_lo_s": plan.time_s,
        "time_hi_s": plan.time_s,
        "algbw_GBps": algbw,
        "busbw_GBps": algbw * KINDS[collective.kind].busbw_factor(collective.ranks),
        "algorithm": plan.algorithm,
        "protocol": plan.protocol,
        "channels": plan.channels,
        "engine": engine,
        "tuner_us": plan.tuner_us,
        "choices_us": _choices(request, collective, comm),
    }


def _choices(request: Request, collective: Collective, comm: Communicator | None) -> dict[str, float]:
    """The tuner's time of every pair that it weighs."""
    if comm is None or collective.kind not in FUNCTIONS:
        return {}
    times = cost_table(comm, collective.kind, request.dtype, request.redop).times_us(collective.nbytes)
    return {
        f"{algorithm}/{protocol}": float(times[row, column])
        for row, algorithm in enumerate(ALGORITHMS)
        for column, protocol in enumerate(PROTOCOLS)
        if math.isfinite(times[row, column])
    }


def _print(inputs: dict[str, Any], note: str, rows: list[dict[str, Any]]) -> None:
    pairs = list(dict.fromkeys(pair for row in rows for pair in row["choices_us"]))
    heads = [*HEADS, *((pair, "(us)") for pair in pairs)]
    cells = [
        [
            *(row["size_bytes"], row["time_s"] * 1e6, row["algbw_GBps"], row["busbw_GBps"]),
            *(row["algorithm"], row["protocol"], row["channels"], row["engine"], row["tuner_us"]),
            *(row["choices_us"].get(pair, "-") for pair in pairs),
        ]
        for row in rows
    ]
    weighed = "behind tuner: the tuner's time of every pair that it weighs"
    console.print_table([console.spelled(inputs), note, weighed], heads, cells)

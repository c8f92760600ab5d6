"""``ringside simulate``: a table of predictions, one row a size."""

from pathlib import Path
from typing import Any

from ringside import console, simulate_nccl
from ringside.request import Request, inputs_of, library_of, refuse_nccl_options
from sim import calibration as calibrations
from sim.collective import Collective, check_redop, itemsize, kind_of
from sim.engine.laws import check_monotone
from sim.predict import Prediction, predict
from sim.record import RecordError
from topologies import load, parse_settings, ranks
from topologies.disk import check_outputs, write_file

HEADS = (
    ("size", "(B)"),
    ("time", "(us)"),
    ("algbw", "(GB/s)"),
    ("busbw", "(GB/s)"),
    ("algorithm", ""),
    ("protocol", ""),
    ("engine", ""),
)


def run(request: Request, *, as_json: bool) -> None:
    """Predict each size and print the rows."""
    sizes, library = (
        console.sizes(*request.sweep),
        library_of(request.library, request.cluster),
    )
    check_outputs([request.trace], inputs=[request.cluster, request.calibration, request.nccl_graph or ""])
    if request.trace and len(sizes) > 1:
        raise RecordError(f"a trace shows one size, not {len(sizes)}; add --size")
    if request.ranks is not None and request.ranks < 1:
        raise ValueError(f"-g {request.ranks}; write 1 rank or more")
    check_redop(request.redop)
    if request.network != "fifo":
        raise ValueError(f"{request.network!r} is no known network; write fifo")
    if library == "nccl":
        simulate_nccl.run(request, kind_of(request.collective), sizes, as_json=as_json)
        return
    predictions = _predictions(request, library, sizes)
    _check_growth(predictions)
    if request.trace and predictions[0].timeline:
        write_file(request.trace, predictions[0].timeline.dumps())
    inputs = inputs_of(request, library, predictions[0].collective.ranks)
    if as_json:
        console.print_json("simulate", {"inputs": inputs, "rows": [_row(p) for p in predictions]})
    else:
        caveats = dict.fromkeys(p.caveat for p in predictions if p.caveat)
        console.print_table([console.spelled(inputs), *caveats], HEADS, (_cells(p) for p in predictions))


def _predictions(request: Request, library: str, sizes: list[int]) -> list[Prediction]:
    refuse_nccl_options(
        library, protocol=None if request.protocol == "auto" else request.protocol,
        nccl_version=request.nccl_version, nccl_graph=request.nccl_graph,
    )  # fmt: skip
    graph = load(request.cluster, parse_settings(list(request.settings)), ranks=request.ranks)
    found = None if request.calibration == "none" else calibrations.read(Path(request.calibration))
    kind, item, count = (
        kind_of(request.collective),
        itemsize(request.dtype),
        request.ranks or len(ranks(graph)),
    )
    predictions = []
    with console.simulating("simulating", len(sizes)) as bar:
        for nbytes in sizes:
            predictions.append(
                predict(
                    Collective(kind, count, nbytes, item), graph, library=library,
                    algorithm=request.algorithm, engine=request.engine, calibration=found,
                    traced=request.trace is not None,
                )
            )  # fmt: skip
            bar.done(f"simulated {nbytes} B")
    return predictions


def _row(p: Prediction) -> dict[str, Any]:
    return {
        "size_bytes": p.collective.nbytes,
        "time_s": p.time_s,
        "time_lo_s": p.time_lo_s,
        "time_hi_s": p.time_hi_s,
        "algbw_GBps": p.algbw / 1e9,
        "busbw_GBps": p.busbw / 1e9,
        "algorithm": p.algorithm,
        "protocol": p.protocol,
        "engine": p.engine,
        **({"caveat": p.caveat} if p.caveat else {}),
    }


def _cells(p: Prediction) -> tuple[console.Cell, ...]:
    rates = p.algbw / 1e9, p.busbw / 1e9
    return (p.collective.nbytes, p.time_s * 1e6, *rates, p.algorithm, p.protocol, p.engine)


def _check_growth(predictions: list[Prediction]) -> None:
    ways: dict[tuple[str, str, str], list[Prediction]] = {}
    for p in predictions:
        ways.setdefault((p.algorithm, p.protocol, p.engine), []).append(p)
    for way, found in ways.items():
        check_monotone("/".join(way), [p.collective.nbytes for p in found], [p.time_s for p in found])

"""``ringside compare``: predicted beside measured, as a table, a picture and a verdict."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.calibrations import find_calibration
from ringside.commands import compare_ddp
from ringside.commands.calibrate import read_all
from ringside.pictures.style import check_format
from sim.engine.effort import forced
from sim.training.ddp.record import is_ddp_record
from topologies import parse_settings
from topologies.disk import check_outputs
from validation.compare import Compared, Summary, compare, summaries

HEADS = (
    ("size", "(B)"),
    ("nodes", ""),
    ("ranks", ""),
    ("collective", ""),
    ("algorithm", ""),
    ("measured", "(us)"),
    ("spread", "(%)"),
    ("predicted", "(us)"),
    ("error", "(%)"),
    ("set", ""),
)


def command(
    files: options.Files,
    cluster: options.AnyCluster = None,
    settings: options.Settings = None,
    calibration: options.CalibrationFile = "auto",
    plot: options.Plot = None,
    max_error: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Exit 1 where a median error is larger.")
    ] = None,
    pool_sites: options.PoolSites = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Lay predictions beside measurements: records and nccl-tests, or steps of measure ddp."""
    with forced(force):
        run(files, cluster, settings or [], calibration, plot, max_error, pool_sites=pool_sites, as_json=json)


def run(
    files: list[Path],
    cluster: str | None,
    settings: list[str],
    calibration: str,
    plot: Path | None,
    max_error: str | None,
    *,
    pool_sites: bool,
    as_json: bool,
) -> None:
    """Compare all records; exit 1 where a set's median error exceeds ``max_error``."""
    limit = None if max_error is None else percent(max_error)
    check_format(plot)
    check_outputs([plot], inputs=[*files, calibration])
    if any(map(is_ddp_record, files)):
        if cluster or settings or calibration not in ("auto", "none"):
            raise ValueError(
                "steps hold the network they ran on; leave --cluster, --set and --calibration out"
            )
        compare_ddp.run(files, plot, limit, as_json=as_json)
        return
    if cluster is None:
        raise ValueError("what did the measurements run on? add --cluster, for example star:4")
    found = find_calibration(calibration, None, cluster, parse_settings(settings))
    records = read_all(files)
    with console.simulating("predicting"):
        rows = compare(records, cluster, parse_settings(settings), found, pool_sites=pool_sites)
    sums = summaries(rows)
    if plot:
        from ringside.pictures.comparison import draw_comparison

        draw_comparison(rows, plot)
    if as_json:
        inputs = {"files": [str(file) for file in files], "cluster": cluster, "calibration": calibration}
        content = {"summary": {name: asdict(s) for name, s in sums.items()}, "rows": [_row(r) for r in rows]}
        console.print_json("compare", {"inputs": inputs, **content})
    else:
        console.print_table([], HEADS, [cells(row) for row in rows])
        print("\n".join(summary_lines(sums)))
    over = [name for name, s in sums.items() if limit is not None and not s.median_error <= limit]
    if over:
        raise RuntimeError(f"median error above {max_error} in rows {' and '.join(over)}")


def percent(text: str) -> float:
    """A share from text such as ``10%``."""
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not text.endswith("%") or not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is no percentage; write for example 10%")
    return value


def summary_lines(sums: dict[str, Summary]) -> list[str]:
    """One line a set, in nccl-tests' manner."""
    return [
        f"# {name}: {s.rows} rows, error median {s.median_error:.1%}, geometric mean {s.geomean_error:.1%}, "
        f"90th percentile {s.p90_error:.1%}, worst {s.worst_error:.1%}"
        + (f"; the measurements' own spread {s.median_spread:.1%}" if s.median_spread else "")
        for name, s in sums.items()
    ]


def cells(row: Compared) -> tuple[console.Cell, ...]:
    """A row as the table shows it."""
    r = row.record
    return (
        *(r.nbytes, r.num_nodes, r.ranks, r.collective, way(row), r.time_s * 1e6, r.spread * 100),
        *(row.predicted_s * 1e6, row.error * 100, row.set),
    )


def way(row: Compared) -> str:
    """What carried the collective out: an algorithm, or a library of its own accord."""
    return row.record.algorithm if row.record.algorithm != "auto" else row.record.library


def _row(row: Compared) -> dict[str, Any]:
    r = row.record
    return {
        "size_bytes": r.nbytes,
        "num_nodes": r.num_nodes,
        "ranks": r.ranks,
        "collective": r.collective,
        "library": r.library,
        "algorithm": r.algorithm,
        "protocol": r.protocol,
        "measured_s": r.time_s,
        "spread": r.spread,
        "predicted_s": row.predicted_s,
        "predicted_lo_s": row.lo_s,
        "predicted_hi_s": row.hi_s,
        "error": row.error,
        "set": row.set,
    }

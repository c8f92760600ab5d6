"""``ringside compare``: predicted beside measured, as a table, a picture and a verdict."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.pictures.style import check_format
from ringside.report.page import Page, Table, check_page, write_page
from ringside.sim.calibration import AUTO, find_calibration
from ringside.sim.engine.effort import forced
from ringside.sim.libraries.find import shipped_for
from ringside.sim.record import Record, is_ddp_record, is_training_record
from ringside.topologies import parse_settings
from ringside.topologies.disk import check_outputs
from ringside.validation.compare import Compared, Summary, compare, summaries
from ringside.validation.fallback import as_run, fell_back
from ringside.validation.machines import infer_machine, other_gpus
from ringside.validation.readers import read_all

HEADS = (
    ("size", "(B)"),
    ("ranks", ""),
    ("collective", ""),
    ("predicted as", ""),
    ("measured", "(us)"),
    ("predicted", "(us)"),
    ("off by", ""),
    ("set", ""),
    ("spread", "(%)"),
    ("nodes", ""),
    ("ran", ""),
    ("busbw", "(GB/s)"),
    ("predicted", "(GB/s)"),
)


def command(
    files: options.Files,
    cluster: options.AnyCluster = None,
    settings: options.Settings = None,
    network: options.Network = "fifo",
    calibration: options.CalibrationFile = "auto",
    plot: options.Plot = None,
    html: options.Html = None,
    max_error: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Exit 1 where a median error is larger.")
    ] = None,
    pool_sites: options.PoolSites = False,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Compare predictions with measurements: records and nccl-tests, or measured training steps."""
    with forced(force):
        run(
            files, cluster, settings or [], network, calibration, plot, html, max_error,
            pool_sites=pool_sites, as_json=json,
        )  # fmt: skip


def run(
    files: list[Path],
    cluster: str | None,
    settings: list[str],
    network: str,
    calibration: str,
    plot: Path | None,
    html: Path | None,
    max_error: str | None,
    *,
    pool_sites: bool,
    as_json: bool,
) -> None:
    """Compare all records; exit 1 where a set's median error exceeds ``max_error``."""
    limit = None if max_error is None else percent(max_error)
    check_format(plot)
    check_outputs([plot], inputs=[*files, calibration])
    check_page(html, [plot], [*files, calibration])
    if any(map(is_ddp_record, files)) or any(map(is_training_record, files)):
        if cluster or settings or network != "fifo" or calibration not in ("auto", "none"):
            raise ValueError(
                "steps hold the network they ran on; leave --cluster, --set, --network and --calibration out"
            )
        _compare_steps(files, plot, html, limit, as_json=as_json)
        return
    reading = read_all(files)
    console.left_out(reading.skipped, reading.notes)
    records = reading.records
    cluster, comments = _machine(records, cluster)
    found = find_calibration(calibration, cluster)
    if found == AUTO and any(record.library == "nccl" for record in records):
        comments.append(_known(cluster, parse_settings(settings)))
    with console.simulating("predicting"):
        rows = compare(
            records, cluster, parse_settings(settings), found, network=network, pool_sites=pool_sites
        )
    if network != "fifo":
        comments.append(f"schedules played on the {network} network")
    ran = as_run(records, cluster, parse_settings(settings))
    comments += fell_back(records, ran, cluster, "predicted")
    sums = summaries(rows)
    if plot:
        from ringside.pictures.measured.comparison import draw_comparison

        draw_comparison(rows, plot)
    inputs = {"files": [str(file) for file in files], "cluster": cluster, "network": network,
              "calibration": calibration}  # fmt: skip
    summary = {name: asdict(s) for name, s in sums.items()}
    content = {"inputs": inputs, "notes": comments, "summary": summary, "rows": [_row(r) for r in rows]}
    if html:
        title = f"Predicted and measured on {cluster}"
        write_page(compared_page(title, rows, comments, content), html, [*files, calibration, plot])
    if as_json:
        console.print_json("compare", content)
    else:
        console.print_table(comments, HEADS, [cells(row) for row in rows])
        console.print_comments(summary_lines(sums))
    over = [name for name, s in sums.items() if limit is not None and not s.median_error <= limit]
    if over:
        raise RuntimeError(f"median error above {max_error} in rows {' and '.join(over)}")


def _compare_steps(
    files: list[Path], plot: Path | None, html: Path | None, limit: float | None, *, as_json: bool
) -> None:
    """Compare measured training steps, of DDP or others."""
    from ringside.commands.compare import ddp as compare_ddp
    from ringside.commands.compare import training as compare_training

    if is_ddp_record(files[0]):
        compare_ddp.run(files, plot, html, limit, as_json=as_json)
        return
    if plot:
        raise ValueError("steps of measure train are not drawn; leave --plot out")
    compare_training.run(files, html, limit, as_json=as_json)


def compared_page(title: str, rows: Sequence[Compared], told: Sequence[str], raw: Mapping[str, Any]) -> Page:
    """The page of predictions beside measurements."""
    from ringside.report.comparison import comparison_figures

    sums = summaries(rows)
    return Page(
        title=title,
        headline=headline(sums),
        figures=comparison_figures(rows),
        tables=[Table("Every row", HEADS, [cells(row) for row in rows])],
        told=[*told, *(line.removeprefix("# ") for line in summary_lines(sums))],
        raw=raw,
    )


def headline(sums: Mapping[str, Summary]) -> str:
    """How good predictions are: on rows held out where there are any, else on what there is."""
    kinds = {
        "held_out": "that set nothing",
        "unfitted": "that no calibration speaks of",
        "fitted": "that set the parameters",
    }
    for kind, words in kinds.items():
        if kind in sums:
            s = sums[kind]
            noise = f"; the measurements' own spread is {s.median_spread:.1%}" if s.median_spread else ""
            rows = "row" if s.rows == 1 else "rows"
            return (
                f"Predictions are off by {s.median_error:.1%} (median) on {s.rows} {rows} {words}, "
                f"nine of ten within {s.p90_factor:.2f}x, worst {s.worst_factor:.2f}x{noise}."
            )
    return "There are no rows to judge by."


def _known(cluster: str, values: dict[str, str]) -> str:
    """Whether NCCL's times on a cluster are calibrated, in words."""
    found, why = shipped_for(cluster, values)
    return f"times of NCCL as measured ({found.cluster})" if found else f"not calibrated: {why}"


def _machine(records: Sequence[Record], cluster: str | None) -> tuple[str, list[str]]:
    """What the records are predicted on, and what to say of it; other GPUs than its are warned of."""
    if cluster is None:
        cluster, why = infer_machine(records)
        return cluster, [f"machine: {cluster}, {why}"]
    others = other_gpus(records, cluster)
    if others:
        print(f"ringside: measured on {', '.join(others)}, which {cluster} does not have", file=sys.stderr)
    return cluster, []


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
    """One line a set."""
    return [
        f"{name}: {s.rows} rows, typically {s.typical_factor:.2f}x off, nine of ten within "
        f"{s.p90_factor:.2f}x, worst {s.worst_factor:.2f}x"
        + (f"; the measurements' own spread {s.median_spread:.1%}" if s.median_spread else "")
        for name, s in sums.items()
    ]


def cells(row: Compared) -> tuple[console.Cell, ...]:
    """A row as the table shows it; ``-`` is unknown."""
    r = row.record
    return (
        *(r.nbytes, r.ranks, r.collective, row.choice or row.way),
        *(r.time_s * 1e6, row.predicted_s * 1e6, off_by(row), row.set),
        *(r.spread * 100 if r.spread else "-", r.num_nodes or "-", row.way),
        *(r.busbw / 1e9, row.predicted_busbw / 1e9),
    )


def off_by(row: Compared) -> str:
    """How many times the predicted time is too long or too short."""
    return f"{row.factor:.2f}x {'long' if row.error > 0 else 'short'}"


def _row(row: Compared) -> dict[str, Any]:
    r = row.record
    return {
        "size_bytes": r.nbytes,
        "num_nodes": r.num_nodes or None,
        "ranks": r.ranks,
        "collective": r.collective,
        "library": r.library,
        "algorithm": r.algorithm,
        "protocol": r.protocol,
        "choice": row.choice,
        "measured_s": r.time_s,
        "spread": r.spread or None,
        "measured_busbw": r.busbw,
        "predicted_busbw": row.predicted_busbw,
        "predicted_s": row.predicted_s,
        "predicted_lo_s": row.lo_s,
        "predicted_hi_s": row.hi_s,
        "error": row.error,
        "set": row.set,
    }

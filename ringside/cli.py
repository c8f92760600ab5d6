"""The command line. Each command reads its words, asks a room for the work and prints what it says.

Only what describes the commands is imported here: help must not wait for numpy.
"""

from pathlib import Path
from typing import Annotated

import typer

from ringside import options
from ringside.cli_measure import measure
from ringside.cli_train import train

app = typer.Typer(
    help="Predict how long collective communication and distributed training take, and prove it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def topo(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME[:COUNT]|FILE]", help="Leave out to list.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="How many, in place of :COUNT.")] = None,
    settings: options.Settings = None,
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write it as YAML.")] = None,
    plot: options.Plot = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="ALGORITHM", help="Show who sends to whom in an all-reduce.")
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print a file that describes a cluster in ten lines.")
    ] = False,
    channels: Annotated[
        bool, typer.Option("--channels", help="Print NCCL's rings and trees, and why there are so many.")
    ] = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """List the named clusters, or describe, draw or write one."""
    from ringside.commands import topo as command
    from sim.engine.effort import forced

    with forced(force):
        command.run(
            *(name, nodes, settings or [], output, plot, schedule),
            example=example,
            channels=channels,
            as_json=json,
        )


@app.command()
def simulate(
    context: typer.Context,
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, broadcast, ...")],
    cluster: options.Cluster,
    settings: options.Settings = None,
    begin: options.Begin = "8",
    end: options.End = "128M",
    factor: options.Factor = 2,
    size: options.Size = None,
    ranks: Annotated[int | None, typer.Option("-g", "--ranks", help="Ranks in all [default: all]")] = None,
    library: options.Library = None,
    algorithm: options.Algorithm = "auto",
    protocol: options.Protocol = "auto",
    engine: options.Engine = "auto",
    network: Annotated[str, typer.Option(help="How links serve messages: fifo.")] = "fifo",
    nccl_version: options.NcclVersion = None,
    nccl_graph: options.NcclGraph = None,
    dtype: options.Dtype = "float32",
    redop: options.Redop = "sum",
    calibration: options.CalibrationFile = "auto",
    anchor: options.Anchor = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace.")] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Predict how long a collective takes."""
    from ringside.commands import simulate as command
    from sim.engine.effort import forced

    options.check_sizes(context)
    request = command.Request(
        collective, cluster, tuple(settings or ()), (begin, end, factor, size), ranks, library,
        algorithm, protocol, engine, network, nccl_version, nccl_graph, dtype, redop, calibration, anchor,
        trace,
    )  # fmt: skip
    with forced(force):
        command.run(request, as_json=json)


@app.command()
def pick(
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, broadcast, ...")],
    cluster: options.Cluster,
    nodes: Annotated[str, typer.Option(metavar="N,N,...", help="Counts of machines, or of ranks.")],
    settings: options.Settings = None,
    begin: options.Begin = "1K",
    end: options.End = "1G",
    factor: options.Factor = 2,
    library: options.Library = None,
    algorithm: options.Algorithm = "auto",
    protocol: options.Protocol = "auto",
    times: options.Times = None,
    nccl_version: options.NcclVersion = None,
    nccl_graph: options.NcclGraph = None,
    dtype: options.Dtype = "float32",
    redop: options.Redop = "sum",
    calibration: options.CalibrationFile = "auto",
    anchor: options.Anchor = None,
    by: Annotated[str, typer.Option(help="pair, or algorithm: the best protocol of each.")] = "pair",
    plot: options.Plot = None,
    tuner_csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rules for NCCL's example tuner plugin; FILE.json: for NCCLX's."),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Say which algorithm wins at every size and node count, and by how much."""
    from ringside.commands import pick as command
    from sim.engine.effort import forced

    request = command.Request(
        collective, cluster, nodes, tuple(settings or ()), (begin, end, factor, None), library, algorithm,
        protocol, times, nccl_version, nccl_graph, dtype, redop, calibration, anchor, by,
    )  # fmt: skip
    with forced(force):
        command.run(request, plot, tuner_csv, as_json=json)


app.command()(train)


app.command()(measure)


@app.command()
def calibrate(
    files: options.Files,
    cluster: options.Cluster,
    output: Annotated[Path, typer.Option("-o", metavar="FILE.yaml", help="Where the calibration goes.")],
    settings: options.Settings = None,
    pool_sites: options.PoolSites = False,
    force: options.Force = False,
) -> None:
    """Fit a cluster's parameters to measurements."""
    from ringside.commands import calibrate as command
    from sim.engine.effort import forced

    with forced(force):
        command.run(files, cluster, settings or [], output, pool_sites=pool_sites)


@app.command()
def compare(
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
    from ringside.commands import compare as command
    from sim.engine.effort import forced

    with forced(force):
        command.run(
            files, cluster, settings or [], calibration, plot, max_error, pool_sites=pool_sites, as_json=json
        )


@app.command()
def validate(
    what: Annotated[str, typer.Argument(help="collectives, or ddp: training steps.")] = "collectives",
    short: Annotated[
        bool, typer.Option("--short", help="Under three minutes, in place of some twenty.")
    ] = False,
    family: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this family of cells; repeat for more.")
    ] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Predict from ping-pong, then measure, on networks made in this machine; exit 1 past a tolerance."""
    from ringside.commands import validate as command

    command.run(what, plot, short=short, families=family or [], as_json=json)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", metavar="FOLDER", help="Where the report goes.")] = Path(
        "ringside-demo"
    ),
) -> None:
    """Measure, calibrate, compare and draw on this machine, end to end, in under three minutes."""
    from ringside.commands import demo as command

    command.run(output)

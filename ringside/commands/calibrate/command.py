"""``ringside calibrate``: from files of measurements to a calibration file."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.sim.engine.effort import forced
from ringside.topologies import parse_settings
from ringside.topologies.disk import check_outputs
from ringside.validation.readers import read_all


def command(
    files: options.Files,
    cluster: options.Cluster,
    output: Annotated[Path, typer.Option("-o", metavar="FILE.yaml", help="Where the calibration goes.")],
    settings: options.Settings = None,
    pool_sites: options.PoolSites = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Fit a cluster's parameters to measurements."""
    with forced(force):
        run(files, cluster, settings or [], output, pool_sites=pool_sites, as_json=json)


def run(
    files: list[Path], cluster: str, settings: list[str], output: Path, *, pool_sites: bool, as_json: bool
) -> None:
    """Fit, write the file, print the report."""
    from ringside.validation.calibrate import calibrate, report
    from ringside.validation.fallback import as_run, fell_back

    check_outputs([output], inputs=[*files, cluster])
    reading, values = read_all(files), parse_settings(settings)
    console.left_out(reading.skipped, reading.notes)
    with console.simulating("fitting"):
        found = calibrate(reading.records, cluster, values, sources_of(files), pool_sites=pool_sites)
    found.write(output)
    notes = fell_back(reading.records, as_run(reading.records, cluster, values), cluster, "fitted")
    if as_json:
        inputs = {"files": [str(file) for file in files], "cluster": cluster, "settings": settings}
        content = {"inputs": inputs, "output": str(output), "notes": list(notes)}
        console.print_json("calibrate", content | found.content())
        return
    for line in [*report(found).splitlines(), *notes, f"written to {output}"]:
        console.print_wrapped(line)


def sources_of(files: list[Path]) -> dict[str, str]:
    """Each file's name and the hash of what it held."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

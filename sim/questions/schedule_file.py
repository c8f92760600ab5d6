"""A schedule from a file, given instead of a collective's name."""

from collections.abc import Mapping

from ringside.sim.calibration import Calibration
from ringside.sim.formats.schedule_files import ScheduleFile
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.given import Given
from ringside.sim.libraries.scheduled import Scheduled


def given(
    file: ScheduleFile,
    cluster: str,
    values: Mapping[str, str] | None = None,
    *,
    ranks: int | None = None,
    options: Options,
    calibration: Calibration | str | None = None,
) -> Given:
    """Return the file's schedule on the first ranks of a cluster, uncalibrated."""
    if ranks not in (None, file.ranks):
        raise ValueError(f"-g {ranks}, but the file has {file.ranks} ranks; remove -g")
    if options.algorithm != "auto":
        raise ValueError(f"--algorithm {options.algorithm}: the file has its own; remove it")
    if isinstance(calibration, Calibration):
        raise ValueError("a calibration applies to named algorithms, not to a file; write --calibration none")
    bare = find_library("ideal", cluster, values, ranks=file.ranks, options=options)
    assert isinstance(bare, Scheduled)
    return Given(bare.graph, file.ranks, f"{file.name}.xml", file.build, options.network, file.caveat)

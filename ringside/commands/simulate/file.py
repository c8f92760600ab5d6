"""``ringside simulate FILE.xml``: a schedule that somebody else wrote, in place of a collective's name."""

from collections.abc import Mapping
from pathlib import Path

from ringside.sim.calibration import Calibration
from ringside.sim.formats.schedule_files import ScheduleFile, holds_schedule, read
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.given import Given
from ringside.sim.libraries.scheduled import Scheduled


def file_of(collective: str, library: str | None) -> ScheduleFile | None:
    """The file that stands where a collective is named, if it is one."""
    if not holds_schedule(collective):
        return None
    if library is not None:
        raise ValueError(
            f"--library {library}: {collective} says how it is carried out; leave one or the other out"
        )
    return read(Path(collective))


def given(
    file: ScheduleFile,
    cluster: str,
    values: Mapping[str, str] | None = None,
    *,
    ranks: int | None = None,
    options: Options,
    calibration: Calibration | str | None = None,
) -> Given:
    """The file's schedule on the first ranks of a cluster, with the links' own figures."""
    if ranks not in (None, file.ranks):
        raise ValueError(f"-g {ranks}, but the file has {file.ranks} ranks; leave -g out")
    if options.algorithm != "auto":
        raise ValueError(f"--algorithm {options.algorithm}: the file has its own; leave it out")
    if isinstance(calibration, Calibration):
        raise ValueError("a calibration is of named algorithms, not of a file's; write --calibration none")
    bare = find_library("ideal", cluster, values, ranks=file.ranks, options=options)
    assert isinstance(bare, Scheduled)
    return Given(bare.graph, file.ranks, f"{file.name}.xml", file.build, options.network, file.caveat)

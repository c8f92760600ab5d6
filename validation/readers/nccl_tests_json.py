"""nccl-tests' JSON output (``-J``), versions 1 to 3 of its layout.

Booleans are strings there and an invalid time is ``"nan"``. ``env`` holds the whole environment, secrets
included: only its NCCL_* variables are kept.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from ringside.sim.record import RecordError
from ringside.validation.readers.nccl_tests_run import (
    PROGRAM,
    BenchmarkRow,
    BenchmarkRun,
    RankDevice,
    Timing,
    nccl_version,
)
from ringside.validation.readers.reading import Reading, complaint, seconds

_Number = Annotated[float | None, BeforeValidator(lambda value: None if value == "nan" else value)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Half(_Part):
    time: _Number = None
    cpu_time: _Number = None


class _Iterations(_Part):
    min_us: _Number = None
    max_us: _Number = None
    p95_us: _Number = None


class _Result(_Part):
    size: int
    type: str
    redop: str = ""
    out_of_place: _Half | None = None
    in_place: _Half | None = None
    out_of_place_per_iter: _Iterations | None = None
    in_place_per_iter: _Iterations | None = None
    actual_iterations: int = 0


class _Device(_Part):
    rank: int
    group: int = 0
    hostname: str
    device_info: str


class _Config(_Part):
    nthreads: int = 1
    ngpus: int = 1
    iterations: int = 0
    devices: list[_Device]


class _Output(_Part):
    args: list[str]
    env: list[str] = []
    nccl_version: int
    start_time: str = ""
    config: _Config
    results: list[_Result]


def read_json(content: dict[str, Any], path: Path) -> Reading:
    """Read all rows of one run."""
    run, rows = run_of(content, path)
    return run.reading(rows)


def run_of(content: dict[str, Any], path: Path) -> tuple[BenchmarkRun, list[BenchmarkRow]]:
    """Parse the run and its rows."""
    try:
        output = _Output.model_validate(content)
    except ValidationError as error:
        raise complaint(error, str(path)) from None
    config = output.config
    settings = (entry.partition("=")[::2] for entry in output.env)
    command = " ".join(output.args)
    program = PROGRAM.search(command)
    run = BenchmarkRun(
        place=str(path),
        source=f"nccl-tests ({path.name})",
        collective=program[1] if program else command[:80],
        devices=tuple(RankDevice(d.rank, d.group, d.hostname, d.device_info) for d in config.devices),
        threads=config.nthreads,
        gpus=config.ngpus,
        nccl=nccl_version(output.nccl_version),
        iterations=config.iterations,
        variables={name: value for name, value in settings if name.startswith("NCCL_")},
    )
    date = output.start_time.replace(" ", "T")
    return run, [_row(result, f"{path}, results.{i}", date) for i, result in enumerate(output.results)]


def _row(result: _Result, place: str, date: str) -> BenchmarkRow:
    return BenchmarkRow(
        place=place,
        nbytes=result.size,
        dtype=result.type,
        redop=result.redop.replace("none", ""),
        out_of_place=_timing(result.out_of_place, result.out_of_place_per_iter, place),
        in_place=_timing(result.in_place, result.in_place_per_iter, place),
        iterations=result.actual_iterations,
        date=date,
    )


def _timing(half: _Half | None, each: _Iterations | None, place: str) -> Timing | None:
    if half is None:
        return None
    if half.cpu_time is not None:
        raise RecordError(
            f"{place}: cpu_time is the CPU's time to launch; expected time: run nccl-tests without -C"
        )
    spread = (each.min_us, each.max_us, each.p95_us) if each else ()
    return Timing(seconds(half.time), *(seconds(value) or 0.0 for value in spread))

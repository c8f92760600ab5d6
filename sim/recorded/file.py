"""The file of a recorded job: one JSON object."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ringside.sim.effort import uncollected
from ringside.sim.recorded.job import JobFileError, RecordedJob
from ringside.sim.recorded.sound import check_job
from ringside.topologies.disk import write_file

_JOB = TypeAdapter(RecordedJob)


def write_job(job: RecordedJob, path: str | Path) -> None:
    """Write the job as JSON."""
    write_file(Path(path), _JOB.dump_json(job))


def read_job(path: str | Path) -> RecordedJob:
    """Read a job; raise JobFileError for a file that holds none, or one that contradicts itself."""
    try:
        with uncollected():
            job = _JOB.validate_json(Path(path).read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise JobFileError(
            f"{path}: {where or 'the file'}: {first['msg']}; write a file that `ringside record` made"
        ) from None
    except OSError as error:
        raise JobFileError(f"{path}: {error.strerror}") from None
    check_job(job)
    return job


def is_job_file(path: str | Path) -> bool:
    """Return whether a file claims to hold a recorded job."""
    path = Path(path)
    return path.suffix == ".json" and path.is_file() and b'"ringside.job"' in path.read_bytes()


def schema() -> dict[str, Any]:
    """Return the JSON schema of the file."""
    return _JOB.json_schema()

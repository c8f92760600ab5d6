"""Start mpirun, watch it, and leave no process behind."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ringside.real.launch.follow import START_S, MeasureError, RankJob, Row, last_lines
from ringside.real.launch.torchrun import started, watched
from ringside.topologies.extras import install


def check_mpi() -> str:
    """Return the path of mpirun; raise an error with the packages to install if it or mpi4py is missing."""
    path = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    missing = [name for name, there in (("mpirun", path), ("mpi4py", find_spec("mpi4py"))) if not there]
    if missing or path is None:
        raise ValueError(
            f"MPI needs {' and '.join(missing)}, which this Python does not have; {install('mpi')}, or "
            "install Debian's openmpi-bin and python3-mpi4py"
        )
    return path


def run_mpi(job: RankJob, ranks: int, on_row: Callable[[Row], None]) -> None:
    """Carry out the job under mpirun on this machine; call ``on_row`` with each size's row.

    Raise `MeasureError` where a rank dies, hangs or gets a wrong sum, after all processes have been killed.
    """
    command = [check_mpi(), *_options(), "-n", str(ranks), sys.executable, "-m", job.worker]
    with tempfile.TemporaryDirectory(prefix="ringside-") as name:
        folder = Path(name)
        job_file, rows_file, log = folder / "job.json", folder / "rows.jsonl", folder / "mpirun.log"
        job.write(job_file)
        rows_file.touch()
        with started([*command, str(job_file), str(rows_file)], log, {}) as process:
            complaint = watched([process], rows_file, START_S + job.timeout_s, on_row)
        if complaint:
            raise MeasureError("\n".join([complaint, *last_lines(log, "mpirun")]))


def _options() -> list[str]:
    """Return the options for Open MPI; none for other implementations."""
    version = subprocess.run([check_mpi(), "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" not in version.stdout:
        return []
    return ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]

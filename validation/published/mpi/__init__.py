"""MPI collectives that others measured on Leonardo and MareNostrum 5; `README.md` beside says more."""

from pathlib import Path

from ringside.sim.record import Record
from ringside.validation.readers import read

PICO = Path(__file__).with_name("pico.csv")


def published_mpi() -> list[Record]:
    """All rows, in the file's order."""
    return list(read(PICO).records)

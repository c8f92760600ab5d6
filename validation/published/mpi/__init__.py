"""Published MPI collectives on Leonardo and MareNostrum 5; see `README.md`."""

from pathlib import Path

from ringside.sim.record import Record
from ringside.validation.readers import read

PICO = Path(__file__).with_name("pico.csv")


def published_mpi() -> list[Record]:
    """Return all rows, in the file's order."""
    return list(read(PICO).records)

"""Measurements that others made and published, one run a file; each file names its source."""

from pathlib import Path

from ringside.sim.record import Record
from ringside.validation.readers import read


def published() -> list[Record]:
    """All published measurements, file by file in the order of their names."""
    files = sorted(Path(__file__).parent.glob("*.json"))
    return [record for file in files for record in read(file).records]

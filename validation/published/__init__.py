"""Published measurements of others, one run per file; each file names its source."""

from pathlib import Path

from ringside.sim.record import Record
from ringside.validation.readers import read


def published() -> list[Record]:
    """Return all published measurements, in order of file names."""
    files = sorted(Path(__file__).parent.glob("*.json"))
    return [record for file in files for record in read(file).records]

"""Training throughputs that others published, one source a file; each file names its source."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PublishedStep(_Strict):
    """One cell: what ``nodes`` x ``gpus_per_node`` GPUs trained, at ``batch`` samples a GPU and pass."""

    nodes: int
    gpus_per_node: int
    batch: int
    accumulation: int
    samples_per_s: float

    @property
    def gpus(self) -> int:
        """How many GPUs in all."""
        return self.nodes * self.gpus_per_node


class Series(_Strict):
    """One training at several sizes: a column of a published table (``table``, ``line`` of its page).

    ``model``, ``machine``, ``device``, ``precision``, ``optimizer`` and ``bucket_cap_mb`` say how Ringside
    takes it; ``reads_images`` that every sample was decoded from a file.
    """

    id: str
    table: str
    line: int | None
    column: str
    model: str
    machine: str
    device: str
    precision: str
    bucket_cap_mb: float | None
    reads_images: bool
    optimizer: str = "adam"
    rows: tuple[PublishedStep, ...]


class Source(_Strict):
    """One publication; ``no_sync`` says that accumulated gradients were reduced once a step."""

    source: str
    framework: str
    hardware: str = ""
    no_sync: bool = False
    notes: str
    series: tuple[Series, ...]


def sources() -> Iterator[Source]:
    """All publications, in the order of their files' names."""
    for file in sorted(Path(__file__).parent.glob("*.json")):
        yield Source.model_validate_json(file.read_text(encoding="utf-8"))

"""Published training throughputs, one publication per file."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PublishedStep(_Strict):
    """The throughput of ``nodes`` x ``gpus_per_node`` GPUs at ``batch`` samples per GPU and pass."""

    nodes: int
    gpus_per_node: int
    batch: int
    accumulation: int
    samples_per_s: float

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return self.nodes * self.gpus_per_node


class PublishedSeries(_Strict):
    """One training at several sizes: a column of a published table (``table``, ``line`` of its page).

    ``model``, ``machine``, ``device``, ``precision``, ``optimizer`` and ``bucket_cap_mb`` are options of
    `train`; ``reads_images`` says that every sample was decoded from a file.
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


class Publication(_Strict):
    """One publication; ``no_sync`` says that accumulated gradients were reduced once per step."""

    source: str
    framework: str
    hardware: str = ""
    no_sync: bool = False
    notes: str
    series: tuple[PublishedSeries, ...]


def sources() -> Iterator[Publication]:
    """Yield all publications, in the order of their files' names."""
    for file in sorted(Path(__file__).parent.glob("*.json")):
        yield Publication.model_validate_json(file.read_text(encoding="utf-8"))

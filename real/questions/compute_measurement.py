"""Rates of products, attention and memory, measured on this machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from ringside.sim.compute.grids import RatesFile
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import Question, QuestionError, choices, option, parse_counts
from ringside.topologies.units import parse_size

if TYPE_CHECKING:
    from ringside.real.compute.measure import ComputeJob, MeasuredRate

DEVICES = ("cpu", "cuda")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
LARGEST = 2**15
"""The largest size of a product, and the longest sequence."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """What suits a device: precision, sizes of products, sequences and heads of attention."""

    precision: str
    sizes: tuple[int, ...]
    sequences: tuple[int, ...]
    heads: tuple[int, ...]


LADDERS = {
    "cpu": Ladder("fp32", (128, 512, 2048), (512, 2048), (8, 32)),
    "cuda": Ladder("bf16", (256, 1024, 4096, 16384), (1024, 4096, 16384), (8, 32, 128)),
}
"""The defaults by device."""

HEAD_DIMS = (64, 128)


def _parse_precisions(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


@dataclass(frozen=True, kw_only=True)
class ComputeMeasurement(Question):
    """Rates of this machine's CPU or GPU: products of m x k by k x n elements, causal attention, streams."""

    schema: ClassVar[str] = "measure compute"

    device: str | None = option(
        "What to measure.", metavar=choices(DEVICES), default=None, default_text="cuda where there is a GPU"
    )
    precision: Sequence[str] | None = option(
        "Precisions of products; attention has the first.",
        metavar=f"{choices(PRECISIONS)},...", default=None, default_text="fp32; bf16 on a GPU",
        parse=_parse_precisions,
    )  # fmt: skip
    size: tuple[int, ...] | None = option(
        "Values of m, n and k; all combinations are measured.",
        metavar="SIZE,...", default=None, parse=parse_counts, minimum=1,
        default_text="128,512,2048; on a GPU 256,1024,4096,16384",
    )  # fmt: skip
    sequence: tuple[int, ...] | None = option(
        "Tokens of a sequence, of attention.",
        metavar="TOKENS,...", default=None, parse=parse_counts, minimum=1,
        default_text="512,2048; on a GPU 1024,4096,16384",
    )  # fmt: skip
    stream: int = option(
        "Size of a tensor that is copied and added.",
        metavar="SIZE", default="256MiB", parse=parse_size, minimum=4,
    )  # fmt: skip
    seconds: float = option("Seconds to measure each point.", metavar="SECONDS", default=0.2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device is not None and self.device not in DEVICES:
            raise QuestionError(f"`device` {self.device!r}; write {' or '.join(DEVICES)}")
        unknown = [one for one in self.precision or () if one not in PRECISIONS]
        if unknown or self.precision == ():
            raise QuestionError(f"`precision` {','.join(unknown)!r}; write some of {', '.join(PRECISIONS)}")
        for name in ("size", "sequence"):
            large = [one for one in getattr(self, name) or () if one > LARGEST]
            if large:
                raise QuestionError(f"`{name}` {large[0]}; write {LARGEST} or less")
        if not 0 < self.seconds <= 60:
            raise QuestionError(f"`seconds` {self.seconds}; write more than 0, and 60 or less")

    def job(self) -> "ComputeJob":
        """Return what to measure on this machine; raise ValueError without the device."""
        from ringside.real.compute.measure import ComputeJob, chosen_device

        device = chosen_device(self.device)
        ladder = LADDERS[device]
        return ComputeJob(
            device=device, precisions=tuple(self.precision or (ladder.precision,)),
            sizes=self.size or ladder.sizes, sequences=self.sequence or ladder.sequences,
            heads=ladder.heads, head_dims=HEAD_DIMS, stream=self.stream, seconds=self.seconds,
        )  # fmt: skip

    def ask(
        self, *, on_rates: Callable[[RatesFile, "MeasuredRate"], None] = lambda *_: None
    ) -> "ComputeMeasurements":
        """Measure all points; call ``on_rates`` after each with all rates so far, so that none is lost."""
        from ringside.real.compute.measure import measure_compute, name_of
        from ringside.real.host import fingerprint

        job = self.job()
        facts, device = fingerprint(), name_of(job.device)
        date = datetime.now(UTC).date().isoformat()
        points: list[MeasuredRate] = []
        for point in measure_compute(job):
            points.append(point)
            rates = _rates(points, device=device, date=date, facts=facts)
            on_rates(rates, point)
        return ComputeMeasurements(self, rates, points)


def _rates(
    points: Sequence["MeasuredRate"], *, device: str, date: str, facts: Mapping[str, str]
) -> RatesFile:
    """Return the file of some points."""
    products: dict[Any, list[Any]] = {}
    for point in points:
        if point.kind == "products":
            products.setdefault(point.precision, []).append((*point.sizes, point.rate))
    return RatesFile(
        device=device,
        source="ringside measure compute",
        date=date,
        products={precision: tuple(own) for precision, own in products.items()},
        attention=tuple((*point.sizes, point.rate) for point in points if point.kind == "attention"),  # type: ignore[misc]
        streaming=next((point.rate for point in points if point.kind == "streaming"), None),
        fingerprint=dict(facts),
    )


@dataclass(frozen=True, slots=True)
class ComputeMeasurements(AnswerOnDemand):
    """The answer: the rates as their file has them."""

    question: ComputeMeasurement
    rates: RatesFile
    points: Sequence["MeasuredRate"]
    notes: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """The highest rate of each kind of work."""
        best: dict[str, float] = {}
        for point in self.points:
            best[point.kind] = max(point.rate, best.get(point.kind, 0.0))
        rates = (
            f"{kind} up to {rate / 1e9:.4g} {'GB/s' if kind == 'streaming' else 'GFLOP/s'}"
            for kind, rate in best.items()
        )
        return f"{self.rates.device}: {', '.join(rates)}"

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The points in plain values: FLOP/s, or bytes/s of streams."""
        return [{**point._asdict(), "sizes": list(point.sizes)} for point in self.points]

"""Fields of questions in every room: sizes, counts of machines, and settings of a cluster."""

from dataclasses import dataclass, field
from typing import Any

from ringside.sim.questions.question import Question, QuestionError, option
from ringside.topologies.catalogue import parse_settings, split
from ringside.topologies.units import format_size, parse_size


def settings_option() -> Any:
    """Define a field of a cluster's changed settings."""
    return option(
        "Change a figure or fabric: nic=25GB/s, latency=5us, fabric=torus; repeat for more.",
        "--set", "--settings", metavar="KEY=VALUE", factory=dict, parse=parse_settings, repeats=True,
    )  # fmt: skip


def _parse_sizes(text: str) -> tuple[int, ...]:
    return tuple(map(parse_size, text.split(",")))


def parse_counts(text: str) -> tuple[int, ...]:
    """Parse the distinct counts of ``1,2,4,8``; raise ValueError for any other text."""
    counts = text.split(",")
    if not all(count.isdecimal() and int(count) > 0 for count in counts):
        raise ValueError(f"{text!r} are not node counts; write for example 1,2,4,8")
    return tuple(dict.fromkeys(map(int, counts)))


def without_count(cluster: str, nodes: tuple[int, ...] | None) -> str:
    """Return the cluster's name without its count; raise ValueError if ``nodes`` differ."""
    name, count = split(cluster)
    if None not in (count, nodes) and (count,) != nodes:
        counts = ",".join(map(str, nodes or ()))
        raise ValueError(f"{cluster} and --nodes {counts} have different counts; remove one of them")
    return name


@dataclass(frozen=True, kw_only=True)
class BySize(Question):
    """Sizes in bytes: a list, or a series from ``begin`` to ``end`` by ``factor``; ``sizes`` has all."""

    begin: int = option(
        "Smallest size.", "-b", "--begin", metavar="SIZE", default="8", parse=parse_size, minimum=0
    )
    end: int = option(
        "Largest size.", "-e", "--end", metavar="SIZE", default="128M", parse=parse_size, minimum=0
    )
    factor: int = option(
        "Factor between sizes, 2 or more.", "-f", "--factor", metavar="FACTOR", default=2, minimum=2
    )
    size: tuple[int, ...] | None = option(
        "One size or several, instead of -b, -e and -f.",
        metavar="SIZE,...", default=None, parse=_parse_sizes,
    )  # fmt: skip
    sizes: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and self.changed("begin", "end", "factor"):
            raise QuestionError(
                "`size` is a list, `begin`, `end` and `factor` are a series; remove one of them"
            )
        if self.begin > self.end:
            raise QuestionError(
                f"`begin` {format_size(self.begin)} is more than `end` {format_size(self.end)}; "
                "write the smaller size first"
            )
        if self.begin < 1:
            raise QuestionError(f"`begin` {self.begin} cannot grow; write `begin` 1 or more, or `size` 0")
        sizes = self._series() if self.size is None else list(self.size)
        object.__setattr__(self, "sizes", sizes)

    def _series(self) -> list[int]:
        sizes = [self.begin]
        while sizes[-1] * self.factor <= self.end:
            sizes.append(sizes[-1] * self.factor)
        return sizes

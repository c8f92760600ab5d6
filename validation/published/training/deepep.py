"""All-to-alls of a mixture of experts by DeepEP's kernels, from few machines.

github.com/deepseek-ai/DeepEP @ dd758caf4518, docs/legacy.md and README.md: H800 with NVLink of 160 and a
network card of 50 GB/s a GPU, 8 GPUs a machine; tokens of 7168 elements, 8 of 256 experts each, sent in 8
bits with a scale for every 128 elements and returned in 16. What is printed is a bandwidth of the slower
link; bytes that do not leave the GPU or the machine count too, so it may be above the link's rate.

Normal kernels send a token to each machine once, which hands it on; of a machine's groups at most ``groups``
are chosen. What crosses is then the share of the other machines. The row on one machine gives NVLink's rate,
that on four the network's, and the slower of the two predicts two and eight. Kernels of low latency send
every copy by itself: a latency, which two machines set, and then the longer of what goes to other machines
and to other GPUs, at the links' own rates. The second version's two machines set the network's rate. Its rows
on one machine have no other scale and are left out. The predictions are arithmetic of this module: `train`
has no step that consists of exchanges only.
"""

from collections.abc import Iterator
from functools import cache
from math import comb
from typing import NamedTuple

from ringside.validation.published.training.rows import read_rows
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

GPUS = 8
EXPERTS, ACTIVE = 256, 8
NVLINK, NETWORK = 160.0, 50.0
TOKEN_BYTES = {"dispatch": 7168 + 4 * 7168 // 128, "combine": 2 * 7168}


class ExchangeRate(NamedTuple):
    """A measurement: bandwidth in GB/s."""

    part: str
    gpu: str
    op: str
    machines: int
    tokens: int
    groups: int
    gb_per_s: float

    @property
    def name(self) -> str:
        """The row's name in its series."""
        return f"{self.gpu}, {self.machines} x {GPUS}"

    @property
    def away(self) -> float:
        """The share of the machines that are others."""
        return 1 - 1 / self.machines


@cache
def rows() -> tuple[ExchangeRate, ...]:
    """Return all rows."""
    return tuple(read_rows(ExchangeRate, "deepep.csv"))


def touched(places: int, among: int) -> float:
    """Return the mean number of places with a token's experts, among ``places`` with equally many experts.

    Only experts of ``among`` of the places can be chosen.
    """
    each = EXPERTS // places
    every = each * among
    return among * (1 - comb(every - each, ACTIVE) / comb(every, ACTIVE))


def normal(row: ExchangeRate, nvlink: float, network: float) -> float:
    """Return the GB/s of the normal kernels, given the links' rates."""
    among = min(row.groups, row.machines)
    machines = touched(row.machines, among)
    gpus = touched(row.machines * GPUS, among * GPUS)
    seconds = max(machines * row.away / network, gpus / nvlink)
    return machines / seconds


def low_latency(row: ExchangeRate, latency_s: float) -> float:
    """Return the GB/s of kernels of low latency."""
    copies = row.tokens * ACTIVE * TOKEN_BYTES[row.op] / 1e9
    own = 1 / (row.machines * GPUS)
    return copies / (latency_s + _moving(row, copies, own))


def latency(row: ExchangeRate) -> float:
    """Return the seconds of a row beyond the links' time."""
    copies = row.tokens * ACTIVE * TOKEN_BYTES[row.op] / 1e9
    return copies / row.gb_per_s - _moving(row, copies, 1 / (row.machines * GPUS))


def _moving(row: ExchangeRate, copies: float, own: float) -> float:
    return max(copies * row.away / NETWORK, copies * (1 / row.machines - own) / NVLINK)


def judged() -> list[JudgedRow]:
    """Return the held-out rows."""
    return [one for op in TOKEN_BYTES for part in (_normal, _low_latency, _second) for one in part(op)]


def _normal(op: str) -> Iterator[JudgedRow]:
    known = {row.machines: row for row in rows() if (row.part, row.op) == ("normal", op)}
    network = known[4].gb_per_s * known[4].away
    for machines in sorted(known.keys() - {1, 4}):
        row = known[machines]
        predicted = normal(row, known[1].gb_per_s, network)
        yield JudgedRow(op, row.name, row.gb_per_s, predicted, NETWORK, "normal")


def _low_latency(op: str) -> Iterator[JudgedRow]:
    known = {row.machines: row for row in rows() if (row.part, row.op) == ("low latency", op)}
    for machines in sorted(known.keys() - {2}):
        row = known[machines]
        predicted = low_latency(row, latency(known[2]))
        rule = NVLINK if machines == 1 else NETWORK
        yield JudgedRow(op, row.name, row.gb_per_s, predicted, rule, "low latency")


def _second(op: str) -> Iterator[JudgedRow]:
    first, *others = (row for row in rows() if (row.part, row.op) == ("second version", op))
    for row in others:
        predicted = first.gb_per_s * first.away / row.away
        yield JudgedRow(op, row.name, row.gb_per_s, predicted, NETWORK, "second version")


TABLE = JudgedTable(
    name="deepep", title="All-to-alls of a mixture of experts by DeepEP's kernels",
    source="github.com/deepseek-ai/DeepEP @ dd758caf4518",
    sets="one machine for NVLink, four for the network; two machines for low latency and the second version",
    rule="the slower link's own rate", judged=judged, unit="GB/s",
)  # fmt: skip

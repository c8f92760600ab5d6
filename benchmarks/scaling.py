"""Speed and memory against the number of ranks: both engines, and the libraries, beside other simulators.

python -m benchmarks.scaling [--most RANKS] [--only WORD] [--limit SECONDS] [-o FILE]
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from benchmarks.case import BANDWIDTH, LATENCY, Case, Cost
from benchmarks.peers import PEERS, SIZE
from ringside.topologies.disk import write_file
from ringside.topologies.units import format_size

GIB = 1 << 30

SHORT_S, SMALL_B = 0.01, 1e6
"""What takes less time or memory says nothing about growth."""


@dataclass(frozen=True)
class Series:
    """One question at several numbers of ranks."""

    name: str
    ranks: tuple[int, ...]
    engine: str
    algorithm: str = "auto"
    nbytes: int = GIB
    different: bool = False
    library: str = ""

    def case(self, ranks: int) -> Case:
        return Case(ranks, self.nbytes, self.engine, self.algorithm, self.different, self.library)


RANKS = (64, 256, 1024, 4096, 24_576)
MACHINES = (8, 64, 512, 1024)
SERIES = (
    Series("ring, 1 GiB, simpy", (64, 128, 256), "simpy", "ring"),
    Series("ring, 1 GiB, fast, equal links", RANKS, "fast", "ring"),
    Series("ring, 1 GiB, fast, different links", RANKS, "fast", "ring", different=True),
    Series("double binary tree, 1 GiB, simpy", (16, 32, 64), "simpy", "double_binary_tree"),
    Series("double binary tree, 1 GiB, fast", RANKS, "fast", "double_binary_tree"),
    Series("double binary tree, 8 B, fast", (1024, 4096, 24_576), "fast", "double_binary_tree", nbytes=8),
    Series("ideal on dgx-h100, 1 GiB", MACHINES, "auto", library="ideal"),
    Series("gloo on dgx-h100, 1 GiB", MACHINES, "auto", library="gloo"),
    Series("nccl on dgx-h100, 1 GiB, tuner", MACHINES, "auto", library="nccl"),
    Series("nccl on dgx-h100, 1 GiB, played", MACHINES[:2], "fast", library="nccl"),
)


def measured(case: Case, limit: float) -> Cost | str:
    """What the case costs in a process of its own, or why it has no figures."""
    words = [sys.executable, "-m", "benchmarks.case", json.dumps(asdict(case))]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"not over in {limit:g} s"
    if done.returncode:
        return (done.stderr.splitlines() or ["no answer"])[-1].partition(": ")[2]
    return Cost(**json.loads(done.stdout))


def exponent(ranks: Iterable[int], figures: Iterable[float], least: float) -> str:
    """The power of the number of ranks with which figures grow that are large enough to say."""
    pairs = [(n, figure) for n, figure in zip(ranks, figures, strict=True) if figure >= least]
    if len(pairs) < 2:
        return "too small to say"
    slope, _ = np.polyfit(*np.log(np.array(pairs)).T, 1)
    return f"n^{slope:.2f}"


def row(case: Case, found: Cost | str) -> str:
    if isinstance(found, str):
        return f"| {case.ranks:,} | {found} | | | | | | | |"
    least = 2 * case.nbytes / BANDWIDTH
    alike = case.nbytes == GIB and not case.library and not case.different
    above = f"{100 * (found.time_s / least - 1):+.2f} %" if alike else ""
    rate = f"{found.transfers / found.play_s:,.0f}" if found.transfers else ""
    cells = (
        f"{case.ranks:,}", f"{found.build_s:.3f}", f"{found.wire_s:.3f}" if rate else "",
        f"{found.play_s:.3f}", f"{found.memory / 1e6:.1f}", rate, f"{found.time_s * 1e6:,.1f}", above,
        f"{found.algorithm}, {found.engine}" + (f", {found.chunks:,} chunks" if rate else ""),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def table(series: Series, most: int, limit: float) -> Iterator[str]:
    yield f"\n## {series.name}\n"
    yield "| ranks | build s | wire s | play s | MB | transfers/s | predicted us | above 2S/B | how |"
    yield "|---|---|---|---|---|---|---|---|---|"
    kept: dict[int, Cost] = {}
    for ranks in (ranks for ranks in series.ranks if ranks <= most):
        found = measured(series.case(ranks), limit)
        yield row(series.case(ranks), found)
        if isinstance(found, Cost):
            kept[ranks] = found
    seconds = exponent(kept, [cost.play_s for cost in kept.values()], SHORT_S)
    memory = exponent(kept, [float(cost.memory) for cost in kept.values()], SMALL_B)
    yield f"\nGrowth: playing {seconds}, memory {memory}."
    if series.engine == "fast" and series.nbytes == SIZE and not series.different:
        yield from beside(series.algorithm, kept)


def beside(algorithm: str, kept: dict[int, Cost]) -> Iterator[str]:
    """Other simulators' figures of the same cases."""
    peers = [peer for peer in PEERS if peer.algorithm == algorithm and peer.ranks in kept]
    if peers:
        yield "\n| ranks | simulator | s | MB | predicted us | s, of ours |\n|---|---|---|---|---|---|"
    for peer in peers:
        own = kept[peer.ranks]
        times = peer.seconds / (own.build_s + own.wire_s + own.play_s)
        yield (
            f"| {peer.ranks:,} | {peer.project} | {peer.seconds:g} | {peer.megabytes:,g} "
            f"| {peer.predicted_us:,.0f} | {times:,.1f} times |"
        )


def head() -> Iterator[str]:
    yield "# Speed and memory against the number of ranks\n"
    yield f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {machine()}.\n"
    yield (
        "One all-reduce a row, each in its own process, single runs. Engines: on a star of "
        f"{BANDWIDTH / 1e9:g} GB/s and {LATENCY * 1e6:g} us; different links have 0.5 to 2 times that. "
        "Libraries: through the API, all in `play`. Seconds are processor time, which is what a machine "
        "takes that does nothing else, imports and loading of compiled code apart; MB are peak RSS above "
        "these. Growth is fitted to rows of "
        f"{SHORT_S:g} s and {SMALL_B / 1e6:g} MB or more. The other simulators' "
        "figures were measured in November 2026 on a machine with 2 cores, start included "
        "(`benchmarks/peers.py`); ours beside them are build, wire and play together."
    )


def machine() -> str:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    parts = [f"{os.cpu_count()} cores, {format_size(round(pages * size / GIB) * GIB)}"]
    parts += [f"{platform.machine()}, Python {platform.python_version()}"]
    for package in ("numpy", "numba", "simpy"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            parts.append(f"no {package}")
    return ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--most", type=int, default=24_576, help="ranks, at most; 64 takes a minute, 8 some seconds"
    )
    parser.add_argument("--only", default="", help="series with this in their name")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one case may take")
    parser.add_argument("-o", "--output", type=Path, help="a file for the tables, too")
    given = parser.parse_args()
    lines: list[str] = []
    chosen = [series for series in SERIES if given.only in series.name and min(series.ranks) <= given.most]
    if not chosen:
        parser.error(f"nothing with {given.only!r} in its name has {given.most} ranks or fewer")
    for part in (head(), *(table(series, given.most, given.limit) for series in chosen)):
        for line in part:
            print(line, flush=True)
            lines.append(line)
    if given.output:
        write_file(given.output, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

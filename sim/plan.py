"""One way to carry out one collective, separate from `ringside.sim.schedule` for use by the proof."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.steps import CREDITS, Bools, Chunks, Ints, Links, ScheduleError, Step
from ringside.sim.streams import TransferStreams


@dataclass(frozen=True)
class Plan:
    """One way to carry out one collective.

    Each call of ``steps()`` makes the steps again, one after another: a schedule of a billion transfers needs
    no more memory than its widest step. ``after`` names pairs of ranks, source and destination, that send
    nothing to each other before all of another pair's transfers have arrived, as where a library announces
    receives behind its own data.

    ``switches`` are ends of transfers beside the ranks, numbered after them: they add data that ranks send
    there, or multicast them, as NVLink SHARP and SHARP do. Each is named by the ranks that its switch joins.
    It begins empty, may be empty at the end, sends to ranks only, and adds in no time.

    If ``copies`` is true a rank sends a copy of its data, made when they are complete; data that arrive in
    the same step or a later one are added afterwards. So two ranks can exchange sums.
    """

    collective: Collective
    algorithm: str
    chunks: Chunks
    steps: Callable[[], Iterator[Step]]
    credits: int = CREDITS
    after: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    switches: tuple[tuple[int, ...], ...] = ()
    copies: bool = False

    def __post_init__(self) -> None:
        if self.credits < 1:
            raise ValueError(f"{self.credits} credits; write 1 or more")

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.collective.ranks

    @property
    def ends(self) -> int:
        """The number of ranks and switches."""
        return self.collective.ranks + len(self.switches)

    def end(self, number: int) -> str:
        """Return the name of a rank or a switch."""
        return f"switch {number - self.ranks}" if self.ranks <= number < self.ends else f"rank {number}"

    def is_needed(self, chunks: range) -> Bools:
        """Return which chunks some rank must receive; empty parts are not among them."""
        sizes = np.diff(self.chunks.bounds[chunks.start : chunks.stop + 1])
        needed: Bools = (sizes > 0) | (self.collective.splits is None)
        return needed

    def nbytes(self, moved: Step) -> Ints:
        """Return the bytes of each transfer of a step."""
        bounds = self.chunks.bounds
        nbytes: Ints = bounds[moved.chunk + moved.span] - bounds[moved.chunk]
        return nbytes

    def longer_than(self, transfers: int) -> bool:
        """Check for more than ``transfers`` transfers, without counting further."""
        if isinstance(self.steps, TransferStreams):
            return int(self.steps.count.sum()) > transfers
        seen = 0
        for moved in self.steps():
            seen += len(moved)
            if seen > transfers:
                return True
        return False

    def connections(self) -> dict[tuple[int, int, int], int]:
        """Count the transfers per connection (source, destination, channel), in order of first use."""
        if isinstance(self.steps, TransferStreams):
            return self.steps.connections()
        counts: Counter[tuple[int, int, int]] = Counter()
        for moved in self.steps():
            counts.update(zip(moved.src.tolist(), moved.dst.tolist(), moved.channel.tolist(), strict=True))
        return counts

    def traffic(self) -> dict[tuple[int, int], int]:
        """Return the total bytes that each ordered pair of ranks moves."""
        moved_bytes: Counter[tuple[int, int]] = Counter()
        if isinstance(self.steps, TransferStreams):
            for (src, dst, _), nbytes in self.steps.traffic(self.chunks).items():
                moved_bytes[src, dst] += nbytes
            return moved_bytes
        for moved in self.steps():
            pairs = zip(moved.src.tolist(), moved.dst.tolist(), strict=True)
            for pair, nbytes in zip(pairs, self.nbytes(moved).tolist(), strict=True):
                moved_bytes[pair] += nbytes
        return moved_bytes

    def links(self) -> Links:
        """Return each channel's sources and destinations, in order of first use."""
        links: Links = {}
        for moved in self.steps():
            columns = (moved.channel, moved.src, moved.dst, moved.reduce)
            for channel, src, dst, adds in zip(*(c.tolist() for c in columns), strict=True):
                links.setdefault(channel, {}).setdefault((src, dst), adds)
        return dict(sorted(links.items()))

    def error(self, text: str) -> ScheduleError:
        """Return an error, under the plan's name."""
        return ScheduleError(f"{self.algorithm} {self.collective.kind} on {self.ranks} ranks: {text}")

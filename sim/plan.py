"""One way to carry out one collective, apart from `ringside.sim.schedule` so that the proof can read it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.steps import CREDITS, Bools, Chunks, Ints, Links, ScheduleError, Step
from ringside.sim.streams import Streams


@dataclass(frozen=True)
class Plan:
    """One way to carry out one collective.

    ``steps()`` makes the steps anew, one after another, each time it is called: a schedule of a
    billion transfers takes no more memory than its widest step. ``after`` names pairs of ranks, source
    and destination, that send nothing to each other before all of another pair's transfers have
    arrived, as where a library announces receives behind its own data.

    ``switches`` are ends of transfers beside the ranks, numbered after them: places in switches that add
    what ranks send there, or pass it on to many, as NVLink SHARP and SHARP do. Each is named by the
    ranks that its switch joins. It begins with nothing, need not have anything in the end, sends to
    ranks only, and takes no time to add.

    Where ``copies`` is true a rank copies what it sends as soon as that is complete, and adds nothing to it
    before: what comes in the same step or a later one gathers beside. So two ranks can exchange sums.
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
            raise ValueError(f"{self.credits} credits let nothing through; write 1 or more")

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.collective.ranks

    @property
    def ends(self) -> int:
        """The number of ranks and switches."""
        return self.collective.ranks + len(self.switches)

    def end(self, number: int) -> str:
        """What to call a rank or a switch."""
        return f"switch {number - self.ranks}" if self.ranks <= number < self.ends else f"rank {number}"

    def is_needed(self, chunks: range) -> Bools:
        """Which of the chunks somebody has to get: of uneven parts those of some bytes."""
        sizes = np.diff(self.chunks.bounds[chunks.start : chunks.stop + 1])
        needed: Bools = (sizes > 0) | (self.collective.splits is None)
        return needed

    def nbytes(self, moved: Step) -> Ints:
        """The bytes of each transfer of a step."""
        bounds = self.chunks.bounds
        nbytes: Ints = bounds[moved.chunk + moved.span] - bounds[moved.chunk]
        return nbytes

    def longer_than(self, transfers: int) -> bool:
        """Whether it has more than so many transfers; looks no further than it must."""
        if isinstance(self.steps, Streams):
            return int(self.steps.count.sum()) > transfers
        seen = 0
        for moved in self.steps():
            seen += len(moved)
            if seen > transfers:
                return True
        return False

    def connections(self) -> dict[tuple[int, int, int], int]:
        """How many transfers each connection (source, destination, channel) has, in order of first use."""
        if isinstance(self.steps, Streams):
            return self.steps.connections()
        counts: Counter[tuple[int, int, int]] = Counter()
        for moved in self.steps():
            counts.update(zip(moved.src.tolist(), moved.dst.tolist(), moved.channel.tolist(), strict=True))
        return counts

    def traffic(self) -> dict[tuple[int, int], int]:
        """Bytes that each ordered pair of ranks moves in all."""
        moved_bytes: Counter[tuple[int, int]] = Counter()
        if isinstance(self.steps, Streams):
            for (src, dst, _), nbytes in self.steps.traffic(self.chunks).items():
                moved_bytes[src, dst] += nbytes
            return moved_bytes
        for moved in self.steps():
            pairs = zip(moved.src.tolist(), moved.dst.tolist(), strict=True)
            for pair, nbytes in zip(pairs, self.nbytes(moved).tolist(), strict=True):
                moved_bytes[pair] += nbytes
        return moved_bytes

    def links(self) -> Links:
        """Who sends to whom on each channel, in order of first use."""
        links: Links = {}
        for moved in self.steps():
            columns = (moved.channel, moved.src, moved.dst, moved.reduce)
            for channel, src, dst, adds in zip(*(c.tolist() for c in columns), strict=True):
                links.setdefault(channel, {}).setdefault((src, dst), adds)
        return dict(sorted(links.items()))

    def error(self, text: str) -> ScheduleError:
        """What is wrong with it, under its name."""
        return ScheduleError(f"{self.algorithm} {self.collective.kind} on {self.ranks} ranks: {text}")

"""The groups of a job during recording; groups that ranks create with equal arguments are one."""

from dataclasses import dataclass, field

from ringside.sim.collective import Collective
from ringside.sim.libraries.rules import RULES
from ringside.sim.program.operations import Call, Group, Operation


@dataclass(slots=True)
class Groups:
    """The groups of one job; ranks that pass the same name and ranks share a group."""

    ranks: int
    library: str
    world: Group = field(init=False)
    recorded: list[Operation] = field(default_factory=list)
    """The list of the rank that was recorded last."""
    _made: dict[tuple[str, tuple[int, ...]], Group] = field(default_factory=dict)

    _calls: dict[tuple[Group, str, str, int, int, str], Call] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.library not in RULES:
            raise ValueError(f"{self.library!r} cannot carry out programs; write {' or '.join(RULES)}")
        self.world = self.get("world", tuple(range(self.ranks)))

    def get(self, name: str, ranks: tuple[int, ...]) -> Group:
        """Return the group of this name and these ranks."""
        key = (name, ranks)
        if key not in self._made:
            self._made[key] = Group(name, ranks, self.library, RULES[self.library].workers)
        return self._made[key]

    def pair(self, group: Group, one: int, other: int) -> Group:
        """Return the communicator of two ranks that NCCL makes for messages outside batches."""
        low, high = min(one, other), max(one, other)
        return self.get(f"pair {low}:{high} of {group.name}", (low, high))

    def call(self, group: Group, name: str, kind: str, nbytes: int, root: int, redop: str) -> Call:
        """Return a collective with ``nbytes`` per rank; equal arguments give the same object."""
        key = (group, name, kind, nbytes, root, redop)
        if key not in self._calls:
            parts = len(group.ranks) if kind in ("all_gather", "gather", "scatter") else 1
            self._calls[key] = Call(
                group, name, Collective(kind, len(group.ranks), nbytes * parts, root=root, redop=redop)
            )
        return self._calls[key]

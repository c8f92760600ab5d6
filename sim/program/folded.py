"""The proof of a program by its declared roles: one rank of each is played, whatever the number of ranks.

`ringside.sim.program.roles` says why one rank stands for its role, and what is checked of a declaration. A
declared program needs the lists of few ranks, where `ringside.sim.program.check` takes those of all.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from ringside.sim.clock import Clock
from ringside.sim.effort import uncollected
from ringside.sim.program.operations import Call, Group, Program
from ringside.sim.program.simulate import Meeting, Parcel, Signal, Simulation

MOST_NAMED = 4
"""Ranks that a story names."""


class _AtOnce:
    """A transport that takes no time; ``differing`` is about the first members that call different things."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.differing: list[str] = []

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """End a collective for all when the last member has come."""
        call, first = self._program.operations(rank)[meeting.present[rank]].action, meeting.call
        assert isinstance(call, Call)
        if call.collective != first.collective and not self.differing:
            other = next(iter(meeting.present))
            self.differing.append(
                f"in group {first.group.name} rank {other} calls {_called(first)}, and rank {rank} "
                f"{_called(call)}"
            )
        if not meeting.missing:
            for present in list(meeting.present):
                meeting.leave(meeting, present)

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """Do nothing."""
        return Signal()

    def send(self, parcel: Parcel) -> None:
        """Deliver at once."""
        parcel.deliver()


def never_ends(program: Program, roles: Sequence[int], *, serial: bool = False) -> tuple[str, ...]:
    """Return sentences on the roles that never end if every rank waits for all participants; none if all do.

    ``roles`` are each rank's representative. In a ``serial`` play a rank's collectives run one after another
    whatever their group.
    """
    with uncollected():
        env = Clock()
        transport = _AtOnce(program)
        simulation = Simulation(env, program, transport, roles=roles, serial=serial)
        simulation.run()
        env.run()
    return (*transport.differing, *_stuck(simulation, roles))


def overlaps(program: Program, roles: Sequence[int]) -> bool:
    """Return whether a representative calls collectives of more than one of NCCL's communicators."""
    return any(
        len({one.action.group for one in program.operations(rank)
             if isinstance(one.action, Call) and one.action.group.rules.on_stream}) > 1
        for rank in set(roles)
    )  # fmt: skip


def _called(call: Call) -> str:
    return f"{call.name} of {call.collective.nbytes} bytes"


def _stuck(simulation: Simulation, roles: Sequence[int]) -> Iterator[str]:
    """Yield a sentence for each of the first roles that never end."""
    alike = Counter(roles)
    waiting = list(simulation.waiting())
    for rank, one in waiting[:MOST_NAMED]:
        group = getattr(one.action, "group", None)
        of = f" of group {group.name}" if group else ""
        where = f" ({one.where})" if one.where else ""
        others = f" and {alike[rank] - 1} alike" if alike[rank] > 1 else ""
        yield f"rank {rank}{others} waits in {one.name}{of}{where}"
    if waiting:
        yield f"{sum(alike[rank] for rank, _ in waiting)} of {len(roles)} ranks never end"

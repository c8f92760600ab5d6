"""The second waist of Ringside: the operations of a whole job, rank by rank, as plain data.

A `Program` gives each rank an ordered list of operations, made on demand. The list is the host's order: the
host posts them in turn and continues, except that an operation that *holds* it makes it wait for its end. An
operation begins when

- the operations named in ``after`` have ended,
- the one before it on its ``lane`` has ended; a lane is a stream, or the host itself. An operation without a
  lane is beside everything,
- and its group lets it: each member of a `Group` has a queue in posting order, and only its first ``workers``
  operations may run. None overtakes one that is not ready.

The k-th call of a member of a group meets the k-th of every other. Messages match by group, sender, receiver
and tag, in order. A program contains no times except those of compute, and no network.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.libraries.rules import RULES, Rules

ANY = -1
"""The peer of a receive that takes a message from any source."""

HOST = "host"
"""The lane of the host's own work."""


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """An ordered tuple of ranks that communicate by one library: a process group, or a communicator.

    Two groups of the same ranks are two groups: each has queues of its own. ``workers`` operations of
    a member may run at once. ``rules`` are those of the library's process group.
    """

    name: str
    ranks: tuple[int, ...]
    library: str
    workers: int
    members: frozenset[int] = field(init=False, repr=False)
    rules: Rules = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", frozenset(self.ranks))
        object.__setattr__(self, "rules", RULES[self.library])


class Compute(NamedTuple):
    """Work of ``seconds`` on the rank's units, longer while others use them."""

    seconds: float


class Call(NamedTuple):
    """A collective of a group, by torch.distributed's ``name``; every member calls it."""

    group: Group
    name: str
    collective: Collective


class Send(NamedTuple):
    """A message of ``nbytes`` to rank ``peer`` of the job."""

    group: Group
    peer: int
    nbytes: int
    tag: int = 0


class Recv(NamedTuple):
    """A receive of up to ``nbytes`` from rank ``peer`` of the job, or from `ANY`."""

    group: Group
    peer: int
    nbytes: int
    tag: int = 0


class Together(NamedTuple):
    """Concurrent messages of one rank, as in an NCCL group call; it ends with its last message.

    ``is_call`` is set where it is one of its group's calls, numbered and queued among the collectives: an
    all-to-all of unequal parts with Gloo.
    """

    group: Group
    parts: tuple[Send | Recv, ...]
    is_call: bool = False


class Join(NamedTuple):
    """The creation of a group, or its communicator, by all members together."""

    group: Group


class NewGroup(NamedTuple):
    """A call of new_group, which every rank of the job must make in one order; it does not wait."""

    group: Group


class Wait(NamedTuple):
    """A wait of the host for the operations in ``after``."""


class Raise(NamedTuple):
    """A call that torch.distributed refuses with an error; the rank is lost."""

    message: str


class Lost(NamedTuple):
    """A message to or from a missing rank, which the library does not detect: it never ends."""

    group: Group
    message: str


class Drop(NamedTuple):
    """Messages that the rank drops without waiting for them, by their places in its list.

    Gloo forgets such a message: unless it has moved by then, its other side waits forever.
    """

    messages: tuple[int, ...]


Action = Compute | Call | Send | Recv | Together | Join | NewGroup | Wait | Raise | Lost | Drop


class Operation(NamedTuple):
    """One operation of a rank.

    ``after`` are earlier operations of the same rank, by their places in its list. ``place`` is the file and
    line of the call, or 0 where a file has no lines; ``category`` labels it on timelines. ``memory`` are
    bytes of named pools: positive ones are allocated when the operation begins, negative ones freed when it
    ends.
    """

    action: Action
    lane: str | None = None
    after: tuple[int, ...] = ()
    holds: bool = False
    name: str = ""
    category: str = ""
    place: tuple[str, int] | None = None
    memory: tuple[tuple[str, int], ...] = ()

    @property
    def where(self) -> str:
        """``FILE:LINE``, ``FILE`` or nothing."""
        file, line = self.place or ("", 0)
        return f"{file}:{line}" if line else file


@dataclass(frozen=True, slots=True)
class Program:
    """A job of ``ranks`` ranks; ``operations(rank)`` returns a rank's list, always the same one.

    ``role(rank)``, if given, is equal for ranks that do the same; see `ringside.sim.program.roles`.
    """

    name: str
    ranks: int
    operations: Callable[[int], Sequence[Operation]]
    role: Callable[[int], Hashable] | None = None


ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Collectives in which one rank differs from the others."""


BARRIERS = ("barrier", "monitored_barrier")
"""Calls that move nothing; only with NCCL they are an all_reduce."""


def shape(action: Any) -> tuple[object, ...]:
    """Return an action without the identities of its peers and of its group."""
    return (type(action), *_figures(action))


def root(action: Any) -> int:
    """Return the rank at which a collective begins or ends, or -1 if it has none."""
    if isinstance(action, Call) and action.collective.kind in ROOTED:
        return action.group.ranks[action.collective.root]
    return -1


def _figures(action: Any) -> tuple[object, ...]:
    match action:
        case Compute(seconds):
            return (seconds,)
        case Call(group, name, collective):
            return (name, collective.kind, collective.nbytes, collective.redop, _kind(group))
        case Send(group, _, nbytes) | Recv(group, _, nbytes):
            return (nbytes, _kind(group))
        case Together(group, parts):
            return (_kind(group), *map(shape, parts))
        case Join(group):
            return (_kind(group),)
        case Raise(message) | Lost(_, message):
            return (message,)
    return ()


def _kind(group: Group) -> tuple[str, int, int]:
    return group.library, group.workers, len(group.ranks)

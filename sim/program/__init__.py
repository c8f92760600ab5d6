"""A job, rank by rank: one `Program` is proved, simulated and run for real."""

from ringside.sim.program.operations import (
    ANY,
    Action,
    Call,
    Compute,
    Drop,
    Group,
    Join,
    Lost,
    NewGroup,
    Operation,
    Program,
    Raise,
    Recv,
    Send,
    Together,
    Wait,
)

__all__ = [
    "ANY",
    "Action",
    "Call",
    "Compute",
    "Drop",
    "Group",
    "Join",
    "Lost",
    "NewGroup",
    "Operation",
    "Program",
    "Raise",
    "Recv",
    "Send",
    "Together",
    "Wait",
]

"""A job rank by rank: what is proved, simulated and really run is one `Program`."""

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

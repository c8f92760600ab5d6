"""FSDP2's collectives in their order, by the play of its streams and its one communicator.

The order is that of fully_shard of PyTorch 2.13 in a steady iteration of a root with an embedding and a head
and of three blocks, recorded by wrapping torch.distributed's functions
(torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py).
"""

import pytest

from ringside.sim.collective import Collective
from ringside.sim.program import Call, Compute, Group, Operation, Program
from ringside.sim.program.groups import TimedGroup, play_in_group

FORWARD = ["AG root", "AG b0", "AG b1", "AG b2"]
BACKWARD = ["AG b2", "AG b1", "RS b2", "AG b0", "RS b1", "RS b0", "RS root"]

ELEMENTS = {"root": 160, "b0": 64, "b1": 64, "b2": 64}
SECONDS = 1 / 64
"""Of an element: a block's collective takes one second, the root's two and a half."""


class Step:
    """One rank's step as its host asks for it: streams for gathers, for scatters and for compute.

    A module computes once it is gathered; its gradients are scattered once it has computed, and the next
    one is gathered ahead. Compute waits for the last scatter but one, whose buffer it takes.
    """

    def __init__(self, gathers: Group, scatters: Group) -> None:
        self.groups = {"AG": gathers, "RS": scatters}
        self.operations: list[Operation] = []
        self.of: dict[str, int] = {}

    def call(self, what: str, module: str, after: tuple[int, ...] = ()) -> int:
        collective = Collective("all_gather", 2, ELEMENTS[module])
        call = Call(self.groups[what], what, collective)
        return self.post(Operation(call, what, after, name=f"{what} {module}"))

    def compute(self, seconds: float, *after: int) -> int:
        return self.post(Operation(Compute(seconds), "compute", after, category="compute"))

    def post(self, operation: Operation) -> int:
        self.operations.append(operation)
        return len(self.operations) - 1


def steps(gathers: Group, scatters: Group) -> list[Operation]:
    step = Step(gathers, scatters)
    for module in ELEMENTS:
        gathered = step.call("AG", module)
        step.compute(0.5 if module == "root" else 1.0, gathered)
    ahead = step.call("AG", "b2")
    pending: tuple[int, ...] = ()
    for module, following in (("b2", "b1"), ("b1", "b0"), ("b0", "")):
        gathered, ahead = ahead, step.call("AG", following) if following else 0
        computed = step.compute(1.5, gathered)
        buffered = step.compute(0.1, computed, *pending)
        pending = (step.call("RS", module, (buffered,)),)
    computed = step.compute(0.5, *pending)
    step.call("RS", "root", (computed,))
    return step.operations


def played(gathers: Group, scatters: Group) -> tuple[list[str], float]:
    """Return the collectives in the order of their begin, and the end."""
    operations = steps(gathers, scatters)
    program = Program("step", 2, lambda _: operations)
    simulation = play_in_group(program, TimedGroup(2, lambda collective: collective.nbytes * SECONDS))
    calls = [place for place, one in enumerate(operations) if isinstance(one.action, Call)]
    calls.sort(key=lambda place: simulation.start[0][place])
    return [operations[place].name for place in calls], simulation.makespan_s


def group(name: str) -> Group:
    return Group(name, (0, 1), "nccl", 1)


def test_in_one_communicator_nobody_overtakes_as_in_fully_shard() -> None:
    """By hand: b0 is gathered from 9.1 to 10.1, behind b2's scatter; the root's scatter begins at 13.2."""
    world = group("world")
    order, makespan = played(world, world)
    assert order == [*FORWARD, *BACKWARD]
    assert makespan == pytest.approx(15.7)


def test_with_a_communicator_of_their_own_gathers_pass_scatters() -> None:
    """As set_separate_reduce_scatter_group of PyTorch 2.13 has it: b0 is gathered from 7.5 to 8.5."""
    order, makespan = played(group("gathers"), group("scatters"))
    assert order == [*FORWARD, "AG b2", "AG b1", "AG b0", "RS b2", "RS b1", "RS b0", "RS root"]
    assert makespan == pytest.approx(15.3)

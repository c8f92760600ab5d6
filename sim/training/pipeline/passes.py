"""The stages of one rank of a pipeline, and its actions on them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from ringside.sim.training.pipeline.actions import COMPUTES, ENDS, Action, Kind, Table, singles
from ringside.sim.training.stage import Stage


@runtime_checkable
class Commanded(Protocol):
    """A `ringside.sim.training.stage.Sharing` controlled by the pipeline, as torch's controls FSDP2.

    Between ``unshard`` and ``reshard`` the whole stage's parameters are held, and its other hooks gather and
    free nothing; gradients of all micro-batches are summed on the rank until ``reduce``.
    """

    def unshard(self) -> None:
        """Begin to gather the parameters of all of the stage's layers; its passes wait for them."""
        ...

    def reshard(self) -> None:
        """Free other ranks' shards."""
        ...

    def reduce(self) -> None:
        """Sum all gradients of the stage among the ranks that share it."""
        ...


class Passes:
    """Runs a rank's compute and its actions on stages; messages are the runtime's."""

    def __init__(self, stages: Mapping[int, Stage], table: Iterable[Action]) -> None:
        self._stages = stages
        self._left: Counter[int] = Counter()
        for single in singles(table):
            if single.stage not in stages:
                raise ValueError(
                    f"{single} is of no stage of this rank, which has {', '.join(map(str, stages))}"
                )
            self._left[single.stage] += single.kind in ENDS

    def take(self, action: Action) -> None:
        """Write one action, which computes or acts on a whole stage."""
        stage, number = self._stages[action.stage], action.micro_batch or 0
        if action.kind in ENDS:
            self._left[action.stage] -= 1
        last = not self._left[action.stage]
        match action.kind:
            case Kind.FORWARD:
                stage.forward(number)
            case Kind.BACKWARD:
                stage.backward(number, last=last)
            case Kind.INPUT_GRADIENT:
                stage.input_gradient(number)
            case Kind.WEIGHT_GRADIENT:
                stage.weight_gradient(number, last=last)
            case _ if isinstance(stage.sharing, Commanded):
                self._command(stage.sharing, action.kind)

    def _command(self, sharing: Commanded, kind: Kind) -> None:
        if kind is Kind.UNSHARD:
            sharing.unshard()
        elif kind is Kind.RESHARD:
            sharing.reshard()
        elif kind is Kind.REDUCE_GRAD:
            sharing.reduce()


def alternates(actions: Sequence[Action], hops: int) -> bool:
    """Return whether a rank of 1F1B, ``hops`` before the last, has a forward after its first backward.

    Then it and the next rank send to each other at once. Otherwise the next one must first run its last
    forward before it can send a gradient, so both receive and send separately.
    """
    return hops < sum(action.kind is Kind.FORWARD for action in actions)


def computed(table: Table) -> list[Action]:
    """Yield a table's computations in order: the forward of an overlapped pair first."""
    return [single for single in singles(table) if single.kind in COMPUTES]

"""The stages of one rank of a pipeline, as its actions have micro-batches pass them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from ringside.sim.training.pipeline.actions import COMPUTES, ENDS, Action, Kind, Table, singles
from ringside.sim.training.stage import Stage


@runtime_checkable
class Commanded(Protocol):
    """A `ringside.sim.training.sharing.Sharing` to which the pipeline says when, as torch's does to FSDP2.

    Between ``unshard`` and ``reshard`` the whole stage's parameters are there, and its other hooks gather and
    free nothing; gradients of all micro-batches are summed on the rank until ``reduce``.
    """

    def unshard(self) -> None:
        """Begin to gather the parameters of all of the stage's layers; its passes wait for them."""
        ...

    def reshard(self) -> None:
        """Let go of what others hold."""
        ...

    def reduce(self) -> None:
        """Have all gradients of the stage summed among those who share it."""
        ...


class Passes:
    """Carries out what a rank computes and what is done to its stages; messages are the runtime's."""

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
        """Write one action, which computes or is of a stage as a whole."""
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
    """Whether a rank of 1F1B, so many hops before the last, has a forward after its first backward.

    Then it and the next rank send to each other at once. Otherwise the next one, which has its last forward
    to do before it has a gradient to send, receives and sends by itself, and so does this one.
    """
    return hops < sum(action.kind is Kind.FORWARD for action in actions)


def computed(table: Table) -> list[Action]:
    """What a table computes, one after another: of what may overlap the forward first."""
    return [single for single in singles(table) if single.kind in COMPUTES]

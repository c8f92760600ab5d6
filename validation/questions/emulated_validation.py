"""How well predictions match measurements on networks that are emulated in this machine, and of memory.

Each question, except that of memory, measures ping-pong, predicts everything else and measures it too. It
raises `ValueError` if this machine cannot emulate a network, `ringside.real.launch.follow.MeasureError` if a
measurement fails.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeVar

from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import Question, option
from ringside.validation import compare_ddp
from ringside.validation.cases import only
from ringside.validation.compare_ddp import ComparedSteps
from ringside.validation.emulated import collectives, disturbances, recordings, strategies, training
from ringside.validation.emulated.collectives import MeasuredCase
from ringside.validation.emulated.disturbances import ComparedDraws, DisturbedCase
from ringside.validation.emulated.plan import FULL, MBIT, SHORT, num_cells, of_families
from ringside.validation.emulated.recordings import ComparedScript, ScriptCase
from ringside.validation.emulated.strategies import StrategyCase
from ringside.validation.emulated.training import Check, StepCase
from ringside.validation.training import compare, memory, memory_plan
from ringside.validation.training.compare import ComparedTraining
from ringside.validation.training.memory import ComparedPeaks
from ringside.validation.training.memory_plan import MemoryCase

C = TypeVar("C")
D = TypeVar("D")

SHORT_STEPS = 20
"""Real steps of a disturbed case, with ``short``."""


def _family(help: str) -> Any:
    return option(help, metavar="NAME", default=(), parse=tuple, repeats=True)


def _both(cases: list[tuple[C, D]], on_case: Callable[[C, D], None]) -> Callable[[C, D], None]:
    """Return a function that keeps a case with its comparison, and calls ``on_case`` with them."""

    def keep(case: C, one: D) -> None:
        cases.append((case, one))
        on_case(case, one)

    return keep


@dataclass(frozen=True, kw_only=True)
class Validation(Question):
    """The base of validations; ``plan`` has the cases, all or those selected by the fields."""

    short: bool = option("A few cells in some three minutes, instead of all in some twenty.", default=False)
    plan: Sequence[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "plan", self._plan())

    def _plan(self) -> Sequence[Any]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Validations(AnswerOnDemand):
    """The base of answers: ``cases`` are those measured, fewer than planned if interrupted."""

    question: Validation
    cases: Sequence[Any]
    notes: Sequence[str] = ()

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs()

    @property
    def planned(self) -> int:
        """The number of cases of the plan."""
        return len(self.question.plan)

    @property
    def failed(self) -> list[str]:
        """The figures past their tolerance."""
        raise NotImplementedError

    @property
    def figures(self) -> int:
        """The number of figures that have a tolerance."""
        raise NotImplementedError

    @property
    def headline(self) -> str:
        """How many figures are within their tolerance."""
        failed = self.failed
        return (
            f"{'FAIL' if failed else 'pass'}: {self.figures - len(failed)} of {self.figures} figures are "
            f"within their tolerance, {len(self.cases)} cases"
        )

    @property
    def grounds(self) -> str:
        """What was measured, and which part of the plan."""
        cut = f"interrupted: {len(self.cases)} of {self.planned} cells" * (len(self.cases) < self.planned)
        return cut

    @property
    def doubts(self) -> list[str]:
        """The figures past their tolerance."""
        return self.failed

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The cases in plain values."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CheckedValidations(Validations):
    """The base of answers with one check for each figure that has a limit."""

    @property
    def checks(self) -> Sequence[Check]:
        """The figures with their limits."""
        raise NotImplementedError

    @property
    def failed(self) -> list[str]:
        """The figures past their tolerance."""
        return [check.what for check in self.checks if not check.passed]

    @property
    def figures(self) -> int:
        """The number of checks."""
        return len(self.checks)


@dataclass(frozen=True, kw_only=True)
class CollectiveValidation(Validation):
    """How well collectives are predicted, in families of cells."""

    schema: ClassVar[str] = "validate"

    family: Sequence[str] = _family("Only this family of cells; repeat for more.")

    def _plan(self) -> Sequence[Any]:
        return of_families(SHORT if self.short else FULL, self.family)

    def ask(self, *, on_case: Callable[[MeasuredCase], None] = lambda _: None) -> "CollectiveValidations":
        """Carry out the plan; call ``on_case`` with each cell as soon as it is measured."""
        cells: list[MeasuredCase] = []

        def keep(cell: MeasuredCase) -> None:
            cells.append(cell)
            on_case(cell)

        collectives.validate(self.plan, keep)
        return CollectiveValidations(self, cells)


@dataclass(frozen=True, slots=True)
class CollectiveValidations(Validations):
    """The answer: a row for each cell, and a verdict for each family."""

    @property
    def planned(self) -> int:
        """The number of cells of the plan."""
        return num_cells(self.question.plan)

    @property
    def verdicts(self) -> tuple[collectives.FamilyVerdict, ...]:
        """A verdict for each family that has cells."""
        return collectives.verdicts(self.cases)

    @property
    def failed(self) -> list[str]:
        """The families past their tolerance."""
        return [verdict.family for verdict in self.verdicts if not verdict.passed]

    @property
    def figures(self) -> int:
        """The number of families."""
        return len(self.verdicts)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The cells in plain values."""
        return [{**asdict(cell), "error": cell.error, "noisy": cell.noisy} for cell in self.cases]


@dataclass(frozen=True, kw_only=True)
class DdpValidation(Validation):
    """How well steps of DistributedDataParallel are predicted."""

    schema: ClassVar[str] = "validate ddp"

    def _plan(self) -> Sequence[StepCase]:
        return training.trials(rates=(200 * MBIT,)) if self.short else training.trials()

    def ask(
        self, *, on_case: Callable[[StepCase, ComparedSteps], None] = lambda *_: None
    ) -> "DdpValidations":
        """Judge every case; call ``on_case`` with each as soon as it is measured."""
        cases: list[tuple[StepCase, ComparedSteps]] = []
        training.judge(self.plan, _both(cases, on_case))
        return DdpValidations(self, cases)


@dataclass(frozen=True, slots=True)
class DdpValidations(CheckedValidations):
    """The answer: a row for each case, and the checks over all."""

    @property
    def checks(self) -> Sequence[Check]:
        """The figures with their limits."""
        return training.checks([one for _, one in self.cases])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The cases in plain values."""
        return [{**case.inputs, **compare_ddp.row_of(case.name, one)} for case, one in self.cases]


@dataclass(frozen=True, kw_only=True)
class TrainingValidation(Validation):
    """How well steps of FSDP, pipelines and tensor parallelism are predicted."""

    schema: ClassVar[str] = "validate training"

    family: Sequence[str] = _family("Only this case; repeat for more.")

    def _plan(self) -> Sequence[StrategyCase]:
        return only(strategies.SHORT if self.short else strategies.CASES, self.family)

    def ask(
        self, *, on_case: Callable[[StrategyCase, ComparedTraining], None] = lambda *_: None
    ) -> "TrainingValidations":
        """Judge every case; call ``on_case`` with each as soon as it is measured."""
        cases: list[tuple[StrategyCase, ComparedTraining]] = []
        strategies.judge(self.plan, _both(cases, on_case))
        return TrainingValidations(self, cases)


@dataclass(frozen=True, slots=True)
class TrainingValidations(CheckedValidations):
    """The answer: a row for each case, and the checks over all."""

    @property
    def checks(self) -> Sequence[Check]:
        """The figures with their limits."""
        return strategies.checks([one for _, one in self.cases])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The cases in plain values."""
        return [compare.row_of(case.name, one) for case, one in self.cases]


@dataclass(frozen=True, kw_only=True)
class RecordingValidation(Validation):
    """How well steps of recorded scripts are predicted."""

    schema: ClassVar[str] = "validate recordings"

    short: bool = option("Two scripts in some three minutes, instead of ten in some ten.", default=False)
    family: Sequence[str] = _family("Only this script; repeat for more.")

    def _plan(self) -> Sequence[ScriptCase]:
        return only(recordings.SHORT if self.short else recordings.CASES, self.family)

    def ask(
        self, *, on_case: Callable[[ScriptCase, ComparedScript], None] = lambda *_: None
    ) -> "RecordingValidations":
        """Judge every script; call ``on_case`` with each as soon as it is measured."""
        cases: list[tuple[ScriptCase, ComparedScript]] = []
        recordings.judge(self.plan, _both(cases, on_case))
        return RecordingValidations(self, cases)


@dataclass(frozen=True, slots=True)
class RecordingValidations(CheckedValidations):
    """The answer: a row for each script, and the checks over all."""

    @property
    def checks(self) -> Sequence[Check]:
        """The figures with their limits."""
        return recordings.checks([one for _, one in self.cases])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The scripts in plain values."""
        return [recordings.row_of(case.name, one) for case, one in self.cases]


@dataclass(frozen=True, kw_only=True)
class MemoryValidation(Validation):
    """How well peaks of memory are predicted, beside torch's own accounting; it needs no emulated network."""

    schema: ClassVar[str] = "validate memory"

    short: bool = option("Four jobs in a minute, instead of thirty in some ten.", default=False)
    family: Sequence[str] = _family("Only this job; repeat for more.")

    def _plan(self) -> Sequence[MemoryCase]:
        return only(memory_plan.SHORT if self.short else memory_plan.CASES, self.family)

    def ask(
        self, *, on_case: Callable[[MemoryCase, ComparedPeaks], None] = lambda *_: None
    ) -> "MemoryValidations":
        """Judge every job; call ``on_case`` with each as soon as it is measured."""
        cases: list[tuple[MemoryCase, ComparedPeaks]] = []
        memory_plan.judge(self.plan, _both(cases, on_case))
        return MemoryValidations(self, cases)


@dataclass(frozen=True, slots=True)
class MemoryValidations(CheckedValidations):
    """The answer: a row for each rank, and the checks over all."""

    @property
    def checks(self) -> Sequence[Check]:
        """The figures with their limits."""
        return memory_plan.checks([one for _, one in self.cases])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The ranks in plain values."""
        return [memory.row_of(case.name, one) for case, peaks in self.cases for one in peaks.ranks]


@dataclass(frozen=True, kw_only=True)
class DisturbanceValidation(Validation):
    """How well disturbed steps are predicted, in quantiles."""

    schema: ClassVar[str] = "validate disturbances"

    family: Sequence[str] = _family("Only this case; repeat for more.")

    def _plan(self) -> Sequence[DisturbedCase]:
        return only(disturbances.CASES, self.family)

    def ask(
        self, *, on_case: Callable[[DisturbedCase, ComparedDraws], None] = lambda *_: None
    ) -> "DisturbanceValidations":
        """Judge every case; call ``on_case`` with each as soon as it is measured."""
        cases: list[tuple[DisturbedCase, ComparedDraws]] = []
        steps = SHORT_STEPS if self.short else disturbances.STEPS
        disturbances.judge(self.plan, _both(cases, on_case), steps)
        return DisturbanceValidations(self, cases)


@dataclass(frozen=True, slots=True)
class DisturbanceValidations(CheckedValidations):
    """The answer: a row for each case, and the checks of each."""

    @property
    def checks(self) -> Sequence[Check]:
        """The quantiles with their limits."""
        return disturbances.checks(self.cases)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The cases in plain values."""
        return [
            {
                "case": case.name,
                "measured_s": list(one.measured_s),
                **one.quantiles,
                "undisturbed_s": one.drawn.undisturbed_s,
                "draws": len(one.drawn.times_s),
            }
            for case, one in self.cases
        ]

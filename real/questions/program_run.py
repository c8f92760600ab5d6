"""A job of collectives and messages, run for real."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ringside.real.backends import ON_GPU, ON_SOCKETS, UNDER_TORCHRUN
from ringside.real.collective.links import cluster, measured_graph
from ringside.real.collective.measure import check_gpus, check_room
from ringside.real.program.job import COMPUTE, ProgramJob
from ringside.real.program.measure import MeasuredProgram, measure_program
from ringside.real.questions.fields import OnNetwork
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.program_verdict import OfProgram, ProgramProof, ProgramVerdict
from ringside.sim.questions.question import QuestionError, choices, option
from ringside.topologies import Topology, load

TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class ProgramRun(OnNetwork, OfProgram):
    """A job run for real over torch.distributed: an unproved one only with an explicit ``timeout``."""

    schema: ClassVar[str] = "program"

    compute: str = option("Real: how compute is emulated.", metavar=choices(COMPUTE), default="sleep")
    iterations: int = option("Real: timed runs.", "-n", "--iterations", default=5)
    warmup: int = option("Real: untimed runs before them.", "-w", "--warmup", default=1)
    timeout: float | None = option(
        "Real: longest wait of a rank; also runs an unproved job.",
        metavar="SECONDS", default=None, default_text="60 for a proved job",
    )  # fmt: skip

    def ask(
        self, *, force: bool = False, on_proof: Callable[[ProgramProof], None] = lambda _: None,
        on_run: Callable[[str], None] = lambda _: None,
    ) -> "ProgramRuns":  # fmt: skip
        """Prove the job and run it; ``on_proof`` gets the verdict before anything runs.

        Raise RuntimeError for an unproved job without a timeout. ``force`` starts any number of ranks.
        """
        job = self.check(force=force)
        proof = ProgramVerdict(
            file=self.file, ranks=self.ranks, library=self.library, eager=self.eager
        ).ask()  # fmt: skip
        on_proof(proof)
        if not proof.is_proved and self.timeout is None:
            raise RuntimeError("not run, because it is not proved; to run it anyway add `timeout` SECONDS")
        ranks = proof.job.ranks
        if self.emulate is None:
            measured = measure_program(job, ranks, on_run=lambda _: on_run("runs"))
            return ProgramRuns(self, proof, measured, None)
        graph = load(self.emulate, self.settings, ranks=ranks)
        links = None
        with cluster(graph) as network:
            if proof.is_proved and ranks <= len(network.network.hosts):
                links, _ = measured_graph(network, ranks)
            measured = measure_program(job, ranks, cluster=network, on_run=lambda _: on_run("runs"))
        return ProgramRuns(self, proof, measured, links)

    def check(self, *, force: bool = False) -> ProgramJob:
        """Return the job for each rank; raise ValueError first if it cannot run."""
        library = self.library or "gloo"
        if self.ranks is None:
            raise QuestionError(f"{self.path} needs a number of ranks; write -g N")
        if library not in UNDER_TORCHRUN:
            raise QuestionError(f"`library` {library} runs no job; write {' or '.join(UNDER_TORCHRUN)}")
        if self.emulate and library not in ON_SOCKETS:
            raise QuestionError(f"`library` {library} cannot run on an emulated network; write gloo")
        if library in ON_GPU:
            check_gpus(self.ranks)
        if not force:
            check_room(self.ranks, 0)
        return ProgramJob(
            script=os.path.abspath(self.path),
            backend=library,
            eager=self.eager,
            compute=self.compute,
            iterations=self.iterations,
            warmup=self.warmup,
            timeout_s=TIMEOUT_S if self.timeout is None else self.timeout,
        )


@dataclass(frozen=True, slots=True)
class ProgramRuns(AnswerOnDemand):
    """The answer: the verdict, and all timed runs.

    ``links`` is an emulated network as ping-pong measured it, for a prediction of a proved job.
    """

    question: ProgramRun
    proof: ProgramProof
    measured: MeasuredProgram
    links: "Topology | None"

    @property
    def headline(self) -> str:
        """The verdict, and the median makespan."""
        times = sorted(run.makespan_s * 1e3 for run in self.measured.runs)
        return (
            f"{self.measured.makespan_s * 1e3:.2f} ms, median of {len(times)} runs from {times[0]:.2f} to "
            f"{times[-1]:.2f} ms: {self.proof.headline}"
        )

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return {**self.question.inputs(), **self.proof.inputs}

    @property
    def notes(self) -> tuple[str, ...]:
        """The reasons of the verdict, in sentences."""
        return self.proof.verdict.story

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each rank's median, fastest and slowest end, in seconds."""
        ends = zip(*(run.ends_s for run in self.measured.runs), strict=True)
        return [
            {"rank": rank, "end_s": end, "min_s": min(own), "max_s": max(own)}
            for rank, (end, own) in enumerate(zip(self.measured.ends_s, ends, strict=True))
        ]

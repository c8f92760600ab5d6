"""How long a collective takes on a cluster."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from ringside.sim.calibration import Calibration
from ringside.sim.collective import KINDS, Collective, kind_of
from ringside.sim.disturbance import Draw, Outcome
from ringside.sim.formats.schedule_files import ScheduleFile, holds_schedule, read
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.library import ENGINES, Library, Prediction, answer, answer_by, check_growth
from ringside.sim.libraries.scheduled import Given, Scheduled
from ringside.sim.questions.answer import Answer, two_lines
from ringside.sim.questions.disturbances import Disturbances
from ringside.sim.questions.fields import ByLibrary, OfType
from ringside.sim.questions.headlines import headline_of, named
from ringside.sim.questions.idle_settings import idle_rates
from ringside.sim.questions.question import (
    BySize,
    QuestionError,
    argument,
    choices,
    option,
    parse_counts,
    without_count,
)
from ringside.topologies.disk import regular
from ringside.topologies.placement import placement_notes, ranks_text

if TYPE_CHECKING:
    from ringside.sim.questions.disturbed_time import DisturbedTime

Rows = tuple[tuple[int, ...], ...]


def _collective_of(text: str) -> "str | ScheduleFile":
    if text in KINDS:
        return text
    return read(Path(text)) if holds_schedule(text) else kind_of(text)


@dataclass(frozen=True, kw_only=True)
class CollectiveTime(Disturbances, BySize, OfType, ByLibrary):
    """How long a collective takes: a row for each node count and size.

    ``collective`` is a name, or a schedule that was read from a file. ``splits`` are the elements that each
    rank has for each other in an uneven all_to_all.
    """

    schema: ClassVar[str] = "simulate"

    collective: str | ScheduleFile = argument(
        "all_reduce, all_gather, ..., or MSCCL's XML (.xml).", parse=_collective_of
    )
    nodes: tuple[int, ...] | None = option(
        "Counts of machines, or of ranks: a row for each.",
        metavar="N,N,...",
        default=None,
        parse=parse_counts,
        minimum=1,
    )
    splits: str | None = option(
        "Uneven all_to_all: elements from each rank to each, 4,1;1,4", metavar="LIST|FILE", default=None
    )
    engine: str = option(
        "Simulation engine; auto reports its choice.", metavar=choices(ENGINES), default="auto"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.splits is not None and (sized := self.changed("size", "begin", "end", "factor")):
            raise QuestionError(f"`splits` sets the sizes; remove `{sized[0]}`")
        if isinstance(self.collective, ScheduleFile):
            self._check_file(self.collective)
        if self.nodes is not None and self.ranks is not None:
            counts = ",".join(map(str, self.nodes))
            raise QuestionError(
                f"`ranks` {self.ranks}, but `nodes` {counts} uses all ranks; remove one of them"
            )
        if self.disturbance and self.splits is None and len(self.sizes) > 1:
            raise QuestionError(f"{self.disturbed_by} shows one size, not {len(self.sizes)}; add `size`")
        if self.disturbance and self.nodes:
            raise QuestionError(
                f"{self.disturbed_by} shows one cluster; write its count as `cluster` NAME:COUNT, not `nodes`"
            )

    def _check_file(self, file: ScheduleFile) -> None:
        if self.library is not None:
            raise QuestionError(
                f"`library` {self.library}: {file.path} contains the schedule; remove `library`"
            )
        if self.nodes:
            counts = ",".join(map(str, self.nodes))
            raise QuestionError(f"`nodes` {counts}: the file has {file.ranks} ranks; remove `nodes`")

    @property
    def compares(self) -> bool:
        """Whether the question names several algorithms; the fastest one is the answer."""
        return "," in self.algorithm and not self.algorithm.startswith("^")

    @property
    def kind(self) -> str:
        """The collective's name."""
        return self.collective.kind if isinstance(self.collective, ScheduleFile) else self.collective

    def bound_to(
        self, cluster: str, settings: Mapping[str, str], calibration: Calibration | str | None
    ) -> Library:
        """Return the library, or the file's schedule, as `ByLibrary.bound_to`."""
        if not isinstance(self.collective, ScheduleFile):
            return super().bound_to(cluster, settings, calibration)
        return _given(
            self.collective, cluster, settings, ranks=self.ranks, options=self.options,
            calibration=calibration,
        )  # fmt: skip

    def by_nodes(self) -> "dict[int | None, CollectiveTime]":
        """Return the question for each node count, with its calibration read."""
        resolved = replace(self, calibration=self.read_calibration(), anchor=None)
        if self.nodes is None:
            return {None: resolved}
        name = without_count(self.cluster, self.nodes)
        return {count: replace(resolved, cluster=f"{name}:{count}", nodes=None) for count in self.nodes}

    def ask(
        self, *, traced: bool = False, on_size: Callable[[str], None] = lambda _: None
    ) -> "CollectiveTimes":
        """Predict each size; ``traced`` keeps timelines, ``on_size`` is called after each size or draw."""
        questions = self.by_nodes()
        predicted = {count: one._predicted(traced, on_size) for count, one in questions.items()}
        return _answer(self, predicted, self._disturbed(predicted, on_size) if self.disturbance else None)

    def _disturbed(
        self, predicted: "Mapping[int | None, Predicted]", on_draw: Callable[[str], None]
    ) -> "DisturbedTime":
        """Draw the prediction's algorithm under the disturbance."""
        from ringside.sim.disturbance.study import collective_once
        from ringside.sim.questions.disturbed_time import draw_times

        (one,) = predicted.values()
        (prediction,) = one.predictions
        candidate = one.library.choose(prediction.collective)

        def once(draw: Draw) -> Outcome:
            return collective_once(one.library, prediction.collective, candidate, self.engine, draw)

        return draw_times(self, once, prediction.time_s, on_draw)

    def _predicted(self, traced: bool, on_size: Callable[[str], None]) -> "Predicted":
        start = perf_counter()
        library = self.bound_to(self.cluster, self.settings, self.calibration)
        predictions = []
        for collective in self._collectives(library.ranks):
            predictions.append(answer(library, collective, self.engine, traced=traced))
            on_size(f"simulated {collective.nbytes} B")
        if not library.has_tuner and not isinstance(self.calibration, Calibration):
            check_growth([one for one in predictions if one.engine != "measured"])
        idle: Sequence[str] = ()
        if self.settings:
            collectives = [one.collective for one in predictions]
            idle = idle_rates(
                library, partial(self.bound_to, self.cluster, calibration=None), self.settings, collectives,
                self.engine, perf_counter() - start,
            )  # fmt: skip
        return Predicted(self, library, predictions, idle)

    def _collectives(self, ranks: int) -> list[Collective]:
        """Return one collective of each size, or the one that the splits define."""
        if self.splits is None:
            return [
                Collective(self.kind, ranks, size, dtype=self.dtype, redop=self.redop) for size in self.sizes
            ]
        if self.kind != "all_to_all":
            raise QuestionError(f"`splits` applies to all_to_all, not {self.kind}; remove it")
        return [Collective.uneven(read_splits(self.splits, ranks), self.dtype)]


def _given(
    file: ScheduleFile,
    cluster: str,
    values: Mapping[str, str] | None = None,
    *,
    ranks: int | None = None,
    options: Options,
    calibration: Calibration | str | None = None,
) -> Given:
    """Return the file's schedule on the first ranks of a cluster, uncalibrated."""
    if ranks not in (None, file.ranks):
        raise ValueError(f"-g {ranks}, but the file has {file.ranks} ranks; remove -g")
    if options.algorithm != "auto":
        raise ValueError(f"--algorithm {options.algorithm}: the file has its own; remove it")
    if isinstance(calibration, Calibration):
        raise ValueError("a calibration applies to named algorithms, not to a file; write --calibration none")
    bare = find_library("ideal", cluster, values, ranks=file.ranks, options=options)
    assert isinstance(bare, Scheduled)
    return Given(bare.graph, file.ranks, f"{file.name}.xml", file.build, options.network, file.caveat)


@dataclass(frozen=True, slots=True)
class Predicted:
    """The sizes predicted on one cluster; ``idle`` names settings without effect, a sentence each."""

    question: CollectiveTime
    library: Library
    predictions: Sequence[Prediction]
    idle: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class CollectiveTimes(Answer):
    """The answer: what was predicted on each count of nodes, None where the question has no counts.

    ``predictions`` are those of all counts, and ``rows`` the same in plain values: seconds, bytes, GB/s.
    ``notes`` are caveats, ``idle`` the settings without effect on any row, a sentence each. ``basis`` is the
    source of the times, empty for a schedule on the topology's own links; ``is_measured`` says whether any
    rests on measurements.
    """

    question: CollectiveTime
    by_nodes: Mapping[int | None, Predicted]
    first: Predicted
    predictions: Sequence[Prediction]
    headline: str
    rests_on: Sequence[str]
    rows: Sequence[dict[str, Any]]
    notes: Sequence[str]
    idle: Sequence[str]
    basis: str
    is_measured: bool
    disturbed: "DisturbedTime | None"

    def by_algorithm(self, *, traced: bool = False) -> dict[tuple[int | None, str], list[Prediction]]:
        """Return the predictions of each algorithm that the question names, by nodes and algorithm.

        An algorithm counts with its fastest protocol, and is missing where the library cannot use it.
        ``traced`` keeps timelines.
        """
        curves: dict[tuple[int | None, str], list[Prediction]] = {}
        for count, predicted in self.by_nodes.items():
            for one in predicted.predictions:
                fastest: dict[str, Prediction] = {}
                for candidate in predicted.library.candidates(one.collective):
                    way = answer_by(
                        predicted.library, one.collective, candidate, self.question.engine, traced=traced
                    )
                    best = fastest.setdefault(candidate.algorithm, way)
                    fastest[candidate.algorithm] = min(best, way, key=lambda either: either.time_s)
                for algorithm, way in fastest.items():
                    curves.setdefault((count, algorithm), []).append(way)
        return curves

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood: the library and its release, the ranks and where they are."""
        return _inputs(self.question, self.first.library)

    @property
    def totals(self) -> dict[str, Any]:
        """The basis of the times, and the disturbed time."""
        totals: dict[str, Any] = {"note": self.basis} if self.basis else {}
        return totals | ({"disturbed": self.disturbed.content()} if self.disturbed else {})


def _answer(
    question: CollectiveTime,
    by_nodes: Mapping[int | None, Predicted],
    disturbed: "DisturbedTime | None",
) -> CollectiveTimes:
    first, *others = by_nodes.values()
    library = first.library
    predictions = [prediction for one in by_nodes.values() for prediction in one.predictions]
    is_measured = any(one.engine == "measured" for one in predictions)
    placed = placement_notes(question.ranks, question.placement, library.placed) if question.ranks else []
    caveats = dict.fromkeys(one.caveat for one in predictions if one.caveat)
    idle = [one for one in first.idle if all(one in other.idle for other in others)]
    basis = next((one for one in predictions if one.engine == "measured"), predictions[0]).basis
    return CollectiveTimes(
        question=question,
        by_nodes=by_nodes,
        first=first,
        predictions=predictions,
        headline=disturbed.headline(named(predictions[0]))
        if disturbed
        else headline_of(predictions, library),
        rests_on=two_lines(_grounds(question, library, basis, is_measured=is_measured), [*caveats, *idle]),
        rows=[
            ({} if count is None else {"num_nodes": count}) | _row(one.library, prediction)
            for count, one in by_nodes.items()
            for prediction in one.predictions
        ],
        notes=[*placed, *caveats, *idle],
        idle=idle,
        basis=basis,
        is_measured=is_measured,
        disturbed=disturbed,
    )


def _grounds(question: CollectiveTime, library: Library, basis: str, *, is_measured: bool) -> str:
    """Return the source of the times, in one line."""
    if is_measured:
        return "; ".join((f"times {library.basis}", *library.notes))
    if basis:
        return basis
    if library.calibration is not None:
        return f"by the parameters of a calibration of {library.calibration.cluster}"
    where = f"{question.cluster}, {question.network}"
    return f"by schedules on the links of {where}; no measurement set the times"


def _inputs(question: CollectiveTime, library: Library) -> dict[str, Any]:
    inputs = question.inputs() | {"collective": question.kind, "library": library.name}
    if isinstance(question.collective, ScheduleFile):
        inputs["file"] = str(question.collective)
    if question.nodes is None:
        inputs["ranks"] = library.ranks
    if library.version:
        inputs["nccl_version"] = library.version
    return inputs | {"placed": ranks_text(library.placed)}


def _row(library: Library, prediction: Prediction) -> dict[str, Any]:
    row = {
        "size_bytes": prediction.collective.nbytes,
        "time_s": prediction.time_s,
        "time_lo_s": prediction.time_lo_s,
        "time_hi_s": prediction.time_hi_s,
        "algbw_GBps": prediction.algbw / 1e9,
        "busbw_GBps": prediction.busbw / 1e9,
        "algorithm": prediction.algorithm,
        "protocol": prediction.protocol,
        "engine": prediction.engine,
        **({"caveat": prediction.caveat} if prediction.caveat else {}),
    }
    if library.has_tuner:
        candidates = library.candidates(prediction.collective)
        row |= {
            "channels": prediction.channels,
            "tuner_us": prediction.belief_us,
            "choices_us": {
                f"{one.algorithm}/{one.protocol}": one.belief_us
                for one in candidates
                if one.algorithm not in ("p2p", "none")
            },
        }
    return row


def read_splits(text: str, ranks: int) -> Rows:
    """Parse counts of elements by sender, then receiver, for ``ranks`` ranks.

    The text is a list, ``4,1,0;1,4,0;0,0,9``, or the name of a file with a line per sender; a single row
    applies to every rank.
    """
    file, where = splits_file(text), f"--splits {text}"
    lines = re.split(r"[;\n]", _content(file) if file else text)
    rows = [
        _counts(line, f"{where}, {'line' if file else 'row'} {number}")
        for number, line in enumerate(lines, 1)
        if line.partition("#")[0].strip()
    ]
    if len(rows) == 1:
        rows *= ranks
    for number, row in enumerate(rows):
        if len(rows) != ranks or len(row) != ranks:
            raise ValueError(
                f"{where}: sender {number} of {len(rows)} has {len(row)} counts; write one for each of the "
                f"{ranks} ranks, and one row or {ranks}"
            )
    if not rows:
        raise ValueError(f"{where} is empty; write a row of counts per rank")
    return tuple(rows)


def splits_file(text: str) -> Path | None:
    """Return the file that the text names, unless it is a list."""
    return None if re.fullmatch(r"[\d\s,;]+", text) else Path(text)


def _content(path: Path) -> str:
    try:
        return regular(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--splits {path}: {error}; write a list such as 4,1;1,4, or a text file") from None


def _counts(line: str, where: str) -> tuple[int, ...]:
    counts = line.partition("#")[0].replace(",", " ").split()
    for word in counts:
        if not (word.isascii() and word.isdecimal() and len(word) < 100):
            raise ValueError(f"{where}: {word!r} is not a count of elements; write 0 or more")
    return tuple(int(word) for word in counts)

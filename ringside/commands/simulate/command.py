"""``ringside simulate``: a table of predictions, its files, and the load of links.

The table has a row per size; for NCCL also its alternatives.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.options import asks
from ringside.sim.formats.schedule_files import ScheduleFile, write
from ringside.sim.formats.schedule_files import check_format as check_format_of
from ringside.sim.libraries.library import Library, Prediction
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.network.load import Load, counted
from ringside.sim.questions.collective_time import CollectiveTime, CollectiveTimes, Predicted, splits_file
from ringside.sim.questions.disturbances import Disturbances
from ringside.sim.questions.headlines import named
from ringside.sim.questions.question import BySize
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.units import format_duration, format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files to write, and whether links are printed."""

    trace: Path | None
    timeline: Path | None
    animate: Path | None
    plot: Path | None
    export: Path | None
    links: bool

    @property
    def traces(self) -> bool:
        """Whether a file shows single messages."""
        return any((self.trace, self.timeline, self.animate))

    def check(self, question: CollectiveTime) -> None:
        """Raise ValueError, before any work, for outputs that are not possible."""
        files = [self.trace, self.timeline, self.animate, self.plot, self.export]
        if any(files):
            inputs = [split(question.cluster)[0], question.calibration, question.nccl_graph]
            inputs += [question.anchor.path] if question.anchor else []
            inputs += [splits_file(question.splits)] if question.splits else []
            inputs += [question.collective.path] if isinstance(question.collective, ScheduleFile) else []
            check_format_of(self.export)
            check_outputs(files, inputs=[str(one) for one in inputs if one])
        if question.disturbance and (self.traces or self.links):
            raise ValueError(
                f"{question.disturbed_by}: --trace, --timeline, --animate and --links show undisturbed runs; "
                "remove one of them"
            )
        for option, path in (("--timeline", self.timeline), ("--animate", self.animate)):
            if path and question.engine in ("model", "fast"):
                raise ValueError(
                    f"{option} {path} draws messages, which engine {question.engine} does not keep; write "
                    "--engine simpy"
                )
        self._check_one(question)

    def _check_one(self, question: CollectiveTime) -> None:
        """Raise ValueError for several sizes or clusters if an output shows only one."""
        sizes = 1 if question.splits else len(question.sizes)
        for option, is_given in (
            ("a trace", self.trace),
            ("--timeline", self.timeline),
            ("--animate", self.animate),
            ("--links", self.links),
            ("--export", self.export),
        ):
            if is_given and sizes > 1:
                raise ValueError(f"{option} shows one size, not {sizes}; write one --size")
            if is_given and question.nodes:
                raise ValueError(
                    f"{option} shows one cluster; write its count as --cluster NAME:COUNT, not --nodes"
                )
        if self.plot and not (self.links or question.disturbance) and sizes * len(question.nodes or "1") == 1:
            raise ValueError(
                f"--plot {self.plot} draws a curve, but one size on one cluster is a point; add "
                "--links, or several sizes, or --nodes 1,2,4"
            )

    def write(self, answer: CollectiveTimes) -> list[str]:
        """Write the files of the first prediction; return the export's losses, a sentence each."""
        library, prediction = answer.first.library, answer.first.predictions[0]
        lost = []
        if self.animate:
            from ringside.pictures.animation.collective import animated
            from ringside.pictures.animation.page import write_animation

            write_animation(animated(answer), self.animate)
        if self.timeline:
            draw_timeline_of(library, answer.question.cluster, prediction, self.timeline)
        if self.export:
            candidate = library.choose(prediction.collective)
            plan = library.schedule(prediction.collective, candidate)
            lost = write(plan, self.export, candidate.protocol)
        if self.trace and prediction.timeline:
            write_file(self.trace, prediction.timeline.dumps())
        return lost


def draw_timeline_of(library: Library, cluster: str, prediction: Prediction, path: Path) -> None:
    """Draw the events of one prediction; notes below the title give the time not drawn."""
    from ringside.pictures.collectives.timeline import draw_timeline

    timeline, collective = prediction.timeline, prediction.collective
    assert timeline is not None  # every traced prediction has one
    size = format_size(collective.nbytes)
    title = f"{prediction.algorithm} {collective.kind} of {size} on {cluster}, {library.name}"
    title += f": {format_duration(prediction.time_s, 4)}"
    notes = []
    if prediction.channels > 1:
        notes.append(f"the slowest of {prediction.channels} channels, each on separate links")
    outside = prediction.time_s - max((sent.delivered for sent in timeline.transfers), default=0.0)
    if outside > 1e-6 * prediction.time_s:
        notes.append(f"{format_duration(outside, 3)} before the first byte or after the last are not drawn")
    draw_timeline(timeline, title, notes, path)


HEADS = (
    *(("link", ""), ("bytes", "(B)"), ("busy", "(%)"), ("messages", "")),
    *(("wait mean", "(us)"), ("wait max", "(us)")),
)


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one prediction, or the reason why there are none."""

    prediction: Prediction
    load: Load | None
    note: str


def links_of(predicted: Predicted) -> Links:
    """Simulate the first prediction again, with an empty cache, and count each link's load."""
    question, library, prediction = predicted.question, predicted.library, predicted.predictions[0]
    collective = prediction.collective
    if prediction.engine != "simpy":
        note = f"engine {prediction.engine} counts no links; add --engine simpy to see them"
        return Links(prediction, None, note)
    with counted() as loads:
        question.bound().time(collective, library.choose(collective), question.engine)
    load = max(loads, key=lambda one: one.time_s, default=None)
    if load is None or not load.links():
        return Links(prediction, load, "no link carries messages")
    slowest = f"the slowest of {len(loads)} kinds of channels, each on separate links"
    return Links(prediction, load, slowest if len(loads) != 1 else "")


def content_of(answer: CollectiveTimes) -> dict[str, Any]:
    """Return the answer for JSON."""
    content: dict[str, Any] = {"inputs": answer.inputs, **answer.totals, "rows": answer.rows}
    return content | ({"no_effect": answer.idle} if answer.idle else {})


def links_content(links: Links, top: int) -> dict[str, Any]:
    """Return the links for JSON."""
    rows = [asdict(one) for one in links.load.links()[:top]] if links.load else None
    return {"size_bytes": links.prediction.collective.nbytes, "note": links.note, "links": rows}


def grid_of(links: Links, top: int) -> console.TextTable:
    """Return the busiest links as a table."""
    titles = [f"busiest links of {named(links.prediction)}", *([links.note] if links.note else [])]
    carrying = links.load.links() if links.load else []
    if len(carrying) > top:
        titles.append(f"{top} of {len(carrying)} links that carry messages; --top sets the number")
    rows = [
        (one.link, one.nbytes, one.busy * 100, one.messages, one.wait_mean_s * 1e6, one.wait_max_s * 1e6)
        for one in carrying[:top]
    ]
    return console.TextTable(HEADS if rows else (), rows, "\n".join(titles))


def draw_links(links: Links, library: Library, path: Path) -> None:
    """Draw the library's topology; color each cable by its busier direction."""
    from ringside.pictures.topology import draw_topology

    if links.load is None:
        raise ValueError(f"{path}: {links.note}")
    if not isinstance(library, Scheduled):
        raise ValueError(
            f"{path}: NCCL's channels have links of their own, which no picture shows; remove it"
        )
    draw_topology(library.graph, path, busy={one.link: one.busy for one in links.load.links()})


SIZE = (("size", "(B)"), ("time", "(us)"), ("algbw", "(GB/s)"), ("busbw", "(GB/s)"))
BAND = (("lo", "(us)"), ("hi", "(us)"))
FACTOR = ("band", "(x)")
WAY = (("algorithm", ""), ("protocol", ""), ("engine", ""))
NCCL_WAY = (("algorithm", ""), ("proto", ""), ("ch", ""))
WEIGHED = (("second", ""), ("by", "(%)"), ("engine", ""))
WORDS = (
    "ch: channels; second: the tuner's second choice, and by how much it takes longer",
    "remaining columns: NCCL's estimate for every algorithm and protocol",
)
FACTOR_WORDS = "band: 80 % of times lie between time / band and time * band"


MOST_LINKS = 10
"""The default number of links that are printed."""


@asks(CollectiveTime)
def command(
    question: CollectiveTime,
    trace: options.Trace = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=options.check_picture,
            help="Draw ranks and links over time: .svg, .png or .pdf.",
        ),
    ] = None,
    animate: options.Animate = None,
    links: Annotated[
        bool, typer.Option("--links", help="Print the busiest links and the waits for them.")
    ] = False,
    top: Annotated[
        int | None, typer.Option(min=1, show_default="10", help="Number of links that --links prints.")
    ] = None,
    plot: options.Plot = None,
    export: options.Export = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict how long a collective takes."""
    if top is not None and not links:
        raise ValueError(f"--top {top} limits the links that --links prints; add --links, or remove it")
    outputs = Outputs(trace=trace, timeline=timeline, animate=animate, plot=plot, export=export, links=links)
    outputs.check(question)
    if animate and question.engine == "auto":
        question = replace(question, engine="simpy")  # libraries with a model keep no messages
    with console.simulating("simulating") as bar:
        answer = question.ask(traced=outputs.traces, on_size=bar.done)
    comments = outputs.write(answer)
    busiest = links_of(answer.first) if links else None
    if plot and answer.disturbed:
        from ringside.pictures.jobs.program import draw_disturbed

        draw_disturbed(f"{named(answer.predictions[0])}, disturbed", answer.disturbed, plot)
    elif plot and busiest:
        draw_links(busiest, answer.first.library, plot)
    elif plot:
        answer.plot(plot)
    _show(answer, comments, busiest, top=top or MOST_LINKS, as_json=json)


def _show(
    answer: CollectiveTimes,
    exported: list[str],
    busiest: Links | None,
    *,
    top: int,
    as_json: bool,
) -> None:
    if as_json:
        links = {"links": links_content(busiest, top)} if busiest else {}
        console.print_json("simulate", content_of(answer) | links)
        return
    rows, question, disturbed = answer.rows, answer.question, answer.disturbed
    is_nccl = "choices_us" in rows[0]
    if is_nccl:
        pairs = list(dict.fromkeys(pair for row in rows for pair in row["choices_us"]))
        has_band = any(row["time_hi_s"] > row["time_lo_s"] for row in rows)
        band = (FACTOR,) if answer.is_measured else BAND if has_band else ()
        heads = [*SIZE, *NCCL_WAY, *band, *WEIGHED]
        heads += [*(BAND if answer.is_measured else ()), *((pair, "(us)") for pair in ("tuner", *pairs))]
        cells = [_weighed(row, pairs, band) for row in rows]
    else:
        band = BAND if answer.is_measured else ()
        heads = [*SIZE, *WAY, *band]
        cells = [(*_cells(row), row["engine"], *_band(row)[: len(band)]) for row in rows]
    if disturbed:  # has one size only
        late = disturbed.columns()
        heads = [*heads[:2], *((name, "(us)") for name in late), *heads[2:]]
        cells = [(*some[:2], *(late_s * 1e6 for late_s in late.values()), *some[2:]) for some in cells]
    if question.nodes:
        heads = [("nodes", ""), *heads]
        cells = [(row["num_nodes"], *some) for row, some in zip(rows, cells, strict=True)]
    console.print_answer(
        answer.headline, console.TextTable(heads, cells), *([grid_of(busiest, top)] if busiest else []),
        rests_on=answer.rests_on, notes=lambda: [*_notes(answer), *exported],
    )  # fmt: skip


def _notes(answer: CollectiveTimes) -> list[console.Comment]:
    """Return the question as understood, the meaning of columns, and who waits for whom."""
    notes: list[console.Comment] = [_inputs(answer), *answer.notes]
    if "choices_us" in answer.rows[0]:
        notes += [*([FACTOR_WORDS] if answer.is_measured else ()), *WORDS]
    return [*notes, *(answer.disturbed.lines() if answer.disturbed else ())]


def _inputs(answer: CollectiveTimes) -> dict[str, Any]:
    """Return the inputs that are worth repeating."""
    left_out = {"placement", "placed", *(one.name for one in (*fields(BySize), *fields(Disturbances)))}
    return {name: value for name, value in answer.inputs.items() if name not in left_out}


def _cells(row: dict[str, Any]) -> tuple[console.Cell, ...]:
    way = row["algorithm"], row["protocol"]
    return (row["size_bytes"], row["time_s"] * 1e6, row["algbw_GBps"], row["busbw_GBps"], *way)


def _band(row: dict[str, Any]) -> tuple[console.Cell, ...]:
    return row["time_lo_s"] * 1e6, row["time_hi_s"] * 1e6


def _weighed(
    row: dict[str, Any], pairs: Sequence[str], band: Sequence[tuple[str, str]]
) -> tuple[console.Cell, ...]:
    """Return a row of NCCL: its choice, ``band``, the second, and its estimate for every pair."""
    taken, times = f"{row['algorithm']}/{row['protocol']}", row["choices_us"]
    others = [pair for pair in times if pair != taken]
    second = min(others, key=times.__getitem__, default="-")
    by = round(100 * (times[second] / row["tuner_us"] - 1)) if others else "-"
    factor = max(row["time_hi_s"] / row["time_s"], row["time_s"] / row["time_lo_s"])
    return (
        *(*_cells(row), row["channels"], *([factor] if FACTOR in band else _band(row)[: len(band)])),
        *(second, by, row["engine"], *(_band(row) if FACTOR in band else ())),
        *(row["tuner_us"], *(times.get(pair, "-") for pair in pairs)),
    )

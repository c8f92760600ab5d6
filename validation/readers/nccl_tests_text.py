"""nccl-tests' text output, of any release, as printed or in a job's log.

A file may hold several runs in sequence. The lines above a table describe it: the ranks, the program,
versions, and the NCCL_* variables that a shell or NCCL printed. Markdown may have removed the ``#`` from its
lines, and a table may have no list of ranks, or a truncated one: then NCCL's ``nranks`` or the bandwidths
give their number. A log that ends within a row is refused; one that ends between rows (a run that died or was
stopped, a table pasted without its footer) counts with its complete rows.

mpirun and srun tag each line with its rank. With NCCL_DEBUG NCCL writes its own messages into the same
stream, even in the middle of a row, which then continues some lines below.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ringside.sim.collective import KINDS, kind_of
from ringside.sim.record import RecordError
from ringside.validation.readers.nccl_tests_run import PROGRAM, BenchmarkRun, RankDevice, nccl_version
from ringside.validation.readers.nccl_tests_table import (
    BenchmarkTable,
    Cells,
    factor_fits,
    fitting,
    header,
    infer_kind,
    ranks_of,
    tells,
)
from ringside.validation.readers.reading import EXPECTED, CutOffError, Reading, kind_at

NETWORKS = {
    "socket": "sockets",
    "efa": "EFA",
    "cxi": "Slingshot",
    "tcp": "sockets",
    "tcpx": "GPUDirect-TCPX",
    "fastrak": "FasTrak",
    "gib": "RoCE",
}
"""Networks by the names of providers and plugins."""

_CARDS = re.compile(r"NET/IB(?:ext\w*)? ?: Using (?P<cards>(?:\[\d+\]\S+ ?)+)")
_CARD = re.compile(r"\[\d+\]\S+?:\d+/(IB|RoCE)\b")
_SPEED = re.compile(r"NET/IB ?: \[\d+\] .*\bspeed=(\d{3,7})\b")
_OFI = re.compile(r"NET/OFI Selected [Pp]rovider is (?P<provider>\w+)")
_USED = re.compile(r"(?:Using network|Initialized NET plugin) (?P<network>\S.*)")
_INSTANCE = re.compile(r"NET/OFI Running on (?P<instance>\w+\.\w+) platform")
_TOPOLOGY = re.compile(r"NCCL_TOPO_FILE set by environment to \S*microsoft/(?P<instance>\w+)-topo\b")
_CLOUDS = {
    "AWS": re.compile(r"NET/OFI Selected [Pp]rovider is efa|\bip-\d+-\d+-\d+-\d+\b"),
    "GCP": re.compile(r"NET/(?:FasTrak|GPUDirectTCPX|gIB)|NCCL_(?:FASTRAK|GPUDIRECTTCPX)_", re.IGNORECASE),
    "Azure": re.compile(r"NCCL_TOPO_FILE(?:=| set by environment to )\S*microsoft/"),
}
CLOUDS = tuple(_CLOUDS)
"""Clouds that are known by what only their instances write."""


@dataclass(slots=True)
class LoggedNetwork:
    """The network as a log describes it; empty and 0 where it does not.

    ``kind`` is the network that NCCL uses. ``cards`` are a node's cards of InfiniBand or RoCE, whichever are
    more: the others carry storage. ``gbps`` is the rate of one in Gb/s. ``instance`` is one of ``cloud``.
    """

    kind: str = ""
    cards: int = 0
    gbps: float = 0.0
    cloud: str = ""
    instance: str = ""

    def hear(self, text: str) -> None:
        """Read a line."""
        if not self.cloud:
            self.cloud = next((name for name, written in _CLOUDS.items() if written.search(text)), "")
        if "NCCL INFO" not in text:
            return
        if match := _CARDS.search(text):
            layers = _CARD.findall(match["cards"])
            more = max(("IB", "RoCE"), key=layers.count)
            if layers.count(more) > self.cards:
                self.cards = layers.count(more)
                self.kind = "InfiniBand" if more == "IB" else more
        if match := _SPEED.search(text):
            self.gbps = max(self.gbps, float(match[1]) / 1e3)
        if match := _OFI.search(text):
            self.kind = NETWORKS.get(match["provider"], self.kind)
        if match := _INSTANCE.search(text) or _TOPOLOGY.search(text):
            self.instance = match["instance"]
        if match := _USED.search(text):
            plugin = re.sub(r"_v\d+$", "", match["network"].lower()).removeprefix("gpudirect")
            self.kind = NETWORKS.get(plugin, self.kind)

    @property
    def facts(self) -> dict[str, str]:
        """What is known, as entries of a record's fingerprint."""
        known = {
            "network": self.kind,
            "cards": str(self.cards or "") if self.kind in ("InfiniBand", "RoCE") else "",
            "card_gbps": f"{self.gbps:g}" if self.gbps and self.cards else "",
            "cloud": self.cloud,
            "instance": self.instance,
        }
        return {name: text for name, text in known.items() if text}


_RANK = re.compile(
    r"(?:#|\b)\s*Rank\s+(?P<rank>\d{1,9})\s+(?:Group\s+(?P<group>\d{1,9})\s+)?(?:Pid\s+\d+\s+)?on\s+(?P<host>\S+)"
    r"\s+device\s+\d+\s+\[[^\]\n]*\]\s*(?P<gpu>[^\n]*)"
)

_TAG = re.compile(r"\s*(?:\[\d+(?:,\d+)?\](?:<std(?:out|err)>:)?\s?|\d+: )")
_FACTS = (
    re.compile(r"nccl-tests version (?P<tests>\S+)(?:.* nccl-library=(?P<library>\d{4,6})\b)?"),
    re.compile(r"Collective test starting: (?P<program>\S+?)(?:_mpi)?(?:\s|$)"),
    re.compile(r"_perf(?:_mpi)?\b.*\s(?:-t|--nthreads)[ =]?(?P<threads>\d{1,4})\b"),
    re.compile(r"_perf(?:_mpi)?\b.*\s(?:-g|--ngpus)[ =]?(?P<gpus>\d{1,4})\b"),
    re.compile(r"\bnThreads?:? (?P<threads>\d{1,4}) nGpus:? (?P<gpus>\d{1,4})\b"),
    re.compile(r"nThreads?:? .*?(?<!warmup )(?<!agg )\biters: (?P<iterations>\d{1,9})\b"),
    re.compile(r"\bNCCL version (?P<nccl>\d+(?:\.\d+)+)"),
    re.compile(r"\bncclCommInitRank.*\bcomm \S+ rank \d+ nranks (?P<named>\d{1,9})\b"),
)
_VARIABLE = re.compile(
    r"(?P<export>\bexport\s+)?\b(?P<name>NCCL_[A-Z0-9_]+)(?:=| set by environment to )"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s'\"]*)"
)
_UNSET = re.compile(r"\bunset\s+(?P<name>NCCL_[A-Z0-9_]+)")
_FOOTER = re.compile(r"\s*#?\s*(?:Out of bounds values|Avg bus bandwidth)")


@dataclass(frozen=True, slots=True)
class _Line:
    """One line: nccl-tests' text, and NCCL's message that interrupted it, empty if none."""

    number: int
    text: str
    message: str


@dataclass(slots=True)
class _Above:
    """The description of the run whose table comes next; a shell's exports outlive the run."""

    facts: dict[str, str] = field(default_factory=dict)
    devices: list[RankDevice] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    network: LoggedNetwork = field(default_factory=LoggedNetwork)

    def hear(self, line: _Line) -> None:
        """Parse a line's description of the run."""
        text = line.text + line.message
        if "test concluded" in text:
            return
        self.network.hear(text)
        rank = _RANK.search(text)
        if rank:
            group = int(rank["group"] or 0)
            self.devices.append(RankDevice(int(rank["rank"]), group, rank["host"], rank["gpu"].strip()))
            return
        program = PROGRAM.search(text)
        if program:
            self.facts["program"] = program[1]
        for pattern in _FACTS:
            match = pattern.search(text)
            if match:
                self.facts |= {key: value for key, value in match.groupdict().items() if value}
        for match in _VARIABLE.finditer(text):
            kept = self.exported if match["export"] else self.variables
            kept[match["name"]] = match["value"].strip("\"',;.)")
        for match in _UNSET.finditer(text):
            self.exported.pop(match["name"], None)

    def run(self, place: str, source: str) -> BenchmarkRun:
        """Return the run whose table begins here; later lines describe the next one."""
        facts = self.facts
        library = facts.get("library")
        run = BenchmarkRun(
            place=place,
            source=source,
            collective=facts.get("program", ""),
            devices=tuple(self.devices),
            threads=int(facts.get("threads", 1)),
            gpus=int(facts.get("gpus", 1)),
            nccl=nccl_version(int(library)) if library else facts.get("nccl", ""),
            tests=facts.get("tests", ""),
            variables=self.exported | self.variables,
            iterations=int(facts.get("iterations", 0)),
            network=self.network.facts,
            named=int(facts.get("named", 0)),
        )
        self.facts, self.devices, self.variables, self.network = {}, [], {}, LoggedNetwork()
        return run


def read_text(text: str, path: Path) -> Reading:
    """Read all rows of all runs in a log."""
    readings = [reading(run, rows, path) for run, rows in runs(text, path)]
    records = tuple(record for part in readings for record in part.records)
    notes = tuple(note for part in readings for note in part.notes)
    return Reading(records, sum(part.skipped for part in readings), notes)


def runs(text: str, path: Path) -> list[tuple[BenchmarkRun, list[Cells]]]:
    """Return each run of a log with its rows, which are empty where it died before the first."""
    above = _Above()
    tables: list[tuple[BenchmarkRun, BenchmarkTable]] = []
    table = None
    for line in _lines(text):
        place = f"{path}, line {line.number}"
        columns = header(line.text)
        if columns or _FOOTER.match(line.text):
            if table:
                table.close()
            table = BenchmarkTable(place, columns) if columns else None
            if table:
                tables.append((above.run(place, f"nccl-tests ({path.name})"), table))
        elif table is None or not table.take(place, line.text, bool(line.message)):
            above.hear(line)
    if table:
        table.close()
    if not tables:
        raise CutOffError(f"{path}: no table of measurements in {len(text.splitlines())} lines; {EXPECTED}")
    return [(run, table.rows) for run, table in tables]


def reading(run: BenchmarkRun, rows: list[Cells], path: Path) -> Reading:
    """Return a run's rows as records; collective and ranks are inferred where the log omits them."""
    if not rows:
        raise RecordError(f"{run.place}: no row below this header; expected one or more: truncated log?")

    each, listed = run.per_process, run.world()[0] if run.devices else 0
    cut = listed > 0 and not any(factor_fits(kind, rows, listed) for kind in KINDS)

    def fits(kind: str) -> bool:
        return factor_fits(kind, rows, listed) if listed and not cut else bool(fitting(rows, kind, each))

    if not run.collective:
        run = replace(run, collective=infer_kind(rows, fits, run.place, path.stem))
    if not run.devices:
        run = replace(run, ranks=ranks_of(rows, kind_of(run.collective), each, run.place))
    elif not run.is_split:
        run = replace(run, ranks=_all_ranks(run, rows))
    return run.reading(cells.row() for cells in rows)


def _all_ranks(run: BenchmarkRun, rows: list[Cells]) -> int:
    """Return the number of ranks where their list may be truncated: from NCCL's lines, or bandwidths."""
    listed, _ = run.world()
    kind = kind_at(run.place, run.collective)
    if run.named > listed:
        return run.named
    if factor_fits(kind, rows, listed) and not (run.has_gaps and tells(kind)):
        return listed
    counts = [count for count in fitting(rows, kind, run.per_process) if count >= listed]
    if len(counts) > 1:
        raise RecordError(
            f"{run.place}: {len(run.devices)} ranks are listed above, and bandwidths of {kind} fit "
            f"{counts[0]} to {counts[-1]}: the list is truncated; list all, or keep NCCL's line with nranks"
        )
    return counts[0] if counts else listed


def hosts_of(text: str) -> list[str]:
    """Return the hosts in a log's rank lines, with or without a table below them."""
    return sorted({match["host"] for match in _RANK.finditer(text)})


def _lines(text: str) -> Iterator[_Line]:
    """Yield the lines of a log, from 1."""
    # a message follows a row's last number without a gap, and a host name may begin with a digit
    hosts = sorted({match["host"] for match in _RANK.finditer(text)}, key=len, reverse=True)
    stamp, host = r"(?:\[[-\d: .]+\] )?", "|".join(map(re.escape, hosts))
    message = re.compile(rf"{stamp}(?:{host}):\d+:\d+ \[\d+\] NCCL ")
    for number, raw in enumerate(text.splitlines(), start=1):
        tag = _TAG.match(raw)
        line = raw[tag.end() :] if tag else raw
        match = message.search(line)
        end = match.start() if match else len(line)
        yield _Line(number, line[:end], line[end:])

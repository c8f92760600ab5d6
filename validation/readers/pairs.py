"""Measurements between every two nodes of a cluster: nccl-tests logs, one or more per pair, or a table.

A log's rank lines name its two nodes; without them, the last two parts of its name do
(``nccl_N2_G4_node-07_node-12.log``). A table is CSV with the columns node_a, node_b, size_bytes and either
time_us or bandwidth_GBps; collective and gpus_per_node are optional. Where a file does not give the GPUs per
node, it is half of the given ranks.
"""

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ringside.sim.collective import kind_of
from ringside.sim.record import RecordError
from ringside.validation.readers import json_of, text_of
from ringside.validation.readers.nccl_tests_json import run_of
from ringside.validation.readers.nccl_tests_run import BenchmarkRun, RankDevice
from ringside.validation.readers.nccl_tests_text import hosts_of, reading, runs
from ringside.validation.readers.reading import CutOffError, Reading

_NEEDED = ("node_a", "node_b", "size_bytes")
_MEASURED = ("time_us", "bandwidth_GBps")
_ENDINGS = (".log", ".txt", ".out", ".json", ".csv")


@dataclass(frozen=True, slots=True)
class Pair:
    """The time of one collective over two nodes with the same number of GPUs each."""

    nodes: tuple[str, str]
    collective: str
    gpus_per_node: int
    nbytes: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Pairs:
    """The measurements, and the runs without a row: their nodes, if known, and their file."""

    measured: tuple[Pair, ...]
    failed: tuple[tuple[tuple[str, ...], str], ...] = ()


def read_pairs(files: Sequence[Path], ranks: int = 2) -> Pairs:
    """Read the pairs in all files, and in the logs of folders; raise `RecordError` if there are none.

    A log that ends before its rows is a failed run, which is evidence too. ``ranks`` are a run's, on both
    nodes together, for files that do not give them.
    """
    if ranks < 2 or ranks % 2:
        raise ValueError(
            f"--ranks {ranks}: half of them on each of two nodes; write 2, or twice the GPUs per node"
        )
    measured: list[Pair] = []
    failed: list[tuple[tuple[str, ...], str]] = []
    ended: CutOffError | None = None
    for path in (file for given in files for file in _files(given)):
        try:
            pairs = _read(path, ranks // 2)
        except CutOffError as error:
            ended = ended or error
            failed.append((_begun_on(path), str(path)))
            continue
        measured += pairs.measured
        failed += pairs.failed
    if not measured:
        raise ended or RecordError(
            "the given files contain no pair; expected nccl-tests logs of two nodes each"
        )
    return Pairs(tuple(measured), tuple(failed))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _ENDINGS)
    if not files:
        raise RecordError(
            f"{path}: no file with the ending {', '.join(_ENDINGS)}; expected the logs of all pairs"
        )
    return files


def _read(path: Path, each: int) -> Pairs:
    """Read one file; ``each`` is the default number of GPUs per node."""
    text = text_of(path)
    if text.partition("\n")[0].replace(" ", "").split(",")[:2] == ["node_a", "node_b"]:
        return Pairs(tuple(_table(text, path, each)))
    if text.lstrip().startswith("{"):
        run, rows = run_of(json_of(text, path), path)
        return _pairs(run, run.reading(rows))
    measured: list[Pair] = []
    failed: list[tuple[tuple[str, ...], str]] = []
    for run, cells in runs(text, path):
        named = run if run.devices else replace(run, devices=_by_name(path, each))
        if cells:
            measured += _pairs(named, reading(named, cells, path)).measured
        else:
            failed.append((_nodes(named), str(path)))
    return Pairs(tuple(measured), tuple(failed))


def _begun_on(path: Path) -> tuple[str, ...]:
    """Return the nodes of a truncated log's run, by its rank lines or its name; none if unknown."""
    hosts = hosts_of(path.read_bytes().decode("utf-8", "replace"))
    if len(hosts) == 2:
        return tuple(hosts)
    try:
        return tuple(sorted({device.host for device in _by_name(path, 1)}))
    except RecordError:
        return ()


def _pairs(run: BenchmarkRun, reading: Reading) -> Pairs:
    nodes = _nodes(run)
    return Pairs(tuple(Pair(nodes, r.collective, r.ranks // 2, r.nbytes, r.time_s) for r in reading.records))


def _nodes(run: BenchmarkRun) -> tuple[str, str]:
    hosts = sorted({device.host for device in run.devices})
    if len(hosts) != 2:
        raise RecordError(f"{run.place}: a run on {len(hosts)} nodes; expected two nodes, one pair per run")
    return hosts[0], hosts[1]


def _by_name(path: Path, each: int) -> tuple[RankDevice, ...]:
    """Return the ranks by a file's name: two nodes, and ``G4`` for four GPUs on each, else ``each``."""
    parts = path.stem.split("_")
    if len(parts) < 2 or parts[-1] == parts[-2]:
        raise RecordError(
            f"{path}: neither rank lines nor the name say which two nodes these are; "
            "expected a name that ends in both, such as nccl_G4_node-07_node-12.log"
        )
    each = next((int(word[1:]) for word in parts[:-2] if re.fullmatch(r"G[1-9]\d{0,3}", word)), each)
    return tuple(RankDevice(rank, 0, parts[-2 + rank // each], "") for rank in range(2 * each))


def _table(text: str, path: Path, each: int) -> list[Pair]:
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    columns = rows.fieldnames or []
    given = [name for name in _MEASURED if name in columns]
    if not set(_NEEDED) <= set(columns) or len(given) != 1:
        raise RecordError(
            f"{path}, line 1: columns {', '.join(columns)}; expected {', '.join(_NEEDED)}, "
            f"and one of {' and '.join(_MEASURED)}"
        )
    return [_row(row, given[0], each, f"{path}, line {number}") for number, row in enumerate(rows, start=2)]


def _row(row: dict[str, str | None], measured: str, each: int, place: str) -> Pair:
    a, b = (row["node_a"] or "").strip(), (row["node_b"] or "").strip()
    if not a or not b or a == b:
        raise RecordError(f"{place}: nodes {a!r} and {b!r}; expected two different names")
    try:
        nbytes, gpus = int(row["size_bytes"] or ""), int(row.get("gpus_per_node") or each)
        value = float(row[measured] or "")
        kind = kind_of(row.get("collective") or "sendrecv")
    except ValueError as error:
        raise RecordError(f"{place}: {error}") from None
    if not (0 < value < math.inf and nbytes > 0 and gpus > 0):
        raise RecordError(f"{place}: {measured} {value}, {nbytes} bytes, {gpus} GPUs; expected more than 0")
    seconds = value / 1e6 if measured == "time_us" else nbytes / (value * 1e9)
    return Pair((min(a, b), max(a, b)), kind, gpus, nbytes, seconds)

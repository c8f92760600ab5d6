"""Files of faults: JSON or CSV, as `docs/goodput.md` describes them, and published traces of events."""

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ringside.sim.faults.history import FaultHistory, FaultsError, NodeFault
from ringside.sim.faults.law import DAY_S
from ringside.topologies.disk import regular
from ringside.topologies.units import shown

COLUMNS = ("node", "start", "end", "kind")
_ADVICE = 'write JSON {"nodes": 400, "faults": [{"node", "start", "end", "kind"}]} or CSV node,start,end,kind'
_OPEN = (None, "")


def read_faults(path: str | Path, nodes: int | None = None) -> FaultHistory:
    """Read a record of faults; ``nodes`` is the number of all nodes, in place of the file's.

    Raise FaultsError for a file that holds none.
    """
    path = Path(path)
    try:
        text = regular(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FaultsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FaultsError(f"{path} is not text; {_ADVICE}") from None
    try:
        return _history(_json(text) if text.lstrip().startswith("{") else _csv(text), nodes)
    except FaultsError as error:
        raise FaultsError(f"{path}: {error}") from None


def _json(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise FaultsError(f"not JSON; {_ADVICE}") from None
    if isinstance(content.get("events"), list):
        return {**content, "faults": _of_events(content["events"])}
    if not isinstance(content.get("faults"), list):
        raise FaultsError(f"no list of faults; {_ADVICE}")
    return dict(content)


def _csv(text: str) -> dict[str, Any]:
    rows = csv.DictReader(io.StringIO(text))
    if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
        raise FaultsError(f"no column {missing[0]!r}; {_ADVICE}")
    try:
        return {"faults": list(rows)}
    except csv.Error as error:
        raise FaultsError(f"{error}; {_ADVICE}") from None


def _history(content: Mapping[str, Any], nodes: int | None) -> FaultHistory:
    faults = tuple(_fault(row, place) for place, row in enumerate(content["faults"], 1))
    moments = [moment for one in faults for moment in (one.begin_s, one.end_s) if moment is not None]
    if not moments:
        raise FaultsError(f"no fault; {_ADVICE}")
    count = content.get("nodes") if nodes is None else nodes
    if isinstance(count, bool) or not isinstance(count, int):
        raise FaultsError('the number of all nodes is missing; write "nodes": 400 in JSON, or `watched` 400')
    begin_s, end_s = (
        extreme if content.get(name) in _OPEN else _moment(content[name], name)
        for name, extreme in (("start", min(moments)), ("end", max(moments)))
    )
    return FaultHistory(
        nodes=count, begin_s=begin_s, end_s=end_s, faults=faults, source=str(content.get("source") or "")
    )


def _fault(row: Any, place: int) -> NodeFault:
    if not isinstance(row, Mapping) or row.get("node") in _OPEN:
        raise FaultsError(f"fault {place} has no node; {_ADVICE}")
    begin_s, end_s = (
        None if row.get(name) in _OPEN else _moment(row[name], f"{name} of fault {place}")
        for name in ("start", "end")
    )
    return NodeFault(node=str(row["node"]), begin_s=begin_s, end_s=end_s, kind=str(row.get("kind") or "any"))


def _moment(value: Any, what: str) -> float:
    """Return seconds of a number of days, or of a date with its time, UTC where it has no zone."""
    moment = math.nan
    try:
        moment = float(value) * DAY_S
    except (TypeError, ValueError, OverflowError):
        if isinstance(value, str):
            moment = _of_date(value)
    if not math.isfinite(moment) or isinstance(value, bool):
        raise FaultsError(f"{what}: {shown(value)}; write days, such as 3.25, or 2026-11-26T20:00:00")
    return moment


def _of_date(text: str) -> float:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _of_events(events: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the faults of a trace of events, begins and ends of a node and a kind, as InfiniteHBD's."""
    faults: list[dict[str, Any]] = []
    begun: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for place, event in enumerate(events, 1):
        if not isinstance(event, Mapping) or event.get("event_type") not in ("fault_start", "fault_end"):
            raise FaultsError(f"event {place} is neither fault_start nor fault_end; {_ADVICE}")
        kind = event.get("fault_type")
        name = str(kind.get("Class") or "any") if isinstance(kind, Mapping) else str(kind or "any")
        node = str(event.get("node_id") or "")
        own = begun[node, json.dumps(kind, sort_keys=True)]
        if event["event_type"] == "fault_start":
            own.append({"node": node, "start": event.get("event_time"), "end": None, "kind": name})
            faults.append(own[-1])
        elif own:
            own.pop(0)["end"] = event.get("event_time")
        else:
            faults.append({"node": node, "start": None, "end": event.get("event_time"), "kind": name})
    return faults

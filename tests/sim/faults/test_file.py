"""Files of faults: JSON, CSV and traces of events give the same record; others are refused."""

import json

import pytest

from ringside.sim.faults.file import read_faults
from ringside.sim.faults.history import FaultsError
from ringside.sim.faults.law import DAY_S

ROWS = [("a", 1.5, 2, "GPU"), ("b", 3, None, "NIC"), ("a", None, 0.5, "GPU")]


def test_json_and_csv_are_read_alike(written):
    rows = [dict(zip(("node", "start", "end", "kind"), row, strict=True)) for row in ROWS]
    content = {"nodes": 4, "start": 0, "end": 10, "source": "us", "faults": rows}
    of_json = read_faults(written(json.dumps(content), "a.json"))
    lines = ["node,start,end,kind", *(",".join("" if x is None else str(x) for x in row) for row in ROWS)]
    of_csv = read_faults(written("\n".join(lines), "a.csv"), 4)
    assert of_csv.faults == of_json.faults
    assert (of_json.nodes, of_json.source, of_json.span_s) == (4, "us", 10 * DAY_S)
    assert of_csv.span_s == 2.5 * DAY_S
    assert read_faults(written(json.dumps(content)), 7).nodes == 7


def test_dates_are_moments_too(written):
    text = (
        "node,start,end,kind\na,2026-01-01,2026-01-02T12:00:00,x\nb,2026-01-01T01:00:00+01:00,2026-01-03,x\n"
    )
    first, second = read_faults(written(text), 2).faults
    assert first.end_s - first.begin_s == 1.5 * DAY_S
    assert second.begin_s == first.begin_s


def test_a_trace_of_events_is_a_record(written):
    def event(node, day, what, name="Fan"):
        return {"node_id": node, "event_time": day, "event_type": what, "fault_type": {"Class": name}}

    events = [
        event("a", 1, "fault_start"), event("a", 2, "fault_end"), event("b", 2, "fault_end"),
        event("a", 3, "fault_start", "GPU"),
    ]  # fmt: skip
    history = read_faults(written(json.dumps({"events": events})), 5)
    days = [tuple(s and s / DAY_S for s in (one.begin_s, one.end_s)) for one in history.faults]
    assert days == [(1, 2), (None, 2), (3, None)]
    assert [one.kind for one in history.faults] == ["Fan", "Fan", "GPU"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'node'"),
        ("{", "not JSON; write JSON"),
        ('{"faults": 3}', "no list of faults"),
        ('{"nodes": 4, "faults": []}', "no fault; write"),
        ('{"faults": [{"node": "a", "start": 1, "end": 2}]}', 'missing; write "nodes": 400 in JSON'),
        ('{"nodes": true, "faults": [{"node": "a", "start": 1}]}', "number of all nodes is missing"),
        ('{"nodes": 4, "faults": [{"start": 1}]}', "fault 1 has no node"),
        ('{"nodes": 4, "faults": [3]}', "fault 1 has no node"),
        ('{"nodes": 4, "faults": [{"node": "a", "start": "soon"}]}', "start of fault 1: 'soon'; write days"),
        ('{"nodes": 4, "faults": [{"node": "a", "start": NaN}]}', "start of fault 1: nan; write days"),
        ('{"nodes": 4, "faults": [{"node": "a", "start": [1]}]}', "start of fault 1: a list; write days"),
        (
            '{"nodes": 4, "faults": [{"node": "a", "start": 3, "end": 1}]}',
            "is not in order within the record",
        ),
        ('{"nodes": 0, "faults": [{"node": "a", "start": 1, "end": 3}]}', "0 nodes, but 1 had faults"),
        (
            '{"nodes": 4, "start": 5, "end": 5, "faults": [{"node": "a", "start": 5}]}',
            "the record ends before",
        ),
        ('{"nodes": 4, "events": [{"event_type": "x"}]}', "event 1 is neither fault_start nor fault_end"),
    ],
)
def test_other_files_are_refused(written, text, message):
    with pytest.raises(FaultsError, match=message):
        read_faults(written(text))

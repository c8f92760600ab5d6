import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.engine.timeline import Timeline
from ringside.topologies import Routes, Topology, dgx_a100, dgx_h100, make, star

PAIRS = [(algorithm, kind) for algorithm, builds in ALGORITHMS.items() for kind in builds]
GRAPHS = [star(8), dgx_h100(), dgx_a100(2), make("leaf-spine", 2, {"oversubscription": "4"})]
SEGMENTED = make("leaf-spine", 2, {"oversubscription": "4"})
SEGMENTED.graph.update(segment=4096, window=16384)
GRAPHS.append(SEGMENTED)
ULP = 1e-6
"""Microseconds: what a double cannot tell apart in a trace of seconds."""


def traced(graph: Topology, algorithm: str, kind: str = "all_reduce", nbytes: int = 300_001) -> Timeline:
    plan = schedule(algorithm, Collective(kind, 8, nbytes))
    timeline = simulate(plan, graph, 1e-11, traced=True).timeline
    assert timeline is not None
    return timeline


def tracks(trace: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            found.setdefault((event["pid"], event["tid"]), []).append(event)
    return found


def names(trace: dict[str, Any]) -> dict[tuple[int, int], str]:
    named = [event for event in trace["traceEvents"] if event["name"] == "thread_name"]
    found = {(event["pid"], event["tid"]): event["args"]["name"] for event in named}
    assert len(found) == len(named)
    return found


@given(st.sampled_from(GRAPHS), st.sampled_from(PAIRS), st.sampled_from([0, 1, 1000, 300_001]))
@settings(max_examples=60)
def test_no_two_spans_of_a_track_overlap(graph: Topology, pair: tuple[str, str], nbytes: int) -> None:
    trace = traced(graph, *pair, nbytes=nbytes).chrome_trace()
    for spans in tracks(trace).values():
        for before, after in pairwise(sorted(spans, key=lambda span: (span["ts"], span["dur"]))):
            assert before["ts"] + before["dur"] <= after["ts"] + ULP
            assert before["dur"] >= 0


@pytest.mark.parametrize("algorithm", ["ring", "double_binary_tree"])
def test_every_rank_and_every_link_in_use_has_one_named_track(algorithm: str) -> None:
    timeline = traced(star(9), algorithm)
    trace = timeline.chrome_trace()
    named = names(trace)
    used = {
        f"{a} -> {b}" for sent in timeline.transfers for a, b in Routes(star(9)).route(sent.src, sent.dst)
    }
    assert [name for (process, _), name in named.items() if process == 0] == [f"rank {r}" for r in range(8)]
    assert sorted(name for (process, _), name in named.items() if process == 1) == sorted(used)
    assert set(tracks(trace)) == set(named)
    processes = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert processes == ["ranks", "links"]


def test_a_rank_that_sends_on_two_ports_at_once_gets_a_second_track() -> None:
    plan = schedule("direct", Collective("all_to_all", 16, 1 << 20))
    timeline = simulate(plan, dgx_h100(2), traced=True).timeline
    assert timeline is not None
    assert "rank 3, port 1" in names(timeline.chrome_trace()).values()


def test_a_link_on_which_messages_take_turns_gets_a_track_for_each() -> None:
    trace = traced(SEGMENTED, "direct").chrome_trace()
    assert "leaf0 -> spine, lane 1" in names(trace).values()


def test_transfers_are_all_there_with_their_times_in_order() -> None:
    plan = schedule("double_binary_tree", Collective("all_reduce", 8, 300_001))
    run = simulate(plan, star(8), traced=True)
    assert run.timeline is not None
    transfers = run.timeline.transfers
    assert len(transfers) == run.num_transfers == sum(plan.connections().values())
    moved: dict[tuple[int, int], int] = {}
    for sent in transfers:
        assert 0 <= sent.queued <= sent.sent <= sent.left <= sent.delivered <= run.time_s
        assert sent.left - sent.sent == pytest.approx(sent.nbytes / 25e9)
        assert sent.delivered >= sent.left + 5e-6 * (1 - 1e-9)
        moved[sent.src, sent.dst] = moved.get((sent.src, sent.dst), 0) + sent.nbytes
    assert moved == plan.traffic()
    assert run.time_s == max(sent.delivered for sent in transfers)


def test_links_are_busy_for_what_they_carry() -> None:
    timeline = traced(star(8), "ring", nbytes=8_000_000)
    busy = [0.0] * len(timeline.link_names)
    for span in timeline.links:
        busy[span.link] += span.end - span.start
        assert timeline.transfers[span.transfer].nbytes == 1_000_000
    assert busy == pytest.approx([14 * 1e6 / 25e9] * 16)


def test_the_text_is_what_a_viewer_reads() -> None:
    timeline = traced(star(8), "ring")
    trace = json.loads(timeline.dumps())
    assert trace == timeline.chrome_trace()
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X"}
    span = next(event for event in trace["traceEvents"] if event["ph"] == "X")
    assert set(span) >= {"ph", "pid", "tid", "ts", "dur", "name"}
    assert span["name"] == "chunk 0: rank 0 to 1, sum"
    end = max(e["args"]["delivered_us"] for e in trace["traceEvents"] if "delivered_us" in e.get("args", {}))
    assert end == pytest.approx(max(sent.delivered for sent in timeline.transfers) * 1e6)


def test_a_transfer_of_several_chunks_says_so() -> None:
    timeline = traced(star(8), "halving_doubling")
    assert timeline.transfers[0].label == "chunks 4-7: rank 0 to 4, sum"

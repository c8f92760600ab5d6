"""Pages on which chunks and micro-batches move: they are the simulation, and need no other file."""

import json
import re

import pytest

from ringside import CollectiveTime, StepTime
from ringside.pictures.animation import pipeline
from ringside.pictures.animation.collective import animated
from ringside.pictures.animation.places import HEIGHT, WIDTH, places_of
from ringside.pictures.animation.replay import replay
from ringside.sim.algorithms import ALGORITHMS
from ringside.topologies.units import format_duration

COMPARES = "simulate all_reduce --cluster star:16 --size 1M --algorithm ring,tree,double_binary_tree"
PIPELINE = "train --model llama3-8b:2048 --cluster dgx-h100:1 --tp 2 --pp 4 --batch 8"


def answered(kind, algorithm, cluster="star:6", **options):
    """Return a traced prediction, and the blocks of its chunks."""
    question = CollectiveTime(collective=kind, cluster=cluster, size="96K", algorithm=algorithm, **options)
    answer = question.ask(traced=True)
    (prediction,), library = answer.predictions, answer.first.library
    plan = library.schedule(prediction.collective, library.choose(prediction.collective))
    return answer, prediction, plan


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [(name, kind) for name, builds in ALGORITHMS.items() for kind in builds
     if name not in ("recursive_halving", "halving_doubling", "ring_2d", "hierarchical")],
)  # fmt: skip
def test_every_rank_ends_with_its_whole_result(algorithm, kind):
    _, prediction, plan = answered(kind, algorithm)
    result = replay(prediction.timeline, prediction.collective, plan.chunks.block)
    for rank in range(6):
        if len(prediction.collective.blocks_after(rank)):
            assert result.shares[rank][-1][2] == 1
    for own in result.shares:
        assert own == sorted(own)
        assert all(0 <= complete <= gathered <= 1 for _, gathered, complete in own)
    moved = {}
    for (src, _), nbytes in plan.traffic().items():
        moved[src] = moved.get(src, 0) + nbytes
    assert result.sent[:6] == [moved.get(rank, 0) for rank in range(6)]


@pytest.mark.parametrize(("algorithm", "chain"), [("ring", 30), ("tree", 8), ("direct", 2)])
def test_the_chain_is_the_longest_one(algorithm, chain):
    _, prediction, plan = answered("all_reduce", algorithm, "star:16")
    assert replay(prediction.timeline, prediction.collective, plan.chunks.block).chain == chain


def test_a_double_tree_shows_each_rank_twice_and_a_ring_once_in_its_order():
    _, prediction, _ = answered("all_reduce", "double_binary_tree", "star:16")
    places = places_of(prediction.timeline)
    assert len(places.nodes) == 32
    assert len(places.roots) == 2
    points = [point for _, point in places.nodes]
    assert len(set(points)) == 32
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points)
    upper, lower = ({end for channel, end in places.node_of if channel == number} for number in (0, 1))
    assert upper == lower == set(range(16))
    _, prediction, _ = answered("all_reduce", "ring", "star:16")
    assert len(places_of(prediction.timeline).nodes) == 16


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_a_channel_of_nccl_ends_complete(kind):
    answer = CollectiveTime(collective=kind, cluster="dgx-h100:2", size="1M", engine="simpy").ask(traced=True)
    (panel,) = animated(answer).panels
    shares = [own[-1][2] for own in panel.scene["shares"][: panel.scene["ranks"]]]
    assert shares == [1] * 16


def test_the_page_has_the_commands_figures_and_needs_no_other_file(json_of, tmp_path):
    answer = json_of(f"{COMPARES} --animate page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(page) < 3_000_000
    assert not re.search(r"(?:src|href)=\"(?!data:)|https?://(?!www\.w3\.org/2000/svg)|@import|url\(", page)
    (fastest,) = answer["rows"]
    assert f"double_binary_tree takes {format_duration(fastest['time_s'], 4)}" in page
    scenes = json.loads(re.search(r'id="scenes">(.*?)</script>', page)[1])
    assert [len(one["moves"]) for one in scenes] == [480, 480, 720]
    assert scenes[2]["end"] == pytest.approx(fastest["time_s"] * 1e9, abs=0.1)
    for name in ("ring", "tree", "double_binary_tree"):
        (row,) = json_of(f"simulate all_reduce --cluster star:16 --size 1M --algorithm {name}")["rows"]
        assert re.search(rf"<td>{name}</td><td>{format_duration(row['time_s'], 4)}</td>", page)
    assert "ring becomes faster than double_binary_tree from about 13 MiB on" in page


def test_the_largest_page_is_below_three_megabytes(printed, tmp_path):
    printed(f"{COMPARES.replace('1M', '64M')} --animate page.html")
    assert (tmp_path / "page.html").stat().st_size < 3_000_000


def test_a_library_with_a_model_is_simulated(printed, tmp_path):
    one = "simulate all_reduce --cluster dgx-h100:2 --size 1M"
    assert printed(f"{one} --animate page.html") == printed(f"{one} --engine simpy")
    assert "<html" in (tmp_path / "page.html").read_text()


def test_what_cannot_be_animated_is_refused(refused):
    one = "simulate all_reduce --animate page.html --cluster"
    assert "shows one size" in refused(f"{one} star:8")
    assert "which engine fast does not keep" in refused(f"{one} star:8 --size 1M --engine fast")
    assert "not 21,780; write a smaller" in refused(f"{one} star:16 --size 1G --algorithm double_binary_tree")
    assert "shows up to 64 ranks, not 65" in refused(f"{one} star:65 --size 1M --algorithm direct")
    assert "nothing is sent" in refused(f"{one} star:1 --size 1M")
    assert "name that ends in .html" in refused(
        "simulate all_reduce --animate a.png --cluster star:8 --size 1M"
    )
    ddp = "train --model resnet50 --cluster dgx-a100:1 --animate page.html"
    assert "this has none; add for example --pp 4" in refused(ddp)
    assert "this has one stage; add --pp 4" in refused(f"{ddp} --strategy fsdp")


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved1f1b", "zbv"])
def test_a_pipeline_has_a_box_for_each_pass_of_each_micro_batch(schedule):
    question = StepTime(model="llama3-8b:2048", cluster="dgx-h100:1", tp=2, pp=4, batch=8, schedule=schedule)
    step = question.ask().step
    boxes = [
        box for row, stage in enumerate(step.stages)
        for box in pipeline.boxes_of(row, step.timeline.spans[stage.rank])
    ]  # fmt: skip
    parts = {box.part for box in boxes if box.part is not None}
    forward = [(box.part, box.batch) for box in boxes if box.kind == "forward"]
    assert sorted(forward) == [(part, batch) for part in sorted(parts) for batch in range(8)]
    assert all(box.begin < box.end <= step.step_s for box in boxes)
    assert all(sent < used for _, _, sent, used in pipeline.messages_of(boxes))


def test_the_page_of_a_pipeline_has_the_steps_figures(json_of, tmp_path):
    totals = json_of(f"{PIPELINE} --animate page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"A step takes {format_duration(totals['step_s'], 4)}" in page
    assert f"{totals['bubble_share']:.1%}" in page

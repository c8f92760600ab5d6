"""Pictures: their lanes, their legends, and texts without overlap."""

import json
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.text import Text

from ringside.pictures import style, topology
from ringside.pictures.collectives import curves, picks, timeline
from ringside.pictures.collectives.curves import Point, crossings
from ringside.pictures.jobs import pipeline, program, training
from ringside.pictures.measured import validation
from ringside.pictures.style import occupied, prevailing
from ringside.sim.collective import Collective
from tests.made_up import CELL

LOG = Path(__file__).parents[2] / "validation/data/v2.13_two_nodes.log"

PAGE = 8.3 / 830
"""Inches of a README's pixel."""

DRAWING = (curves, picks, pipeline, program, timeline, topology, training, validation)
"""Modules that draw."""

TREE = "simulate all_reduce --cluster star:8 --algorithm double_binary_tree --size 1M"


@pytest.fixture
def draw(printed, monkeypatch):
    """Run a command and return its figure, after checking that all texts are on the page."""
    drawn = []

    def keep(figure, path):
        style.save(figure, path)
        with mpl.rc_context(fname=style.STYLE):
            figure.draw_without_rendering()
        drawn.append(figure)

    for module in DRAWING:
        monkeypatch.setattr(module, "save", keep)

    def run(words):
        printed(*words.split(), "--json")
        return drawn.pop()

    return run


def texts(figure):
    """Return the visible texts; ticks beyond an axis' ends are not drawn."""
    beyond = {
        tick.label1
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    found = (text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip())
    return [text for text in found if text not in beyond]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def overlapping(figure):
    boxes = [(text.get_text(), text.get_window_extent().padded(-1)) for text in texts(figure)]
    return [(one, other) for (one, a), (other, b) in combinations(boxes, 2) if a.overlaps(b)]


def rows(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


DRAWN = [
    f"{TREE} --timeline t.png",
    "simulate all_gather --cluster star:20 --algorithm ring --size 1M --timeline t.png",
    "simulate all_reduce --cluster dgx-h100:2 --size 16M --engine simpy --timeline t.png",
    "simulate all_reduce --cluster star --nodes 2,4,8 -b 1K -e 16M -f 4 --plot t.png",
    "simulate all_reduce --cluster dgx-h100 --nodes 1,2,4 -b 1K -e 1G -f 4 --plot t.png",
    "simulate all_reduce --cluster dgx-h100:2 --plot t.png",
    "pick all_reduce --cluster dgx-h100 --nodes 1,2,8 -f 4 --plot t.png",
    "pick all_reduce --cluster star --nodes 2,4 -e 64M --plot t.png",
    "topo dgx-h100:4 --plot t.png",
    "train --model resnet50 --cluster dgx-a100:16 --plot t.png",
    "train --model resnet50 --cluster dgx-a100:1 --sweep bucket-cap-mb=1,25,400 --plot t.png",
]


@pytest.mark.parametrize("words", DRAWN)
def test_no_word_stands_on_another_and_a_page_holds_the_picture(draw, words):
    figure = draw(words)
    assert overlapping(figure) == []
    assert figure.get_figwidth() <= 10.5
    smallest = min(text.get_fontsize() for text in texts(figure))
    assert smallest * min(1.0, 830 * PAGE / figure.get_figwidth()) >= 4.7


def test_a_timeline_has_a_row_for_each_rank_and_each_link(draw):
    figure = draw(f"{TREE} --timeline t.png")
    ranks, links = figure.axes
    assert rows(ranks) == [f"rank {rank}" for rank in range(8)]
    ways = [way for rank in range(8) for way in (f"gpu{rank} -> switch", f"switch -> gpu{rank}")]
    assert sorted(rows(links)) == sorted(ways)
    assert legend(figure) == [
        *(f"channel {channel}, {how} on arrival" for channel in (0, 1) for how in ("added", "copied")),
        "idle",
    ]
    assert "114.4 us" in figure.get_suptitle()
    assert "a bar is a message" in figure.get_suptitle()


def test_a_timelines_bars_are_the_traces_events(draw, tmp_path):
    figure = draw(f"{TREE} --timeline t.png --trace t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    for axes, process, lanes in zip(figure.axes, (0, 1), (2, 1), strict=True):
        told = sum(event["dur"] for event in events if event["ph"] == "X" and event["pid"] == process)
        bars = [bar for bar in axes.findobj(PolyCollection) if bar.get_linewidth()[0]]
        drawn = sum(path.get_extents().width for bar in bars for path in bar.get_paths())
        assert drawn * 1e6 == pytest.approx(lanes * told, rel=1e-6)


def test_a_long_timeline_is_summed_up_and_says_so(draw):
    figure = draw("simulate all_reduce --cluster star:20 --algorithm ring --size 1M --timeline t.png")
    title = " ".join(figure.get_suptitle().split())
    assert "the first and last 8 of 20 ranks" in title
    assert "the 24 busiest of 40 links" in title
    assert len(rows(figure.axes[0])) == 16
    figure = draw("simulate all_reduce --cluster star:8 --algorithm tree --size 64M --timeline t.png")
    assert "a bar's height is its lane's busy share" in " ".join(figure.get_suptitle().split())
    assert sum(map(len, (axes.collections for axes in figure.axes))) < 100


def test_what_only_copies_is_coloured_by_its_chunks(draw):
    figure = draw("simulate all_gather --cluster star:8 --algorithm ring --size 1M --timeline t.svg")
    assert legend(figure) == [f"first chunk {first} to {first + 1}" for first in (0, 2, 4, 6)] + ["idle"]


def test_a_timeline_of_one_of_nccls_channels_says_of_which(draw):
    words = (
        "simulate all_reduce --cluster dgx-h100:2 --algorithm ring --size 16M --engine simpy --timeline t.pdf"
    )
    title = " ".join(draw(words).get_suptitle().split())
    assert "the slowest of 16 channels" in title
    assert "before the first byte or after the last are not drawn" in title


@pytest.mark.parametrize("cluster", ["star:2 --library mpi", "dgx-h100:2"])
def test_measured_and_closed_times_have_no_timeline(refused, tmp_path, cluster):
    message = refused(f"simulate all_reduce --cluster {cluster} --size 1M --timeline t.png")
    assert "add --engine simpy" in message
    assert list(tmp_path.iterdir()) == []


def test_each_count_of_nodes_has_the_rows_that_it_has_alone(json_of, printed):
    words = "simulate all_reduce -b 1K -e 1M -f 32 --cluster"
    answer = json_of(f"{words} dgx-h100 --nodes 1,2")
    assert answer["inputs"]["nodes"] == [1, 2]
    for count in (1, 2):
        alone = [{"num_nodes": count, **row} for row in json_of(f"{words} dgx-h100:{count}")["rows"]]
        assert [row for row in answer["rows"] if row["num_nodes"] == count] == alone
    lines = printed(f"{words} star --nodes 2,4").splitlines()
    heads = next(line for line in lines if " nodes " in line and "cluster" not in line)
    assert heads.split()[:3] == ["#", "nodes", "size"]


def test_a_setting_is_idle_only_where_it_is_on_every_count(ringside):
    words = "simulate all_reduce --cluster dgx-h100 --size 64M --set nic=10GB/s --nodes".split()
    assert "nic has no effect" in ringside(*words, "1")[1]
    assert "no effect" not in ringside(*words, "1,2")[1]


def test_a_file_has_its_own_ranks(printed, refused):
    printed("simulate all_reduce --cluster star:4 --size 1M --algorithm ring --export ring.xml")
    message = refused("simulate ring.xml --cluster star --nodes 4,8 --size 1M")
    assert "the file has 4 ranks; remove --nodes" in message


def test_curves_over_nodes_name_their_sizes_and_the_algorithms_that_win(draw):
    figure = draw("simulate all_reduce --cluster dgx-h100 --nodes 1,2,4 -b 1K -e 64M -f 256 --plot t.png")
    time, rate = figure.axes
    for axes in (time, rate):
        assert [text.get_text() for text in axes.texts] == ["1 KiB", "256 KiB", "64 MiB"]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "4"]
    assert {"ring", "tree", "four of five runs"} <= set(legend(figure))
    assert "calibrated times" in figure.get_suptitle()


def test_simulated_curves_have_no_band(draw):
    figure = draw("simulate all_reduce --cluster star --nodes 2,4 --size 1M --plot t.png")
    assert legend(figure) == ["double_binary_tree", "direct"]
    assert not any(axes.findobj(PolyCollection) for axes in figure.axes)


def test_named_algorithms_have_a_curve_each_and_a_line_where_the_fastest_changes(draw):
    names = ["ring", "tree", "double_binary_tree"]
    figure = draw(
        f"simulate all_reduce --cluster star:8 --algorithm {','.join(names)} -b 1K -e 64M --plot t.png"
    )
    assert legend(figure) == names
    time, rate = figure.axes
    curves = [line.get_xdata() for line in time.lines if len(line.get_xdata()) > 2]
    assert [len(curve) for curve in curves] == [17] * 3
    assert [text.get_text() for text in rate.texts] == ["double_binary_tree to ring: 3.3 MiB"]


def test_one_algorithm_of_nccl_counts_with_its_fastest_protocol(draw):
    figure = draw(
        "simulate all_reduce --cluster dgx-h100 --nodes 2,4 --size 1M --algorithm ring,tree --plot t.png"
    )
    assert {"ring", "tree"} <= set(legend(figure))


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.floats(1e-6, 1), min_size=5, max_size=5), min_size=2)
)
def test_the_fastest_changes_where_a_crossing_is_and_nowhere_else(times):
    sizes = [4**power for power in range(5)]
    points = [
        Point(None, Collective("all_reduce", 2, size), seconds, (seconds, seconds), name)
        for name, curve in times.items()
        for size, seconds in zip(sizes, curve, strict=True)
    ]
    fastest = [min(times, key=lambda name: times[name][place]) for place in range(5)]
    changes = [(low, high) for low, high in pairwise(range(5)) if fastest[low] != fastest[high]]
    found = crossings(points, over_nodes=False)
    assert [(before, after) for _, before, after in found] == [(fastest[a], fastest[b]) for a, b in changes]
    assert all(sizes[a] <= where <= sizes[b] for (where, *_), (a, b) in zip(found, changes, strict=True))


def test_a_step_names_every_bucket_there_is_room_for_and_every_colour(draw):
    figure = draw("train --model resnet50 --cluster dgx-a100:16 --plot t.png")
    assert {text.get_text().strip() for text in figure.axes[0].texts} >= {"0", "2", "3", "4"}
    assert {"sum of bucket 0, 2, ...", "sum of bucket 1, 3, ...", "other collectives"} <= set(legend(figure))


def test_a_page_of_errors_leads_with_them(draw, monkeypatch, tmp_path):
    cells = [
        replace(CELL, family=family, size_bytes=size, measured_s=size * 1e-7, predicted_s=size * 1.02e-7)
        for family in ("ring", "tree", "double binary tree")
        for size in (1 << 20, 1 << 22)
    ]
    kept = []
    monkeypatch.setattr(validation, "save", lambda figure, _: kept.append(figure))
    validation.draw_validation(cells, tmp_path / "v.png")
    (figure,) = kept
    with mpl.rc_context(fname=style.STYLE):
        figure.draw_without_rendering()
    first, *others = figure.axes
    assert "errors" in first.get_title()
    areas = [axes.bbox.width * axes.bbox.height for axes in figure.axes]
    assert areas[0] == max(areas)
    assert all(first.bbox.y0 > axes.bbox.y1 for axes in others)
    assert overlapping(figure) == []
    validation.draw_validation([replace(cell, family="shared uplinks") for cell in cells], tmp_path / "v.png")
    assert len(kept[-1].axes) == 1


STRETCHES = st.lists(
    st.tuples(st.floats(0, 10, allow_subnormal=False), st.floats(0, 5, allow_subnormal=False)), max_size=12
).map(lambda pairs: [(start, start + length) for start, length in pairs])


@given(STRETCHES, st.integers(1, 40))
def test_columns_hold_what_stretches_last(stretches, columns):
    edges = np.linspace(0, 15, columns + 1)
    expected = [
        sum(max(0.0, min(end, b) - max(start, a)) for start, end in stretches) for a, b in pairwise(edges)
    ]
    assert occupied(stretches, edges) == pytest.approx(expected, abs=1e-9)


def test_a_column_shows_what_fills_most_of_it():
    edges = np.linspace(0.0, 4.0, 5)
    long, short = [(0.0, 1.4), (1.45, 2.0), (3.0, 3.2)], [(1.4, 1.45), (2.0, 2.7)]
    assert prevailing([long, short], edges) == [[(0.0, 2.0)], [(2.0, 3.0)]]
    assert prevailing([], edges) == []
    assert prevailing([[]], edges) == [[]]


def test_pictures_are_written_whole(printed, tmp_path: Path):
    for suffix, begin in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        printed(*TREE.split(), "--timeline", f"t{suffix}")
        assert (tmp_path / f"t{suffix}").read_bytes().startswith(begin)


@pytest.mark.parametrize("cluster", ["alps-gh200:16", "dgx1-v100:1", "torus:9", "dragonfly:64"])
def test_no_cable_runs_through_what_it_does_not_join(draw, cluster):
    (axes,) = draw(f"topo {cluster} --plot t.png").axes
    places = np.concatenate([np.asarray(one.get_offsets()) for one in axes.findobj(PathCollection)])
    (cables,) = axes.findobj(LineCollection)
    for line in cables.get_segments():
        if line[0][1] != line[-1][1]:
            continue
        along = line[np.argsort(line[:, 0])]
        level = places[np.isclose(places[:, 1], line[0][1])]
        passed = level[(along[0, 0] + 1e-6 < level[:, 0]) & (level[:, 0] < along[-1, 0] - 1e-6)]
        assert (abs(np.interp(passed[:, 0], *along.T) - passed[:, 1]) > 0.02).all()


def test_the_legend_of_draws_stands_beside_them(draw):
    figure = draw(
        "simulate all_reduce --cluster star:4 --size 1M --jitter lognormal:0.2 --draws 5 --plot d.png"
    )
    (axes,) = figure.axes
    assert axes.get_title("left") == "direct all_reduce of 1 MiB on 4 ranks, disturbed"
    legend = axes.get_legend().get_window_extent()
    assert legend.y1 < axes.get_window_extent().y0


def test_measured_points_stand_on_a_scale_of_plain_times(draw):
    above, below = draw(f"compare {LOG} --cluster dgx-a100:2 --plot c.png").axes
    assert {label.get_text().split()[-1] for label in above.get_yticklabels(which="both")} <= {"us", "ms"}
    assert below.yaxis.label.get_window_extent().y1 < above.get_window_extent().y0
